//! The time until an agent begins on a real node, compared with the same command in a plain Job with as many
//! containers: the addition of oz, its webhooks, its policies and its own containers, for a run that requires nothing and
//! for one with a host and a credential, with its firewall and its proxy. oz runs from its chart, with the images in
//! `OZ_IMAGE` and `OZ_HARNESS_IMAGE`, or with images that are built for tests.

use std::fmt::Debug;
use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams};
use oz_api::harness::{HarnessRun, HarnessTemplate};
use oz_e2e::agents::{AGENT as PROXIED, CREDENTIAL, KEY};
use oz_e2e::upstream::ANTHROPIC;
use oz_e2e::{Scene, apply_as, chart, harness_image_archive, helm, image_archive, repository, run};
use oz_runs::reserved::{AGENT, NETINIT, PROXY, RUNTIME};
use oz_testkit::{Cluster, Image, eventually};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::report::{Budget, Report};
use super::scene::CHANGE_TIMEOUT;
use super::stats::Values;
use super::{Size, process};
use crate::real_node;

const IMAGE: &str = "clock:dev";
/// The first instruction of an agent: it writes the time of its machine as its termination message.
const COMMAND: [&str; 3] = ["/bin/sh", "-c", "cat /proc/uptime > /dev/termination-log"];

/// The command of an agent that writes output for the runtime, and stays.
const HELD: [&str; 3] = [
    "/bin/sh",
    "-c",
    r#"seq 10000 | sed 's/.*/{"kind":"message","text":"&"}/' >> "$PADDOCK_RAW_PATH"
       echo '{"kind":"tool","tool":"write","path":"last.txt","summary":"wrote last.txt"}' >> "$PADDOCK_RAW_PATH"
       exec sleep 7000"#,
];
/// 8 MB, in units of 1024 × 1024 bytes.
const MOST: f64 = 8e6 / (1024.0 * 1024.0);

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = real_node::cluster().await?;
    for archive in [image_archive()?, harness_image_archive()?] {
        cluster.import_image_archive(&archive)?;
    }
    let image = format!("docker.io/library/{IMAGE}");
    cluster.import_image(Image::busybox(&image)?.search("/bin"))?;
    install(cluster)?;
    let scene = Scene::empty(cluster, "starts").await?;
    for (name, command) in [("clock", COMMAND), ("held", HELD)] {
        let template = json!({
            "metadata": {"name": name},
            "spec": {
                "harness": "echo", "image": IMAGE, "command": command, "workspace": {"required": false},
            },
        });
        apply_as(&scene.api::<HarnessTemplate>(), template).await?;
    }
    scene.agent_key(KEY).await?;
    scene.let_broker_read().await?;
    scene.agent_policy(&[ANTHROPIC]).await?;
    scene
        .agent_template(IMAGE, &COMMAND, &[ANTHROPIC], &[CREDENTIAL])
        .await?;
    for turn in 0..size.runs {
        memory(&scene, &format!("held-{turn}"), report).await?;
        compare(&scene, &PLAIN, turn, size.pods / 2, report).await?;
        compare(&scene, &WITH_PROXY, turn, size.pods / 2, report).await?;
    }
    Ok(())
}

/// A kind of runs that is compared with plain Jobs.
struct Compared {
    template: &'static str,
    /// The containers that oz adds to the pod.
    added: &'static [&'static str],
    /// The names of the figures, and the budget of the last one.
    job: &'static str,
    run: &'static str,
    ratio: (&'static str, f64),
}

const PLAIN: Compared = Compared {
    template: "clock",
    added: &[RUNTIME],
    job: "a plain Job until its container begins, p50",
    run: "a run until its agent begins, p50",
    ratio: ("  how many times as long as a plain Job", 1.25),
};
const WITH_PROXY: Compared = Compared {
    template: PROXIED,
    added: &[NETINIT, PROXY, RUNTIME],
    job: "a plain Job with as many containers as a run with a proxy, p50",
    run: "a run with a proxy and a credential until its agent begins, p50",
    ratio: ("  how many times as long as such a plain Job", 1.3),
};

/// Measures starts of runs and of plain Jobs with as many containers, in turns.
async fn compare(
    scene: &Scene,
    kind: &Compared,
    turn: u32,
    count: usize,
    report: &mut Report,
) -> Result<()> {
    let name = |what: &str, number: usize| format!("{}-{what}-{turn}-{number}", kind.template);
    // The first of each is for data that is read once; the policy may have to become known before.
    let first = submitted(&name("run", 0), kind.template)?;
    let runs = scene.api::<HarnessRun>();
    eventually("the run to be admitted", CHANGE_TIMEOUT, async || {
        Ok(Some(runs.create(&PostParams::default(), &first).await?))
    })
    .await?;
    let (pod, _) = began(scene, &first.name_any()).await?;
    let spec = pod.spec.context("a pod without a spec")?;
    let names = spec.init_containers.iter().flatten().map(|it| &it.name);
    ensure!(
        names.clone().eq(kind.added.iter()),
        "the pod has the containers {:?}",
        names.collect::<Vec<_>>()
    );
    start(scene, plain(&name("job", 0), &spec)?).await?;
    let (mut jobs, mut runs) = (Vec::new(), Vec::new());
    for number in 1..=count {
        jobs.push(start(scene, plain(&name("job", number), &spec)?).await?);
        runs.push(start(scene, submitted(&name("run", number), kind.template)?).await?);
    }
    let [jobs, runs] = [jobs, runs].map(|all| all.into_iter().collect::<Values>().median());
    report.add_times((kind.job, jobs), (kind.run, runs), kind.ratio);
    Ok(())
}

