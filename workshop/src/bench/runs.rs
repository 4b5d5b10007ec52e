//! Harness runs compared with plain Jobs with the same pods: the time of many at once, the effect on others
//! of one that cannot be scheduled, the precision of their termination, and the cost of a finished one. Nodes
//! are simulated: the bench measures oz and the control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use oz_api::harness::{HarnessRun, HarnessTemplate, RunPhase};
use oz_e2e::{
    Options, Scene, System, agent_running, announce_broker, apply, apply_as, by_hand_overlay,
    install, install_harness, node_by_hand,
};
use oz_testkit::{Cluster, eventually};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::report::{Budget, Report};
use super::scene::{self, CHANGE_TIMEOUT};
use super::stats::{Values, number};
use super::{Size, grants, live_runs, process};
use crate::changes::Watching;

/// The templates: of pods that end automatically, of pods that do not, and of pods that no node accepts.
const ECHO: &str = "echo";
const HELD: &str = "held";
const NOWHERE: &str = "nowhere";
/// The first timeout of those that end within [`SPREAD`] seconds, in seconds: by then all run.
const FIRST: usize = 30;
const SPREAD: usize = 10;
/// The duration for which nothing may be written when all runs have ended, and the number of checks.
const IDLE: Duration = Duration::from_secs(10);
const WINDOWS: usize = 12;

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = scene::cluster().await?;
    install(cluster).await?;
    install_harness(cluster)?;
    apply(cluster, "deploy/policies/harness")?;
    let admin = cluster.client("admin").await?;
    announce_broker(&admin).await?;
    node_by_hand(&admin).await?;
    let (webhook, operator) = (Options::default().harness(), Options::default().harness());
    let mut system = System::start_as(cluster, &webhook, &operator).await?;
    for _ in 0..size.runs {
        let bench = Bench::set(cluster).await?;
        bench.at_once(&system, size.at_once, report).await?;
        bench.beside_a_stuck_one(size.pods, report).await?;
        let held = bench.held("up", size.pod_endings).await?;
        measure_terminations(held, "up", 1000.0, report).await?;
    }
    let bench = Bench::set(cluster).await?;
    bench
        .finished(system.operator.process.pid(), size.many / 4, report)
        .await?;
    let live = Bench::set(cluster).await?;
    live.live(size.many / 4, report).await?;
    let held = bench.held("down", size.pod_endings).await?;
    system.operator.process.kill9();
    measure_terminations(held, "down", 4000.0, report).await
}

/// A namespace with the templates.
struct Bench {
    scene: Scene,
    clients: Vec<Client>,
}

/// The processor time so far.
struct Spent {
    machine: Duration,
    operator: Duration,
    webhook: Duration,
}

impl Spent {
    fn so_far(system: &System) -> Result<Self> {
        Ok(Self {
            machine: process::machine_time()?,
            operator: process::processor_time(system.operator.process.pid())?,
            webhook: process::processor_time(system.webhook.process.pid())?,
        })
    }
}

/// Pods that do not end automatically: the time at which each must be terminated, and the watch that shows
/// it.
struct PendingTerminations {
    pods: Watching<Pod>,
    ends: BTreeMap<String, Timestamp>,
}

impl Bench {
    async fn set(cluster: &'static Cluster) -> Result<Self> {
        let scene = Scene::empty(cluster, "runs").await?;
        let clients = scene::administrators(cluster).await?;
        let nowhere = json!({"spec": {"nodeSelector": {"node": "nowhere"}}});
        for (name, overlay) in [
            (ECHO, json!({})),
            (HELD, by_hand_overlay()),
            (NOWHERE, nowhere),
        ] {
            let spec = json!({
                "harness": "echo", "image": "registry.test/echo:1", "command": ["/echo"],
                "defaults": {"timeout": "10m"}, "podTemplateOverlay": overlay,
                "workspace": {"required": false},
            });
            let template = json!({"metadata": {"name": name}, "spec": spec});
            apply_as(&scene.api::<HarnessTemplate>(), template).await?;
        }
        let bench = Self { scene, clients };
        // Every connection is open before the measurements.
        bench.many("warm", bench.clients.len()).await?;
        Ok(bench)
    }

