//! Only oz writes or deletes AuditEvents; all other users are refused, regardless of their rights.

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use oz_api::Phase;
use oz_e2e::{Auditor, Scene, System, TEMPLATE, exec_request};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::{AuditEvent, AuditKey, Chain, Writer};
use serde_json::json;

use crate::alone;
use crate::support::{clean, settled};

fn refused<T>(answer: kube::Result<T>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.message.contains("only oz writes and deletes AuditEvents"))
}

#[tokio::test]
async fn an_administrator_can_neither_forge_nor_change_nor_delete_events() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "forge").await?;
    let alice = scene.requests("alice").await?;
    alice
        .granted(&exec_request("debug", TEMPLATE, "20s"))
        .await?;
    let auditor = Auditor::pinning(&scene.admin).await?;
    settled(&auditor).await?;

    let events: Api<AuditEvent> = Api::all(scene.admin.clone());
    let writer = Writer::new("oz-operator", "oz-0", Timestamp::now(), 1);
    // This is the best forgery that is possible without the key.
    let (_, entry) = Chain::begin(writer, Timestamp::now(), &[], &AuditKey::new(&[1; 32]));
    let forged = AuditEvent::from(entry);
    assert!(refused(
        events.create(&PostParams::default(), &forged).await
    ));

    let one = events.list(&ListParams::default()).await?.items.remove(0);
    let name = one.metadata.name.clone().unwrap_or_default();
    let relabel = json!({"metadata": {"labels": {"oz.wizardofoz.co/user": "nobody"}}});
    let owner = json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap",
        "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"}]}});
    let rewrite = json!({"spec": {"message": "nothing to see"}});
    for patch in [relabel, owner, rewrite] {
        let patch = Patch::Merge(&patch);
        assert!(
            events
                .patch(&name, &PatchParams::default(), &patch)
                .await
                .is_err()
        );
    }
    assert!(refused(
        events.delete(&name, &DeleteParams::default()).await
    ));
    let all = events
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await;
    assert!(all.is_err());

    // With the webhook down, other users still cannot, and oz still writes.
    system.webhook.process.kill9();
    assert!(
        events
            .delete(&name, &DeleteParams::default())
            .await
            .is_err()
    );
    let ended = eventually("the end to be on record", CONDITION_TIMEOUT, async || {
        let records = auditor.list_for_request(scene.name(), "debug").await?;
        Ok((records.len() == 3).then_some(records))
    })
    .await?;
    assert_eq!(ended[2]["action"], "AccessExpired");
    assert!(auditor.report().await?.is_whole());
    let bindings = scene
        .api::<RoleBinding>()
        .list(&ListParams::default())
        .await?;
    assert!(bindings.iter().all(|binding| {
        !binding
            .metadata
            .name
            .as_deref()
            .unwrap_or_default()
            .starts_with("debug-")
    }));
    alice.phase("debug", Phase::Expired).await?;
    Ok(())
}

#[tokio::test]
async fn a_record_cannot_be_changed_even_with_the_guard_away() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "fixed").await?;
    let alice = scene.requests("alice").await?;
    alice
        .granted(&exec_request("debug", TEMPLATE, "5m"))
        .await?;
    system.webhook.process.kill9();
    oz_e2e::unregister(cluster)?;
    let events: Api<AuditEvent> = Api::all(scene.admin.clone());
    let one = events.list(&ListParams::default()).await?.items.remove(0);
    let name = one.metadata.name.clone().unwrap_or_default();
    for change in [
        json!({"spec": {"message": "nothing to see"}}),
        json!({"spec": null}),
        json!({"spec": {"until": "2030-01-01T00:00:00Z"}}),
    ] {
        let patch = Patch::Merge(&change);
        let answer = events.patch(&name, &PatchParams::default(), &patch).await;
        assert!(answer.is_err(), "{change}");
    }
    Ok(())
}
