//! What the broker answers to those who are pods of runs, and how much.

use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use oz_api::harness::{HarnessRun, RunPhase};
use oz_e2e::{Broker, Options, Scene};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use super::{AUDIENCE, as_operator, event, stage, started, summaries};
use crate::cluster;

#[tokio::test]
async fn a_prompt_comes_whole_however_long_it_is_and_one_from_elsewhere_is_not_the_brokers()
-> Result<()> {
    let (scene, broker) = stage("prompt").await?;
    let long = "ä\"\n\u{1}".repeat(262_144 / 5);
    let (_, _, token) = started(&scene, "long", &long).await?;
    assert_eq!(broker.prompt(&token).await?.prompt(), Some(long.as_str()));

    let elsewhere = serde_json::from_value(json!({
        "metadata": {"name": "elsewhere"},
        "spec": {
            "templateRef": {"name": "echo"},
            "promptFrom": {"secretKeyRef": {"name": "prompts", "key": "first"}},
        },
    }))?;
    let runs = scene.api::<HarnessRun>();
    let run = runs.create(&Default::default(), &elsewhere).await?;
    let pod = scene.pod_of_job("elsewhere", &run).await?;
    let token = scene.token(AUDIENCE, Some(&pod)).await?;
    let answer = broker.prompt(&token).await?;
    assert_eq!((answer.status, answer.body), (200, json!({})));
    Ok(())
}

/// The original issues credentials in every phase.
#[tokio::test]
async fn r5_a_run_that_is_over_gets_nothing_and_may_still_say_how_it_ended() -> Result<()> {
    let (scene, broker) = stage("over").await?;
    let (run, _, token) = started(&scene, "hello", "secret").await?;
    assert_eq!(broker.prompt(&token).await?.prompt(), Some("secret"));
    let over = json!({"status": {
        "phase": "Succeeded", "jobName": "hello", "startTime": "2026-01-01T00:00:00Z",
    }});
    let runs = as_operator(&scene).await?;
    let over = Patch::Merge(over);
    runs.patch_status("hello", &PatchParams::default(), &over)
        .await?;
    let answer = broker.prompt(&token).await?;
    assert_eq!(
        (answer.status, answer.code()),
        (403, "RunEnded"),
        "{answer:?}"
    );
    assert!(!answer.body.to_string().contains("secret"));

    let answer = broker
        .report(&token, &json!([event("Result", "the end")]))
        .await?;
    assert_eq!(answer.status, 204);
    eventually("the last event", CONDITION_TIMEOUT, async || {
        Ok((summaries(&scene, &run).await? == ["the end"]).then_some(()))
    })
    .await?;
    let status = runs.get("hello").await?.status.unwrap_or_default();
    assert_eq!(status.phase, Some(RunPhase::Succeeded));
    assert_eq!(status.job_name.as_deref(), Some("hello"));
    assert!(status.start_time.is_some());
    Ok(())
}

