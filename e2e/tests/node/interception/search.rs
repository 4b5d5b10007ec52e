//! The search for a value in everything that an agent, a user of the cluster or a reader of logs can see: environment,
//! files and memory of the containers, objects, logs.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams};
use kube::discovery::{Discovery, verbs};
use kube::{Client, ResourceExt as _};
use oz_e2e::agents::{ContainerProcess, processes};

/// The part of a process's memory that is read at a time, in bytes.
const PART: usize = 1 << 20;
/// The maximum size of a file that is searched, in bytes.
const MAX_FILE: u64 = 64 << 20;

/// Returns every place in the containers of a pod, without the proxy, where a value is: environment, command line,
/// memory, and files.
pub(super) fn in_containers(pod: &Pod, value: &str) -> Result<Vec<String>> {
    let mut processes = processes(pod)?;
    processes.retain(|process| process.container != "proxy");
    ensure!(
        processes.iter().any(|process| process.container == "agent"),
        "the agent has no process: {processes:?}"
    );
    let mut found = Vec::new();
    for ContainerProcess { container, pid } in &processes {
        for file in ["environ", "cmdline"] {
            let content = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            if contains(&content, value) {
                found.push(format!("{file} of {pid} in {container}"));
            }
        }
        if in_memory(*pid, value)? {
            found.push(format!("memory of {pid} in {container}"));
        }
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let in_files = in_files(&root, value)?;
        found.extend(
            in_files
                .into_iter()
                .map(|path| format!("{path} in {container}")),
        );
    }
    Ok(found)
}

/// Checks whether a value is in the memory of a process.
pub(super) fn in_memory(pid: u32, value: &str) -> Result<bool> {
    // A process that has ended has no memory.
    let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) else {
        return Ok(false);
    };
    let Ok(mut memory) = File::open(format!("/proc/{pid}/mem")) else {
        return Ok(false);
    };
    let mut buffer = Vec::with_capacity(PART + value.len());
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let (from, to) = range.context("a line of maps has no range")?;
        let (from, to) = (u64::from_str_radix(from, 16)?, u64::from_str_radix(to, 16)?);
        if !words.next().unwrap_or_default().starts_with('r') || line.ends_with("[vvar]") {
            continue;
        }
        buffer.clear();
        if memory.seek(SeekFrom::Start(from)).is_err() {
            continue;
        }
        let mut left = to - from;
        while left > 0 {
            // The end of the last part stays: a value may be in two parts.
            let kept = buffer.len().saturating_sub(value.len());
            buffer.drain(..kept);
            let before = buffer.len();
            let size = left.min(PART as u64);
            buffer.resize(before + usize::try_from(size)?, 0);
            let part = buffer.get_mut(before..).unwrap_or_default();
            if memory.read_exact(part).is_err() {
                break;
            }
            if contains(&buffer, value) {
                return Ok(true);
            }
            left -= size;
        }
    }
    Ok(false)
}

/// Returns the files below a directory that contain a value, without those of the kernel.
pub(super) fn in_files(root: &Path, value: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        // Files and processes end while they are read.
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else {
                continue;
            };
            let below = path.strip_prefix(root)?;
            if kind.is_dir()
                && ![Path::new("proc"), Path::new("sys"), Path::new("dev")].contains(&below)
            {
                directories.push(path);
            } else if kind.is_file() {
                let is_small = entry.metadata().is_ok_and(|it| it.len() <= MAX_FILE);
                let content = is_small.then(|| fs::read(&path).unwrap_or_default());
                if contains(&content.unwrap_or_default(), value) {
                    found.push(path.display().to_string());
                }
            }
        }
    }
    Ok(found)
}

/// Returns the objects of the cluster that contain one of these values, without Secrets.
pub(super) async fn in_objects(client: &Client, values: &[String]) -> Result<Vec<String>> {
    let discovery = Discovery::new(client.clone()).run().await?;
    let mut found = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if !capabilities.supports_operation(verbs::LIST) || resource.kind == "Secret" {
                continue;
            }
            let objects = Api::<DynamicObject>::all_with(client.clone(), &resource);
            for object in objects.list(&ListParams::default()).await? {
                let text = serde_json::to_string(&object)?;
                if values.iter().any(|value| text.contains(value)) {
                    let namespace = object.namespace().unwrap_or_default();
                    found.push(format!(
                        "{} {namespace}/{}",
                        resource.kind,
                        object.name_any()
                    ));
                }
            }
        }
    }
    Ok(found)
}

fn contains(content: &[u8], value: &str) -> bool {
    let value = value.as_bytes();
    let Some((first, rest)) = value.split_first() else {
        return false;
    };
    let mut at = 0;
    while let Some(place) = content
        .get(at..)
        .and_then(|left| left.iter().position(|it| it == first))
    {
        at += place + 1;
        if content.get(at..).is_some_and(|left| left.starts_with(rest)) {
            return true;
        }
    }
    false
}

#[test]
fn value_of_this_process_is_found_in_its_memory() -> Result<()> {
    // In two parts: the values that are searched are in memory as well.
    let held = format!("{}-{}", "a value in", std::process::id());
    assert!(in_memory(std::process::id(), std::hint::black_box(&held))?);
    assert!(contains(b"aab", "ab") && !contains(b"aab", "abc") && !contains(b"", "a"));
    Ok(())
}
