//! The check for registrations that outlive the chart: the API server passes requests to a Service that no longer
//! exists. `helm uninstall` removes them by a hook; a GitOps controller that does not run the hook leaves them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use oz_api::names;

use super::finding::{Check, Finding, Object};
use super::registrations::Registration;
use crate::cluster::Cluster;
use crate::failure::Result;

/// The kind of the registration of the gate, as kubectl takes it.
const API_SERVICE: &str = "apiservice";

/// The registrations of oz, by the namespace and the name of the Service that each passes requests to.
type Registered = BTreeMap<(String, String), Vec<Object>>;

/// Checks whether the Services exist that the registrations of oz name. A Service that the user may not read counts as
/// existing.
pub(super) async fn registrations(
    cluster: &Cluster,
    registrations: &Result<Vec<Registration>>,
) -> Vec<Finding> {
    let mut registered = Registered::new();
    let own = registrations.iter().flatten().filter(|one| one.is_own());
    for registration in own {
        for hook in &registration.hooks {
            if let Some(service) = &hook.config.service {
                let service = (service.namespace.clone(), service.name.clone());
                add(&mut registered, service, &registration.object);
            }
        }
    }
    if let Some(service) = gate_service(cluster).await {
        let object = Object::of_cluster(API_SERVICE, names::GATE_API_SERVICE);
        add(&mut registered, service, &object);
    }
    let mut findings = Vec::new();
    for ((namespace, name), objects) in registered {
        let services: Api<Service> = Api::namespaced(cluster.client.clone(), &namespace);
        if matches!(cluster.find(&services, &name).await, Ok(None)) {
            let service = Object::in_namespace("Service", &namespace, &name);
            findings.push(outlived(&service, &objects));
        }
    }
    findings
}

fn add(registered: &mut Registered, service: (String, String), object: &Object) {
    let objects = registered.entry(service).or_default();
    if !objects.contains(object) {
        objects.push(object.clone());
    }
}

/// Returns the namespace and the name of the Service that the gate is registered with.
async fn gate_service(cluster: &Cluster) -> Option<(String, String)> {
    let registrations: Api<APIService> = Api::all(cluster.client.clone());
    let found = cluster.find(&registrations, names::GATE_API_SERVICE).await;
    let service = found.ok()??.spec?.service?;
    Some((service.namespace?, service.name?))
}

/// Reports registrations with a Service that does not exist.
fn outlived(service: &Object, objects: &[Object]) -> Finding {
    let list = |text: fn(&Object) -> String, between: &str| {
        let texts: Vec<String> = objects.iter().map(text).collect();
        texts.join(between)
    };
    let named = list(ToString::to_string, ", ");
    let commands = list(|object| format!("kubectl delete {object}"), " && ");
    let effect = match objects.iter().any(|object| object.kind == API_SERVICE) {
        true => "the API server deletes no namespace",
        false => "the API server rejects requests that it would pass to it",
    };
    Check::OutlivingRegistrations
        .wrong(
            format!("{service} does not exist, and {effect}: {named} outlived oz's chart"),
            format!(
                "if oz is to run, install its chart again; otherwise end the access that it granted \
                 (docs/guides/uninstall.md, \"By hand\"), then {commands}"
            ),
        )
        .about(service.clone())
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::super::registrations::{MUTATING, VALIDATING};
    use super::*;

    #[test]
    fn each_registration_of_missing_service_is_named_with_its_command() {
        let service = Object::in_namespace("Service", "access", "oz-webhook");
        let objects = [
            Object::of_cluster(MUTATING, "oz"),
            Object::of_cluster(VALIDATING, "oz"),
        ];
        let finding = outlived(&service, &objects);
        assert!(
            finding
                .message
                .starts_with("Service access/oz-webhook does not exist"),
            "{finding:?}"
        );
        let Verdict::Wrong { fix } = &finding.verdict else {
            panic!("{finding:?}");
        };
        assert!(
            fix.ends_with(
                "kubectl delete mutatingwebhookconfiguration oz && \
                 kubectl delete validatingwebhookconfiguration oz"
            ),
            "{fix}"
        );
        assert!(!finding.message.contains("namespace"), "{finding:?}");

        let gate = [Object::of_cluster(API_SERVICE, names::GATE_API_SERVICE)];
        let finding = outlived(&service, &gate);
        assert!(
            finding.message.contains("deletes no namespace"),
            "{finding:?}"
        );
    }

    #[test]
    fn hooks_of_one_registration_name_it_once() {
        let mut registered = Registered::new();
        let service = || ("access".to_owned(), "oz-webhook".to_owned());
        let mutating = Object::of_cluster(MUTATING, "oz");
        let validating = Object::of_cluster(VALIDATING, "oz");
        for object in [&mutating, &mutating, &validating] {
            add(&mut registered, service(), object);
        }
        assert_eq!(registered[&service()], [mutating, validating]);
    }
}
