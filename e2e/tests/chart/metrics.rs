//! The metrics in the alerts and the dashboard of harness runs, compared with the metrics that the programs register;
//! and the alerts, compared with the page for the engineer on call.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use oz_e2e::repository;
use serde_json::Value;
use walkdir::WalkDir;

use crate::rendered;

/// The files, and the part of the names that is not in a registration: the prefix of a registry.
const FILES: [&str; 2] = [
    "charts/oz/alerts/harness.yaml",
    "charts/oz/dashboards/harness.json",
];
const PREFIXES: [&str; 2] = ["oz_broker_", "oz_"];
/// The endings that the text format adds to the name of a metric.
const ENDINGS: [&str; 4] = [
    "_total",
    "_seconds_bucket",
    "_seconds_sum",
    "_seconds_count",
];

/// Returns the names of metrics of oz in a text.
fn names_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|next: char| !(next.is_ascii_lowercase() || next == '_'));
    words.filter(|word| word.starts_with("oz_")).collect()
}

/// Returns the names that the programs register.
fn registered() -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for file in WalkDir::new(repository().join("crates")) {
        let file = file?;
        if file.path().extension().is_none_or(|ending| ending != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(file.path())?;
        for call in ["register(", "register_with_unit("] {
            let calls = text.split(call).skip(1);
            let names =
                calls.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
            all.extend(names.map(str::to_owned));
        }
    }
    Ok(all)
}

#[test]
fn alerts_and_dashboard_of_runs_use_registered_metrics() -> Result<()> {
    let registered = registered()?;
    for file in FILES {
        let text = std::fs::read_to_string(repository().join(file))?;
        let names = names_in(&text);
        ensure!(!names.is_empty(), "{file} names no metric");
        for name in names {
            let plain = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending));
            let plain = plain.unwrap_or(name);
            let mut without = PREFIXES
                .iter()
                .filter_map(|prefix| plain.strip_prefix(prefix));
            let is_registered = without.any(|name| registered.contains(name));
            ensure!(is_registered, "{file}: no program registers {name}");
        }
    }
    Ok(())
}

/// The page with a section for each alert.
const RUNBOOK: &str = "docs/guides/on-call.md";

/// Returns the alerts that the chart renders with these flags: their names, and the addresses of their sections.
fn alerts(flags: &[&str]) -> Result<Vec<(String, String)>> {
    let mut alerts = Vec::new();
    for object in rendered(flags)? {
        if object["kind"] != "PrometheusRule" {
            continue;
        }
        for group in object["spec"]["groups"].as_array().into_iter().flatten() {
            for rule in group["rules"].as_array().into_iter().flatten() {
                let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
                let name = text(&rule["alert"]).context("a rule is no alert")?;
                let address = text(&rule["annotations"]["runbook_url"]);
                let address = address.with_context(|| format!("{name} has no runbook_url"))?;
                alerts.push((name, address));
            }
        }
    }
    ensure!(!alerts.is_empty(), "the chart renders no alerts");
    Ok(alerts)
}

#[test]
fn every_alert_leads_to_its_section_of_the_runbook() -> Result<()> {
    let create = ["--set", "metrics.prometheusRule.create=true"];
    let page = "https://oz.example/guides/on-call.html";
    let runbook = format!("metrics.prometheusRule.runbook={page}");
    let text = std::fs::read_to_string(repository().join(RUNBOOK))?;
    let sections: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .collect();
    let mut names = BTreeSet::new();
    for (flags, base) in [
        (create.to_vec(), RUNBOOK),
        (
            [create.as_slice(), &["--set", runbook.as_str()]].concat(),
            page,
        ),
    ] {
        for (name, address) in alerts(&flags)? {
            assert_eq!(address, format!("{base}#{}", name.to_lowercase()));
            ensure!(
                sections.contains(name.as_str()),
                "{RUNBOOK} has no section {name}"
            );
            names.insert(name);
        }
    }
    for section in sections {
        ensure!(
            names.contains(section),
            "{RUNBOOK}: no alert is called {section}"
        );
    }
    Ok(())
}