    fn runs(&self, prefix: &str, template: &str, count: usize) -> Result<Vec<HarnessRun>> {
        let run = |number: usize| {
            let timeout = match template {
                HELD => format!("{}s", FIRST + number % SPREAD),
                _ => "10m".to_owned(),
            };
            let run = json!({
                "metadata": {"name": format!("{prefix}-{number}")},
                "spec": {"templateRef": {"name": template}, "prompt": "hi", "timeout": timeout},
            });
            Ok(serde_json::from_value(run)?)
        };
        (0..count).map(run).collect()
    }

    async fn create<K>(&self, all: &[K]) -> Result<()>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Serialize,
    {
        let namespace = self.scene.name();
        scene::create_all(&self.clients, all, |client| {
            Api::namespaced(client, namespace)
        })
        .await
    }

    /// Creates runs at once; returns the time until the last was seen to run.
    async fn many(&self, prefix: &str, count: usize) -> Result<Duration> {
        self.until(prefix, count, |phase| {
            phase == RunPhase::Running || phase.is_terminal()
        })
        .await
    }

    /// Creates runs at once; returns the time until the last was seen in a wanted phase.
    async fn until(
        &self,
        prefix: &str,
        count: usize,
        wanted: impl Fn(RunPhase) -> bool,
    ) -> Result<Duration> {
        let mut watch = Watching::start(self.scene.api::<HarnessRun>()).await?;
        let runs = self.runs(prefix, ECHO, count)?;
        let began = Instant::now();
        self.create(&runs).await?;
        let last = all_seen(&mut watch, names(&runs), |run| {
            let phase = run.status.as_ref()?.phase?;
            wanted(phase).then(|| run.name_any())
        });
        Ok(last.await? - began)
    }

    /// Creates Jobs at once, with pods as runs have them; returns the time until the pod of the last was seen
    /// to run.
    async fn jobs(&self, prefix: &str, like: &Job, count: usize) -> Result<Duration> {
        let mut watch = Watching::start(self.scene.api::<Pod>()).await?;
        let spec = like.spec.as_ref().context("a Job without a spec")?;
        let job = |number: usize| Job {
            metadata: ObjectMeta {
                name: Some(format!("{prefix}-{number}")),
                ..ObjectMeta::default()
            },
            spec: Some(JobSpec {
                active_deadline_seconds: spec.active_deadline_seconds,
                backoff_limit: spec.backoff_limit,
                template: PodTemplateSpec {
                    metadata: None,
                    spec: spec.template.spec.clone(),
                },
                ..JobSpec::default()
            }),
            status: None,
        };
        let jobs: Vec<Job> = (0..count).map(job).collect();
        let began = Instant::now();
        self.create(&jobs).await?;
        let last = all_seen(&mut watch, names(&jobs), |pod| {
            let phase = pod.status.as_ref()?.phase.as_deref()?;
            job_of(pod).filter(|_| phase != "Pending")
        });
        Ok(last.await? - began)
    }

    async fn at_once(&self, system: &System, count: usize, report: &mut Report) -> Result<()> {
        let like = self.scene.api::<Job>().get("warm-0").await?;
        self.jobs("warm-job", &like, self.clients.len()).await?;
        let busy = process::machine_time()?;
        let jobs = self.jobs("job", &like, count).await?;
        let of_jobs = process::machine_time()? - busy;
        let mark = self.scene.cluster.audit().mark()?;
        let before = Spent::so_far(system)?;
        let runs = self.many("run", count).await?;
        let spent = Spent::so_far(system)?;
        let writes = self.scene.cluster.audit().since(mark)?.writes();
        let writes = writes.by_user(&grants::operator()).len();
        let each = number(writes)? / number(count)?;
        let [jobs, runs] = [jobs, runs].map(|took| took.as_secs_f64() * 1000.0);
        let plain = format!("{count} plain Jobs at once, until the pod of the last runs");
        let what = format!("{count} runs at once, until the last is Running");
        report.add_times(
            (&plain, jobs),
            (&what, runs),
            ("  how many times as long as plain Jobs", 1.3),
        );
        let what = "  writes of the operator a run meanwhile";
        report.add(what, "", Budget::None, each);
        let count = number(count)?;
        for (what, time) in [
            ("processor time of the machine a plain Job", of_jobs),
            (
                "processor time of the machine a run",
                spent.machine - before.machine,
            ),
            ("  of the operator", spent.operator - before.operator),
            ("  of the webhook", spent.webhook - before.webhook),
        ] {
            let each = time.as_secs_f64() * 1000.0 / count;
            report.add(what, "ms", Budget::None, each);
        }
        Ok(())
    }

