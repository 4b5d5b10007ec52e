//! The seed of a workspace: a Job that clones its repositories, and the NetworkPolicy of its pod. The script ensures
//! that each workspace is seeded once: it writes the list of clones last, and clones nothing if the list exists.

use std::collections::BTreeSet;

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::NetworkPolicyEgressRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::harness::{Repository, Workspace};
use oz_api::{encode, labels};
use oz_core::confine::json::append;
use oz_core::confine::security::{confined, footprint, unattended};
use oz_core::confine::{NameServer, network};
use serde_json::{Value, json};

use super::objects::{WORKSPACE_KIND as KIND, closed_but_for};
use super::overlay::{optional, variable};
use super::pod::{WORKSPACE_LABEL, claim_name};
use super::reach::{LINK_LOCAL, all_but};
use super::stored::StoredObject;
use super::{child, reserved};

/// Clones the repositories, and writes the list of clones.
const SCRIPT: &str = include_str!("seed.sh");
/// The mount path of the claim.
const MOUNT_PATH: &str = "/workspace";
/// The mount path of the Secret of a repository.
const CREDENTIALS: &str = "/credentials";
/// The only user of the pod; ssh requires an entry with its name.
const PASSWD: &str = "seed:x:65532:65532::/tmp:/bin/sh\n";
/// Annotation of the pod that the downward API mounts as the passwd file.
const PASSWD_ANNOTATION: &str = "oz.wizardofoz.co/passwd";
/// The deadline of the Job, in seconds.
pub(super) const DEADLINE_SECONDS: i64 = 1800;
/// The value of `depth` for a clone with its complete history.
const WHOLE_HISTORY: i32 = 0;
/// The maximum number of new pods after a failure.
const RETRIES: i32 = 2;

/// The settings of the operator for seeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// An image with git, ssh and a shell; without it no workspace is seeded.
    pub image: Option<String>,
    /// Pull policy of the image.
    pub pull_policy: String,
    /// Ranges that no seed may connect to, in addition to link-local addresses.
    pub denied: Vec<IpNet>,
}

/// Returns the name of the seed Job of a workspace.
#[must_use]
pub fn job_name(workspace: &str) -> String {
    format!("{workspace}-seed")
}

/// Returns the name of the NetworkPolicy for the pods of that Job.
#[must_use]
pub fn policy_name(workspace: &str) -> String {
    format!("{}-egress", job_name(workspace))
}

/// Returns the repositories of a workspace.
pub fn repositories(workspace: &Workspace) -> &[Repository] {
    let seed = workspace.spec.seed.as_ref();
    seed.map_or(&[], |seed| seed.repos.as_slice())
}

/// Checks whether a seed names Secrets, which its author must be able to read.
#[must_use]
pub fn names_secrets(workspace: &Workspace) -> bool {
    let mut all = repositories(workspace).iter();
    all.any(|it| it.credentials_secret_ref.is_some())
}

/// Returns the digest of the seed of a workspace, which is immutable: the stamp contains it.
#[must_use]
pub fn digest(workspace: &Workspace) -> String {
    encode::digest(&workspace.spec.seed)
}

