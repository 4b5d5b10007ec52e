//! `ozctl doctor` where registrations outlived the chart.

use serde_json::json;

use crate::output::run_commands;
use crate::shop;
use crate::stub::{Stub, status};

/// Runs doctor where the hooks of oz and its gate are registered, and these Services do not exist.
fn doctor_without(missing: &'static [&'static str]) -> String {
    let stub = Stub::start(move |asked| {
        let path = asked.what.strip_prefix("GET /").unwrap_or_default();
        match path.strip_prefix("api/v1/namespaces/oz-system/services/") {
            Some(name) if missing.contains(&name) => {
                return status(404, &format!("services \"{name}\" not found"));
            }
            Some(name) => {
                let metadata = json!({"name": name, "namespace": "oz-system"});
                return (
                    200,
                    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata}),
                );
            }
            None => {}
        }
        if path.ends_with("/apiservices/v1alpha1.gate.oz.wizardofoz.co") {
            return (
                200,
                json!({
                    "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                    "metadata": {"name": "v1alpha1.gate.oz.wizardofoz.co"},
                    "spec": {
                        "groupPriorityMinimum": 100, "versionPriority": 100,
                        "service": {"name": "oz-gate", "namespace": "oz-system"},
                    },
                }),
            );
        }
        shop::answer(asked)
    });
    run_commands(&stub, &["doctor"])
}

#[test]
fn registrations_without_service_are_reported_with_commands() {
    let said = doctor_without(&["oz-webhook"]);
    for expected in [
        "WRONG   outliving registrations: Service oz-system/oz-webhook does not exist",
        "kubectl delete mutatingwebhookconfiguration oz && \
         kubectl delete validatingwebhookconfiguration oz\n",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    assert!(!said.contains("oz-system/oz-gate"), "{said}");

    let said = doctor_without(&["oz-webhook", "oz-gate"]);
    for expected in [
        "Service oz-system/oz-gate does not exist, and the API server deletes no namespace",
        "kubectl delete apiservice v1alpha1.gate.oz.wizardofoz.co\n",
        "Service oz-system/oz-webhook does not exist",
    ] {
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn registrations_with_service_are_not_reported() {
    let said = doctor_without(&[]);
    assert!(said.contains("good    registration: "), "{said}");
    assert!(!said.contains("outliving registrations"), "{said}");
}

#[test]
fn service_that_user_may_not_read_counts_as_existing() {
    let said = run_commands(&shop::open(), &["doctor"]);
    assert!(!said.contains("outliving registrations"), "{said}");
}
