//! `cargo xtask permissions`: checks whether the roles in `deploy/rbac` contain the permissions that oz needs
//! and no others. Needed permissions are those that oz used or granted according to the API servers of all
//! tests. The last step of `cargo xtask test`; the separate command also covers the permissions that tests on
//! a real node used.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use oz_api::names;
use oz_testkit::permissions::{Use, UsedIn, recorded};
use serde::de::DeserializeOwned;
use serde_json::Value;

use xtask::programs;

/// A permission that no test without a node uses, or one that a test expects to be denied.
struct Exception {
    account: &'static str,
    verb: &'static str,
    resource: &'static str,
    /// Whether it is used on a real node: it must be, once the uses there are known.
    on_node: bool,
    why: &'static str,
}

/// Permissions for a failure that tests do not cause each time, or for an action that only a node performs.
const UNUSED: &[Exception] = &[
    lost_answer("oz-operator", "get", "auditevents.crds.wizardofoz.co"),
    lost_answer("oz-webhook", "get", "auditevents.crds.wizardofoz.co"),
    lost_answer("oz-operator", "get", "networkpolicies.networking.k8s.io"),
    Exception {
        account: "oz-operator",
        verb: "patch",
        resource: "networkpolicies.networking.k8s.io",
        on_node: false,
        why: "after a crash between the creation of NetworkPolicy and pod, if the template changed \
            in that time",
    },
    Exception {
        account: "oz-operator",
        verb: "patch",
        resource: "pods",
        on_node: false,
        why: "an earlier deadline for a pod that started late: kwok's start at once",
    },
    Exception {
        account: "oz-webhook",
        verb: "patch",
        resource: "events.events.k8s.io",
        on_node: false,
        why: "the very same event again within minutes is counted up",
    },
    Exception {
        account: "oz-operator",
        verb: "get",
        resource: "workspaces.paddock.dev",
        on_node: false,
        why: "before the claim of a workspace is given up that is not in the list: it is, after a restart",
    },
    Exception {
        account: "oz-operator",
        verb: "delete",
        resource: "accessrequestapprovals.crds.wizardofoz.co",
        on_node: false,
        why: "an hour after an answer was given, once its request is gone",
    },
    Exception {
        account: "oz-operator",
        verb: "delete",
        resource: "accessreviews.crds.wizardofoz.co",
        on_node: false,
        why: "as long after a review was written as records are kept",
    },
    Exception {
        account: "oz-operator",
        verb: "patch",
        resource: "accessreviews.crds.wizardofoz.co",
        on_node: false,
        why: "its seal, once it is written or a key is replaced: a test may end before",
    },
    Exception {
        account: "oz-operator",
        verb: "get",
        resource: "accessreviews.crds.wizardofoz.co",
        on_node: false,
        why: "what stands where a review is to be: the answer to its creation was lost, or oz did not make it",
    },
    made_again("oz-operator"),
    lost_answer("oz-broker", "get", "auditevents.crds.wizardofoz.co"),
    Exception {
        account: "oz-broker",
        verb: "create",
        resource: "events.events.k8s.io",
        on_node: false,
        why: "about a run that cannot be read, and about a clock that is off",
    },
    Exception {
        account: "oz-broker",
        verb: "patch",
        resource: "events.events.k8s.io",
        on_node: false,
        why: "the very same event again within minutes is counted up",
    },
    lost_answer("oz-gate", "get", "auditevents.crds.wizardofoz.co"),
    of_the_gate("create", "configmaps", FIRST),
    of_the_gate("patch", "configmaps", FIRST),
    of_the_gate("patch", "secrets", FIRST),
    of_the_gate("update", "secrets", FIRST),
    of_the_gate(
        "create",
        "events.events.k8s.io",
        "about a clock that is off",
    ),
    of_the_gate(
        "patch",
        "events.events.k8s.io",
        "the very same event again within minutes is counted up",
    ),
    of_the_gate("impersonate", "serviceaccounts", AS_ITSELF),
    of_the_gate(
        "impersonate",
        "userextras/oz-ticket.authentication.k8s.io",
        AS_ITSELF,
    ),
    left_over("mutatingwebhookconfigurations.admissionregistration.k8s.io"),
    left_over("validatingwebhookconfigurations.admissionregistration.k8s.io"),
    no_adoption("copies.example.org"),
    no_adoption("maintenances.example.org"),
    no_adoption("sprints.example.org"),
    Exception {
        account: "oz-composites",
        verb: "patch",
        resource: "copies.example.org",
        on_node: false,
        why: "the finalizer on parents, which this one does not need as long as nothing of it has an end",
    },
];

