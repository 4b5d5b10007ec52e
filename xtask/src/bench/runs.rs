//! Harness runs beside plain Jobs with the same pods: how long many at once take, what one that nobody can place does
//! to others, how exactly they are told to end, and what a finished one costs. Nodes are simulated: what is measured is
//! oz and the control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Node, Pod, PodTemplateSpec};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use oz_core::api::harness::{HarnessRun, HarnessTemplate, RunPhase};
use oz_e2e::{Options, Scene, System, announce_broker, apply, apply_as, install, install_harness};
use oz_testkit::{Cluster, eventually};
use serde_json::{Value, json};

use super::report::{Budget, Report};
use super::scene::{self, CHANGE_TIMEOUT};
use super::stats::Values;
use super::{Size, grants, process};
use crate::changes::Watching;

/// A node on which pods run for as long as this bench says.
const NODE: &str = "by-hand";
/// Templates: of pods that end by themselves, of pods that do not, and of pods that no node takes.
const ECHO: &str = "echo";
const HELD: &str = "held";
const NOWHERE: &str = "nowhere";
/// The first timeout of those that end within [`SPREAD`] seconds, in seconds: by then all run.
const FIRST: usize = 30;
const SPREAD: usize = 10;
/// For how long nothing may be written when all runs have ended, and how often that is looked for.
const IDLE: Duration = Duration::from_secs(10);
const WINDOWS: usize = 12;

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = scene::cluster().await?;
    install(cluster).await?;
    install_harness(cluster)?;
    apply(cluster, "deploy/policies/harness")?;
    let admin = cluster.client("admin").await?;
    announce_broker(&admin).await?;
    node(&admin).await?;
    let webhook = Options::default().flag("--harness");
    let operator = Options::default()
        .flag("--harness")
        .flag("--harness-image=registry.test/oz-harness:1");
    let mut system = System::start_as(cluster, &webhook, &operator).await?;
    for _ in 0..size.runs {
        let bench = Bench::set(cluster).await?;
        bench.at_once(size.at_once, report).await?;
        bench.beside_a_stuck_one(size.pods, report).await?;
        bench
            .timeouts("up", size.pod_endings, 1000.0, report)
            .await?;
    }
    let bench = Bench::set(cluster).await?;
    bench
        .finished(system.operator.process.pid(), size.many / 4, report)
        .await?;
    let told = bench.submitted("down", HELD, size.pod_endings).await?;
    system.operator.process.kill9();
    bench
        .told(told, "down", Budget::AtMost(4000.0), report)
        .await
}

async fn node(admin: &Client) -> Result<()> {
    let nodes = Api::<Node>::all(admin.clone());
    let taints = json!([{"key": "node", "value": NODE, "effect": "NoSchedule"}]);
    let node = json!({
        "metadata": {"name": NODE, "labels": {"node": NODE}}, "spec": {"taints": taints},
    });
    apply_as(&nodes, node).await?;
    let size = json!({"cpu": "1000", "memory": "1Ti", "pods": "10000"});
    let status = Patch::Merge(json!({"status": {"allocatable": size, "capacity": size}}));
    let parameters = PatchParams::default();
    nodes.patch_status(NODE, &parameters, &status).await?;
    Ok(())
}

/// A namespace with the templates.
struct Bench {
    scene: Scene,
    clients: Vec<Client>,
}

/// Pods that do not end by themselves: when each is to be told to, and the watch that sees it.
struct Held {
    pods: Watching<Pod>,
    ends: BTreeMap<String, Timestamp>,
}

