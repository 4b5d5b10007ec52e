//! Grants that are created and end, five a second, while everything is restarted in turns: the growth of each
//! process over time, leftovers of ended grants, and the delay of their end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use kube::api::{DeleteParams, ListParams};
use oz_api::{ExecAccessRequest, labels};
use oz_e2e::{Duty, Replicas, Scene, Traffic, TrafficPlan};
use oz_testkit::{Cluster, Process, eventually};

use super::process;
use super::report::{Budget, Report};
use super::scene::{self, CHANGE_TIMEOUT};
use super::stats::{Values, number};

/// Five a second. Each lasts longer than a lease, so that it can begin before it ends when the leader is
/// killed.
const PLAN: TrafficPlan = TrafficPlan {
    pace: Duration::from_millis(200),
    shortest: 24,
};
/// The number of requests before an event, and after.
const CALM: usize = 40;
/// The maximum growth of a process from its second round on, as a ratio.
const GROWTH: f64 = 1.1;
/// The budget for the delay because of a replica that dies, in milliseconds: a lease and a second.
const PROMISE: f64 = 16_000.0;

/// The duration of the soak.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) time: Duration,
}

impl Size {
    pub(super) const fn full() -> Self {
        Self {
            time: Duration::from_mins(30),
        }
    }

    pub(super) const fn quick() -> Self {
        Self {
            time: Duration::from_mins(1),
        }
    }
}

/// The event of a round.
#[derive(Clone, Copy, Debug)]
enum Event {
    Nothing,
    LeaderKilled,
    WebhookReplaced,
    ApiServerKilled,
    LeaderReplaced,
}

impl Event {
    /// All events, in turns. A leader lives for eight rounds of these, so that its growth is visible.
    const ALL: [Self; 10] = [
        Self::Nothing,
        Self::LeaderKilled,
        Self::WebhookReplaced,
        Self::Nothing,
        Self::ApiServerKilled,
        Self::Nothing,
        Self::WebhookReplaced,
        Self::Nothing,
        Self::ApiServerKilled,
        Self::LeaderReplaced,
    ];

    async fn happens(
        self,
        cluster: &Cluster,
        replicas: &mut Replicas,
        traffic: &Traffic,
    ) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::LeaderKilled => {
                replicas.kill_leader().await?;
                replicas.add_operator().await
            }
            Self::WebhookReplaced => {
                replicas.add_webhook().await?;
                replicas.drain_webhook(traffic.more(10)).await
            }
            Self::ApiServerKilled => cluster.restart_api_server().await.map(drop),
            Self::LeaderReplaced => {
                replicas.add_operator().await?;
                replicas.drain_leader().await
            }
        }
    }
}

/// The resources of a process.
#[derive(Clone, Copy, Debug)]
struct ResourceUsage {
    memory: f64,
    files: f64,
    threads: f64,
}

impl ResourceUsage {
    fn measure(process: &Process) -> Result<Self> {
        let pid = process.pid();
        Ok(Self {
            memory: process::resident(pid)?,
            files: process::open_files(pid)?,
            threads: process::threads(pid)?,
        })
    }
}

/// The resources of each process after each of its rounds with the same duty.
#[derive(Default)]
struct Growth {
    seen: BTreeMap<(Duty, u32), Vec<ResourceUsage>>,
    watches: Vec<f64>,
}

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let (owner, cluster) = scene::cluster().await?;
    let mut replicas = Replicas::start(cluster).await?;
    let began = Instant::now();
    let mut growth = Growth::default();
    for event in Event::ALL.iter().cycle() {
        if began.elapsed() > size.time {
            break;
        }
        round(*event, &owner, cluster, &mut replicas, report).await?;
        growth.note(cluster, &replicas).await?;
    }
    growth.tell(report)
}