#[tokio::test]
async fn excessive_requests_of_pod_get_429_and_others_are_answered() -> Result<()> {
    let (scene, broker) = stage("rates").await?;
    let (_, _, busy) = started(&scene, "busy", "one").await?;
    let (_, _, quiet) = started(&scene, "quiet", "two").await?;
    let mut answered = 0;
    // One after the other, they may come no faster than they are let in.
    let refused = eventually("one to be refused", CONDITION_TIMEOUT, async || {
        let asked = (0..100).map(|_| broker.prompt(&busy));
        let answers = try_join_all(asked).await?;
        let (good, refused): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| answer.status == 200);
        answered += good.len();
        Ok(refused.into_iter().next())
    })
    .await?;
    assert!(answered >= 10, "{answered}");
    assert_eq!((refused.status, refused.code()), (429, "TooManyRequests"));
    let wait = refused.retry_after.expect("it says how long");
    assert!((1..=2).contains(&wait), "{wait}");
    assert_eq!(broker.prompt(&quiet).await?.prompt(), Some("two"));
    eventually("to be answered again", CONDITION_TIMEOUT, async || {
        Ok((broker.prompt(&busy).await?.status == 200).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_body_that_is_too_large_or_no_report_is_refused_and_says_why() -> Result<()> {
    let (scene, broker) = stage("bodies").await?;
    let (run, _, token) = started(&scene, "hello", "x").await?;
    let mut large = serde_json::to_vec(&json!({"events": [event("ToolUse", "fits")]}))?;
    large.resize(64 * 1024, b' ');
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let report = |body: Vec<u8>| broker.send("POST", "/v1/report", &token, &[], body);
    assert_eq!(report(large.clone()).await?.status, 204);
    large.push(b' ');
    for (body, status, code) in [
        (large, 413, "TooLarge"),
        (vec![b' '; 1 << 20], 413, "TooLarge"),
        (deep.into_bytes(), 400, "BadReport"),
        (b"{\"events\": [{}]}".to_vec(), 400, "BadReport"),
        (Vec::new(), 400, "BadReport"),
    ] {
        // Who still sends when it is refused may meet a closed connection before the answer.
        let answer = eventually("an answer", CONDITION_TIMEOUT, async || {
            Ok(Some(report(body.clone()).await?))
        })
        .await?;
        assert_eq!((answer.status, answer.code()), (status, code), "{answer:?}");
        assert!(
            !answer.body["message"]
                .as_str()
                .unwrap_or_default()
                .is_empty()
        );
    }
    eventually("the one that fits", CONDITION_TIMEOUT, async || {
        Ok((summaries(&scene, &run).await? == ["fits"]).then_some(()))
    })
    .await?;
    let answer = broker
        .send("PUT", "/v1/run", &token, &[], Vec::new())
        .await?;
    assert_eq!((answer.status, answer.code()), (405, "MethodNotAllowed"));
    let answer = broker
        .send("GET", "/metrics", &token, &[], Vec::new())
        .await?;
    assert_eq!((answer.status, answer.code()), (404, "NotFound"));
    Ok(())
}

/// Two brokers, of which one is killed and comes back: any of them answers, with the same authority.
#[tokio::test]
async fn any_replica_answers_and_one_that_was_killed_answers_again() -> Result<()> {
    let cluster = cluster().await?;
    let scene = Scene::empty(cluster, "replicas").await?;
    let mut first = Broker::start(cluster, &Options::replica("oz-broker-1")).await?;
    let mut second = Broker::start(cluster, &Options::replica("oz-broker-2")).await?;
    let (run, _, token) = started(&scene, "hello", "the prompt").await?;
    let trusted = first.trusted(&scene.admin).await?;
    for broker in [&first, &second] {
        let answer = broker.connect_trusting(&trusted)?.prompt(&token).await?;
        assert_eq!(answer.prompt(), Some("the prompt"));
    }
    first.process.kill9();
    let events = |summary: &str| json!([event("ToolUse", summary)]);
    let to_second = second.connect_trusting(&trusted)?;
    assert_eq!(
        to_second.report(&token, &events("meanwhile")).await?.status,
        204
    );
    let again = Broker::start(cluster, &Options::replica("oz-broker-1")).await?;
    assert_eq!(again.trusted(&scene.admin).await?, trusted);
    let answer = again.connect_trusting(&trusted)?.prompt(&token).await?;
    assert_eq!(answer.prompt(), Some("the prompt"));

    // What waits when a replica is told to end is written first.
    assert_eq!(
        to_second
            .report(&token, &events("at the end"))
            .await?
            .status,
        204
    );
    let ended: ExitStatus = second.process.terminate(Duration::from_secs(60)).await?;
    assert!(ended.success(), "{ended}");
    assert_eq!(summaries(&scene, &run).await?, ["at the end"]);

    let metrics = again.metrics().await?;
    let counted = r#"oz_broker_requests_total{route="run",code="OK"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    assert!(metrics.contains("oz_broker_request_duration_seconds_bucket"));
    Ok(())
}

/// Starts a separate broker, to which no other test connects.
#[tokio::test]
async fn excessive_unknown_callers_get_429_and_known_pods_are_answered() -> Result<()> {
    let cluster = cluster().await?;
    let scene = Scene::empty(cluster, "strangers").await?;
    let broker = Broker::start(cluster, &Options::replica("oz-broker-3")).await?;
    let (_, pod, token) = started(&scene, "hello", "the prompt").await?;
    let client = broker.connect(&scene.admin).await?;
    assert_eq!(client.prompt(&token).await?.status, 200);
    let before = cluster.audit().mark()?;
    let mut statuses = Vec::new();
    while statuses.len() < 2_000 && statuses.last() != Some(&429) {
        let guess = format!("guess-{}", statuses.len());
        statuses.push(client.prompt(&guess).await?.status);
    }
    assert_eq!(statuses.pop(), Some(429));
    assert!(statuses.iter().all(|status| *status == 401), "{statuses:?}");
    let asked = cluster.audit().since(before)?.by_user(super::USER);
    let asked = asked.filter(|entry| entry.resource == "tokenreviews").len();
    // Other replicas ask as the same user: how often this one did, it counts itself.
    assert!(
        asked >= statuses.len(),
        "{asked} of {} were asked about",
        statuses.len()
    );
    let counted = format!(
        r#"oz_broker_token_reviews_total{{outcome="unauthenticated"}} {}"#,
        statuses.len()
    );
    let metrics = broker.metrics().await?;
    assert!(
        metrics.lines().any(|line| line == counted),
        "{counted}: {metrics}"
    );
    assert_eq!(
        client.prompt(&token).await?.status,
        200,
        "{}",
        pod.name_any()
    );
    Ok(())
}