impl Bench {
    async fn set(cluster: &'static Cluster) -> Result<Self> {
        let scene = Scene::empty(cluster, "runs").await?;
        let clients = scene::administrators(cluster).await?;
        let selector = |label: &str| json!({"spec": {"nodeSelector": {"node": label}}});
        let mut held = selector(NODE);
        held["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        for (name, overlay) in [
            (ECHO, json!({})),
            (HELD, held),
            (NOWHERE, selector("nowhere")),
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
        // Every connection is up before anything is measured.
        bench.many("warm", ECHO, bench.clients.len()).await?;
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
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + serde::Serialize,
    {
        let namespace = self.scene.name();
        scene::create_all(&self.clients, all, |client| {
            Api::namespaced(client, namespace)
        })
        .await
    }

    /// Runs at once; how long until the last was seen to run.
    async fn many(&self, prefix: &str, template: &str, count: usize) -> Result<Duration> {
        let mut watch = Watching::start(self.scene.api::<HarnessRun>()).await?;
        let runs = self.runs(prefix, template, count)?;
        let began = Instant::now();
        self.create(&runs).await?;
        let has_begun = |run: &HarnessRun| {
            let phase = run.status.as_ref().and_then(|status| status.phase);
            phase.is_some_and(|phase| phase == RunPhase::Running || phase.is_terminal())
        };
        let last = all_seen(&mut watch, names(&runs), has_begun).await?;
        Ok(last - began)
    }

    /// Jobs at once, with pods as runs have them; how long until the pod of the last was seen to run.
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
        let mut missing = names(&jobs);
        let mut last = began;
        while !missing.is_empty() {
            let seen = watch.next(CHANGE_TIMEOUT).await?;
            let of = seen.object.labels().get("batch.kubernetes.io/job-name");
            if is_past_pending(&seen.object) && of.is_some_and(|name| missing.remove(name)) {
                last = last.max(seen.at);
            }
        }
        Ok(last - began)
    }

    async fn at_once(&self, count: usize, report: &mut Report) -> Result<()> {
        let like = self.scene.api::<Job>().get("warm-0").await?;
        self.jobs("warm-job", &like, self.clients.len()).await?;
        let jobs = self.jobs("job", &like, count).await?;
        let mark = self.scene.cluster.audit().mark()?;
        let runs = self.many("run", ECHO, count).await?;
        let writes = self.scene.cluster.audit().since(mark)?.writes();
        let writes = writes.by_user(&grants::operator());
        let writes = writes.len();
        let each = f64::from(u32::try_from(writes)?) / f64::from(u32::try_from(count)?);
        let [jobs, runs] = [jobs, runs].map(|took| took.as_secs_f64() * 1000.0);
        let what = format!("{count} plain Jobs at once, until the pod of the last runs");
        report.add(&what, "ms", Budget::None, jobs);
        let what = format!("{count} runs at once, until the last is Running");
        report.add(&what, "ms", Budget::None, runs);
        let what = "  how many times as long as plain Jobs";
        report.add(what, "×", Budget::AtMost(1.3), runs / jobs);
        let what = "  writes of the operator a run meanwhile";
        report.add(what, "", Budget::None, each);
        Ok(())
    }

    async fn beside_a_stuck_one(&self, count: usize, report: &mut Report) -> Result<()> {
        let alone = self.many("alone", ECHO, count).await?;
        self.create(&self.runs("stuck", NOWHERE, 1)?).await?;
        let beside = self.many("beside", ECHO, count).await?;
        let [alone, beside] = [alone, beside].map(|took| took.as_secs_f64() * 1000.0);
        let what = format!("{count} runs at once, until the last is Running");
        report.add(&what, "ms", Budget::None, alone);
        report.add(
            "  behind one that nobody places",
            "ms",
            Budget::None,
            beside,
        );
        report.add(
            "  how many times as long",
            "×",
            Budget::AtMost(1.2),
            beside / alone,
        );
        Ok(())
    }

    async fn timeouts(
        &self,
        operator: &str,
        count: usize,
        most: f64,
        report: &mut Report,
    ) -> Result<()> {
        let held = self.submitted(operator, HELD, count).await?;
        self.told(held, operator, Budget::AtMost(most), report)
            .await
    }

    /// Runs whose pods run, and when each is over by the start of its Job.
    async fn submitted(&self, prefix: &str, template: &str, count: usize) -> Result<Held> {
        let mut pods = Watching::start(self.scene.api::<Pod>()).await?;
        let mut jobs = Watching::start(self.scene.api::<Job>()).await?;
        let runs = self.runs(prefix, template, count)?;
        self.create(&runs).await?;
        let mut missing = names(&runs);
        let mut ends = BTreeMap::new();
        while ends.len() < count {
            let job = jobs.next(CHANGE_TIMEOUT).await?.object;
            let started = job
                .status
                .as_ref()
                .and_then(|status| status.start_time.as_ref());
            let timeout = job
                .spec
                .as_ref()
                .and_then(|spec| spec.active_deadline_seconds);
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
            let has_node = pod
                .spec
                .as_ref()
                .is_some_and(|spec| spec.node_name.is_some());
            let of = pod.labels().get("batch.kubernetes.io/job-name");
            if has_node && of.is_some_and(|name| waiting.remove(name)) {
                let client = clients.next().context("no connection")?;
                runs_by_hand(client.clone(), &pod).await?;
            }
        }
        let first = ends.values().min().context("there is none")?;
        ensure!(
            Timestamp::now() < *first,
            "they did not run before their end"
        );
        Ok(Held { pods, ends })
    }

    /// How long after their end pods were told to end.
    async fn told(
        &self,
        held: Held,
        operator: &str,
        most: Budget,
        report: &mut Report,
    ) -> Result<()> {
        let Held { mut pods, mut ends } = held;
        let count = ends.len();
        let mut lags = Vec::new();
        while !ends.is_empty() {
            let seen = pods.next(CHANGE_TIMEOUT).await?;
            let is_told = seen.deleted || seen.object.metadata.deletion_timestamp.is_some();
            let of = seen.object.labels().get("batch.kubernetes.io/job-name");
            if is_told && let Some(end) = of.and_then(|name| ends.remove(name)) {
                lags.push(seen.time.duration_since(end).as_secs_f64() * 1000.0);
            }
        }
        let lags: Values = lags.into_iter().collect();
        let what = format!("{count} timeouts within {SPREAD} s, operator {operator}");
        let figure = |name: &str| format!("{what}, told to end after it, {name}");
        report.add(&figure("p50"), "ms", Budget::None, lags.median());
        report.add(&figure("p99"), "ms", most, lags.percentile(99));
        Ok(())
    }

    /// What finished runs cost: memory of the operator, and writes while nothing happens.
    async fn finished(&self, operator: u32, count: usize, report: &mut Report) -> Result<()> {
        self.all_over("first", count).await?;
        let before = process::resident(operator)?;
        self.all_over("second", count).await?;
        let after = process::resident(operator)?;
        let each = (after - before) * 1024.0 / f64::from(u32::try_from(count)?);
        let what = format!("memory of the operator a finished run, by {count} more");
        report.add(&what, "KiB", Budget::AtMost(10.0), each);
        // Events of Kubernetes are told when there is time.
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
        let writes = f64::from(u32::try_from(writes)?);
        let what = format!("writes of the operator in {} s thereafter", IDLE.as_secs());
        report.add(&what, "", Budget::AtMost(0.0), writes);
        Ok(())
    }

    async fn all_over(&self, prefix: &str, count: usize) -> Result<()> {
        let mut watch = Watching::start(self.scene.api::<HarnessRun>()).await?;
        let runs = self.runs(prefix, ECHO, count)?;
        self.create(&runs).await?;
        let is_over = |run: &HarnessRun| {
            let phase = run.status.as_ref().and_then(|status| status.phase);
            phase.is_some_and(RunPhase::is_terminal)
        };
        all_seen(&mut watch, names(&runs), is_over).await?;
        let policies = self.scene.api::<NetworkPolicy>();
        eventually("nothing to be confined", CHANGE_TIMEOUT, async || {
            let left = policies.list_metadata(&ListParams::default()).await?.items;
            Ok(left.is_empty().then_some(()))
        })
        .await
    }
}

/// What a kubelet says of a pod that runs.
async fn runs_by_hand(client: Client, pod: &Pod) -> Result<()> {
    let now = Timestamp::now().strftime("%FT%TZ").to_string();
    let state = json!({"running": {"startedAt": now}});
    let status: Value = json!({"status": {"phase": "Running", "startTime": now, "containerStatuses": [{
        "name": "agent", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state,
    }]}});
    let pods = Api::<Pod>::namespaced(client, &pod.namespace().unwrap_or_default());
    let (name, parameters) = (pod.name_any(), PatchParams::default());
    pods.patch_status(&name, &parameters, &Patch::Merge(status))
        .await?;
    Ok(())
}

fn is_past_pending(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase.is_some_and(|phase| phase != "Pending")
}

fn names<K: kube::Resource>(all: &[K]) -> BTreeSet<String> {
    all.iter().map(kube::ResourceExt::name_any).collect()
}

/// Waits until each was seen as wanted; when the last was.
async fn all_seen(
    watch: &mut Watching<HarnessRun>,
    mut missing: BTreeSet<String>,
    wanted: impl Fn(&HarnessRun) -> bool,
) -> Result<Instant> {
    let mut last = Instant::now();
    while !missing.is_empty() {
        let seen = watch.next(CHANGE_TIMEOUT).await?;
        if wanted(&seen.object) && missing.remove(seen.object.name_any().as_str()) {
            last = last.max(seen.at);
        }
    }
    Ok(last)
}
