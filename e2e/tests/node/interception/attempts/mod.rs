//! A hostile agent: attempts to reach a destination or a value that its run is not granted. One run makes all of them,
//! and a second one while every NetworkPolicy is deleted again and again; each test is about one attempt.
//! docs/reference/attempts.md has a row for each, from its doc comment. [`infrastructure`](super::infrastructure) shows
//! that they succeed from a pod without oz.

mod addresses;
mod containers;
mod credentials;
mod names;
mod requests;
mod traces;

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, ListParams};
use oz_e2e::agents::{AGENT_IMAGE, CREDENTIAL, KEY};
use oz_e2e::upstream::{
    ANTHROPIC, ECHO, EXPIRED, METADATA, MISNAMED, Question, Received, SELF_SIGNED, SINK_ADDRESSES,
};
use oz_testkit::CONDITION_TIMEOUT;
use oz_trail::Record;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::world::World;

/// The address of the API server as a Service.
const API_SERVER: &str = "10.0.0.1:443";
/// The hosts that the policy grants: to some of them the proxy must not connect all the same.
const GRANTED: [&str; 8] = [
    ANTHROPIC,
    ECHO,
    "changing.test",
    "linked.test",
    "private.test",
    EXPIRED,
    MISNAMED,
    SELF_SIGNED,
];

/// Returns the prompt of the hostile agent; with `only`, it makes these attempts alone.
pub(super) fn prompt(broker: &str, only: &[&str]) -> String {
    let [sink, sink_v6] = SINK_ADDRESSES;
    let addresses = [sink, sink_v6, METADATA, API_SERVER, broker];
    json!({"addresses": addresses, "only": only}).to_string()
}

/// The attempts of two runs, and their traces outside.
struct Outcome {
    /// The reports: of a run, and of a run without NetworkPolicies.
    reports: [Vec<Value>; 2],
    received: Vec<Received>,
    questions: Vec<Question>,
    packets: Vec<(IpAddr, u64)>,
    records: Vec<Record>,
}

static OUTCOME: OnceCell<Result<Option<Outcome>, String>> = OnceCell::const_new();

/// Returns the outcome of all attempts, which the first test obtains; `None` where no real node is possible.
async fn outcome() -> Result<Option<&'static Outcome>> {
    let outcome = OUTCOME
        .get_or_init(async || obtain().await.map_err(|error| format!("{error:#}")))
        .await;
    match outcome {
        Ok(outcome) => Ok(outcome.as_ref()),
        Err(error) => Err(anyhow::anyhow!("the attempts were not made: {error}")),
    }
}

async fn obtain() -> Result<Option<Outcome>> {
    let Some(mut world) = World::start("attempts").await? else {
        return Ok(None);
    };
    world.policy(&GRANTED).await?;
    let command = ["python3", "-s", "/agents/attempts.py"];
    world
        .template(AGENT_IMAGE, &command, &[ANTHROPIC], &[CREDENTIAL])
        .await?;
    let upstream = world.upstream;
    let before = (
        upstream.received().len(),
        upstream.names.questions().len(),
        upstream.packets_to_sinks()?,
    );
    let confined = attempts(&world, "confined").await?;
    let (alone, ()) =
        tokio::try_join!(attempts(&world, "alone"), delete_policies(&world, "alone"))?;
    let packets = upstream.packets_to_sinks()?;
    let packets = packets.into_iter().zip(before.2);
    let packets = packets.map(|((address, after), (_, before))| (address, after - before));
    traces::are_known(&confined)?;
    // A broker that ends writes the counts of its records, which otherwise takes a minute.
    let ended = world.broker.process.terminate(CONDITION_TIMEOUT).await?;
    ensure!(ended.success(), "the broker ended with {ended}");
    Ok(Some(Outcome {
        reports: [confined, alone],
        received: upstream.received().split_off(before.0),
        questions: upstream.names.questions().split_off(before.1),
        packets: packets.collect(),
        records: world.records("confined")?,
    }))
}

/// Submits a run of the hostile agent, and returns its report at its end.
async fn attempts(world: &World, name: &str) -> Result<Vec<Value>> {
    let run = world
        .submit(name, &prompt(&world.broker.serving.to_string(), &[]))
        .await?;
    let report = run
        .report("the attempts to end", |it| it["attempt"] == "end")
        .await?;
    run.release().await?;
    run.ended().await?;
    Ok(report)
}

/// Deletes every NetworkPolicy of the namespace again and again, from the start of a run's pod until its end.
async fn delete_policies(world: &World, name: &str) -> Result<()> {
    let runs = world.scene.api::<oz_api::harness::HarnessRun>();
    let policies = world.scene.api::<NetworkPolicy>();
    let mut deleted = false;
    loop {
        let run = runs.get_opt(name).await?;
        let status = run.and_then(|run| run.status).unwrap_or_default();
        if status.completion_time.is_some() {
            ensure!(deleted, "there was no NetworkPolicy to delete");
            return Ok(());
        }
        if status.start_time.is_some() {
            let all = ListParams::default();
            deleted |= !policies.list_metadata(&all).await?.items.is_empty();
            policies
                .delete_collection(&DeleteParams::default(), &all)
                .await?;
        }
        tokio::task::yield_now().await;
    }
}

impl Outcome {
    /// Checks that an attempt failed in both runs, and returns what the agent saw.
    fn failed(&self, attempt: &str) -> Result<[&str; 2]> {
        let mut details = [""; 2];
        for (report, detail) in self.reports.iter().zip(&mut details) {
            let line = report.iter().find(|it| it["attempt"] == attempt);
            let line = line.with_context(|| format!("{attempt} was not made"))?;
            ensure!(line["reached"] == false, "{line}");
            *detail = line["detail"].as_str().unwrap_or_default();
        }
        Ok(details)
    }

    /// Checks the traces outside: nothing reached a destination or carried a value that is not granted.
    fn left_no_trace(&self) -> Result<()> {
        for (address, count) in &self.packets {
            ensure!(*count == 0, "{count} packets reached {address}");
        }
        let strange = self
            .questions
            .iter()
            .find(|it| !GRANTED.contains(&it.name.as_str()));
        ensure!(strange.is_none(), "a name left the pod: {strange:?}");
        for request in &self.received {
            let is_granted = GRANTED.contains(&request.host.as_str());
            let foreign = ["pdk-", "of-the-attacker", "mine", "smuggled"];
            let foreign = foreign.iter().find(|text| request.contains(text));
            let has_key = request.contains(KEY);
            ensure!(is_granted, "another host was reached: {request:?}");
            ensure!(
                foreign.is_none(),
                "{foreign:?} reached the upstream: {request:?}"
            );
            ensure!(
                !has_key || request.host == ANTHROPIC,
                "the key is in {request:?}"
            );
        }
        Ok(())
    }
}

/// Checks that an attempt failed, with every NetworkPolicy and with none, that it is recorded, and left no trace outside.
async fn fails(attempt: &str) -> Result<()> {
    let Some(outcome) = outcome().await? else {
        return Ok(());
    };
    outcome.failed(attempt)?;
    outcome.has_trace(attempt)?;
    outcome.left_no_trace()
}

/// Checks that an attempt failed like [`fails`], with this text in what the agent saw.
async fn fails_with(attempt: &str, text: &str) -> Result<()> {
    let Some(outcome) = outcome().await? else {
        return Ok(());
    };
    for detail in outcome.failed(attempt)? {
        ensure!(detail.contains(text), "{attempt} saw {detail}");
    }
    outcome.has_trace(attempt)?;
    outcome.left_no_trace()
}