/// The reason for permissions on keys and checkpoints that all processes share.
const FIRST: &str =
    "whichever process is first makes or replaces it: tested with operator and webhook";
/// The reason for the permission without which no session opens through the gate.
const AS_ITSELF: &str =
    "the audit log contains the impersonated user of a session, and not the impersonation";

const fn of_the_gate(verb: &'static str, resource: &'static str, why: &'static str) -> Exception {
    Exception {
        account: "oz-gate",
        verb,
        resource,
        on_node: false,
        why,
    }
}

const fn no_adoption(resource: &'static str) -> Exception {
    Exception {
        account: "oz-composites",
        verb: "get",
        resource,
        on_node: false,
        why: "adoption requires a read of the parent; the examples have no objects to adopt",
    }
}

const fn lost_answer(
    account: &'static str,
    verb: &'static str,
    resource: &'static str,
) -> Exception {
    Exception {
        account,
        verb,
        resource,
        on_node: false,
        why: "asked when it is there already: the answer to its creation was lost",
    }
}

const fn made_again(account: &'static str) -> Exception {
    Exception {
        account,
        verb: "create",
        resource: "secrets",
        on_node: false,
        why: "the audit key that was deleted, which the operator makes again",
    }
}

const fn left_over(resource: &'static str) -> Exception {
    Exception {
        account: "oz-webhook",
        verb: "update",
        resource,
        on_node: false,
        why: "fields of other owners that server-side apply keeps; tested in crates/admission, as \
            another user",
    }
}

/// An exception for every resource.
const ANY: &str = "*";

/// Denials that tests expect.
const REFUSED: &[Exception] = &[
    not_listed("execaccessrequests.crds.wizardofoz.co"),
    not_listed("podaccesstemplates.crds.wizardofoz.co"),
    not_listed("rolebindings.rbac.authorization.k8s.io"),
    not_listed("roles.rbac.authorization.k8s.io"),
    Exception {
        account: "oz-operator",
        verb: "create",
        resource: "auditevents.crds.wizardofoz.co",
        on_node: false,
        why: "nothing is granted while records cannot be written",
    },
    Exception {
        account: "oz-operator",
        verb: "list",
        resource: "auditevents.crds.wizardofoz.co",
        on_node: false,
        why: "the same tests remove every right to write records: the duration of sessions is not \
            recorded then",
    },
    Exception {
        account: "oz-webhook",
        verb: "create",
        resource: "auditevents.crds.wizardofoz.co",
        on_node: false,
        why: "no session is opened while records cannot be written, unless that is not required",
    },
    Exception {
        account: "oz-broker",
        verb: "get",
        resource: "secrets",
        on_node: false,
        why: "no Role of the user's namespace names the Secret of a policy: the run waits until one does",
    },
    Exception {
        account: "oz-composites",
        verb: "list",
        resource: ANY,
        on_node: false,
        why: "a composite without the permission lists its resources all the same, and tests grant it to the account \
            while a controller runs",
    },
    ended_meanwhile("get", "pods"),
    ended_meanwhile("get", "pods/exec"),
    ended_meanwhile("create", "pods/exec"),
];

const fn ended_meanwhile(verb: &'static str, resource: &'static str) -> Exception {
    of_the_gate(
        verb,
        resource,
        "what the gate may on a pod goes with the grant: tested with one that is revoked while sessions open",
    )
}

const fn not_listed(resource: &'static str) -> Exception {
    Exception {
        account: "oz-operator",
        verb: "list",
        resource,
        on_node: false,
        why: "grants end although their lists are missing",
    }
}

/// A verb on a resource, held by a service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Permission {
    account: String,
    verb: String,
    api_group: String,
    resource: String,
    /// The only object to which it applies.
    name: Option<String>,
    /// Kind and name.
    role: String,
    /// Whether it applies beyond the account's own namespace.
    everywhere: bool,
}

impl Permission {
    fn allows(&self, one: &Use) -> bool {
        self.account == one.account
            && self.verb == one.verb
            && self.api_group == one.api_group
            && self.resource == one.resource
            && (self.everywhere || one.used_in == UsedIn::Own)
            && self
                .name
                .as_ref()
                .is_none_or(|name| *name == one.name || are_reserved(name, &one.name))
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = full(&self.resource, &self.api_group);
        write!(formatter, "{}: {} {resource}", self.role, self.verb)?;
        match &self.name {
            Some(name) => write!(formatter, " {name}"),
            None => Ok(()),
        }
    }
}

