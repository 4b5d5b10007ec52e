//! `ozctl watch` while the API server is killed and restarts.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use oz_api::Phase;
use oz_e2e::{Scene, System, TEMPLATE, Watch, exec_request};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::Value;

use crate::alone;

/// Returns the reported changes of each request, in their order.
fn parse_changes(output: &str) -> Result<BTreeMap<String, Vec<Value>>> {
    let mut told = BTreeMap::<_, Vec<_>>::new();
    for line in output.lines() {
        let change: Value = serde_json::from_str(line)?;
        let name = change["name"].as_str().context("no name")?.to_owned();
        told.entry(name).or_default().push(change);
    }
    Ok(told)
}

#[tokio::test]
async fn watch_reports_each_change_once_across_api_server_restart() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "watched").await?;
    scene.people_may_look().await?;
    let alice = scene.requests("alice").await?;
    for name in ["stays", "goes"] {
        alice.granted(&exec_request(name, TEMPLATE, "1h")).await?;
    }
    // Alice has the rights of a user: a starting API server does not know them at first.
    let json = Watch::start(&scene, "alice", &["-o", "json"]).await?;
    let text = Watch::start(&scene, "alice", &[]).await?;
    alice
        .granted(&exec_request("before", TEMPLATE, "1h"))
        .await?;
    json.shows(&["\"before\"", "\"Active\""]).await?;

    // The watch reports the decisions that were made around the restart once the API server is available again.
    for number in 0..3 {
        alice
            .create(&exec_request(&format!("during-{number}"), TEMPLATE, "1h"))
            .await?;
    }
    cluster.restart_api_server().await?;
    eventually("the request to go", CONDITION_TIMEOUT, async || {
        let gone = alice.api().delete("goes", &DeleteParams::default()).await;
        Ok(Some(gone?))
    })
    .await?;
    for number in 0..3 {
        alice
            .phase(&format!("during-{number}"), Phase::Active)
            .await?;
    }
    alice
        .granted(&exec_request("after", TEMPLATE, "1h"))
        .await?;

    for watch in [&json, &text] {
        watch
            .says("stderr", &["failed to receive changes", "connecting again"])
            .await?;
        watch.says("stderr", &["watching again"]).await?;
        let said = watch.read("stderr")?;
        let times = |words: &str| said.matches(words).count();
        // This counts all kinds together; a starting API server may disconnect once more.
        let (broken, back) = (times("failed to receive changes"), times("watching again"));
        assert!(broken == back && broken <= 2, "{said}");
    }
    for name in ["before", "during-0", "during-1", "during-2", "after"] {
        let name = format!("\"{name}\"");
        json.shows(&[&name, "\"Active\"", "\"until\""]).await?;
    }
    json.shows(&["\"goes\"", "\"deleted\":true"]).await?;
    text.shows(&["ExecAccessRequest goes", "Deleted"]).await?;

    let output = json.read("stdout")?;
    for (name, changes) in parse_changes(&output)? {
        let twice = changes.windows(2).any(|two| two[0] == two[1]);
        ensure!(!twice, "{name} is told of twice: {changes:?}");
        // No change is reported twice.
        let mut phases: Vec<_> = changes
            .iter()
            .map(|change| (change["phase"].to_string(), change["deleted"].to_string()))
            .collect();
        phases.dedup();
        let mut distinct = phases.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(phases.len(), distinct.len(), "{name}: {changes:?}");
    }
    // The watch does not report an existing request that stays unchanged.
    ensure!(!output.contains("\"stays\""), "{output}");
    assert_eq!(json.interrupted()?, Some(0));
    assert_eq!(text.interrupted()?, Some(0));
    Ok(())
}