/// Runs some grants, in a namespace of their own, from the first until no object of the last is left.
async fn round(
    event: Event,
    owner: &Cluster,
    cluster: &'static Cluster,
    replicas: &mut Replicas,
    report: &mut Report,
) -> Result<()> {
    let scene = Scene::set(cluster, "soak").await?;
    let traffic = Traffic::start_as(&scene, "alice", PLAN).await?;
    traffic.more(CALM).await?;
    event.happens(owner, replicas, &traffic).await?;
    traffic.more(CALM).await?;
    let outcome = traffic.stop(&scene).await?;
    let late: Values = outcome
        .granted
        .iter()
        .map(|grant| grant.late().as_millis_f64())
        .collect();
    report.add(
        "grants of a round",
        "",
        Budget::None,
        number(outcome.granted.len())?,
    );
    report.add(
        "RoleBinding gone after the end, p50",
        "ms",
        Budget::None,
        late.median(),
    );
    report.add(
        "RoleBinding gone after the end, max",
        "ms",
        Budget::AtMost(PROMISE),
        late.max(),
    );
    let turned_away = number(outcome.refused.len() + outcome.in_vain.len())?;
    match event {
        // An API server that starts refuses requests itself.
        Event::ApiServerKilled => {
            let what = "  turned away by an API server that starts";
            report.add(what, "", Budget::None, turned_away);
        }
        _ => report.add("turned away", "", Budget::AtMost(0.0), turned_away),
    }
    let left = left(&scene).await?;
    report.add("objects left", "", Budget::AtMost(0.0), number(left)?);
    ensure!(
        left == 0,
        "{left} objects are left of a round in which this happened: {event:?}"
    );
    Ok(())
}

/// Deletes the requests, and counts the remaining objects of their grants once they are gone.
async fn left(scene: &Scene) -> Result<usize> {
    let requests = scene.api::<ExecAccessRequest>();
    let all = ListParams::default();
    requests
        .delete_collection(&DeleteParams::default(), &all)
        .await?;
    eventually("every request to be gone", CHANGE_TIMEOUT, async || {
        Ok(requests.list(&all).await?.items.is_empty().then_some(()))
    })
    .await?;
    let ours = ListParams::default().labels(labels::OWNER_UID);
    let bindings = scene.api::<RoleBinding>().list(&ours).await?.items.len();
    let roles = scene.api::<Role>().list(&ours).await?.items.len();
    Ok(bindings + roles)
}

impl Growth {
    async fn note(&mut self, cluster: &Cluster, replicas: &Replicas) -> Result<()> {
        for (duty, process) in replicas.processes().await? {
            let held = ResourceUsage::measure(process)?;
            self.seen
                .entry((duty, process.pid()))
                .or_default()
                .push(held);
        }
        self.watches
            .push(watches(&cluster.client("admin").await?).await?);
        Ok(())
    }

    /// Reports the growth of processes with this duty since their second round in it.
    fn tell_of(&self, duty: Duty, report: &mut Report) {
        let who = match duty {
            Duty::Leads => "the operator that leads",
            Duty::Waits => "an operator that waits",
            Duty::Admits => "a webhook",
        };
        let processes = self.seen.iter().filter(|((other, _), _)| *other == duty);
        let rounds: Vec<_> = processes
            .filter_map(|(_, held)| Some((held.get(1)?, held.get(2..)?.last()?)))
            .collect();
        if rounds.is_empty() {
            return;
        }
        for (what, of) in [
            ("memory", (|held| held.memory) as fn(&ResourceUsage) -> f64),
            ("file descriptors", |held| held.files),
            ("threads", |held| held.threads),
        ] {
            let grown = rounds.iter().map(|(second, last)| of(last) / of(second));
            let what = format!("{what} of {who}, its last round over its second, most");
            report.add(
                &what,
                "×",
                Budget::AtMost(GROWTH),
                grown.collect::<Values>().max(),
            );
        }
    }

    fn tell(&self, report: &mut Report) -> Result<()> {
        for duty in [Duty::Leads, Duty::Waits, Duty::Admits] {
            self.tell_of(duty, report);
        }
        let longest = self.seen.values().map(Vec::len).max().unwrap_or_default();
        report.add(
            "  most rounds of a process with the same duty",
            "",
            Budget::None,
            number(longest)?,
        );
        let (first, last) = self
            .watches
            .first()
            .zip(self.watches.last())
            .context("no round")?;
        let what = "watches at the API server at the end over the first round";
        report.add(what, "×", Budget::AtMost(GROWTH), last / first);
        Ok(())
    }
}

/// Returns the number of watches that the API server serves.
async fn watches(client: &Client) -> Result<f64> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let page = client.request_text(request).await?;
    let lines = page.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{") && line.contains("verb=\"WATCH\"")
    });
    lines
        .map(|line| {
            let value = line.rsplit(' ').next().unwrap_or_default();
            value.parse::<f64>().context("no number")
        })
        .sum()
}