/// Checks whether both are reserved for Roles of grants: the reserved name of a grant is random.
fn are_reserved(one: &str, other: &str) -> bool {
    let is_reserved = |name| names::grant_role_number(name).is_some();
    is_reserved(one) && is_reserved(other)
}

/// Formats a resource as kubectl does, `deployments.apps`.
fn full(resource: &str, api_group: &str) -> String {
    match api_group {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    }
}

impl Exception {
    fn is_for(&self, account: &str, verb: &str, resource: &str, api_group: &str) -> bool {
        account.rsplit(':').next() == Some(self.account)
            && verb == self.verb
            && (self.resource == ANY || full(resource, api_group) == self.resource)
    }

    fn is_for_permission(&self, held: &Permission) -> bool {
        self.is_for(&held.account, &held.verb, &held.resource, &held.api_group)
    }
}

/// Returns the directories in which the tests that require no root, and those on a real node, record the
/// uses.
pub(crate) fn directories() -> Result<[PathBuf; 2]> {
    let directory = programs::target_directory()?.join("permissions");
    Ok([directory.join("suite"), directory.join("node")])
}

pub(crate) fn run() -> Result<ExitCode> {
    let [suite, node] = directories()?;
    let (suite, node) = (recorded(&suite)?, recorded(&node)?);
    if suite.is_empty() {
        bail!("failed to judge the roles: nothing was recorded yet; run `make test` first");
    }
    let findings = findings(&suite, &node)?;
    for line in &findings {
        xtask::screen::Screen::stdout().line(line)?;
    }
    Ok(ExitCode::from(u8::from(!findings.is_empty())))
}

/// Returns the faults of the roles, a line each.
pub(crate) fn findings(suite: &BTreeSet<Use>, node: &BTreeSet<Use>) -> Result<Vec<String>> {
    let mut held = held(&documents(&oz_testkit::repository().join("deploy/rbac"))?)?;
    held.extend(of_examples()?);
    let uses: BTreeSet<&Use> = suite.union(node).collect();
    Ok(compare(&held, &uses, !node.is_empty(), UNUSED, REFUSED))
}

fn compare(
    held: &BTreeSet<Permission>,
    uses: &BTreeSet<&Use>,
    with_node: bool,
    unused: &[Exception],
    refused: &[Exception],
) -> Vec<String> {
    let mut findings = Vec::new();
    for permission in held {
        let is_used = uses
            .iter()
            .any(|one| one.refused.is_none() && permission.allows(one));
        let exception = unused.iter().find(|it| it.is_for_permission(permission));
        let may_be_unused = exception.is_some_and(|it| !(it.on_node && with_node));
        if !is_used && !may_be_unused {
            findings.push(format!(
                "unused: {permission}: no test needs it; remove the rule, or write the test"
            ));
        }
    }
    for exception in unused {
        if !held.iter().any(|it| exception.is_for_permission(it)) {
            let Exception {
                account,
                verb,
                resource,
                why,
                ..
            } = exception;
            findings.push(format!(
                "an exception for nothing ({why}): {account} may not {verb} {resource} any more"
            ));
        }
    }
    for one in uses {
        let is_expected =
            |it: &Exception| it.is_for(&one.account, &one.verb, &one.resource, &one.api_group);
        // The accounts of tests hold no permissions of oz.
        let is_ours = held.iter().any(|it| it.account == one.account);
        if let Some(message) = &one.refused
            && is_ours
            && !refused.iter().any(is_expected)
        {
            findings.push(format!(
                "refused: {}: {} {}: {message}",
                one.account,
                one.verb,
                full(&one.resource, &one.api_group)
            ));
        }
    }
    findings
}

/// The account of composites, which has the permissions in the values: those in the headers of the examples,
/// all of them.
const COMPOSITES: &str = "oz-system:oz-composites";

/// Returns the permissions that the account needs according to the examples.
fn of_examples() -> Result<BTreeSet<Permission>> {
    let mut held = BTreeSet::new();
    for (name, text) in oz_testkit::examples()? {
        let failed = || format!("failed to read the values of the example {name}");
        let values = oz_testkit::example_values(&text).with_context(failed)?;
        let rules = values["composites"]["defaultAccount"]["rules"].clone();
        let rules: Vec<PolicyRule> = serde_json::from_value(rules).with_context(failed)?;
        let role = RoleRef {
            kind: "example".to_owned(),
            name,
            ..RoleRef::default()
        };
        for rule in &rules {
            expand(rule, COMPOSITES, &role, true, &mut held);
        }
    }
    Ok(held)
}

