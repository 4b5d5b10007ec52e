//! Registrations that outlive the chart, as after a removal without its `pre-delete` hook: `ozctl doctor` names them, and
//! its commands remove them.

use std::process::Command;

use anyhow::{Context as _, Result};
use oz_e2e::{NAMESPACE, run};
use oz_testkit::{Cluster, cargo_binary};
use serde_json::{Value, json};

use crate::{TURN, kubectl};

/// The name of oz's registrations.
const REGISTRATION: &str = "oz";
/// Kinds of registrations, and the beginning of the names of their hooks.
const KINDS: [(&str, &str); 2] = [
    ("MutatingWebhookConfiguration", "m"),
    ("ValidatingWebhookConfiguration", "v"),
];

/// Returns registrations for a resource that does not exist, so that the hooks are never called.
fn registrations(service: &str) -> Vec<Value> {
    let registration = |(kind, prefix): (&str, &str)| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": REGISTRATION},
            "webhooks": [{
                "name": format!("{prefix}outlived.kb.io"),
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
                "clientConfig": {"service": {"name": service, "namespace": NAMESPACE}},
                "rules": [{
                    "apiGroups": ["crds.wizardofoz.co"], "apiVersions": ["v1alpha1"],
                    "resources": ["nothing"], "operations": ["CREATE"],
                }],
            }],
        })
    };
    KINDS.map(registration).to_vec()
}

fn doctor(cluster: &Cluster) -> Result<String> {
    let mut ozctl = Command::new(cargo_binary("ozctl")?);
    ozctl
        .args(["doctor", "--oz-namespace", NAMESPACE])
        .env("KUBECONFIG", cluster.kubeconfig("admin"))
        .env("USER", "admin");
    let output = ozctl.output().context("failed to run ozctl")?;
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test]
async fn doctor_names_registrations_without_service_with_commands_that_remove_them() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = Cluster::shared().await?;
    oz_e2e::unregister_hooks(cluster)?;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "outlived", "namespace": NAMESPACE},
        "spec": {"ports": [{"port": 443}]},
    });
    kubectl(cluster, &["apply"], &[namespace, service.clone()])?;
    kubectl(cluster, &["apply"], &registrations("outlived"))?;
    let said = doctor(cluster)?;
    assert!(!said.contains("outliving registrations"), "{said}");

    kubectl(cluster, &["delete"], &[service])?;
    let said = doctor(cluster)?;
    let reported = format!("outliving registrations: Service {NAMESPACE}/outlived does not exist");
    assert!(said.contains(&reported), "{said}");
    for (kind, _) in KINDS {
        let command = format!("kubectl delete {} {REGISTRATION}", kind.to_lowercase());
        assert!(said.contains(&command), "{said}");
        let mut kubectl = cluster.kubectl("admin");
        kubectl.args(command.split(' ').skip(1));
        run(kubectl)?;
    }
    let said = doctor(cluster)?;
    assert!(!said.contains("outliving registrations"), "{said}");
    Ok(())
}
