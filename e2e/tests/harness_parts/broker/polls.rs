//! Held requests for grants.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::{Patch, PatchParams};
use oz_api::harness::{BrokerPolicy, HarnessRun};
use oz_e2e::{Broker, BrokerAnswer, BrokerClient, Options, Scene};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{HOST, as_operator, grants, lending_stage, proxied, set_secret};
use crate::cluster;

/// The digest of the current grants, once they have the credential.
async fn settled(broker: &BrokerClient, token: &str) -> Result<String> {
    eventually("the grants", CONDITION_TIMEOUT, async || {
        let body = broker.grants(token, "").await?.body;
        let has_version = body["credentials"][0]["version"].as_str();
        let has_version = has_version.is_some_and(|version| version.starts_with("sha256:"));
        let digest = body["digest"].as_str().map(ToOwned::to_owned);
        Ok(digest.filter(|_| has_version))
    })
    .await
}

/// A request that is held.
fn poll(broker: &BrokerClient, token: &str, seen: &str) -> JoinHandle<Result<BrokerAnswer>> {
    let (broker, token, seen) = (broker.clone(), token.to_owned(), seen.to_owned());
    tokio::spawn(async move { broker.grants(&token, &seen).await })
}

/// A separate broker, with the held requests of the test only.
async fn own_broker(prefix: &str, replica: &str) -> Result<(Scene, Broker, BrokerClient)> {
    let (scene, _) = lending_stage(prefix).await?;
    let broker = Broker::start(cluster().await?, &Options::replica(replica)).await?;
    let client = broker.connect(&scene.admin).await?;
    Ok((scene, broker, client))
}

#[tokio::test]
async fn held_request_is_answered_when_what_it_depends_on_changes() -> Result<()> {
    let (scene, broker, client) = own_broker("held", "oz-broker-4").await?;
    let (_, _, token) = proxied(&scene, "hello").await?;
    let digest = settled(&client, &token).await?;
    let policies = scene.api::<BrokerPolicy>();

    let waits = poll(&client, &token, &digest);
    broker.holds(1).await?;
    let mut more = grants();
    more["egress"] = json!([{"host": HOST}, {"host": "b.example.com", "ports": [443]}]);
    scene.lending_policy("a", more, true).await?;
    let answer = waits.await??;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(
        answer.body["hosts"][1],
        json!({"host": "b.example.com", "ports": [443]})
    );
    let digest = answer.body["digest"]
        .as_str()
        .context("no digest")?
        .to_owned();

    let waits = poll(&client, &token, &digest);
    broker.holds(1).await?;
    set_secret(&scene, "keys", "the-next-key").await?;
    let answer = waits.await??;
    assert_ne!(answer.body["digest"], digest.as_str(), "{answer:?}");
    let digest = answer.body["digest"]
        .as_str()
        .context("no digest")?
        .to_owned();

    let waits = poll(&client, &token, &digest);
    broker.holds(1).await?;
    policies.delete("a", &Default::default()).await?;
    let answer = waits.await??;
    assert_eq!(
        (&answer.body["hosts"], &answer.body["credentials"]),
        (&json!([]), &json!([]))
    );
    Ok(())
}

#[tokio::test]
async fn held_request_of_a_run_that_ends_or_is_deleted_gets_403() -> Result<()> {
    let (scene, broker, client) = own_broker("held-over", "oz-broker-5").await?;
    let (_, _, ends) = proxied(&scene, "ends").await?;
    let (_, _, deleted) = proxied(&scene, "deleted").await?;
    let (ends_seen, deleted_seen) = (
        settled(&client, &ends).await?,
        settled(&client, &deleted).await?,
    );
    let waits = [
        poll(&client, &ends, &ends_seen),
        poll(&client, &deleted, &deleted_seen),
    ];
    broker.holds(2).await?;
    let over = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    as_operator(&scene)
        .await?
        .patch_status("ends", &PatchParams::default(), &over)
        .await?;
    scene
        .api::<HarnessRun>()
        .delete("deleted", &Default::default())
        .await?;
    for waits in waits {
        let answer = waits.await??;
        assert_eq!(
            (answer.status, answer.code()),
            (403, "RunEnded"),
            "{answer:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn held_requests_are_answered_when_the_broker_stops() -> Result<()> {
    let (scene, mut broker, client) = own_broker("held-stop", "oz-broker-6").await?;
    let (_, _, token) = proxied(&scene, "hello").await?;
    let digest = settled(&client, &token).await?;
    let waits = poll(&client, &token, &digest);
    broker.holds(1).await?;
    let (ended, answer) = tokio::join!(broker.process.terminate(Duration::from_secs(60)), waits);
    assert!(ended?.success());
    let answer = answer??;
    assert_eq!(
        (answer.status, &answer.body["digest"]),
        (200, &Value::from(digest))
    );
    Ok(())
}

#[tokio::test]
async fn later_request_of_a_pod_ends_the_one_that_is_held() -> Result<()> {
    let (scene, broker, client) = own_broker("held-twice", "oz-broker-7").await?;
    let (_, _, token) = proxied(&scene, "hello").await?;
    let digest = settled(&client, &token).await?;
    let first = poll(&client, &token, &digest);
    broker.holds(1).await?;
    let second = poll(&client, &token, &digest);
    let answer = first.await??;
    assert_eq!(answer.status, 200);
    broker.holds(1).await?;
    assert!(!second.is_finished());
    Ok(())
}

/// A policy that is edited ten times a second: each poll is answered, and the last grants arrive.
#[tokio::test]
async fn policy_that_is_edited_ten_times_a_second_keeps_its_proxies_up_to_date() -> Result<()> {
    let (scene, broker) = lending_stage("edited").await?;
    let (_, _, token) = proxied(&scene, "hello").await?;
    let mut seen = settled(&broker, &token).await?;
    let edits = async {
        for number in 0..30 {
            let mut more = grants();
            let host = format!("{number}.example.com");
            more["egress"] = json!([{"host": HOST}, {"host": host}]);
            scene.lending_policy("a", more, true).await?;
        }
        anyhow::Ok(())
    };
    let polls = async {
        loop {
            let answer = broker.grants(&token, &seen).await?;
            assert_eq!(answer.status, 200, "{answer:?}");
            seen = answer.body["digest"]
                .as_str()
                .context("no digest")?
                .to_owned();
            if answer.body["hosts"][0]["host"] == "29.example.com" {
                return anyhow::Ok(());
            }
        }
    };
    tokio::try_join!(edits, polls)?;
    Ok(())
}
