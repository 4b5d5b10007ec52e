//! Admission of runs.

use oz_api::glob::Glob;
use oz_api::harness::{HarnessRun, InteractiveMode, RunMode, Workspace};
use oz_core::validate::{self, Violation, dns_subdomain, emergency_reason, readable};

use super::found::Found;
use crate::policy::Matching;
use crate::template::Resolved;

/// The maximum length of the name of a run: it is also the name of its Job and a label value of its pods.
pub const MAX_NAME: usize = 63;
/// The maximum length of a prompt, in bytes.
pub const MAX_PROMPT: usize = 256 * 1024;

/// Returns all violations of a run, without its template.
#[must_use]
pub fn run(run: &HarnessRun) -> Vec<Violation> {
    let mut found = Found::default();
    let spec = &run.spec;
    if let Some(name) = run.metadata.name.as_deref()
        && name.len() > MAX_NAME
    {
        let message = format!("must be at most {MAX_NAME} characters: its Job has the same name");
        found.value("metadata.name", message, name);
    }
    if let Err(error) = dns_subdomain(&spec.template_ref.name) {
        found.value("spec.templateRef.name", error, &spec.template_ref.name);
    }
    if let Some(workspace) = &spec.workspace_ref
        && let Err(error) = dns_subdomain(workspace)
    {
        found.value("spec.workspaceRef", error, workspace);
    }
    prompt(&mut found, run);
    found.duration("spec.timeout", spec.timeout.as_ref());
    if !(0..=10).contains(&spec.retries) {
        found.value("spec.retries", "must be from 0 to 10", spec.retries);
    }
    if let Some(seconds) = spec
        .ttl_seconds_after_finished
        .filter(|seconds| *seconds < 0)
    {
        found.value(
            "spec.ttlSecondsAfterFinished",
            "must not be negative",
            seconds,
        );
    }
    let names = spec.extra_env.iter().map(|one| one.name.as_str());
    found.once("spec.extraEnv", "name", names);
    for (number, one) in spec.extra_env.iter().enumerate() {
        found.variable(&format!("spec.extraEnv[{number}].name"), &one.name);
        if one.value_from.is_some() {
            let message = "is not allowed: give a value, or let a BrokerPolicy grant a credential";
            found.add(format!("spec.extraEnv[{number}].valueFrom"), message);
        }
    }
    overrides(&mut found, run);
    if let Some(reason) = &spec.reason {
        found.0.extend(match spec.is_emergency() {
            true => emergency_reason("spec.reason", reason),
            false => readable("spec.reason", reason),
        });
    }
    if let Some(ticket) = &spec.ticket
        && let Err(error) = validate::ticket(ticket)
    {
        found.value("spec.ticket", error, ticket);
    }
    found.0
}

fn prompt(found: &mut Found, run: &HarnessRun) {
    let (prompt, source) = (&run.spec.prompt, &run.spec.prompt_from);
    if prompt.is_some() == source.is_some() {
        found.add(
            "spec.prompt",
            "exactly one of prompt and promptFrom must be set",
        );
    }
    if prompt
        .as_ref()
        .is_some_and(|prompt| prompt.len() > MAX_PROMPT)
    {
        let message =
            format!("must be at most {MAX_PROMPT} bytes: put a longer one into the workspace");
        found.add("spec.prompt", message);
    }
    let Some(source) = source else {
        return;
    };
    if source.config_map_key_ref.is_some() == source.secret_key_ref.is_some() {
        let message = "exactly one of configMapKeyRef and secretKeyRef must be set";
        found.add("spec.promptFrom", message);
    }
    for (field, reference) in [
        ("configMapKeyRef", &source.config_map_key_ref),
        ("secretKeyRef", &source.secret_key_ref),
    ] {
        let Some(reference) = reference else { continue };
        if let Err(error) = dns_subdomain(&reference.name) {
            found.value(
                format!("spec.promptFrom.{field}.name"),
                error,
                &reference.name,
            );
        }
        let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if reference.key.is_empty() || !reference.key.bytes().all(is_key) {
            let message = "must be a key: letters, digits, '-', '_' and '.'";
            found.value(
                format!("spec.promptFrom.{field}.key"),
                message,
                &reference.key,
            );
        }
    }
}

fn overrides(found: &mut Found, run: &HarnessRun) {
    let Some(overrides) = &run.spec.interactive_overrides else {
        return;
    };
    if run.spec.mode != RunMode::Interactive {
        found.add("spec.interactiveOverrides", "need mode Interactive");
    }
    for (field, text) in [
        ("idleTimeout", &overrides.idle_timeout),
        ("detachIdleTimeout", &overrides.detach_idle_timeout),
        ("detachTimeout", &overrides.detach_timeout),
        ("maxLifetime", &overrides.max_lifetime),
    ] {
        found.duration(&format!("spec.interactiveOverrides.{field}"), text.as_ref());
    }
}

/// Returns the violations of an update: the spec is immutable. An update of an object that is being deleted has none.
#[must_use]
pub fn run_update(old: &HarnessRun, new: &HarnessRun) -> Vec<Violation> {
    let is_going = new.metadata.deletion_timestamp.is_some();
    if is_going || old.spec == new.spec {
        return Vec::new();
    }
    vec![Violation::new(
        "spec",
        "is immutable: submit a new run instead",
    )]
}

/// Returns the violations of a run with an existing template, with these policies for it and this workspace, if that
/// exists.
#[must_use]
pub fn run_of_template(
    run: &HarnessRun,
    template: &Resolved,
    policies: &Matching<'_>,
    workspace: Option<&Workspace>,
) -> Vec<Violation> {
    let mut found = Found::default();
    let name = &run.spec.template_ref.name;
    if run.spec.mode == RunMode::Interactive {
        if template.interactive.mode == InteractiveMode::Batch {
            let message =
                format!("template {name} takes one prompt only: it has no interactive.mode");
            found.value("spec.mode", message, "Interactive");
        }
        if !policies.may_interact() {
            let message = format!(
                "no BrokerPolicy for template {name} allows interactive runs: set grants.runs.interact in one"
            );
            found.value("spec.mode", message, "Interactive");
        }
    }
    if let Some(workspace) = workspace
        && !lets(&workspace.spec.templates, name)
    {
        let message =
            format!("runs of template {name} may not use it: its templates do not name that");
        match &run.spec.workspace_ref {
            Some(workspace) => found.value("spec.workspaceRef", message, workspace),
            None => found.add("spec.workspaceRef", message),
        }
    }
    found.0
}

/// Checks whether one of these globs matches; an empty list matches any name.
fn lets(globs: &[String], name: &str) -> bool {
    let mut read = globs.iter().filter_map(|text| text.parse::<Glob>().ok());
    globs.is_empty() || read.any(|glob| glob.matches(name))
}
