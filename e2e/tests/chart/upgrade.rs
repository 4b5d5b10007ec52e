//! Upgrades from earlier revisions of the chart: renamed values are refused with the new name, also those that
//! `helm upgrade --reuse-values` brings along; and the versions of Kubernetes on which the chart can be installed.

use std::fs;

use anyhow::{Context as _, Result};
use oz_e2e::{repository, run};
use oz_testkit::Cluster;
use serde_json::json;

use crate::template;
use crate::values::refusal;

/// The page with the old and the new names, and its section about values.
const PAGE: &str = "docs/reference/renamed.md";
const SECTION: &str = "## Configuration and chart values\n";
/// The name of a ticket check.
const CHECK: &str = "jira";

/// Returns the old and the new path of each renamed value.
fn renamed() -> Result<Vec<(String, String)>> {
    let page = fs::read_to_string(repository().join(PAGE))?;
    let (_, section) = page.split_once(SECTION).context("no such section")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let paths = rows.filter_map(|row| {
        let (old, rest) = row.split_once('`')?;
        let (_, new) = rest.split_once("| `")?;
        let (new, _) = new.split_once('`')?;
        let path = |text: &str| text.replace("NAME", CHECK);
        // The other rows are about the values themselves.
        old.contains('.').then(|| (path(old), path(new)))
    });
    let paths: Vec<(String, String)> = paths.collect();
    anyhow::ensure!(paths.len() >= 8, "{PAGE} has {} values", paths.len());
    Ok(paths)
}

/// Checks whether the earlier chart had a default for a value: there was no ticket check, and sessions were terminated by a
/// flag.
fn is_default(old: &str) -> bool {
    !old.starts_with("tickets.") && !old.starts_with("operator.")
}

#[test]
fn renamed_value_is_refused_with_new_name() -> Result<()> {
    let check = format!("tickets.checks.{CHECK}");
    for (old, new) in renamed()? {
        let flag = match old.strip_prefix(&format!("{check}.")) {
            Some(field) => {
                let value =
                    json!({"url": "https://jira.test/{ticket}", "accept": "true", field: "1m"});
                format!("--set-json={check}={value}")
            }
            None => format!("--set={old}=a"),
        };
        let said = refusal(&flag)?;
        assert!(said.contains(&format!("{old}: set {new}")), "{old}: {said}");
    }
    Ok(())
}

#[test]
fn values_of_earlier_chart_are_refused_with_all_new_names() -> Result<()> {
    let values = repository().join("e2e/tests/chart/earlier/values.yaml");
    let said = refusal(&format!("--values={}", values.display()))?;
    for (old, new) in renamed()? {
        let is_named = said.contains(&format!("{old}: set {new}"));
        assert_eq!(is_named, is_default(&old), "{old}: {said}");
    }
    Ok(())
}

/// Installs a chart with the values of the earlier revision, and upgrades it to this chart.
#[tokio::test]
async fn upgrade_with_reused_values_of_earlier_chart_is_refused() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let earlier = tempfile::tempdir()?;
    let values = repository().join("e2e/tests/chart/earlier/values.yaml");
    fs::copy(values, earlier.path().join("values.yaml"))?;
    let chart = "apiVersion: v2\nname: oz\nversion: 0.0.1\n";
    fs::write(earlier.path().join("Chart.yaml"), chart)?;
    fs::create_dir(earlier.path().join("templates"))?;
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: earlier-chart}\n";
    fs::write(earlier.path().join("templates/object.yaml"), object)?;

    let helm = |arguments: &[&str]| {
        let mut helm = oz_e2e::helm(cluster)?;
        helm.args(arguments);
        run(helm)
    };
    let from = earlier.path().display().to_string();
    let chart = oz_e2e::chart();
    // Another namespace: the tests of an installation share oz's.
    let namespace = "--namespace=earlier-chart";
    helm(&["install", "oz", &from, namespace, "--create-namespace"])?;
    let upgrade = |values: &str| {
        let upgrade = ["upgrade", "oz", &chart, namespace, "--take-ownership"];
        helm(&[&upgrade[..], &["--dry-run=server", values]].concat())
    };
    let refused = upgrade("--reuse-values").err().context("it was accepted")?;
    let said = format!("{refused:#}");
    for (old, new) in renamed()?.iter().filter(|(old, _)| is_default(old)) {
        assert!(said.contains(&format!("{old}: set {new}")), "{said}");
    }
    assert!(said.contains("--reset-then-reuse-values"), "{said}");
    // The advice of the message.
    upgrade("--reset-then-reuse-values")?;
    helm(&["uninstall", "oz", namespace])?;
    let mut delete = cluster.kubectl("admin");
    delete.args(["delete", "namespace", "earlier-chart", "--wait=false"]);
    run(delete).map(drop)
}

#[test]
fn kubernetes_before_1_30_is_refused() -> Result<()> {
    for (version, is_accepted) in [
        ("1.29.14", false),
        ("1.30.0", true),
        ("1.30.14-eks-1", true),
    ] {
        let output = template(&[&format!("--kube-version={version}")])?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_accepted, "{version}: {said}");
        let names_version = said.contains("requires kubeVersion: >=1.30.0");
        assert_eq!(names_version, !is_accepted, "{said}");
    }
    Ok(())
}
