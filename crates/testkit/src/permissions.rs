//! The permissions that service accounts use on a cluster, from its audit log. Each cluster that is
//! started here writes a file of them at its end, into the directory that [`RECORD`] names; a
//! permission that is in the roles and in none of the files is not required.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef};
use serde::{Deserialize, Serialize};

use crate::audit::{ObjectRef, Status, User};

/// The environment variable that names the directory.
pub const RECORD: &str = "OZ_PERMISSIONS";

/// Only requests of oz programs count; tests act under their accounts, too.
const PROGRAMS: &str = "oz-";
const ACCOUNT: &str = "system:serviceaccount:";
/// The messages of refusals with status 403 by admission, after the authorizer has agreed.
const ADMISSION: [&str; 5] = [
    "because it is being terminated",
    "denied the request",
    "denied request",
    "exceeded quota",
    "violates PodSecurity",
];

/// The scope of a use, as seen from the service account's own namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UsedIn {
    /// No namespace, or all at once.
    Cluster,
    /// The account's namespace.
    Own,
    /// Another namespace.
    Other,
}

/// One permission that a service account used, or was refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Use {
    /// The namespace and name of the service account, as in `oz-system:oz-operator`.
    pub account: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `bind` and so on.
    pub verb: String,
    /// The API group; empty for the core group.
    pub api_group: String,
    /// The plural, with the subresource, as in `pods/exec`.
    pub resource: String,
    /// The scope of the use.
    pub used_in: UsedIn,
    /// The name of the object. Empty if the object is in another namespace, and for objects that
    /// have no name beforehand.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The message of the API server if it refused the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Returns the combined content of the files in `directory`.
///
/// # Errors
///
/// Fails when one of them cannot be read. A directory that does not exist has no files.
pub fn recorded(directory: &Path) -> Result<BTreeSet<Use>> {
    let mut uses = BTreeSet::new();
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Ok(uses);
    };
    for entry in entries {
        let path = entry?.path();
        let failed = || format!("failed to read {}", path.display());
        for line in BufReader::new(File::open(&path).with_context(failed)?).lines() {
            uses.insert(serde_json::from_str(&line.with_context(failed)?).with_context(failed)?);
        }
    }
    Ok(uses)
}

/// A recorder that writes the uses to a file when it is dropped, if a directory is configured.
#[derive(Debug)]
pub(crate) struct Recorder {
    audit_log: PathBuf,
    /// The periods in which the API server was not ready after a restart: until it knows the roles
    /// again, it refuses clients that do not check its readiness.
    blind: Vec<(Timestamp, Timestamp)>,
}

impl Recorder {
    pub(crate) const fn new(audit_log: PathBuf) -> Self {
        Self {
            audit_log,
            blind: Vec::new(),
        }
    }

    /// Records that the API server was not ready from one instant to another.
    pub(crate) fn was_blind(&mut self, from: Timestamp, to: Timestamp) {
        self.blind.push((from, to));
    }

    fn record(&self, directory: &Path) -> Result<()> {
        let file = File::open(&self.audit_log)?;
        let uses = uses(BufReader::new(file), &self.blind)?;
        if uses.is_empty() {
            return Ok(());
        }
        std::fs::create_dir_all(directory)?;
        // The cluster's own directory has a unique name.
        let cluster = self.audit_log.parent().and_then(Path::file_name);
        let file = cluster.unwrap_or_default().to_string_lossy().into_owned();
        let mut file = BufWriter::new(File::create(directory.join(file + ".jsonl"))?);
        for one in uses {
            writeln!(file, "{}", serde_json::to_string(&one)?)?;
        }
        Ok(file.flush()?)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(directory) = std::env::var_os(RECORD)
            && let Err(error) = self.record(Path::new(&directory))
        {
            tracing::warn!(%error, "failed to record the permissions that were used");
        }
    }
}

