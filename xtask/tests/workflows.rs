//! The workflows: pinned actions, the fewest rights, no secrets, and nothing released before the owner enables it.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use regex::Regex;
use serde_json::{Map, Value};

/// Returns the workflows: their names, and their texts.
fn workflows() -> Result<Vec<(String, String)>> {
    let directory = oz_testkit::repository().join(".github/workflows");
    let mut workflows = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        workflows.push((name.into_owned(), fs::read_to_string(&path)?));
    }
    ensure!(!workflows.is_empty(), "there are no workflows");
    Ok(workflows)
}

/// Returns a workflow, and its jobs.
fn parsed(name: &str) -> Result<(Value, Map<String, Value>)> {
    let workflows = workflows()?;
    let found = workflows.into_iter().find(|(other, _)| other == name);
    let (_, text) = found.with_context(|| format!("no workflow {name}"))?;
    let workflow: Value = serde_saphyr::from_str(&text).with_context(|| name.to_owned())?;
    let jobs = workflow["jobs"].as_object().cloned();
    Ok((workflow, jobs.with_context(|| format!("{name}: no jobs"))?))
}

#[test]
fn every_action_is_pinned_to_a_commit_with_its_version() -> Result<()> {
    let pinned = Regex::new(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")?;
    for (name, text) in workflows()? {
        for line in text.lines().filter(|line| line.contains("uses:")) {
            ensure!(pinned.is_match(line), "{name}: {line}");
        }
    }
    Ok(())
}

#[test]
fn workflows_use_no_secret_and_name_no_owner() -> Result<()> {
    for (name, text) in workflows()? {
        ensure!(!text.contains("secrets."), "{name} uses a secret");
        ensure!(!text.contains("ghcr.io/oz"), "{name} names an owner");
    }
    Ok(())
}

#[test]
fn only_the_publishing_job_may_write() -> Result<()> {
    for (name, _) in workflows()? {
        let (workflow, jobs) = parsed(&name)?;
        let all = workflow["permissions"].as_object();
        ensure!(
            all.is_some_and(Map::is_empty),
            "{name} grants rights to all jobs"
        );
        for (job, content) in jobs {
            let rights = content["permissions"].as_object();
            let rights = rights.with_context(|| format!("{name}: {job} states no rights"))?;
            let may_write = rights.values().any(|right| right != "read");
            let publishes = name == "release.yml" && job == "publish";
            ensure!(may_write == publishes, "{name}: {job} has {rights:?}");
        }
    }
    Ok(())
}

#[test]
fn release_runs_no_job_before_the_owner_enables_it() -> Result<()> {
    let (_, jobs) = parsed("release.yml")?;
    for (job, content) in &jobs {
        // A job is skipped with a job that it needs, unless it has a condition that says otherwise.
        let expected = match content["needs"] {
            Value::Null => Value::from("vars.OZ_RELEASE == 'true'"),
            _ => Value::Null,
        };
        ensure!(content["if"] == expected, "{job}: {}", content["if"]);
    }
    Ok(())
}

#[test]
fn ci_runs_every_tier_once() -> Result<()> {
    let (_, jobs) = parsed("ci.yml")?;
    let groups = jobs["tiers"]["strategy"]["matrix"]["tiers"].as_array();
    let groups: Vec<&str> = groups
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut seen = BTreeSet::new();
    for tier in groups.iter().flat_map(|group| group.split(' ')) {
        ensure!(seen.insert(tier), "{tier} runs twice");
    }
    let script = fs::read_to_string(oz_testkit::repository().join(".ci/run"))?;
    let list = Regex::new(r"(?m)^tiers=\(([a-z ]+)\)$")?;
    let list = list.captures(&script).context(".ci/run lists no tiers")?;
    assert_eq!(seen, list[1].split(' ').collect());
    Ok(())
}
