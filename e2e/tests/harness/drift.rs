//! A pod that is made unseen: the label by which its NetworkPolicy confines it is the label by which it is found.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use oz_api::harness::RunPhase;
use oz_api::labels;
use oz_trail::Action;
use serde_json::json;

use crate::support::World;

#[tokio::test]
async fn a_pod_that_loses_the_label_that_confines_it_ends_its_run() -> Result<()> {
    let world = World::new("unseen").await?;
    let pod = world.running("slips", json!({})).await?;

    let bare = Patch::Merge(json!({"metadata": {"labels": {labels::OWNER_UID: null}}}));
    let pods = world.api::<Pod>();
    pods.patch(&pod.name_any(), &PatchParams::default(), &bare)
        .await?;
    world.told_to_end(&pod).await?;
    world.kubelet_lets_go(&pod).await?;
    world.phase("slips", RunPhase::Cancelled).await?;
    let records = world.records("slips").await?;
    let last = records.last().context("there is no record")?;
    assert_eq!(
        (last.action, last.reason.as_str()),
        (Action::RunEnded, "DriftDetected")
    );
    world.let_out("slips").await
}
