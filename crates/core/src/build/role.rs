//! The Role of a grant: these operations on this one pod. Without a binding it grants no access, so it is
//! written first and deleted last; it carries the sealed decision, and is the object that remains of a
//! request that was deleted while the operator was down. For that it has no owner reference: the garbage
//! collector must not delete it.
//! See docs/adr/0004-the-role-goes-last.md.

use k8s_openapi::api::rbac::v1::{PolicyRule, Role};
use oz_api::{Operation, labels, names};

use crate::access::grant::Grant;
use crate::confine::Owner;

/// Returns the Role for a grant; `sealed` is the decision as [`Grant::seal`] returned it.
#[must_use]
pub fn role(grant: &Grant, sealed: String) -> Role {
    let mut metadata = Owner::from_request(&grant.request).metadata(grant.role_name());
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(labels::GRANT.to_owned(), sealed);
    if names::is_grant_role(&grant.role_name()) {
        let labels = metadata.labels.get_or_insert_default();
        labels.insert(labels::GRANT_ROLE.to_owned(), "true".to_owned());
    }
    Role {
        metadata,
        rules: Some(rules(grant)),
    }
}

/// Returns the rules of the Role.
pub(crate) fn rules(grant: &Grant) -> Vec<PolicyRule> {
    let rules = handed_out(&grant.operations).map(|(resource, verbs)| PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: Some(vec![grant.pod.name.clone()]),
        verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        ..PolicyRule::default()
    });
    rules.collect()
}

/// Returns the rights that a grant of these operations gives on its pod: resources of the core group, with
/// the subresource, and verbs.
pub fn handed_out(
    operations: &[Operation],
) -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    // Kubernetes requires `create` since WebSockets carry exec, and required `get` before.
    const CONNECT: &[&str] = &["get", "create"];
    // A user with a right to a pod may read it.
    const LOOK: &[&str] = &["get", "list", "watch"];
    const ATTACH: (&str, &[&str]) = ("pods/attach", CONNECT);
    const LOG: (&str, &[&str]) = ("pods/log", &["get"]);
    let granted = |one| operations.contains(&one);
    let handed = operations.iter().flat_map(move |operation| {
        let handed: [Option<(&'static str, &'static [&'static str])>; 3] = match operation {
            Operation::Exec => [Some(("pods/exec", CONNECT)), None, None],
            Operation::Attach => [Some(ATTACH), None, None],
            Operation::PortForward => [Some(("pods/portforward", CONNECT)), None, None],
            Operation::Log => [Some(LOG), None, None],
            // kubectl attaches to the container that it added, and shows its logs if it has terminated by then.
            Operation::Debug => [
                Some(("pods/ephemeralcontainers", &["patch"])),
                Some(ATTACH).filter(|_| !granted(Operation::Attach)),
                Some(LOG).filter(|_| !granted(Operation::Log)),
            ],
        };
        handed.into_iter().flatten()
    });
    std::iter::once(("pods", LOOK)).chain(handed)
}
