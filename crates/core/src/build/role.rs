//! The Role of a grant: these operations on this one pod. Without a binding it gives nobody
//! anything, so it is written first and deleted last; it carries the sealed decision, and is what
//! remains to tell of a request that was deleted while nobody watched. For that it has no owner
//! reference: the garbage collector must leave it to us.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{PolicyRule, Role};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::access::grant::Grant;
use crate::api::Operation;
use crate::labels;

/// The Role for a grant; `sealed` is the decision as [`Grant::seal`] made it.
#[must_use]
pub fn role(grant: &Grant, sealed: String) -> Role {
    let mut metadata = ObjectMeta {
        name: Some(grant.role_name()),
        namespace: Some(grant.request.namespace.clone()),
        annotations: Some(BTreeMap::from([(labels::GRANT.to_owned(), sealed)])),
        ..ObjectMeta::default()
    };
    labels::mark(
        &mut metadata,
        &grant.request.kind,
        &grant.request.name,
        &grant.request.uid,
    );
    Role {
        metadata,
        rules: Some(rules(grant)),
    }
}

/// What the Role allows.
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

/// What a grant of these operations hands out on its pod: resources of the core group, with the
/// subresource, and verbs.
pub fn handed_out(
    operations: &[Operation],
) -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    // Kubernetes asks for `create` since WebSockets carry exec, for `get` before.
    const CONNECT: &[&str] = &["get", "create"];
    // Whoever may do something with a pod may look at it.
    const LOOK: &[&str] = &["get", "list", "watch"];
    let operations = operations.iter().map(|operation| match operation {
        Operation::Exec => ("pods/exec", CONNECT),
        Operation::Attach => ("pods/attach", CONNECT),
        Operation::PortForward => ("pods/portforward", CONNECT),
        Operation::Log => ("pods/log", &["get"][..]),
    });
    std::iter::once(("pods", LOOK)).chain(operations)
}