/// Creates the seed Job of a workspace with an image.
#[must_use]
pub fn job(workspace: &StoredObject<'_, Workspace>, settings: &Settings, image: &str) -> Value {
    let name = workspace.name();
    let repositories = repositories(workspace);
    let mut volumes = vec![
        json!({"name": reserved::WORKSPACE_VOLUME, "persistentVolumeClaim": {"claimName": claim_name(name)}}),
        json!({"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}),
        json!({"name": "passwd", "downwardAPI": {"items": [{
            "path": "passwd",
            "fieldRef": {"fieldPath": format!("metadata.annotations['{PASSWD_ANNOTATION}']")},
        }]}}),
    ];
    let mut clones = Vec::new();
    for (number, repository) in repositories.iter().enumerate() {
        let mut clone = container(
            settings,
            image,
            &format!("repo-{number}"),
            &variables(number, repository),
        );
        if let Some(secret) = &repository.credentials_secret_ref {
            let volume = format!("credentials-{number}");
            let mount = json!({"name": volume, "mountPath": CREDENTIALS, "readOnly": true});
            append(&mut clone["volumeMounts"], [mount]);
            append(&mut clone["env"], [variable("OZ_CREDENTIALS", CREDENTIALS)]);
            let source = json!({"secretName": secret.name, "defaultMode": 0o440});
            volumes.push(json!({"name": volume, "secret": source}));
        }
        clones.push(clone);
    }
    let last = [variable("OZ_MANIFEST", &manifest(repositories))];
    let spec = json!({
        "initContainers": clones,
        "containers": [container(settings, image, "manifest", &last)],
        "volumes": volumes,
    });
    let mut pod = json!({
        "metadata": {
            "labels": {WORKSPACE_LABEL: labels::value(name)},
            "annotations": {PASSWD_ANNOTATION: PASSWD},
        },
        "spec": unattended(spec, 5, Some(reserved::AGENT_USER)),
    });
    workspace.owner(KIND).mark_template(&mut pod["metadata"]);
    let metadata = metadata(workspace, job_name(name));
    child::job(&metadata, pod, RETRIES, Some(DEADLINE_SECONDS))
}

/// Creates the NetworkPolicy for the pods of that Job: no ingress, and egress to name servers and to the ports of its
/// repositories. Link-local addresses, where cloud providers serve metadata, and the ranges in the settings, such as
/// the API server's address, are excluded, since the author of a workspace chooses the URLs.
#[must_use]
pub fn network_policy(workspace: &StoredObject<'_, Workspace>, settings: &Settings) -> Value {
    let ports = repositories(workspace).iter().map(|it| port(&it.url));
    let ports: BTreeSet<u16> = ports.collect();
    let ports = ports.into_iter();
    let ports = ports.map(|port| network::port("TCP", port, port));
    let servers = NetworkPolicyEgressRule {
        to: Some(all_but(&LINK_LOCAL, &settings.denied)),
        ports: Some(ports.collect()),
    };
    let metadata = metadata(workspace, policy_name(workspace.name()));
    let open = vec![NameServer::anywhere(), servers];
    closed_but_for(&workspace.owner(KIND), &metadata, open)
}

/// Returns the port of the server of a repository.
fn port(url: &str) -> u16 {
    let (usual, rest) = match url.split_once("://") {
        Some(("ssh", rest)) => (22, rest),
        Some((_, rest)) => (443, rest),
        None => (443, url),
    };
    let (_, host) = user_and_host(rest);
    // An address of IPv6 has colons of its own, in brackets.
    let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
    let said = after
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    said.unwrap_or(usual)
}

/// Returns the list of clones for agents, without the users that URLs of ssh have.
fn manifest(repositories: &[Repository]) -> String {
    let entry = |it: &Repository| {
        let mut entry =
            json!({"url": without_user(&it.url), "path": it.path.as_deref().unwrap_or_default()});
        if let Some(branch) = &it.branch {
            entry["branch"] = json!(branch);
        }
        entry
    };
    Value::from_iter(repositories.iter().map(entry)).to_string()
}

fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (user, _) = user_and_host(rest);
    let after = user.and_then(|user| rest.strip_prefix(user)?.strip_prefix('@'));
    format!("{scheme}://{}", after.unwrap_or(rest))
}

fn variables(number: usize, repository: &Repository) -> [Value; 5] {
    [
        variable("OZ_NUMBER", &number.to_string()),
        variable("OZ_URL", &repository.url),
        optional("OZ_PATH", repository.path.as_deref()),
        optional("OZ_BRANCH", repository.branch.as_deref()),
        variable(
            "OZ_DEPTH",
            &repository.depth.unwrap_or(WHOLE_HISTORY).to_string(),
        ),
    ]
}

fn container(settings: &Settings, image: &str, name: &str, variables: &[Value]) -> Value {
    let common = [
        variable("GIT_ALLOW_PROTOCOL", "https:ssh"),
        variable("GIT_CONFIG_GLOBAL", "/dev/null"),
        variable("GIT_CONFIG_NOSYSTEM", "1"),
        variable("GIT_LFS_SKIP_SMUDGE", "1"),
        variable("GIT_TERMINAL_PROMPT", "0"),
        variable("HOME", "/tmp"),
        variable("OZ_WORKSPACE", MOUNT_PATH),
    ];
    json!({
        "name": name,
        "image": image,
        "imagePullPolicy": settings.pull_policy,
        "command": ["/bin/sh", "-c", SCRIPT],
        "env": common.iter().chain(variables).collect::<Vec<_>>(),
        "resources": footprint("50m", "64Mi", "1Gi"),
        "securityContext": confined(reserved::AGENT_USER, true),
        // What git said last is why it failed.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": reserved::WORKSPACE_VOLUME, "mountPath": MOUNT_PATH},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "passwd", "mountPath": "/etc/passwd", "subPath": "passwd", "readOnly": true},
        ],
    })
}

/// Returns the metadata of an object that ends with a workspace.
pub(super) fn metadata(workspace: &StoredObject<'_, Workspace>, name: String) -> ObjectMeta {
    let label = (WORKSPACE_LABEL, workspace.name());
    child::labelled(workspace.owner(KIND).owned(name), label, &[])
}

/// Splits a URL without its scheme into the user, if there is one, and the host with its port.
pub(crate) fn user_and_host(rest: &str) -> (Option<&str>, &str) {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_repository_is_the_one_in_its_url() {
        for (url, expected) in [
            ("https://git.test/a.git", 443),
            ("https://git.test:8443/a.git", 8443),
            ("ssh://git@git.test/a.git", 22),
            ("ssh://git@git.test:2222/a:1.git", 2222),
            ("https://[fd00::1]/a", 443),
            ("https://[fd00::1]:444/a", 444),
            ("https://git.test:none/a", 443),
        ] {
            assert_eq!(port(url), expected, "{url}");
        }
    }

    #[test]
    fn the_list_names_no_user() {
        for (url, listed) in [
            ("ssh://git@git.test:22/a@b.git", "ssh://git.test:22/a@b.git"),
            ("ssh://git@git.test?a@b/c", "ssh://git.test?a@b/c"),
            ("ssh://git@a@git.test#x", "ssh://git.test#x"),
            ("https://git.test/a@b", "https://git.test/a@b"),
        ] {
            let one = Repository {
                url: url.to_owned(),
                branch: Some("main".to_owned()),
                ..Repository::default()
            };
            let expected = json!([{"branch": "main", "path": "", "url": listed}]);
            assert_eq!(manifest(&[one]), expected.to_string());
        }
    }
}
