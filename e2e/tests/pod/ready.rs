//! Pods that never become ready: the reports to their requesters, and the independence of other requests.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use futures::future::try_join_all;
use oz_api::Phase;
use oz_e2e::{Scene, conditions_line};
use serde_json::json;

use crate::scene;
use crate::support::{Requests, pod_gone, pod_name, status, template};

const MANY: usize = 20;

async fn stuck_template(scene: &Scene) -> Result<()> {
    let nowhere = json!({"nodeSelector": {"example.test/nowhere": "true"}});
    template(
        scene,
        "stuck",
        json!({"controllerTargetMutationConfig": nowhere}),
    )
    .await?;
    Ok(())
}

#[tokio::test]
async fn stuck_pod_delays_no_others_and_is_given_up() -> Result<()> {
    let scene = scene("pod-stuck").await?;
    template(&scene, "pod", json!({})).await?;
    stuck_template(&scene).await?;
    let alice = Requests::new(&scene, "alice").await?;
    alice.create("stuck", "stuck", "5m").await?;
    let waiting = alice
        .until("stuck", "to say why", |status| {
            conditions_line(status).contains("Unschedulable")
        })
        .await?;
    // Requests that waited for it would not be ready before its timeout.
    let ready_before = AtomicUsize::new(0);
    try_join_all((0..MANY).map(async |number| {
        let name = format!("together-{number}");
        alice.granted(&name, "pod", "5m").await?;
        let stuck = status(&alice.api.get("stuck").await?);
        let is_first = !stuck.phase.is_terminal();
        ready_before.fetch_add(usize::from(is_first), Ordering::Relaxed);
        anyhow::Ok(())
    }))
    .await?;
    let ready_before = ready_before.into_inner();
    assert!(
        ready_before >= MANY / 2,
        "{ready_before} of {MANY} did not wait for a pod that is stuck"
    );

    let told = conditions_line(&alice.phase("stuck", Phase::Failed).await?);
    assert!(
        told.contains("was not ready within 45s: Unschedulable"),
        "{told}"
    );
    pod_gone(&scene, &pod_name(&waiting)).await?;
    crate::support::grant_gone(&scene, &waiting).await
}
