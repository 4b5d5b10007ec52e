//! The time until an agent begins on a real node, compared with the same command in a plain Job with as many
//! containers: the addition of oz, its webhooks, its policies and its own container. oz runs from its chart,
//! with the images in `OZ_IMAGE` and `OZ_HARNESS_IMAGE`, or with images that are built for tests.

use std::fmt::Debug;
use std::fs;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams};
use oz_api::harness::{HarnessRun, HarnessTemplate};
use oz_e2e::{Scene, apply_as, chart, harness_image_archive, helm, image_archive, repository, run};
use oz_runs::reserved::AGENT;
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
    for turn in 0..size.runs {
        memory(&scene, &format!("held-{turn}"), report).await?;
        let (mut jobs, mut runs) = (Vec::new(), Vec::new());
        // The first of each is for data that is read once.
        for number in 0..=size.pods / 2 {
            jobs.push(start(&scene, plain(&format!("job-{turn}-{number}"))?).await?);
            runs.push(start(&scene, submitted(&format!("run-{turn}-{number}"), "clock")?).await?);
        }
        let [jobs, runs] = [jobs, runs].map(|all| {
            let all: Values = all.into_iter().skip(1).collect();
            all.median()
        });
        report.add_times(
            ("a plain Job until its container begins, p50", jobs),
            ("a run until its agent begins, p50", runs),
            ("  how many times as long as a plain Job", 1.25),
        );
    }
    Ok(())
}

/// Installs oz with harness runs.
fn install(cluster: &Cluster) -> Result<()> {
    let namespace = repository().join("deploy/rbac/namespace.yaml");
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
    let ours = process::named("oz-harness")?;
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
        Ok(process::named("oz-harness")?.is_empty().then_some(()))
    })
    .await
}

/// Creates a Job with a sidecar, as a run has one.
fn plain(name: &str) -> serde_json::Result<Job> {
    let container = |name: &str, command: Value| {
        json!({
            "name": name, "image": IMAGE, "command": command,
        })
    };
    let mut sidecar = container("sidecar", json!(["/bin/sleep", "7000"]));
    sidecar["restartPolicy"] = json!("Always");
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "initContainers": [sidecar],
            "containers": [container(AGENT, json!(COMMAND))],
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
    let pods = scene.api::<Pod>();
    let of_job = ListParams::default().labels(&format!("job-name={name}"));
    let began = eventually("the agent's time", CHANGE_TIMEOUT, async || {
        Ok(pods.list(&of_job).await?.items.iter().find_map(message))
    })
    .await?;
    Ok((uptime(&began)? - sent) * 1000.0)
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
