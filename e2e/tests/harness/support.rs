//! The oz that these tests share, and a namespace in which runs are submitted.

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use oz_api::conditions;
use oz_api::harness::{HarnessRun, HarnessTemplate, RunPhase, Workspace};
use oz_e2e::{
    Operator, Options, Webhook, agent_running, announce_broker, apply, by_hand_overlay, install,
    install_harness, node_by_hand, records_in, volume,
};
pub(crate) use oz_e2e::{apply_as, next_second};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, TestNamespace, eventually};
use oz_trail::Record;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::definitions;

/// oz with harness runs switched on.
pub(crate) struct Oz {
    pub(crate) operator: Operator,
    pub(crate) webhook: Webhook,
}

static OZ: OnceCell<Oz> = OnceCell::const_new();

/// Returns the options of an operator that runs harness runs.
pub(crate) fn options() -> Options {
    Options::default()
        .harness()
        .set("harness.gitImage", "registry.test/git:1")
        .set("operator.podReadyTimeout", "5s")
}

/// Returns the oz of this process, which the first caller starts.
pub(crate) async fn oz() -> Result<&'static Oz> {
    let cluster = Cluster::shared().await?;
    OZ.get_or_try_init(async || {
        install(cluster).await?;
        install_harness(cluster)?;
        let admin = cluster.client("admin").await?;
        announce_broker(&admin).await?;
        definitions::store_what_hooks_refuse(cluster).await?;
        for number in 0..VOLUMES {
            volume(&admin, &format!("volume-{number}")).await?;
        }
        node_by_hand(&admin).await?;
        let (webhook, operator) = (Options::default().harness(), options());
        let (webhook, operator) = tokio::try_join!(
            Webhook::start(cluster, &webhook),
            Operator::start(cluster, &operator)
        )?;
        // The fixtures of definitions were stored past all of this.
        apply(cluster, "deploy/policies/harness")?;
        Ok(Oz { operator, webhook })
    })
    .await
}

/// The number of claims that can be bound.
const VOLUMES: usize = 60;
/// A namespace with a template.
pub(crate) struct World {
    pub(crate) cluster: &'static Cluster,
    pub(crate) admin: Client,
    namespace: TestNamespace,
}

/// The template that every world has.
pub(crate) const TEMPLATE: &str = "echo";
/// The template of pods that a test starts and ends.
pub(crate) const BY_HAND: &str = "by-hand";

impl World {
    pub(crate) async fn new(prefix: &str) -> Result<Self> {
        oz().await?;
        let cluster = Cluster::shared().await?;
        let admin = cluster.client("admin").await?;
        let namespace = TestNamespace::create(cluster, prefix).await?;
        let world = Self {
            cluster,
            admin,
            namespace,
        };
        world.template(TEMPLATE, json!({})).await?;
        // Its pods run for as long as the test says.
        let placed = json!({"podTemplateOverlay": by_hand_overlay()});
        world.template(BY_HAND, placed).await?;
        Ok(world)
    }

    /// Returns the audit records of the operator about a run.
    pub(crate) async fn records(&self, run: &str) -> Result<Vec<Record>> {
        let all = records_in(&oz().await?.operator.process)?;
        let is_meant =
            |record: &Record| record.request.namespace == self.name() && record.request.name == run;
        Ok(all.into_iter().filter(is_meant).collect())
    }

    /// Submits a run of [`BY_HAND`] and has its agent run.
    pub(crate) async fn running(&self, name: &str, more: Value) -> Result<Pod> {
        let mut spec = json!({"templateRef": {"name": BY_HAND}});
        merge(&mut spec, more);
        self.submit(name, spec).await?;
        let pod = self.pod(name).await?;
        self.agent_runs(&pod).await?;
        self.phase(name, RunPhase::Running).await?;
        Ok(pod)
    }

    pub(crate) async fn agent_runs(&self, pod: &Pod) -> Result<()> {
        self.kubelet_says(&pod.name_any(), agent_running()).await
    }

