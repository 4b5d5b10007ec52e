//! Actions that are due at an instant occur then: not before, and regardless of other work.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt as _;
use kube::api::PostParams;
use oz_testkit::{Cluster, ClusterOptions, with_namespace};

use crate::harness::{api, cluster, from_now, gone, install, phase, run, timebox, timebox_until};
use crate::timebox::{TAKEN, Timebox, inner_name, outer_name};

#[tokio::test(flavor = "multi_thread")]
async fn children_exist_until_the_instant_and_cost_three_writes_each_way() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "until", async |namespace| {
        let user = "engine-until";
        let engine = run(cluster, user, namespace).await?;
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        let secrets = api::<Secret>(&admin, namespace);
        let mark = cluster.audit().mark()?;

        let until = from_now(3_456);
        let created = timebox_until("a", until);
        boxes.create(&PostParams::default(), &created).await?;
        phase(&boxes, "a", "Open").await?;
        let inner = secrets.get(&inner_name("a")).await;
        // The check does not apply on a machine that stalled for seconds.
        if Timestamp::now() < until {
            inner?;
        }

        phase(&boxes, "a", "Expired").await?;
        assert!(Timestamp::now() >= until, "it expired too early");
        gone(&secrets, &inner_name("a")).await?;
        gone(&api::<ConfigMap>(&admin, namespace), &outer_name("a")).await?;

        let writes = cluster.audit().since(mark)?.by_user(user).writes();
        let writes = writes.filter(|entry| entry.resource != "events");
        assert_eq!(writes.len(), 6, "{:#?}", writes.counts());
        engine.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn overdue_objects_are_ended_at_restart_before_new_ones_begin() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "overdue", async |namespace| {
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        let until = from_now(8_000);
        let engine = run(cluster, "engine-overdue-1", namespace).await?;
        for name in ["old-a", "old-b"] {
            let old = timebox_until(name, until);
            boxes.create(&PostParams::default(), &old).await?;
            phase(&boxes, name, "Open").await?;
        }
        engine.kill().await;
        try_join_all((0..40).map(async |number| {
            let new = timebox(&format!("new-{number}"));
            boxes.create(&PostParams::default(), &new).await
        }))
        .await?;
        let left = until.duration_since(Timestamp::now());
        tokio::time::sleep(left.try_into().unwrap_or_default()).await;

        let mark = cluster.audit().mark()?;
        let user = "engine-overdue-2";
        let engine = run(cluster, user, namespace).await?;
        phase(&boxes, "new-39", "Open").await?;

        let writes = cluster.audit().since(mark)?.by_user(user).writes();
        let verbs: Vec<_> = writes.iter().map(|entry| entry.verb.as_str()).collect();
        let last_end = verbs.iter().rposition(|verb| *verb == "delete");
        let first_begin = writes
            .iter()
            .position(|entry| entry.verb == "create" && entry.resource != "events");
        assert_eq!(verbs.iter().filter(|verb| **verb == "delete").count(), 4);
        assert!(last_end < first_begin, "{verbs:?}");
        engine.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_does_not_wait_for_observations_that_hang() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "starve", async |namespace| {
        let engine = run(cluster, "engine-starve", namespace).await?;
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        let until = from_now(4_000);
        for created in [timebox_until("expiring", until), timebox("taken")] {
            boxes.create(&PostParams::default(), &created).await?;
            phase(&boxes, &created.name_any(), "Open").await?;
        }
        // More boxes than there are slots, and each takes longer than this test may.
        try_join_all((0..64).map(async |number| {
            let mut slow = timebox(&format!("slow-{number}"));
            slow.spec.slow = Some(3_600_000);
            boxes.create(&PostParams::default(), &slow).await
        }))
        .await?;

        let expired = phase(&boxes, "expiring", "Expired").await?;
        let children = expired.status.map(|status| status.children);
        assert_eq!(children, Some(0));
        // An object of another kind removes the object that a box needs.
        let mut taken = ConfigMap::default();
        taken.metadata.name = Some("taken".to_owned());
        taken.labels_mut().insert(TAKEN.to_owned(), String::new());
        let maps = api::<ConfigMap>(&admin, namespace);
        maps.create(&PostParams::default(), &taken).await?;
        phase(&boxes, "taken", "Failed").await?;
        drop(engine);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn open_boxes_cost_no_calls_while_nothing_happens() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "idle", async |namespace| {
        let user = "engine-idle";
        let engine = run(cluster, user, namespace).await?;
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        // The end of this box is the end of the observed time.
        let until = from_now(5_000);
        let clock = timebox_until("clock", until);
        boxes.create(&PostParams::default(), &clock).await?;
        for number in 0..20 {
            let far = from_now(3_600_000);
            let open = timebox_until(&format!("open-{number}"), far);
            boxes.create(&PostParams::default(), &open).await?;
        }
        for number in 0..20 {
            phase(&boxes, &format!("open-{number}"), "Open").await?;
        }
        let plans = engine
            .controller
            .plans
            .load(std::sync::atomic::Ordering::Relaxed);
        let mark = cluster.audit().mark()?;

        phase(&boxes, "clock", "Expired").await?;

        let calls = cluster.audit().since(mark)?.by_user(user);
        let calls = calls.filter(|entry| {
            let of_the_clock = entry.name.starts_with("clock");
            entry.verb != "watch" && entry.resource != "events" && !of_the_clock
        });
        assert!(calls.is_empty(), "{:#?}", calls.counts());
        let more = engine
            .controller
            .plans
            .load(std::sync::atomic::Ordering::Relaxed)
            - plans;
        assert!(more <= 2, "{more} plans were made while nothing happened");
        engine.stop().await
    })
    .await
}

/// Stops or continues the API server of a cluster that only this test uses.
fn signal(cluster: &Cluster, signal: &str) -> Result<()> {
    let api_server = cluster.components().get("kube-apiserver");
    let pid = api_server.context("no API server among the components")?;
    let mut kill = Command::new("kill");
    let status = kill.args([signal, &pid.to_string()]).status()?;
    anyhow::ensure!(status.success(), "kill {signal} {pid}: {status}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expiry_that_falls_into_an_outage_of_the_api_server_follows_it() -> Result<()> {
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    install(&cluster).await?;
    with_namespace(&cluster, "outage", async |namespace| {
        let engine = run(&cluster, "engine-outage", namespace).await?;
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        let until = from_now(3_000);
        let expiring = timebox_until("a", until);
        boxes.create(&PostParams::default(), &expiring).await?;
        phase(&boxes, "a", "Open").await?;

        signal(&cluster, "-STOP")?;
        // The outage is long enough for requests to time out and be retried.
        let over = until + Duration::from_secs(8);
        let outage = over.duration_since(Timestamp::now());
        tokio::time::sleep(outage.try_into().unwrap_or_default()).await;
        signal(&cluster, "-CONT")?;

        phase(&boxes, "a", "Expired").await?;
        // The watches work again too.
        boxes.create(&PostParams::default(), &timebox("b")).await?;
        phase(&boxes, "b", "Open").await?;
        engine.stop().await
    })
    .await
}
