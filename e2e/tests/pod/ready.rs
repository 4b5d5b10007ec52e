//! Pods that never get ready: what their owners are told, and that nobody else waits for them.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;
use oz_core::api::Phase;
use oz_e2e::{Scene, conditions_line};
use serde_json::json;

use crate::scene;
use crate::support::{Requests, pod_gone, pod_name, template};

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

/// How long it takes until many requests are all Ready.
async fn many(alice: &Requests, prefix: &str) -> Result<Duration> {
    let begin = Instant::now();
    try_join_all((0..MANY).map(async |number| {
        let name = format!("{prefix}-{number}");
        alice.granted(&name, "pod", "5m").await
    }))
    .await?;
    Ok(begin.elapsed())
}

#[tokio::test]
async fn a_stuck_pod_delays_nobody_and_is_given_up() -> Result<()> {
    let scene = scene("pod-stuck").await?;
    template(&scene, "pod", json!({})).await?;
    stuck_template(&scene).await?;
    let alice = Requests::of(&scene, "alice").await?;
    many(&alice, "warm").await?;
    let alone = many(&alice, "alone").await?;

    alice.create("stuck", "stuck", "5m").await?;
    let waiting = alice
        .until("stuck", "to say why", |status| {
            conditions_line(status).contains("Unschedulable")
        })
        .await?;
    let together = many(&alice, "together").await?;
    // The budget is 1.2; other tests run beside this one.
    let ratio = together.as_secs_f64() / alone.as_secs_f64();
    assert!(
        ratio < 2.0,
        "{MANY} alone {alone:?}, beside a stuck pod {together:?}"
    );

    let told = conditions_line(&alice.phase("stuck", Phase::Failed).await?);
    assert!(
        told.contains("was not ready within 45s: Unschedulable"),
        "{told}"
    );
    pod_gone(&scene, &pod_name(&waiting)).await?;
    crate::support::grant_gone(&scene, &waiting).await
}