    /// Reports for every pod that its agent runs, as its kubelet would.
    pub(crate) async fn agents_run(&self) -> Result<()> {
        for pod in self.api::<Pod>().list(&ListParams::default()).await? {
            let phase = pod
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref());
            if phase == Some("Pending") && pod.metadata.deletion_timestamp.is_none() {
                self.agent_runs(&pod).await?;
            }
        }
        Ok(())
    }

    /// The agent ends, and our container says `result`.
    pub(crate) async fn agent_ends(&self, pod: &Pod, code: i32, result: &str) -> Result<()> {
        let now = Timestamp::now().strftime("%FT%TZ").to_string();
        let ended = |code: i32, message: &str| {
            json!({"terminated": {
                "exitCode": code, "message": message, "startedAt": now, "finishedAt": now,
            }})
        };
        let status = |name: &str, state: Value| {
            json!({
                "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
            })
        };
        self.kubelet_says(
            &pod.name_any(),
            json!({
                "phase": if code == 0 { "Succeeded" } else { "Failed" },
                "containerStatuses": [status("agent", ended(code, ""))],
                "initContainerStatuses": [status("runtime", ended(0, result))],
            }),
        )
        .await
    }

    /// The kubelet has ended the containers of a pod that was to go.
    pub(crate) async fn kubelet_lets_go(&self, pod: &Pod) -> Result<()> {
        let at_once = DeleteParams::default().grace_period(0);
        self.api::<Pod>().delete(&pod.name_any(), &at_once).await?;
        Ok(())
    }

    /// Waits until the deletion of a pod has begun.
    pub(crate) async fn told_to_end(&self, pod: &Pod) -> Result<Pod> {
        let (name, pods) = (pod.name_any(), self.api::<Pod>());
        eventually(
            &format!("pod {name} is told to end"),
            CONDITION_TIMEOUT,
            async || {
                let pod = pods.get(&name).await?;
                Ok(pod.metadata.deletion_timestamp.is_some().then_some(pod))
            },
        )
        .await
    }

    pub(crate) async fn confined(&self, run: &str) -> Result<Option<NetworkPolicy>> {
        let name = format!("{run}-egress");
        Ok(self.api::<NetworkPolicy>().get_opt(&name).await?)
    }

    pub(crate) async fn let_out(&self, run: &str) -> Result<()> {
        eventually(
            &format!("{run} has no NetworkPolicy"),
            CONDITION_TIMEOUT,
            async || Ok(self.confined(run).await?.is_none().then_some(())),
        )
        .await
    }

    /// Waits until a workspace is as it should be, and gives it.
    pub(crate) async fn workspace_until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&Workspace) -> bool,
    ) -> Result<Workspace> {
        let api = self.api::<Workspace>();
        eventually(
            &format!("workspace {name} {what}"),
            CONDITION_TIMEOUT,
            async || {
                let workspace = api.get(name).await?;
                Ok(holds(&workspace).then_some(workspace))
            },
        )
        .await
    }

    pub(crate) fn name(&self) -> &str {
        self.namespace.name()
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.admin.clone(), self.name())
    }

    /// Creates a template with an existing image, and with more fields of its spec.
    pub(crate) async fn template(&self, name: &str, more: Value) -> Result<HarnessTemplate> {
        let mut spec = json!({
            "harness": "echo",
            "image": "registry.test/echo:1",
            "command": ["/echo"],
            "defaults": {"timeout": "5m", "terminationGracePeriodSeconds": 5},
        });
        merge(&mut spec, more);
        apply_as(
            &self.api(),
            json!({"metadata": {"name": name}, "spec": spec}),
        )
        .await
    }

    /// Submits a run of [`TEMPLATE`], with more fields of its spec.
    pub(crate) async fn submit(&self, name: &str, more: Value) -> Result<HarnessRun> {
        let mut spec = json!({"templateRef": {"name": TEMPLATE}, "prompt": "say hello"});
        merge(&mut spec, more);
        let run = serde_json::from_value(json!({
            "apiVersion": "paddock.dev/v1alpha1",
            "kind": "HarnessRun",
            "metadata": {"name": name},
            "spec": spec,
        }))?;
        let created = self.api().create(&PostParams::default(), &run).await;
        created.with_context(|| format!("failed to submit {name}"))
    }

    pub(crate) async fn workspace(&self, name: &str, more: Value) -> Result<Workspace> {
        let mut spec = json!({"storage": {"size": "1Gi"}});
        merge(&mut spec, more);
        apply_as(
            &self.api(),
            json!({"metadata": {"name": name}, "spec": spec}),
        )
        .await
    }

    /// Waits until a run is as it should be, and gives it.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&HarnessRun) -> bool,
    ) -> Result<HarnessRun> {
        let api = self.api::<HarnessRun>();
        let seen = std::cell::RefCell::new(String::new());
        let title = format!("run {name} {what}");
        let waited = eventually(&title, CONDITION_TIMEOUT, async || {
            let run = api.get(name).await?;
            *seen.borrow_mut() = serde_json::to_string(&run.status)?;
            Ok(holds(&run).then_some(run))
        });
        let waited = waited.await;
        waited.with_context(|| format!("its status was {}", seen.borrow()))
    }

    pub(crate) async fn phase(&self, name: &str, phase: RunPhase) -> Result<HarnessRun> {
        let what = format!("is {phase}");
        self.until(name, &what, |run| phase_of(run) == Some(phase))
            .await
    }

    /// The pod of a run, when its Job has made it.
    pub(crate) async fn pod(&self, run: &str) -> Result<Pod> {
        let pods = self.api::<Pod>();
        let selection = kube::api::ListParams::default().labels(&format!("job-name={run}"));
        eventually(
            &format!("the pod of {run} is there"),
            CONDITION_TIMEOUT,
            async || {
                let found = pods.list(&selection).await?.items;
                Ok(found.into_iter().next_back())
            },
        )
        .await
    }

    /// Writes a status of the pod of a run, as the kubelet would.
    pub(crate) async fn kubelet_says(&self, pod: &str, status: Value) -> Result<()> {
        let pods = self.api::<Pod>();
        let patch = Patch::Merge(json!({ "status": status }));
        pods.patch_status(pod, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }
}

pub(crate) fn phase_of(run: &HarnessRun) -> Option<RunPhase> {
    run.status.as_ref()?.phase
}

/// The reason of a condition of a run.
pub(crate) fn reason<'a>(run: &'a HarnessRun, type_: &str) -> Option<&'a str> {
    let conditions = &run.status.as_ref()?.conditions;
    Some(conditions::find(conditions, type_)?.reason.as_str())
}

/// The message of a condition; empty if there is none.
pub(crate) fn message<'a>(run: &'a HarnessRun, type_: &str) -> &'a str {
    let status = run.status.as_ref();
    let found = status.and_then(|status| conditions::find(&status.conditions, type_));
    found.map_or("", |condition| condition.message.as_str())
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                match value {
                    Value::Null => drop(into.remove(&key)),
                    value => merge(into.entry(key).or_insert(Value::Null), value),
                }
            }
        }
        (into, more) => *into = more,
    }
}