    async fn beside_a_stuck_one(&self, count: usize, report: &mut Report) -> Result<()> {
        let alone = self.many("alone", count).await?;
        self.create(&self.runs("stuck", NOWHERE, 1)?).await?;
        let beside = self.many("beside", count).await?;
        let [alone, beside] = [alone, beside].map(|took| took.as_secs_f64() * 1000.0);
        let what = format!("{count} runs at once, until the last is Running");
        report.add_times(
            (&what, alone),
            ("  behind one that nobody places", beside),
            ("  how many times as long", 1.2),
        );
        Ok(())
    }

    /// Creates runs with running pods, and returns their ends by the starts of their Jobs.
    async fn held(&self, prefix: &str, count: usize) -> Result<PendingTerminations> {
        let mut pods = Watching::start(self.scene.api::<Pod>()).await?;
        let mut jobs = Watching::start(self.scene.api::<Job>()).await?;
        let runs = self.runs(prefix, HELD, count)?;
        self.create(&runs).await?;
        let mut missing = names(&runs);
        let mut ends = BTreeMap::new();
        while ends.len() < count {
            let job = jobs.next(CHANGE_TIMEOUT).await?.object;
            let (spec, status) = (job.spec.as_ref(), job.status.as_ref());
            let started = status.and_then(|status| status.start_time.as_ref());
            let timeout = spec.and_then(|spec| spec.active_deadline_seconds);
            if let (Some(started), Some(timeout)) = (started, timeout)
                && missing.remove(job.name_any().as_str())
            {
                let timeout = SignedDuration::from_secs(timeout);
                ends.insert(job.name_any(), started.0.checked_add(timeout)?);
            }
        }
        let mut waiting: BTreeSet<String> = ends.keys().cloned().collect();
        let mut clients = self.clients.iter().cycle();
        while !waiting.is_empty() {
            let pod = pods.next(CHANGE_TIMEOUT).await?.object;
            let spec = pod.spec.as_ref();
            let has_node = spec.is_some_and(|spec| spec.node_name.is_some());
            if has_node && job_of(&pod).is_some_and(|job| waiting.remove(&job)) {
                let client = clients.next().context("no connection")?;
                let pods: Api<Pod> = Api::namespaced(client.clone(), self.scene.name());
                let status = Patch::Merge(json!({"status": agent_running()}));
                let parameters = PatchParams::default();
                pods.patch_status(&pod.name_any(), &parameters, &status)
                    .await?;
            }
        }
        let first = ends.values().min().context("there is none")?;
        ensure!(
            Timestamp::now() < *first,
            "they did not run before their end"
        );
        Ok(PendingTerminations { pods, ends })
    }

    /// Measures the cost of live runs: memory of a broker.
    async fn live(&self, count: usize, report: &mut Report) -> Result<()> {
        let mut pods = Watching::start(self.scene.api::<Pod>()).await?;
        let runs = self.runs("live", NOWHERE, count)?;
        self.create(&runs).await?;
        all_seen(&mut pods, names(&runs), job_of).await?;
        live_runs::memory_of_the_broker(&self.scene, "live-", report).await?;
        let (how, all) = (DeleteParams::default(), ListParams::default());
        self.scene
            .api::<HarnessRun>()
            .delete_collection(&how, &all)
            .await?;
        let pods = self.scene.api::<Pod>();
        eventually("no pod of a live run", CHANGE_TIMEOUT, async || {
            let left = pods.list_metadata(&all).await?.items;
            let mut left = left.iter().map(kube::ResourceExt::name_any);
            Ok((!left.any(|name| name.starts_with("live-"))).then_some(()))
        })
        .await
    }