/// Returns the uses in an audit log, each once.
fn uses(log: impl std::io::BufRead, blind: &[(Timestamp, Timestamp)]) -> Result<BTreeSet<Use>> {
    let mut uses = BTreeSet::new();
    let mut refused = Vec::new();
    let mut bindings = Bindings::default();
    for line in log.lines() {
        let line = line?;
        // Most lines belong to other users; parsing those takes longer than all the rest.
        if !line.contains(ACCOUNT) && !line.contains("rolebindings") {
            continue;
        }
        // The last line may be incomplete: the server was killed.
        let Ok(event) = serde_json::from_str::<Event>(&line) else {
            continue;
        };
        bindings.note(&event);
        let at = event.stage_timestamp;
        if event.response_status.code != 403 {
            uses.extend(event.uses());
        } else if !blind.iter().any(|(from, to)| (*from..=*to).contains(&at)) {
            refused.extend(event.uses().into_iter().map(|one| (at, one)));
        }
    }
    // An uninstallation deletes the bindings while the pods of their accounts still end.
    refused.retain(|(at, one)| one.refused.is_none() || !bindings.were_deleted(&one.account, *at));
    uses.extend(refused.into_iter().map(|(_, one)| one));
    Ok(uses)
}

/// The creations and deletions of ClusterRoleBindings, and of RoleBindings by their namespace.
#[derive(Default)]
struct Bindings(BTreeMap<(String, String), BTreeMap<Timestamp, bool>>);

impl Bindings {
    fn note(&mut self, event: &Event) {
        let Some(object) = &event.object_ref else {
            return;
        };
        let is_binding = ["clusterrolebindings", "rolebindings"].contains(&&*object.resource);
        if !is_binding || event.response_status.code >= 300 {
            return;
        }
        let exists = match event.verb.as_str() {
            "delete" => false,
            "create" | "patch" | "update" => true,
            _ => return,
        };
        let key = (object.namespace.clone(), object.name.clone());
        let times = self.0.entry(key).or_default();
        times.insert(event.request_received_timestamp, exists);
    }

    /// Checks whether a binding of the account did not exist at that instant because it was
    /// deleted. Bindings of oz have the name of their account, with or without a suffix.
    fn were_deleted(&self, account: &str, at: Timestamp) -> bool {
        let Some((own, account)) = account.split_once(':') else {
            return false;
        };
        let is_own = |namespace: &str, name: &str| {
            let suffix = name.strip_prefix(account);
            (namespace.is_empty() || namespace == own)
                && suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('-'))
        };
        let mut own = self
            .0
            .iter()
            .filter(|((namespace, name), _)| is_own(namespace, name));
        own.any(|(_, times)| {
            times
                .range(..=at)
                .next_back()
                .is_some_and(|(_, exists)| !exists)
        })
    }
}

/// An event of audit.k8s.io/v1, with the fields that are used here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    user: User,
    impersonated_user: Option<User>,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
    #[serde(default)]
    response_status: Status,
    request_object: Option<Body>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

/// The rules of a role, or the role of a binding.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    #[serde(default)]
    rules: Vec<PolicyRule>,
    role_ref: Option<RoleRef>,
}

impl Event {
    fn uses(self) -> Vec<Use> {
        let Some(account) = self.user.username.strip_prefix(ACCOUNT) else {
            return Vec::new();
        };
        let Some(object) = &self.object_ref else {
            return Vec::new();
        };
        if !self.user_agent.starts_with(PROGRAMS) || object.resource.is_empty() {
            return Vec::new();
        }
        // An impersonated request uses the rights of the impersonated user.
        let Some(whom) = &self.impersonated_user else {
            return self.uses_by_account(account);
        };
        let own = account.split(':').next().unwrap_or_default();
        let one = |kind: &str, name: &str, used_in| Use {
            account: account.to_owned(),
            verb: "impersonate".to_owned(),
            api_group: String::new(),
            resource: kind.to_owned(),
            used_in,
            name: name.to_owned(),
            refused: None,
        };
        let acting = whom.username.strip_prefix(ACCOUNT);
        // A service account's groups are not requested: they follow from its name.
        if let Some((namespace, name)) = acting.and_then(|it| it.split_once(':')) {
            let used_in = if namespace == own {
                UsedIn::Own
            } else {
                UsedIn::Other
            };
            let mut uses = vec![one("serviceaccounts", name, used_in)];
            uses.extend(
                acting
                    .map(|acting| self.uses_by_account(acting))
                    .unwrap_or_default(),
            );
            return uses;
        }
        let groups = whom.groups.iter().map(|group| ("groups", group));
        std::iter::once(("users", &whom.username))
            .chain(groups)
            .map(|(kind, name)| one(kind, name, UsedIn::Cluster))
            .collect()
    }