/// Installs oz with harness runs.
fn install(cluster: &Cluster) -> Result<()> {
    let namespace = repository().join("deploy/rbac/00-namespace.yaml");
    let mut kubectl = cluster.kubectl("admin");
    kubectl.args(["apply", "-f", &namespace.display().to_string()]);
    run(kubectl)?;
    let mut helm = helm(cluster)?;
    helm.args([
        "install",
        "oz",
        &chart(),
        "--take-ownership",
        "--wait",
        "--timeout=240s",
    ]);
    helm.arg("--set=harness.enabled=true");
    run(helm).map(drop)
}

fn submitted(name: &str, template: &str) -> serde_json::Result<HarnessRun> {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"templateRef": {"name": template}, "prompt": "Tell the time."},
    }))
}

/// Measures the memory of oz's container when its agent has written much output.
async fn memory(scene: &Scene, name: &str, report: &mut Report) -> Result<()> {
    let runs = scene.api::<HarnessRun>();
    let run = submitted(name, "held")?;
    runs.create(&PostParams::default(), &run).await?;
    eventually(
        "its last events to be reported",
        CHANGE_TIMEOUT,
        async || {
            let status = runs.get(name).await?.status.unwrap_or_default();
            let last = status.recent_events.last();
            let is_last = last.is_some_and(|event| event.summary.contains("last.txt"));
            Ok(is_last.then_some(()))
        },
    )
    .await?;
    let ours = process::find_by_name("oz-harness")?;
    let [pid] = ours[..] else {
        bail!(
            "there are {} processes of our container, not one",
            ours.len()
        );
    };
    let memory = process::resident(pid)?;
    report.add(
        "memory of our container in a pod, after 10,000 events",
        "MiB",
        Budget::AtMost(MOST),
        memory,
    );
    runs.delete(name, &DeleteParams::default()).await?;
    eventually("it to be gone", CHANGE_TIMEOUT, async || {
        Ok(process::find_by_name("oz-harness")?
            .is_empty()
            .then_some(()))
    })
    .await
}

/// Returns a Job with as many containers as the pod of a run has: those that end before the next one begins, and
/// sidecars.
fn plain(name: &str, like: &PodSpec) -> serde_json::Result<Job> {
    let before = |like: &Container| {
        let (command, policy) = match &like.restart_policy {
            Some(policy) => (json!(["/bin/sleep", "7000"]), json!(policy)),
            None => (json!(["/bin/true"]), Value::Null),
        };
        json!({"name": like.name, "image": IMAGE, "command": command, "restartPolicy": policy})
    };
    let before = like.init_containers.iter().flatten().map(before);
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "initContainers": before.collect::<Vec<_>>(),
            "containers": [{"name": AGENT, "image": IMAGE, "command": COMMAND}],
        }}},
    }))
}

/// Returns the number of milliseconds from sending an object until the agent of its pod began.
async fn start<K>(scene: &Scene, object: K) -> Result<f64>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    let name = object.name_any();
    let sent = uptime(&fs::read_to_string("/proc/uptime")?)?;
    scene
        .api::<K>()
        .create(&PostParams::default(), &object)
        .await?;
    let (_, began) = began(scene, &name).await?;
    Ok((uptime(&began)? - sent) * 1000.0)
}

/// Returns the pod of a Job, and the time at which its agent began.
async fn began(scene: &Scene, job: &str) -> Result<(Pod, String)> {
    let pods = scene.api::<Pod>();
    let of_job = ListParams::default().labels(&format!("job-name={job}"));
    eventually("the agent's time", CHANGE_TIMEOUT, async || {
        let all = pods.list(&of_job).await?.items.into_iter();
        let mut all = all.filter_map(|pod| Some((message(&pod)?, pod)));
        Ok(all.next().map(|(began, pod)| (pod, began)))
    })
    .await
}

/// Returns the message of the agent of a pod.
fn message(pod: &Pod) -> Option<String> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let agent = containers.iter().find(|one| one.name == AGENT)?;
    let ended = agent.state.as_ref()?.terminated.as_ref()?;
    ended.message.clone()
}

/// Returns the seconds since the machine started.
fn uptime(text: &str) -> Result<f64> {
    let first = text.split_whitespace().next().context("no time")?;
    Ok(first.parse()?)
}
