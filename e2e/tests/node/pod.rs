//! A dedicated pod on a real node: it runs, its user connects, and it ends, by oz at the agreed second and by the
//! kubelet
//! when oz is down.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Stdio};

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Node, Pod, PodStatus};
use kube::Api;
use kube::api::{Patch, PatchParams};
use oz_api::{Phase, PodAccessRequest};
use oz_e2e::{GrantedRequest, NAMESPACE, Operator, Options, Scene, System, pod_request};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use serde_json::{Value, json};

use crate::alone;
use crate::exec::exec;

/// The time after start and deadline within which the kubelet ends a pod, as the design promises.
const KUBELETS: SignedDuration = SignedDuration::from_secs(4);

/// An open shell of alice in her pod.
struct Session {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Session {
    /// Opens a session, and checks its response from inside the pod.
    fn open(cluster: &Cluster, scene: &Scene, pod: &str) -> Result<Self> {
        let command = ["-i", pod, "--", "sh", "-c", "hostname; cat"];
        let mut process = exec(cluster, "alice", scene.name(), &command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = process.stdout.take().context("no standard output")?;
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line)?;
        assert_eq!(line, format!("{pod}\n"));
        Ok(Self { process, output })
    }

    /// Waits until it is over.
    async fn ended(mut self) -> Result<()> {
        eventually("the session to end", CONDITION_TIMEOUT, async || {
            Ok(self.process.try_wait()?)
        })
        .await?;
        self.output.read_to_string(&mut String::new())?;
        Ok(())
    }
}

/// Checks whether a new exec succeeds.
fn gets_in(cluster: &Cluster, scene: &Scene, pod: &str) -> Result<bool> {
    let output = exec(cluster, "alice", scene.name(), &[pod, "--", "true"]).output()?;
    Ok(output.status.success())
}

/// Waits until every container of the pod has ended, and returns the state of the first.
async fn terminated(pods: &Api<Pod>, name: &str) -> Result<(Pod, ContainerStateTerminated)> {
    eventually("the containers to end", CONDITION_TIMEOUT, async || {
        let pod = pods.get(name).await?;
        let status = pod.status.clone().unwrap_or_default();
        let mut ends = status
            .container_statuses
            .into_iter()
            .flatten()
            .map(|container| container.state.and_then(|state| state.terminated))
            .collect::<Option<Vec<_>>>()
            .unwrap_or_default();
        Ok(ends.pop().map(|end| (pod, end)))
    })
    .await
}

fn start(pod: &Pod) -> Result<Timestamp> {
    let started = |status: &PodStatus| status.start_time.as_ref().map(|time| time.0);
    pod.status.as_ref().and_then(started).context("no start")
}

fn deadline(pod: &Pod) -> Result<SignedDuration> {
    let seconds = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.active_deadline_seconds);
    seconds
        .map(SignedDuration::from_secs)
        .context("no deadline")
}

async fn scene(cluster: &'static Cluster, prefix: &str, more: &Value) -> Result<Scene> {
    let scene = Scene::set(cluster, prefix).await?;
    scene.pod_template("pod", more).await?;
    Ok(scene)
}

/// Creates a pod for alice.
async fn granted(
    scene: &Scene,
    name: &str,
    duration: &str,
) -> Result<GrantedRequest<PodAccessRequest>> {
    let alice = scene.pod_requests("alice").await?;
    alice.granted(&pod_request(name, "pod", duration)).await
}

#[tokio::test]
async fn the_kubelet_ends_the_pod_while_oz_is_dead() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let mut system = System::start(cluster).await?;
    let scene = scene(cluster, "dead", &json!({})).await?;
    let asked = granted(&scene, "debug", "25s").await?;
    let name = asked.pod();
    let session = Session::open(cluster, &scene, &name)?;

    system.operator.process.kill9();
    system.webhook.process.kill9();
    assert!(gets_in(cluster, &scene, &name)?, "it still runs");
    let (pod, end) = terminated(&scene.api(), &name).await?;

    let status = pod.status.clone().unwrap_or_default();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    let due = start(&pod)? + deadline(&pod)?;
    let ended = end.finished_at.context("no end")?.0;
    let until = asked.status().expires_at.context("no end")?;
    writeln!(
        std::io::stderr(),
        "the kubelet ended the pod {} s after start and deadline, {} s before the agreed end",
        ended.duration_since(due).as_secs(),
        until.duration_since(ended).as_secs(),
    )?;
    assert!(
        ended >= due && ended <= due + KUBELETS,
        "{ended}, due {due}"
    );
    session.ended().await?;
    assert!(!gets_in(cluster, &scene, &name)?, "nothing runs any more");

    let operator = Operator::start(cluster, &Options::default()).await?;
    let alice = scene.pod_requests("alice").await?;
    alice.phase("debug", Phase::Expired).await?;
    drop(operator);
    Ok(())
}

