//! Children: their owners, and the effect of changes by other users.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use oz_testkit::{CONDITION_TIMEOUT, eventually, with_namespace};
use serde_json::json;

use crate::harness::{api, cluster, phase, run, timebox};
use crate::timebox::{Timebox, inner_name, outer_name};

fn config_map(name: &str) -> ConfigMap {
    let mut config_map = ConfigMap::default();
    config_map.metadata.name = Some(name.to_owned());
    config_map.data = Some(BTreeMap::from([("mine".to_owned(), "yes".to_owned())]));
    config_map
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_object_in_the_way_is_left_alone_and_named_as_a_conflict() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "conflict", async |namespace| {
        let admin = cluster.client("admin").await?;
        let maps = api::<ConfigMap>(&admin, namespace);
        let foreign = config_map(&outer_name("a"));
        let foreign = maps.create(&PostParams::default(), &foreign).await?;
        let engine = run(cluster, "engine-conflict", namespace).await?;
        let boxes = api::<Timebox>(&admin, namespace);
        boxes.create(&PostParams::default(), &timebox("a")).await?;

        let failed = phase(&boxes, "a", "Failed").await?;
        let status = failed.status.unwrap_or_default();
        assert_eq!(status.reason.as_deref(), Some("NameConflict"));
        let now = maps.get(&outer_name("a")).await?;
        assert_eq!(
            now.metadata.resource_version,
            foreign.metadata.resource_version
        );
        let secrets = api::<Secret>(&admin, namespace);
        assert!(secrets.get_opt(&inner_name("a")).await?.is_none());

        // Once the other object is deleted, the box opens without another change.
        maps.delete(&outer_name("a"), &DeleteParams::default())
            .await?;
        phase(&boxes, "a", "Open").await?;
        engine.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_desire_is_applied_and_a_foreign_label_is_kept() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "apply", async |namespace| {
        let engine = run(cluster, "engine-apply", namespace).await?;
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        let maps = api::<ConfigMap>(&admin, namespace);
        boxes.create(&PostParams::default(), &timebox("a")).await?;
        phase(&boxes, "a", "Open").await?;
        let label = Patch::Merge(json!({"metadata": {"labels": {"theirs": "yes"}}}));
        maps.patch(&outer_name("a"), &PatchParams::default(), &label)
            .await?;
        let change = Patch::Merge(json!({"spec": {"content": "silver"}}));
        boxes.patch("a", &PatchParams::default(), &change).await?;

        let map = eventually("the new content", CONDITION_TIMEOUT, async || {
            let map = maps.get(&outer_name("a")).await?;
            let content = map.data.clone().unwrap_or_default();
            let is_new = content
                .get("content")
                .is_some_and(|content| content == "silver");
            Ok(is_new.then_some(map))
        })
        .await?;
        let labels = map.metadata.labels.unwrap_or_default();
        assert_eq!(labels.get("theirs").map(String::as_str), Some("yes"));
        engine.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_child_is_recreated() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "deleted", async |namespace| {
        let engine = run(cluster, "engine-deleted", namespace).await?;
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        let secrets = api::<Secret>(&admin, namespace);
        boxes.create(&PostParams::default(), &timebox("a")).await?;
        phase(&boxes, "a", "Open").await?;
        let before = secrets.get(&inner_name("a")).await?;
        secrets
            .delete(&inner_name("a"), &DeleteParams::default())
            .await?;

        eventually("another secret", CONDITION_TIMEOUT, async || {
            let now = secrets.get_opt(&inner_name("a")).await?;
            Ok(now.filter(|now| now.metadata.uid != before.metadata.uid))
        })
        .await?;
        engine.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_does_not_decode_or_breaks_the_plan_stops_no_other() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "undecodable", async |namespace| {
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        let raw = kube::Api::<kube::core::DynamicObject>::namespaced_with(
            admin.clone(),
            namespace.name(),
            &kube::core::ApiResource::erase::<Timebox>(&()),
        );
        let broken = serde_json::from_value(json!({
            "apiVersion": "test.wizardofoz.co/v1",
            "kind": "Timebox",
            "metadata": {"name": "broken"},
            "spec": {"content": "x", "slow": "as a snail"},
        }))?;
        raw.create(&PostParams::default(), &broken).await?;
        let mut defect = timebox("defect");
        defect.spec.defect = Some(true);
        boxes.create(&PostParams::default(), &defect).await?;

        let engine = run(cluster, "engine-undecodable", namespace).await?;
        boxes.create(&PostParams::default(), &timebox("a")).await?;
        phase(&boxes, "a", "Open").await?;
        // A second broken object while the watch runs, and a good one after it.
        let mut again = broken.clone();
        again.metadata.name = Some("broken-again".to_owned());
        raw.create(&PostParams::default(), &again).await?;
        boxes.create(&PostParams::default(), &timebox("b")).await?;
        phase(&boxes, "b", "Open").await?;
        engine.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn object_is_reconciled_when_required_object_appears() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "related", async |namespace| {
        let engine = run(cluster, "engine-related", namespace).await?;
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        let mut needy = timebox("a");
        needy.spec.needs = Some("need".to_owned());
        boxes.create(&PostParams::default(), &needy).await?;
        phase(&boxes, "a", "Failed").await?;

        let mut need = config_map("need");
        let label = ("test.wizardofoz.co/need".to_owned(), "yes".to_owned());
        need.metadata.labels = Some(BTreeMap::from([label]));
        let maps = api::<ConfigMap>(&admin, namespace);
        maps.create(&PostParams::default(), &need).await?;
        phase(&boxes, "a", "Open").await?;
        engine.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn transition_is_reported_as_single_event() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "events", async |namespace| {
        let engine = run(cluster, "engine-events", namespace).await?;
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        boxes.create(&PostParams::default(), &timebox("a")).await?;
        phase(&boxes, "a", "Open").await?;
        // A stop publishes the waiting events.
        engine.stop().await?;

        let events = api::<Event>(&admin, namespace);
        let selection = ListParams::default().fields("reason=PhaseChanged");
        let events = events.list(&selection).await?.items;
        assert_eq!(events.len(), 1, "{events:#?}");
        let regarding = events[0].regarding.clone().unwrap_or_default();
        assert_eq!(regarding.name.as_deref(), Some("a"));
        assert_eq!(events[0].reporting_controller.as_deref(), Some("oz"));
        assert!(events[0].series.is_none());
        Ok(())
    })
    .await
}