    /// Returns the permissions that the request requires of this account.
    fn uses_by_account(&self, account: &str) -> Vec<Use> {
        let (Some(object), Some((own, _))) = (&self.object_ref, account.split_once(':')) else {
            return Vec::new();
        };
        let used_in = match object.namespace.as_str() {
            "" => UsedIn::Cluster,
            namespace if namespace == own => UsedIn::Own,
            _ => UsedIn::Other,
        };
        let of = |verb: &str, api_group: &str, resource: &str, name: &str| Use {
            account: account.to_owned(),
            verb: verb.to_owned(),
            api_group: api_group.to_owned(),
            resource: resource.to_owned(),
            used_in,
            // A role that is bound in any namespace may be common to all users.
            name: match used_in {
                UsedIn::Other if verb != "bind" => String::new(),
                _ => name.to_owned(),
            },
            refused: None,
        };
        let mut resource = object.resource.clone();
        if !object.subresource.is_empty() {
            resource = format!("{resource}/{}", object.subresource);
        }
        let mut uses = vec![of(&self.verb, &object.api_group, &resource, &object.name)];
        let Status { code, message } = &self.response_status;
        let code = *code;
        if code == 403 && !ADMISSION.iter().any(|words| message.contains(words)) {
            uses.iter_mut()
                .for_each(|one| one.refused = Some(message.clone()));
            return uses;
        }
        // A patch that creates a missing object, as server-side apply does.
        if self.verb == "patch" && code == 201 {
            uses.push(of("create", &object.api_group, &resource, &object.name));
        }
        let Some(body) = self.request_object.as_ref().filter(|_| code < 300) else {
            return uses;
        };
        for rule in &body.rules {
            for api_group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    for verb in &rule.verbs {
                        uses.push(of(verb, api_group, resource, ""));
                    }
                }
            }
        }
        if let Some(role) = &body.role_ref {
            let resource = role.kind.to_lowercase() + "s";
            uses.push(of("bind", &role.api_group, &resource, &role.name));
        }
        uses
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(verb: &str, object: Value, status: Value, body: Value) -> String {
        json!({
            "stage": "ResponseComplete", "verb": verb, "userAgent": "oz-operator/0.1.0",
            "user": {"username": "system:serviceaccount:oz-system:oz-operator"},
            "objectRef": object, "responseStatus": status, "requestObject": body,
            "requestReceivedTimestamp": "2026-01-01T00:00:10.000000Z",
            "stageTimestamp": "2026-01-01T00:00:10.000000Z",
        })
        .to_string()
    }

    fn said(lines: &[String]) -> Vec<String> {
        let uses = uses(lines.join("\n").as_bytes(), &[]).unwrap();
        let said = uses.iter().map(|one| {
            let mark = if one.refused.is_some() { "not " } else { "" };
            format!(
                "{mark}{} {}/{} {:?} {}",
                one.verb, one.api_group, one.resource, one.used_in, one.name
            )
        });
        said.collect()
    }

    #[test]
    fn requested_permission_counts_as_used_with_name_in_own_namespace() {
        let ok = json!({"code": 200});
        let pod = json!({"resource": "pods", "subresource": "log", "namespace": "a", "name": "b"});
        let secret = json!({"resource": "secrets", "namespace": "oz-system", "name": "key"});
        let lines = [
            line("get", pod.clone(), ok.clone(), json!(null)),
            line("get", pod, ok.clone(), json!(null)),
            line("get", secret, ok, json!(null)),
            "{\"half".to_owned(),
        ];
        assert_eq!(
            said(&lines),
            ["get /pods/log Other ", "get /secrets Own key"]
        );
    }

    #[test]
    fn patch_that_creates_counts_as_create() {
        let map = json!({"resource": "configmaps", "namespace": "oz-system", "name": "keys"});
        let lines = [line("patch", map, json!({"code": 201}), json!(null))];
        assert_eq!(
            said(&lines),
            ["create /configmaps Own keys", "patch /configmaps Own keys"]
        );
    }

    #[test]
    fn granted_or_bound_permission_counts_as_used() {
        let group = "rbac.authorization.k8s.io";
        let role = json!({"apiGroup": group, "resource": "roles", "namespace": "a", "name": "x"});
        let rules = json!({"rules": [
            {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
        ]});
        let binding = json!({"apiGroup": group, "resource": "clusterrolebindings", "name": "x"});
        let to = json!({"roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"}});
        let created = json!({"code": 201});
        let lines = [
            line("create", role, created.clone(), rules),
            line("create", binding, created, to),
        ];
        assert_eq!(
            said(&lines),
            [
                "bind rbac.authorization.k8s.io/clusterroles Cluster view",
                "create /pods/exec Other ",
                "create rbac.authorization.k8s.io/clusterrolebindings Cluster x",
                "create rbac.authorization.k8s.io/roles Other ",
                "get /pods/exec Other ",
            ]
        );
    }

    #[test]
    fn a_refusal_counts_unless_admission_made_it_or_the_server_knew_no_roles_yet() {
        let pods = json!({"resource": "pods", "namespace": "a"});
        let status = |message: &str| json!({"code": 403, "message": message});
        let denied = line("list", pods.clone(), status("cannot list"), json!(null));
        let webhook = status("admission webhook \"x\" denied the request: no");
        let denied_later = line("create", pods.clone(), webhook, json!(null));
        let lines = [denied.clone(), denied_later];
        assert_eq!(
            said(&lines),
            ["create /pods Other ", "not list /pods Other "]
        );

        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let blind = (at("2026-01-01T00:00:09Z"), at("2026-01-01T00:00:11Z"));
        assert!(uses(denied.as_bytes(), &[blind]).unwrap().is_empty());
    }

    #[test]
    fn a_refusal_after_the_bindings_of_its_account_were_deleted_does_not_count() {
        let status = json!({"code": 403, "message": "cannot get"});
        let denied = line("get", json!({"resource": "nodes"}), status, json!(null));
        let at = |second: u8, line: String| line.replace("00:10.0", &format!("00:{second:02}.0"));
        let binding = |verb: &str, namespace: &str, name: &str| {
            let resource = if namespace.is_empty() {
                "clusterrolebindings"
            } else {
                "rolebindings"
            };
            let object = json!({"resource": resource, "namespace": namespace, "name": name});
            line(verb, object, json!({"code": 200}), json!(null))
                .replace("system:serviceaccount:oz-system:oz-operator", "admin")
        };
        let delete = |second, namespace, name| at(second, binding("delete", namespace, name));
        let refused = ["not get /nodes Cluster "];
        for gone in [
            delete(9, "", "oz-operator"),
            delete(9, "", "oz-operator-gate"),
            delete(9, "oz-system", "oz-operator"),
        ] {
            // The line of a request that was answered first may come later.
            assert_eq!(said(&[gone.clone(), denied.clone()]), [""; 0]);
            assert_eq!(said(&[denied.clone(), gone.clone()]), [""; 0]);
            let before = at(8, denied.clone());
            assert_eq!(said(&[before, gone]), refused);
        }
        for other in [
            delete(9, "", "oz-operators"),
            delete(9, "", "oz-webhook"),
            delete(9, "shop", "oz-operator"),
            delete(11, "", "oz-operator"),
        ] {
            assert_eq!(said(&[other, denied.clone()]), refused);
        }
        let again = [
            delete(8, "", "oz-operator"),
            at(9, binding("create", "", "oz-operator")),
            denied.clone(),
        ];
        assert_eq!(said(&again), refused);
    }

    #[test]
    fn impersonated_request_counts_as_impersonation_and_use_by_account() {
        let pods = json!({"resource": "pods", "namespace": "a"});
        let as_account = |account: &str| {
            let whom = format!(
                r#""impersonatedUser":{{"username":"{ACCOUNT}{account}","groups":["g"]}},"stage""#
            );
            line("list", pods.clone(), json!({"code": 200}), json!(null))
                .replace(r#""stage""#, &whom)
        };
        assert_eq!(
            said(&[as_account("oz-system:helper"), as_account("a:other")]),
            [
                "list /pods Own ",
                "list /pods Other ",
                "impersonate /serviceaccounts Own helper",
                "impersonate /serviceaccounts Other other",
            ]
        );
    }

    #[test]
    fn requests_of_other_clients_of_account_are_ignored() {
        let pods = json!({"resource": "pods", "namespace": "a"});
        let ok = json!({"code": 200});
        let lines = [
            line("get", pods.clone(), ok.clone(), json!(null)).replace("oz-operator/", "kubectl/"),
            line("get", pods, ok, json!(null)).replace("system:serviceaccount:oz-system:", ""),
        ];
        assert!(said(&lines).is_empty());
    }
}
