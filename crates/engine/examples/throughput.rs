//! A measurement of the engine's cost and speed, with the controller of its tests: `cargo run
//! --release -p oz-engine --example throughput`. The engine runs as a separate process against a
//! real API server, so that CPU and memory are its own.

#![allow(clippy::print_stdout, reason = "its output is what it is for")]

#[path = "../tests/timebox/mod.rs"]
mod timebox;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use oz_engine::Engine;
use oz_runtime::Runtime;
use oz_testkit::{Cluster, eventually, with_namespace};
use tokio_util::sync::CancellationToken;

use timebox::{ObserveTimeboxes, Timebox, TimeboxSpec, Timeboxes};

const AT_ONCE: usize = 200;
const ONE_BY_ONE: usize = 50;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(kubeconfig), Some(namespace)) => engine(Path::new(&kubeconfig), namespace).await,
        _ => measure().await,
    }
}

async fn engine(kubeconfig: &Path, namespace: String) -> Result<()> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let (client, clock) = oz_runtime::client(config)?;
    let mut engine = Engine::new(Runtime::new("oz", client, clock));
    engine.runtime().feeds().restrict([namespace]);
    let observe = ObserveTimeboxes::new(engine.runtime().feeds());
    engine.controller(Timeboxes::default(), observe);
    engine.run(CancellationToken::new()).await?;
    Ok(())
}

async fn measure() -> Result<()> {
    let cluster = Cluster::from_environment().await?;
    let admin = cluster.client("admin").await?;
    let crds = Api::<CustomResourceDefinition>::all(admin.clone());
    let apply = PatchParams::apply("bench").force();
    crds.patch(Timebox::crd_name(), &apply, &Patch::Apply(Timebox::crd()))
        .await?;
    with_namespace(&cluster, "throughput", async |namespace| {
        let boxes = Api::<Timebox>::namespaced(admin.clone(), namespace.name());
        let served = Duration::from_secs(30);
        eventually("the CRD to be served", served, async || {
            Ok(boxes.list(&kube::api::ListParams::default()).await.ok())
        })
        .await?;
        let mut process = Command::new(std::env::current_exe()?)
            .arg(cluster.kubeconfig("admin"))
            .arg(namespace.name())
            .spawn()?;
        let measured = numbers(&admin, &boxes, namespace.name(), &process).await;
        process.kill()?;
        process.wait()?;
        measured
    })
    .await
}

async fn numbers(
    admin: &Client,
    boxes: &Api<Timebox>,
    namespace: &str,
    process: &Child,
) -> Result<()> {
    let mut boxes = Watcher::new(boxes);
    boxes.open(vec!["warm-up".to_owned()], None).await?;
    let idle = memory(process)?;
    let maps = Api::<ConfigMap>::namespaced(admin.clone(), namespace);
    let mut baseline = Vec::new();
    let mut opened = Vec::new();
    let before = cpu(process)?;
    for number in 0..ONE_BY_ONE {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("baseline-{number}"));
        let began = Instant::now();
        maps.create(&PostParams::default(), &map).await?;
        baseline.push(began.elapsed());
        opened.push(boxes.open(vec![format!("one-{number}")], None).await?);
    }
    let one_by_one = (cpu(process)? - before) / u32::try_from(ONE_BY_ONE)?;
    baseline.sort();
    opened.sort();
    let p = |sorted: &[Duration], percent: usize| sorted[(sorted.len() - 1) * percent / 100];
    println!("create of a ConfigMap        p50 {:?}", p(&baseline, 50));
    println!(
        "create to Open, one by one   p50 {:?}, p99 {:?}",
        p(&opened, 50),
        p(&opened, 99)
    );
    println!("engine CPU, one by one       {one_by_one:?} each");

    for round in 1..=3 {
        let before = cpu(process)?;
        let names = (0..AT_ONCE).map(|number| format!("round-{round}-{number}"));
        let took = boxes.open(names.collect(), None).await?;
        let each = (cpu(process)? - before) / u32::try_from(AT_ONCE)?;
        let rate = AT_ONCE as f64 / took.as_secs_f64();
        println!("{AT_ONCE} at once                  {rate:.0} a second; engine CPU {each:?} each");
    }
    let lags = ends(admin, &mut boxes, namespace).await?;
    println!(
        "{AT_ONCE} ending at one instant     gone {:?} (p50), {:?} (p99), {:?} (last) after it",
        p(&lags, 50),
        p(&lags, 99),
        p(&lags, 100),
    );
    let objects = 1 + ONE_BY_ONE + 4 * AT_ONCE;
    println!("memory                       {idle} with one object");
    println!(
        "memory                       {} with {objects} objects",
        memory(process)?
    );
    Ok(())
}

/// The boxes as the watch of one client shows them.
struct Watcher<'a> {
    boxes: &'a Api<Timebox>,
    shown: BoxStream<'a, watcher::Result<Timebox>>,
}

impl<'a> Watcher<'a> {
    fn new(boxes: &'a Api<Timebox>) -> Self {
        let shown = watcher(boxes.clone(), watcher::Config::default());
        Self {
            boxes,
            shown: shown.applied_objects().boxed(),
        }
    }

    /// Creates boxes at once and waits until all are open; returns the duration.
    async fn open(&mut self, names: Vec<String>, until: Option<Timestamp>) -> Result<Duration> {
        let began = Instant::now();
        let mut waiting: BTreeSet<_> = names.iter().cloned().collect();
        let creations = try_join_all(names.iter().map(async |name| {
            let mut timebox = Timebox::new(name, TimeboxSpec::holding("gold"));
            timebox.spec.until = until.map(|until| until.to_string());
            self.boxes.create(&PostParams::default(), &timebox).await
        }));
        let all_open = async {
            while !waiting.is_empty() {
                let timebox = self.shown.try_next().await?.context("the watch ended")?;
                if timebox
                    .status
                    .as_ref()
                    .is_some_and(|status| status.phase == "Open")
                {
                    waiting.remove(&timebox.name_any());
                }
            }
            Ok::<_, anyhow::Error>(began.elapsed())
        };
        let (created, took) = tokio::join!(creations, all_open);
        created?;
        took
    }
}

/// Returns the delays of the deletions of the inner children of boxes that all end at one instant.
async fn ends(admin: &Client, boxes: &mut Watcher<'_>, namespace: &str) -> Result<Vec<Duration>> {
    let until = Timestamp::now() + Duration::from_secs(5);
    let names = (0..AT_ONCE).map(|number| format!("ending-{number}"));
    boxes.open(names.collect(), Some(until)).await?;
    let secrets = Api::<Secret>::namespaced(admin.clone(), namespace);
    let mut shown = std::pin::pin!(watcher(secrets, watcher::Config::default()));
    let mut lags = Vec::new();
    while lags.len() < AT_ONCE {
        if let watcher::Event::Delete(_) = shown.try_next().await?.context("the watch ended")? {
            let lag = Timestamp::now().duration_since(until);
            lags.push(lag.try_into().context("it went too early")?);
        }
    }
    lags.sort();
    Ok(lags)
}

/// Returns the resident memory, and the part of it that is not the program's own file.
fn memory(process: &Child) -> Result<String> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id()))?;
    let kilobytes = |field: &str| {
        let line = status.lines().find(|line| line.starts_with(field));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number.unwrap_or("?").to_owned()
    };
    Ok(format!(
        "{} kB, {} kB of it data",
        kilobytes("VmRSS:"),
        kilobytes("RssAnon:")
    ))
}

/// Returns user and system time, at the usual 100 ticks a second.
fn cpu(process: &Child) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id()))?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}