/// Reads every document in the YAML files under `directory`.
fn documents(directory: &Path) -> Result<Vec<Value>> {
    let mut documents = Vec::new();
    let failed = || format!("failed to read {}", directory.display());
    for entry in std::fs::read_dir(directory).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        if path.is_dir() {
            documents.extend(self::documents(&path)?);
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(failed)?;
        let parsed: Vec<Value> = serde_saphyr::from_multiple(&text)
            .with_context(|| format!("failed to parse {}", path.display()))?;
        documents.extend(parsed);
    }
    Ok(documents)
}

/// Returns every single permission to which a service account is bound.
fn held(documents: &[Value]) -> Result<BTreeSet<Permission>> {
    let mut held = BTreeSet::new();
    for document in documents {
        let (role, subjects) = match document["kind"].as_str() {
            Some("ClusterRoleBinding") => {
                let binding: ClusterRoleBinding = parse(document)?;
                (binding.role_ref, binding.subjects)
            }
            Some("RoleBinding") => {
                let binding: RoleBinding = parse(document)?;
                (binding.role_ref, binding.subjects)
            }
            _ => continue,
        };
        let rules = rules(documents, &role)?;
        let everywhere = document["kind"] == "ClusterRoleBinding";
        for account in subjects.unwrap_or_default().iter().filter_map(account) {
            for rule in &rules {
                expand(rule, &account, &role, everywhere, &mut held);
            }
        }
    }
    Ok(held)
}

fn parse<T: DeserializeOwned>(document: &Value) -> Result<T> {
    let name = &document["metadata"]["name"];
    serde_json::from_value(document.clone()).with_context(|| format!("failed to read {name}"))
}

fn account(subject: &Subject) -> Option<String> {
    let namespace = subject.namespace.as_deref()?;
    (subject.kind == "ServiceAccount").then(|| format!("{namespace}:{}", subject.name))
}

fn rules(documents: &[Value], role: &RoleRef) -> Result<Vec<PolicyRule>> {
    // A role that every cluster has is not for oz to restrict.
    if role.name == "extension-apiserver-authentication-reader" {
        return Ok(Vec::new());
    }
    let found = documents.iter().find(|document| {
        document["kind"] == role.kind.as_str() && document["metadata"]["name"] == role.name.as_str()
    });
    let found = found.with_context(|| format!("failed to find {} {}", role.kind, role.name))?;
    let rules = if role.kind == "ClusterRole" {
        parse::<ClusterRole>(found)?.rules
    } else {
        parse::<Role>(found)?.rules
    };
    Ok(rules.unwrap_or_default())
}

