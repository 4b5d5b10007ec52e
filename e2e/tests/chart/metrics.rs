//! The metrics in the alerts and the dashboard of harness runs, compared with the metrics that the programs register.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use oz_e2e::repository;
use walkdir::WalkDir;

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
