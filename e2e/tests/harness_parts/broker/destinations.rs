//! The destinations that proxies report.

use anyhow::Result;
use oz_api::harness::{HarnessRun, RunEgress};
use oz_e2e::{Auditor, Scene};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use super::{proxied, stage};

async fn egress(scene: &Scene, run: &str) -> Result<Vec<RunEgress>> {
    let status = scene.api::<HarnessRun>().get(run).await?.status;
    Ok(status.unwrap_or_default().egress)
}

#[tokio::test]
async fn destinations_of_reports_add_up_in_the_status_of_the_run() -> Result<()> {
    let (scene, broker) = stage("egress").await?;
    let (_, _, token) = proxied(&scene, "hello").await?;
    let long = "x\u{1}".repeat(400);
    let counts = json!([
        {"host": "a.example.com", "port": 443, "granted": 2, "credential": "KEY", "uses": 2},
        {"host": "evil.example.com", "port": 80, "refused": 3, "reason": "HostNotGranted"},
        {"host": long, "port": 0, "refused": 1, "reason": "NoHost"},
    ]);
    for _ in 0..2 {
        assert_eq!(broker.report_egress(&token, &counts).await?.status, 204);
    }
    let all = eventually("the destinations", CONDITION_TIMEOUT, async || {
        let all = egress(&scene, "hello").await?;
        let is_done = all
            .iter()
            .any(|it| it.host == "a.example.com" && it.granted == 4);
        Ok(is_done.then_some(all))
    })
    .await?;
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(
        all.iter()
            .all(|it| it.host.len() <= 253 && !it.host.contains(char::is_control))
    );
    let evil = all
        .iter()
        .find(|it| it.port == 80)
        .expect("a refused destination");
    assert_eq!(
        (evil.refused, evil.reason.as_deref()),
        (6, Some("HostNotGranted"))
    );
    assert!(evil.first.is_some() && evil.first <= evil.last);

    let many: Vec<Value> = (0..60)
        .map(|at| json!({"host": format!("h{at}.example.com"), "port": 443, "granted": 1}))
        .collect();
    assert_eq!(
        broker.report_egress(&token, &json!(many)).await?.status,
        204
    );
    let all = eventually("the latest destinations", CONDITION_TIMEOUT, async || {
        let all = egress(&scene, "hello").await?;
        Ok((all[0].host == "h59.example.com").then_some(all))
    })
    .await?;
    assert_eq!(all.len(), 20);
    Ok(())
}

/// The original creates an object of the cluster for each blocked connection.
#[tokio::test]
async fn r13_first_connection_to_a_destination_is_recorded_and_repeats_are_counted() -> Result<()> {
    let (scene, broker) = stage("egress-records").await?;
    let (run, _, token) = proxied(&scene, "hello").await?;
    let refused = |host: &str| json!([{"host": host, "port": 443, "refused": 50, "reason": "HostNotGranted"}]);
    for _ in 0..4 {
        for host in ["one.example.com", "two.example.com"] {
            assert_eq!(
                broker.report_egress(&token, &refused(host)).await?.status,
                204
            );
        }
    }
    let granted = json!([{"host": "a.example.com", "port": 443, "granted": 1}]);
    assert_eq!(broker.report_egress(&token, &granted).await?.status, 204);
    let auditor = Auditor::pinning(&scene.admin).await?;
    let uid = run.metadata.uid.unwrap_or_default();
    let of_run = async || {
        let all = auditor.in_namespace(scene.name()).await?;
        let of_run = |one: &Value| one["request"]["uid"] == uid.as_str();
        let is_egress = |one: &Value| {
            one["action"]
                .as_str()
                .is_some_and(|it| it.starts_with("Egress"))
        };
        anyhow::Ok(
            all.into_iter()
                .filter(|one| of_run(one) && is_egress(one))
                .collect::<Vec<_>>(),
        )
    };
    let all = eventually("the first of each", CONDITION_TIMEOUT, async || {
        let all = of_run().await?;
        Ok((all.len() >= 3).then_some(all))
    })
    .await?;
    // The repeats wait for the end of the minute, which a slow test may reach: then they are one record each.
    assert!(all.len() <= 6, "{all:?}");
    for destination in [
        "one.example.com:443",
        "two.example.com:443",
        "a.example.com:443",
    ] {
        let is_about = |one: &&Value| one["details"]["destination"] == destination;
        assert!(
            all.iter().any(|one| is_about(&one)),
            "{destination}: {all:?}"
        );
    }
    Ok(())
}
