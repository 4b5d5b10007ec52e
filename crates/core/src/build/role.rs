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
        name: Some(grant.object_name()),
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
    let rule = |resource: &str, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: Some(vec![grant.pod.name.clone()]),
        verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        ..PolicyRule::default()
    };
    let mut rules = vec![rule("pods", &["get", "list", "watch"])];
    rules.extend(grant.operations.iter().map(|operation| match operation {
        // Kubernetes asks for `create` since WebSockets carry exec, for `get` before.
        Operation::Exec => rule("pods/exec", &["get", "create"]),
        Operation::Attach => rule("pods/attach", &["get", "create"]),
        Operation::PortForward => rule("pods/portforward", &["get", "create"]),
        Operation::Log => rule("pods/log", &["get"]),
    }));
    rules
}