fn expand(
    rule: &PolicyRule,
    account: &str,
    role: &RoleRef,
    everywhere: bool,
    held: &mut BTreeSet<Permission>,
) {
    let names: Vec<Option<String>> = match rule.resource_names.as_deref() {
        None | Some([]) => vec![None],
        Some(listed) => {
            let mut names: Vec<String> = listed.to_vec();
            names.dedup_by(|one, before| are_reserved(one, before));
            names.into_iter().map(Some).collect()
        }
    };
    for api_group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                held.extend(names.iter().map(|name| Permission {
                    account: account.to_owned(),
                    verb: verb.clone(),
                    api_group: api_group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    role: format!("{} {}", role.kind, role.name),
                    everywhere,
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use oz_core::kinds::Entry;
    use serde_json::json;

    use super::*;

    fn roles() -> BTreeSet<Permission> {
        let rbac = "rbac.authorization.k8s.io";
        let subject = json!([{"kind": "ServiceAccount", "name": "oz", "namespace": "home"}]);
        let binding = |kind: &str, to: &str| {
            json!({"kind": kind, "metadata": {"name": "oz"}, "subjects": subject,
                   "roleRef": {"apiGroup": rbac, "kind": to, "name": "oz"}})
        };
        let role = |kind: &str, rules: Value| json!({"kind": kind, "metadata": {"name": "oz"}, "rules": rules});
        let pods =
            json!([{"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get"]}]);
        let keys = json!([{"apiGroups": [""], "resources": ["secrets"],
                           "resourceNames": ["a", "b"], "verbs": ["get"]}]);
        held(&[
            role("ClusterRole", pods),
            role("Role", keys),
            binding("ClusterRoleBinding", "ClusterRole"),
            binding("RoleBinding", "Role"),
            // No subject is bound to it.
            json!({"kind": "ClusterRole", "metadata": {"name": "users"}, "rules": []}),
        ])
        .unwrap()
    }

    fn used(resource: &str, used_in: UsedIn, name: &str) -> Use {
        Use {
            account: "home:oz".to_owned(),
            verb: "get".to_owned(),
            api_group: String::new(),
            resource: resource.to_owned(),
            used_in,
            name: name.to_owned(),
            refused: None,
        }
    }

    fn all() -> Vec<Use> {
        vec![
            used("pods", UsedIn::Cluster, ""),
            used("pods/log", UsedIn::Other, ""),
            used("secrets", UsedIn::Own, "a"),
            used("secrets", UsedIn::Own, "b"),
        ]
    }

    fn judged(
        uses: &[Use],
        node: bool,
        unused: &[Exception],
        refused: &[Exception],
    ) -> Vec<String> {
        let said = compare(&roles(), &uses.iter().collect(), node, unused, refused);
        let head = |line: String| line.split(": ").take(3).collect::<Vec<_>>().join(": ");
        said.into_iter().map(head).collect()
    }

    const fn exception(resource: &'static str, on_node: bool) -> Exception {
        Exception {
            account: "oz",
            verb: "get",
            resource,
            on_node,
            why: "",
        }
    }

    #[test]
    fn rule_without_use_by_its_account_and_place_is_reported() {
        assert_eq!(judged(&all(), false, &[], &[]), [""; 0]);
        for (left_out, said) in [
            (0, "unused: ClusterRole oz: get pods"),
            (1, "unused: ClusterRole oz: get pods/log"),
            (2, "unused: Role oz: get secrets a"),
        ] {
            let mut uses = all();
            uses.remove(left_out);
            assert_eq!(judged(&uses, false, &[], &[]), [said]);
        }
        // A use in another place than that of the role, or by another account, does not count.
        let mut uses = all();
        uses[2].used_in = UsedIn::Other;
        assert_eq!(
            judged(&uses, false, &[], &[]),
            ["unused: Role oz: get secrets a"]
        );
        uses[2].used_in = UsedIn::Own;
        uses[2].account = "home:other".to_owned();
        assert_eq!(
            judged(&uses, false, &[], &[]),
            ["unused: Role oz: get secrets a"]
        );
    }

    #[test]
    fn node_only_rule_must_be_used_after_run_on_node() {
        let mut uses = all();
        uses.remove(1);
        let on_node = [exception("pods/log", true)];
        let nowhere = [exception("pods/log", false)];
        assert_eq!(judged(&uses, false, &on_node, &[]), [""; 0]);
        assert_eq!(judged(&uses, true, &on_node, &[]).len(), 1);
        assert_eq!(judged(&uses, true, &nowhere, &[]), [""; 0]);
        assert_eq!(judged(&all(), true, &on_node, &[]), [""; 0]);
    }

    #[test]
    fn permissions_on_groups_of_oz_are_on_kinds_of_the_registry() {
        let kinds = oz_core::kinds::all();
        let documents = documents(&oz_testkit::repository().join("deploy/rbac")).unwrap();
        for permission in held(&documents).unwrap() {
            let of_group = |kind: &&Entry| kind.resource.group == permission.api_group;
            let mut group = kinds.iter().filter(of_group).peekable();
            let plural = permission.resource.split('/').next();
            let is_known = |kind: &Entry| Some(&*kind.resource.plural) == plural;
            assert!(
                group.peek().is_none() || group.any(is_known),
                "{permission}"
            );
        }
    }

    #[test]
    fn exception_for_missing_permission_is_reported() {
        let gone = [exception("nodes", false)];
        assert_eq!(judged(&all(), false, &gone, &[]).len(), 1);
    }

    #[test]
    fn a_refusal_is_found_unless_a_test_is_about_it() {
        let mut uses = all();
        let mut refusal = used("nodes", UsedIn::Cluster, "");
        refusal.refused = Some("forbidden".to_owned());
        uses.push(refusal);
        assert_eq!(
            judged(&uses, false, &[], &[]),
            ["refused: home:oz: get nodes"]
        );
        let mut foreign = uses.clone();
        foreign[4].account = "home:other".to_owned();
        assert_eq!(judged(&foreign, false, &[], &[]), [""; 0]);
        for resource in ["nodes", ANY] {
            let expected = [exception(resource, false)];
            assert_eq!(judged(&uses, false, &[], &expected), [""; 0]);
        }
        // A denied request is not a use.
        uses[0].refused = Some("forbidden".to_owned());
        let said = judged(&uses, false, &[], &[exception("pods", false)]);
        assert_eq!(
            said,
            [
                "unused: ClusterRole oz: get pods",
                "refused: home:oz: get nodes"
            ]
        );
    }
}