#[tokio::test]
async fn oz_ends_the_pod_at_the_agreed_second() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let _system = System::start(cluster).await?;
    // The process receives the signal of its end and ignores it.
    let deaf = json!(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]);
    let more = json!({"controllerTargetMutationConfig": {"command": deaf}});
    let scene = scene(cluster, "second", &more).await?;
    let mark = cluster.audit().mark()?;
    let asked = granted(&scene, "debug", "15s").await?;
    let name = asked.pod();
    let until = asked.status().expires_at.context("no end")?;
    let session = Session::open(cluster, &scene, &name)?;

    let pods: Api<Pod> = scene.api();
    let ending = eventually("the pod to be deleted", CONDITION_TIMEOUT, async || {
        let pod = pods.get_opt(&name).await?;
        Ok(match pod {
            Some(pod) if pod.metadata.deletion_timestamp.is_none() => None,
            pod => Some(pod),
        })
    })
    .await?;
    assert!(Timestamp::now() >= until);
    if let Some(pod) = ending {
        // The operator requests a grace period of one second. Once the kubelet is done it requests zero, and the API
        // server
        // stores that before it removes the pod.
        let grace = pod.metadata.deletion_grace_period_seconds;
        assert!(matches!(grace, Some(0 | 1)), "{grace:?}");
    }
    let alice = scene.pod_requests("alice").await?;
    alice.phase("debug", Phase::Expired).await?;
    assert!(!gets_in(cluster, &scene, &name)?, "Expired means ended");
    session.ended().await?;

    let deletions = by_operator(cluster, mark, &scene, "delete")?;
    assert_eq!(deletions, 1, "one deletion is enough");
    Ok(())
}

#[tokio::test]
async fn a_pod_that_starts_late_gets_an_earlier_deadline_once() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let _system = System::start(cluster).await?;
    let label = "example.test/late";
    let more = json!({"controllerTargetMutationConfig": {"nodeSelector": {label: "yes"}}});
    let scene = scene(cluster, "late", &more).await?;
    let mark = cluster.audit().mark()?;
    let alice = scene.pod_requests("alice").await?;
    alice.create(&pod_request("debug", "pod", "60s")).await?;
    let waiting = alice
        .until("debug", "to wait for a node", |status| {
            status.pod_name.is_some()
        })
        .await?;
    let name = GrantedRequest { request: waiting }.pod();
    let pods: Api<Pod> = scene.api();
    let created = pods.get(&name).await?;
    let first = deadline(&created)?;
    let made = created.metadata.creation_timestamp.context("no time")?.0;
    eventually("it to be late", CONDITION_TIMEOUT, async || {
        let late = Timestamp::now() > made + SignedDuration::from_secs(6);
        Ok(late.then_some(()))
    })
    .await?;

    let nodes: Api<Node> = Api::all(scene.admin.clone());
    let labelled = |value: Value| Patch::Merge(json!({"metadata": {"labels": {label: value}}}));
    let plain = PatchParams::default();
    nodes
        .patch("node-1", &plain, &labelled(json!("yes")))
        .await?;
    let ready = alice.ready("debug").await;
    let lowered = eventually(
        "the deadline to be lowered",
        CONDITION_TIMEOUT,
        async || {
            let pod = pods.get(&name).await?;
            Ok((deadline(&pod)? < first).then_some(pod))
        },
    )
    .await;
    nodes
        .patch("node-1", &plain, &labelled(Value::Null))
        .await?;

    let until = ready?.status().expires_at.context("no end")?;
    let lowered = lowered?;
    assert!(start(&lowered)? + deadline(&lowered)? <= until);
    assert!(gets_in(cluster, &scene, &name)?);
    // The operator has processed the status of the pod by now: the user has connected.
    assert_eq!(by_operator(cluster, mark, &scene, "patch")?, 1);
    Ok(())
}

/// Returns the number of these operations of the operator on pods of the scene.
fn by_operator(
    cluster: &Cluster,
    mark: oz_testkit::AuditMark,
    scene: &Scene,
    verb: &str,
) -> Result<usize> {
    let operator = format!("system:serviceaccount:{NAMESPACE}:oz-operator");
    let entries = cluster.audit().since(mark)?;
    let entries = entries.by_user(&operator).in_namespace(scene.name());
    Ok(entries.with_verb(verb).on("", "pods").len())
}
