//! A real node: two run at the same time, and whether a cluster is dropped or its owner is killed,
//! no process, container, mount or device of its node remains.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, ClusterOptions, Node, eventually, fixtures};
use serde_json::{Value, json};

/// The variable that makes [`own_a_node_until_killed`] run, and names the file of its report.
const REPORT: &str = "TESTKIT_REPORT";

async fn start() -> Result<Cluster> {
    let options = ClusterOptions {
        node: Node::Real,
        ..ClusterOptions::default()
    };
    Cluster::start(options).await
}

/// The traces of a cluster's node on this machine.
#[derive(Debug, Clone)]
struct Traces {
    directory: PathBuf,
    device: PathBuf,
    control_group: String,
}

impl Traces {
    fn from_cluster(cluster: &Cluster) -> Result<Self> {
        let directory = cluster.state_dir().to_owned();
        let kubelet = std::fs::read(directory.join("node/kubelet.json"))?;
        let kubelet: Value = serde_json::from_slice(&kubelet)?;
        let number = cluster
            .server_url()
            .split('.')
            .nth(2)
            .context("no number")?;
        Ok(Self {
            directory,
            device: Path::new("/sys/class/net").join(format!("oz{number}")),
            control_group: kubelet["cgroupRoot"]
                .as_str()
                .context("no control group")?
                .to_owned(),
        })
    }

    /// Returns all processes of the node: they were started with a path in its directory, or are in
    /// its control group, as containers are.
    fn processes(&self) -> Vec<String> {
        let directory = self.directory.display().to_string();
        let read = |path: PathBuf| std::fs::read(path).unwrap_or_default();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace('\0', " ");
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|process| process.join("cmdline").exists())
            .filter_map(|process| {
                let command = text(read(process.join("cmdline")));
                let groups = text(read(process.join("cgroup")));
                // A process that only waits to be reaped has no command.
                let ours = command.contains(&directory) || groups.contains(&self.control_group);
                (ours && !command.is_empty()).then_some(command)
            })
            .collect()
    }

    fn control_groups(&self) -> Vec<PathBuf> {
        let name = self.control_group.trim_start_matches('/');
        let root = Path::new("/sys/fs/cgroup");
        let below = std::fs::read_dir(root).into_iter().flatten().flatten();
        let mut groups: Vec<_> = below.map(|entry| entry.path().join(name)).collect();
        groups.push(root.join(name));
        groups.retain(|group| group.exists());
        groups
    }

    /// Checks that no process, device or mount remains.
    fn are_gone(&self) -> Result<()> {
        let processes = self.processes();
        ensure!(processes.is_empty(), "still running: {processes:#?}");
        ensure!(!self.device.exists(), "{} is left", self.device.display());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let directory = self.directory.display().to_string();
        ensure!(!mounts.contains(&directory), "mounts are left: {mounts}");
        Ok(())
    }
}

async fn run_a_pod(cluster: &Cluster) -> Result<()> {
    let client = cluster.client("admin").await?;
    fixtures::deployment(&client, "default", "web", 1).await?;
    let mut exec = cluster.kubectl("admin");
    let output = exec
        .args(["exec", "deploy/web", "--", "hostname"])
        .output()?;
    let hostname = String::from_utf8(output.stdout)?;
    ensure!(hostname.starts_with("web-"), "{hostname}");
    Ok(())
}

/// The variable that makes [`report_missing_requirement`] run.
const TELL: &str = "TESTKIT_TELL";

#[test]
#[ignore = "not a test: the next one runs it as a process that finds no program"]
fn report_missing_requirement() -> Result<()> {
    if std::env::var_os(TELL).is_some() {
        Node::Real.check()?;
    }
    Ok(())
}

#[test]
fn missing_requirement_is_named_with_remedy() -> Result<()> {
    let output = Command::new(std::env::current_exe()?)
        .args(["report_missing_requirement", "--exact", "--ignored"])
        .env("PATH", "/nonexistent")
        .env(TELL, "1")
        .output()?;

    assert!(!output.status.success());
    let said = String::from_utf8(output.stdout)?;
    let is_told = said.contains("`apt-get install containerd") || said.contains("it takes root");
    assert!(is_told, "{said}");
    Ok(())
}

#[tokio::test]
async fn two_run_side_by_side_and_a_dropped_one_leaves_nothing() -> Result<()> {
    if !Node::Real.is_possible()? {
        return Ok(());
    }
    let (first, second) = tokio::try_join!(start(), start())?;
    tokio::try_join!(run_a_pod(&first), run_a_pod(&second))?;
    let traces = Traces::from_cluster(&first)?;
    assert_ne!(traces.device, Traces::from_cluster(&second)?.device);
    // unshare, its first process, nsenter and containerd, nsenter and the kubelet, and for each of
    // two containers a process and its child; and the shim.
    assert!(traces.processes().len() >= 9, "{:#?}", traces.processes());

    drop(first);

    traces.are_gone()?;
    assert_eq!(traces.control_groups(), Vec::<PathBuf>::new());
    assert!(!traces.directory.exists());
    let client = second.client("admin").await?;
    fixtures::deployment(&client, "default", "more", 1).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "not a test: the next one runs it as the process that it kills"]
async fn own_a_node_until_killed() -> Result<()> {
    let Some(report) = std::env::var_os(REPORT) else {
        return Ok(());
    };
    let cluster = start().await?;
    run_a_pod(&cluster).await?;
    let traces = Traces::from_cluster(&cluster)?;
    let facts = json!({
        "directory": traces.directory,
        "device": traces.device,
        "controlGroup": traces.control_group,
    });
    std::fs::write(Path::new(&report), facts.to_string())?;
    std::future::pending().await
}

#[tokio::test]
async fn nothing_outlives_an_owner_that_is_killed() -> Result<()> {
    if !Node::Real.is_possible()? {
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let report = scratch.path().join("report.json");
    let mut owner = Command::new(std::env::current_exe()?)
        .args([
            "own_a_node_until_killed",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env(REPORT, &report)
        .spawn()?;
    let facts: Value = eventually("the owner's report", CONDITION_TIMEOUT, async || {
        if let Some(status) = owner.try_wait()? {
            bail!("the owner ended with {status}");
        }
        Ok(Some(serde_json::from_slice(&std::fs::read(&report)?)?))
    })
    .await?;
    let path = |name: &str| facts[name].as_str().unwrap_or_default().to_owned();
    let traces = Traces {
        directory: path("directory").into(),
        device: path("device").into(),
        control_group: path("controlGroup"),
    };
    assert!(traces.processes().len() >= 9, "{:#?}", traces.processes());
    assert!(traces.device.exists());

    owner.kill()?;
    owner.wait()?;

    eventually("the node to end", CONDITION_TIMEOUT, async || {
        traces.are_gone().map(Some)
    })
    .await?;
    // The next start removes the remains that the kernel does not remove: the directory and the
    // control group.
    drop(start().await?);
    assert_eq!(traces.control_groups(), Vec::<PathBuf>::new());
    assert!(!traces.directory.exists());
    Ok(())
}
