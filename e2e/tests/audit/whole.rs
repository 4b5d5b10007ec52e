//! The content of the audit trail, its places, and its beginning.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use oz_e2e::{Auditor, NAMESPACE, Operator, Options, Scene, System, TEMPLATE, exec_request};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::name_of;
use serde_json::json;

use crate::alone;
use crate::support::{clean, settled};

#[tokio::test]
async fn a_grant_is_in_the_cluster_before_its_binding_and_the_trail_is_whole() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "record").await?;
    let mark = cluster.audit().mark()?;
    let alice = scene.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("debug", TEMPLATE, "5m"))
        .await?;

    let mut auditor = Auditor::pinning(&scene.admin).await?;
    auditor.log(&system.operator.process);
    auditor.log(&system.webhook.process);
    let report = settled(&auditor).await?;
    assert!(report.chains.len() >= 2, "{:?}", report.chains);

    let events = auditor.list_for_request(scene.name(), "debug").await?;
    let actions: Vec<_> = events
        .iter()
        .filter_map(|spec| spec["action"].as_str())
        .collect();
    assert_eq!(actions, ["RequestCreated", "AccessGranted"]);
    let granted = &events[1];
    assert_eq!(granted["user"]["user"], "alice");
    assert_eq!(granted["decision"], "Allow");
    assert_eq!(granted["pod"]["uid"], json!(asked.status().pod_uid));
    assert_eq!(granted["component"], "oz-operator");

    let operator = format!("system:serviceaccount:{NAMESPACE}:oz-operator");
    let writes = cluster.audit().since(mark)?.by_user(&operator).writes();
    let name = name_of(&serde_json::from_value(granted.clone())?);
    let find = |resource: &str, name: &str| {
        let mut writes = writes.iter();
        writes
            .find(|entry| entry.resource == resource && entry.name == name)
            .with_context(|| format!("{name} was not written"))
    };
    let event = find("auditevents", &name)?;
    let binding = find("rolebindings", &asked.object_name())?;
    assert!(
        event.stage_timestamp < binding.stage_timestamp,
        "{event:?} {binding:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_key_that_is_replaced_leaves_the_old_pin_good() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "rotate").await?;
    let alice = scene.requests("alice").await?;
    alice
        .granted(&exec_request("before", TEMPLATE, "5m"))
        .await?;
    let auditor = Auditor::pinning(&scene.admin).await?;
    settled(&auditor).await?;

    // The Secret dates the key to long ago: the next operator makes a new key.
    let secrets: Api<Secret> = Api::namespaced(scene.admin.clone(), NAMESPACE);
    let before = secrets.get("oz-audit-key").await?.data;
    let old = json!({"metadata": {"annotations": {"oz.wizardofoz.co/key-created-at": "2020-01-01T00:00:00Z"}}});
    let patch = Patch::Merge(&old);
    secrets
        .patch("oz-audit-key", &PatchParams::default(), &patch)
        .await?;
    system.operator.process.kill9();
    system.operator = Operator::start(cluster, &Options::default()).await?;
    eventually("another key", CONDITION_TIMEOUT, async || {
        Ok((secrets.get("oz-audit-key").await?.data != before).then_some(()))
    })
    .await?;
    alice
        .granted(&exec_request("after", TEMPLATE, "5m"))
        .await?;
    settled(&auditor).await?;
    Ok(())
}
