//! Children of deleted objects, also of objects that were deleted while no engine watched.

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use oz_api::labels;
use oz_testkit::{CONDITION_TIMEOUT, eventually, with_namespace};

use crate::harness::{api, cluster, gone, phase, run, timebox};
use crate::timebox::{Timebox, inner_name, outer_name};

#[tokio::test(flavor = "multi_thread")]
async fn children_go_when_their_object_is_deleted() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "delete", async |namespace| {
        let engine = run(cluster, "engine-delete", namespace).await?;
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        boxes.create(&PostParams::default(), &timebox("a")).await?;
        phase(&boxes, "a", "Open").await?;
        boxes.delete("a", &DeleteParams::default()).await?;

        gone(&api::<ConfigMap>(&admin, namespace), &outer_name("a")).await?;
        assert!(
            api::<Secret>(&admin, namespace)
                .get_opt(&inner_name("a"))
                .await?
                .is_none()
        );
        engine.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn children_of_object_deleted_during_downtime_are_removed_at_start() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "orphan", async |namespace| {
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        let engine = run(cluster, "engine-orphan-1", namespace).await?;
        for name in ["a", "b"] {
            boxes.create(&PostParams::default(), &timebox(name)).await?;
            phase(&boxes, name, "Open").await?;
        }
        engine.kill().await;
        boxes.delete("a", &DeleteParams::default()).await?;

        let engine = run(cluster, "engine-orphan-2", namespace).await?;
        let maps = api::<ConfigMap>(&admin, namespace);
        gone(&maps, &outer_name("a")).await?;
        // The other box keeps its children.
        maps.get(&outer_name("b")).await?;
        api::<Secret>(&admin, namespace)
            .get(&inner_name("b"))
            .await?;
        engine.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn recreated_object_gets_new_children() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "anew", async |namespace| {
        let engine = run(cluster, "engine-anew", namespace).await?;
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        boxes.create(&PostParams::default(), &timebox("a")).await?;
        phase(&boxes, "a", "Open").await?;
        boxes.delete("a", &DeleteParams::default()).await?;
        let anew = boxes.create(&PostParams::default(), &timebox("a")).await?;

        phase(&boxes, "a", "Open").await?;
        let maps = api::<ConfigMap>(&admin, namespace);
        eventually("a child of the new object", CONDITION_TIMEOUT, async || {
            let map = maps.get_opt(&outer_name("a")).await?;
            let owner = map.and_then(|map| map.labels().get(labels::OWNER_UID).cloned());
            Ok((owner == anew.uid()).then_some(()))
        })
        .await?;
        engine.stop().await
    })
    .await
}
