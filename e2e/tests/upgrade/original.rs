//! The objects that the original Oz leaves in a cluster: its definitions, its objects, its registration, and the lease
//! of
//! its last leader.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use oz_e2e::{NAMESPACE, Scene, established, run};
use oz_testkit::Cluster;
use serde_json::{Value, json};

const GROUP: &str = "crds.wizardofoz.co";
const LEASE: &str = "9b20101a.wizardofoz.co";

fn text() -> Value {
    json!({"type": "string"})
}

/// Returns a definition, as far as it matters: the fields of the original and no others.
fn definition(kind: &str, spec: &Value) -> Value {
    let singular = kind.to_lowercase();
    let conditions = json!({"type": "array", "items": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{singular}s.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {
                "kind": kind, "listKind": format!("{kind}List"),
                "plural": format!("{singular}s"), "singular": singular,
            },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": spec},
                    "status": {"type": "object", "properties": {
                        "conditions": conditions, "ready": {"type": "boolean"},
                        "accessMessage": text(), "podName": text(),
                    }},
                }}},
            }],
        },
    })
}

fn definitions() -> Vec<Value> {
    let config = json!({"type": "object", "properties": {
        "allowedGroups": {"type": "array", "items": text()},
        "defaultDuration": {"type": "string", "default": "1h"},
        "maxDuration": {"type": "string", "default": "24h"},
        "accessCommand": {
            "type": "string",
            "default": "kubectl exec -ti -n {{ .Metadata.Namespace }} {{ .Metadata.Name }} -- /bin/sh",
        },
    }});
    let target = json!({"type": "object", "properties": {
        "apiVersion": text(), "kind": text(), "name": text(),
    }});
    let template = json!({"accessConfig": config, "controllerTargetRef": target});
    let request = json!({"templateName": text(), "duration": text(), "targetPod": text()});
    vec![
        definition("ExecAccessTemplate", &template),
        definition("PodAccessTemplate", &template),
        definition("ExecAccessRequest", &request),
        definition("PodAccessRequest", &request),
    ]
}

/// Returns a registration with a Service that has no pods any more.
fn registration(kind: &str, prefix: &str) -> Value {
    let hook = |plural: &str| {
        json!({
            "name": format!("{prefix}{}.kb.io", plural.trim_end_matches('s')),
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {"service": {
                "name": "oz-controller-manager-webhook-service", "namespace": NAMESPACE,
                "path": "/anything",
            }},
            "rules": [{
                "apiGroups": [GROUP], "apiVersions": ["v1alpha1"],
                "operations": ["CREATE", "UPDATE"], "resources": [plural],
            }],
        })
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": "oz-webhook"},
        "webhooks": [hook("execaccessrequests"), hook("podaccessrequests")],
    })
}

fn apply(cluster: &Cluster, objects: &[Value]) -> Result<()> {
    let file = cluster.state_dir().join("original.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(&file, serde_json::to_vec(&list)?)?;
    let mut kubectl = cluster.kubectl("admin");
    kubectl.args(["apply", "-f"]).arg(&file);
    run(kubectl)?;
    Ok(())
}

/// Creates the definitions, and the lease of a leader that no longer exists.
pub(crate) fn install(cluster: &Cluster) -> Result<()> {
    let mut objects = definitions();
    objects.push(json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
    }));
    objects.push(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": NAMESPACE},
        "spec": {
            "holderIdentity": "oz-controller-manager-5f7d_0c1d", "leaseDurationSeconds": 15,
            "leaseTransitions": 3, "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    }));
    apply(cluster, &objects)?;
    established(cluster)
}

/// Creates the original's registration, which refuses all requests now that its server does not respond.
pub(crate) fn register(cluster: &Cluster) -> Result<()> {
    apply(
        cluster,
        &[
            registration("MutatingWebhookConfiguration", "m"),
            registration("ValidatingWebhookConfiguration", "v"),
        ],
    )
}

/// Creates a granted request of this kind, for the whole group, and returns the name of its objects.
pub(crate) async fn grant(scene: &Scene, kind: &str, name: &str, pod: &str) -> Result<String> {
    let gvk = GroupVersionKind::gvk(GROUP, "v1alpha1", kind);
    let resource = ApiResource::from_gvk(&gvk);
    let requests =
        kube::Api::<DynamicObject>::namespaced_with(scene.admin.clone(), scene.name(), &resource);
    let request = DynamicObject::new(name, &resource)
        .data(json!({"spec": {"templateName": "shell", "duration": "5m"}}));
    let request = requests.create(&PostParams::default(), &request).await?;
    let uid = request.uid().context("no UID")?;
    let granted = format!("{name}-{}", uid.get(..8).context("a short UID")?);
    let status = json!({"status": {
        "ready": true, "podName": pod,
        "conditions": [{
            "type": "AccessResourcesCreated", "status": "True", "reason": "Success",
            "message": format!("Success. Role {granted}, RoleBinding {granted} created"),
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    }});
    let status = Patch::Merge(&status);
    requests
        .patch_status(name, &PatchParams::default(), &status)
        .await?;

    let metadata = json!({"name": granted, "ownerReferences": [{
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": kind, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }]});
    let rbac = "rbac.authorization.k8s.io";
    let role: Role = serde_json::from_value(json!({"metadata": metadata, "rules": [
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": [pod],
         "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "resourceNames": [pod],
         "verbs": ["create", "update", "delete", "get", "list"]},
    ]}))?;
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": metadata,
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": granted},
        "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "devs"}],
    }))?;
    let parameters = PostParams::default();
    scene.api().create(&parameters, &role).await?;
    scene.api().create(&parameters, &binding).await?;
    if kind == "PodAccessRequest" {
        let own: Pod = serde_json::from_value(json!({
            "metadata": metadata,
            "spec": {"containers": [{"name": "app", "image": oz_testkit::fixtures::IMAGE}]},
        }))?;
        scene.api().create(&parameters, &own).await?;
    }
    Ok(granted)
}
