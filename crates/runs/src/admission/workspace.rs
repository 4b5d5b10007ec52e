//! Admission of workspaces.

use oz_api::glob::Glob;
use oz_api::harness::{Repository, Workspace};
use oz_core::validate::{Amount, Violation, dns_subdomain};

use super::found::Found;
use crate::seed::user_and_host;

/// Returns all violations of a workspace, without other objects.
#[must_use]
pub fn workspace(workspace: &Workspace) -> Vec<Violation> {
    let mut found = Found::default();
    let spec = &workspace.spec;
    let size = &spec.storage.size.0;
    match size.parse::<Amount>() {
        Ok(amount) if amount > Amount::ZERO => {}
        Ok(_) => found.value("spec.storage.size", "must be greater than zero", size),
        Err(error) => found.value("spec.storage.size", error.to_string(), size),
    }
    if spec.seed.is_some() && spec.source.is_some() {
        found.add("spec.seed", "at most one of seed and source may be set");
    }
    if let Some(source) = &spec.source {
        if source.workspace_ref.is_some() == source.volume_snapshot_name.is_some() {
            let message = "exactly one of workspaceRef and volumeSnapshotName must be set";
            found.add("spec.source", message);
        }
        if source.workspace_ref.is_some() && source.workspace_ref == workspace.metadata.name {
            found.add("spec.source.workspaceRef", "must be another workspace");
        }
    }
    for (number, glob) in spec.templates.iter().enumerate() {
        if let Err(error) = glob.parse::<Glob>() {
            found.value(format!("spec.templates[{number}]"), error.to_string(), glob);
        }
    }
    let repositories = spec.seed.iter().flat_map(|seed| &seed.repos);
    let repositories: Vec<&Repository> = repositories.collect();
    for (number, one) in repositories.iter().enumerate() {
        let field = format!("spec.seed.repos[{number}]");
        repository(&mut found, &field, one, repositories.len() > 1);
    }
    paths(&mut found, &repositories);
    found.0
}

fn repository(found: &mut Found, field: &str, one: &Repository, is_one_of_many: bool) {
    url(found, &format!("{field}.url"), &one.url);
    match &one.path {
        None if is_one_of_many => {
            let message = "must be set where there is more than one repository";
            found.add(format!("{field}.path"), message);
        }
        Some(path) if parts(path).is_none() => {
            let message = "must be a relative path without '..', not .paddock and not .home";
            found.value(format!("{field}.path"), message, path);
        }
        _ => {}
    }
    if let Some(branch) = &one.branch
        && (branch.starts_with('-')
            || branch
                .chars()
                .any(|next| next.is_whitespace() || next.is_control()))
    {
        found.value(
            format!("{field}.branch"),
            "must be the name of a branch",
            branch,
        );
    }
    if let Some(depth) = one.depth.filter(|depth| *depth < 0) {
        found.value(format!("{field}.depth"), "must not be negative", depth);
    }
    if one.broker_credential_ref.is_some() {
        if one.credentials_secret_ref.is_some() {
            let message = "at most one of brokerCredentialRef and credentialsSecretRef may be set";
            found.add(field, message);
        }
        if !one.url.starts_with("https://") {
            let message = "needs a URL with https: a broker issues no ssh key";
            found.add(format!("{field}.brokerCredentialRef"), message);
        }
    }
    if let Some(secret) = &one.credentials_secret_ref
        && let Err(error) = dns_subdomain(&secret.name)
    {
        found.value(
            format!("{field}.credentialsSecretRef.name"),
            error,
            &secret.name,
        );
    }
}

/// Checks the URL of a repository. An https URL must have no user: each run could read it in the workspace.
fn url(found: &mut Found, field: &str, url: &str) {
    let rest = url.strip_prefix("https://").map(|rest| (true, rest));
    let rest = rest.or_else(|| url.strip_prefix("ssh://").map(|rest| (false, rest)));
    let Some((is_https, rest)) = rest else {
        found.value(
            field,
            "must begin with https:// or ssh://, in lower case",
            hidden(url),
        );
        return;
    };
    let (user, host) = user_and_host(rest);
    if is_https && user.is_some() {
        let message = "must have no user and no password: name a Secret in credentialsSecretRef";
        found.value(field, message, hidden(url));
    }
    if user.is_some_and(|user| user.contains(':')) && !is_https {
        found.value(field, "must have no password", hidden(url));
    }
    let is_odd = |next: char| next.is_whitespace() || next.is_control() || next == '\\';
    if host.is_empty() || host.starts_with(['-', ':']) || url.chars().any(is_odd) {
        found.value(field, "must have a host, and no spaces", hidden(url));
    }
}

/// Returns a URL without the part that may be a password.
fn hidden(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(start), Some(at)) if at > start => format!("{}://…{}", &url[..start], &url[at..]),
        _ => url.to_owned(),
    }
}

/// Returns the parts of a path below the workspace; `None` for any other path.
fn parts(path: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    let first = *parts.first()?;
    let is_ours = first == ".paddock" || first == ".home";
    let is_odd = path.chars().any(|next| next.is_control() || next == '\\');
    let leaves = path.starts_with('/') || parts.contains(&"..");
    (!is_ours && !is_odd && !leaves).then_some(parts)
}

/// Checks that no repository has the path of another one, or a path inside it.
fn paths(found: &mut Found, repositories: &[&Repository]) {
    let mut seen: Vec<Vec<&str>> = Vec::new();
    for (number, one) in repositories.iter().enumerate() {
        let Some((path, parts)) = one.path.as_ref().and_then(|it| Some((it, parts(it)?))) else {
            continue;
        };
        if seen
            .iter()
            .any(|other| other.starts_with(&parts) || parts.starts_with(other))
        {
            let message = "must be neither the path of another repository, nor inside or around it";
            found.value(format!("spec.seed.repos[{number}].path"), message, path);
        }
        seen.push(parts);
    }
}

/// Returns the violations of an update: storage, seed and source are immutable. An update of an object that is being
/// deleted has none.
#[must_use]
pub fn workspace_update(old: &Workspace, new: &Workspace) -> Vec<Violation> {
    let mut found = Found::default();
    if new.metadata.deletion_timestamp.is_some() {
        return found.0;
    }
    for (field, is_same) in [
        ("storage", old.spec.storage == new.spec.storage),
        ("seed", old.spec.seed == new.spec.seed),
        ("source", old.spec.source == new.spec.source),
    ] {
        if !is_same {
            let message = "is immutable: create a new workspace instead";
            found.add(format!("spec.{field}"), message);
        }
    }
    found.0
}