    /// Measures the cost of finished runs: memory of the operator, and writes while idle.
    async fn finished(&self, operator: u32, count: usize, report: &mut Report) -> Result<()> {
        self.all_over("first", count).await?;
        let before = process::resident(operator)?;
        self.all_over("second", count).await?;
        let after = process::resident(operator)?;
        let each = (after - before) * 1024.0 / number(count)?;
        let what = format!("memory of the operator a finished run, by {count} more");
        report.add(&what, "KiB", Budget::AtMost(10.0), each);
        // Kubernetes sends events late.
        let mut writes = 0;
        for _ in 0..WINDOWS {
            let mark = self.scene.cluster.audit().mark()?;
            tokio::time::sleep(IDLE).await;
            let entries = self.scene.cluster.audit().since(mark)?.writes();
            let entries = entries.in_namespace(self.scene.name());
            let entries = entries.by_user(&grants::operator());
            writes = entries.len();
            if writes == 0 {
                break;
            }
        }
        let writes = number(writes)?;
        let what = format!("writes of the operator in {} s thereafter", IDLE.as_secs());
        report.add(&what, "", Budget::AtMost(0.0), writes);
        Ok(())
    }

    async fn all_over(&self, prefix: &str, count: usize) -> Result<()> {
        self.until(prefix, count, RunPhase::is_terminal).await?;
        let policies = self.scene.api::<NetworkPolicy>();
        eventually("nothing to be confined", CHANGE_TIMEOUT, async || {
            let left = policies.list_metadata(&ListParams::default()).await?.items;
            Ok(left.is_empty().then_some(()))
        })
        .await
    }
}

/// Measures the delay after their end until pods were terminating.
async fn measure_terminations(
    held: PendingTerminations,
    operator: &str,
    most: f64,
    report: &mut Report,
) -> Result<()> {
    let PendingTerminations { mut pods, mut ends } = held;
    let count = ends.len();
    let mut lags = Vec::new();
    while !ends.is_empty() {
        let seen = pods.next(CHANGE_TIMEOUT).await?;
        let is_told = seen.deleted || seen.object.metadata.deletion_timestamp.is_some();
        if is_told && let Some(end) = job_of(&seen.object).and_then(|job| ends.remove(&job)) {
            lags.push(seen.time.duration_since(end).as_secs_f64() * 1000.0);
        }
    }
    let lags: Values = lags.into_iter().collect();
    let what = format!("{count} timeouts within {SPREAD} s, operator {operator}");
    let figure = |name: &str| format!("{what}, told to end after it, {name}");
    let p99 = lags.percentile(99);
    report.add(&figure("p50"), "ms", Budget::None, lags.median());
    report.add(&figure("p99"), "ms", Budget::AtMost(most), p99);
    Ok(())
}

fn job_of(pod: &Pod) -> Option<String> {
    pod.labels().get("batch.kubernetes.io/job-name").cloned()
}

fn names<K: kube::Resource>(all: &[K]) -> BTreeSet<String> {
    all.iter().map(kube::ResourceExt::name_any).collect()
}

/// Waits until each wanted object was seen; returns the time of the last.
async fn all_seen<K>(
    watch: &mut Watching<K>,
    mut missing: BTreeSet<String>,
    wanted: impl Fn(&K) -> Option<String>,
) -> Result<Instant>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut last = Instant::now();
    while !missing.is_empty() {
        let seen = watch.next(CHANGE_TIMEOUT).await?;
        if wanted(&seen.object).is_some_and(|name| missing.remove(&name)) {
            last = last.max(seen.at);
        }
    }
    Ok(last)
}
