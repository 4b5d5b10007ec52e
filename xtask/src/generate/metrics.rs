//! The reference page of the metrics, from the calls in which the programs register them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use regex::Regex;

/// The page.
pub(super) const PAGE: &str = "docs/reference/metrics.md";
/// The crates with metrics, and the programs that expose them.
const CRATES: [(&str, &str); 9] = [
    ("runtime", "operator, webhook, gate, broker"),
    ("config", "operator, webhook, gate, broker"),
    ("audit", "operator, webhook, gate, broker"),
    ("admission", "webhook, gate, broker"),
    ("engine", "operator"),
    ("operator", "operator"),
    ("webhook", "webhook"),
    ("gate", "gate"),
    ("broker", "broker"),
];
/// Files that register metrics in a registry that a caller has given a prefix.
const PREFIXES: [(&str, &str); 3] = [
    ("crates/runtime/src/metrics.rs", "oz"),
    ("crates/operator/src/harness/metrics.rs", "oz"),
    ("crates/gate/src/spool/meters.rs", "oz_gate"),
];
/// Metrics that are computed when they are read: the file, the name there, the complete name, and their label.
const COMPUTED: [(&str, &str, &str, &str); 2] = [
    (
        "crates/runtime/src/store/health.rs",
        "watch_age_seconds",
        "oz_watch_age_seconds",
        "kind",
    ),
    (
        "crates/operator/src/past_expiry.rs",
        "oz_grants_past_expiry",
        "oz_grants_past_expiry",
        "kind",
    ),
];
const INTRODUCTION: &str = "\
<!-- Generated from the sources of the programs by `cargo xtask generate`; do not edit. -->

# Metrics

Operator, webhook, gate and broker serve these metrics under `/metrics`, in the text format of Prometheus. The names are
those of that format: a counter ends in `_total`, and a histogram has the series `NAME_bucket`, `NAME_sum` and
`NAME_count`. [Configuration of the chart](values.md) describes `metrics.serviceMonitor`, `metrics.prometheusRule` and
`metrics.dashboards`; [On call](../guides/on-call.md) describes the alerts.

| metric | type | labels | meaning | of |
|---|---|---|---|---|
";

/// A metric, as the text format has it.
#[derive(Debug, PartialEq, Eq)]
struct Metric {
    name: String,
    kind: &'static str,
    labels: Vec<String>,
    meaning: String,
}

/// Returns the page.
pub(super) fn page(root: &Path) -> Result<String> {
    let mut rows = BTreeMap::new();
    for (name, programs) in CRATES {
        let sources = sources(root, &format!("crates/{name}/src"))?;
        for (path, text) in &sources {
            for metric in metrics(path, text, &sources)? {
                rows.insert(metric.name.clone(), row(&metric, programs));
            }
        }
    }
    for (file, own, name, label) in COMPUTED {
        let text = fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?;
        let metric = Metric {
            name: name.to_owned(),
            kind: "gauge",
            labels: vec![label.to_owned()],
            meaning: help_after(&text, own).with_context(|| format!("{file}: no help of {own}"))?,
        };
        let programs = CRATES
            .iter()
            .find(|(of, _)| file.split('/').any(|part| part == *of));
        let (_, programs) =
            programs.with_context(|| format!("{file} is in no crate of the list"))?;
        rows.insert(name.to_owned(), row(&metric, programs));
    }
    let rows: Vec<String> = rows.into_values().collect();
    Ok(format!("{INTRODUCTION}{}", rows.concat()))
}

fn row(metric: &Metric, programs: &str) -> String {
    let labels: Vec<String> = metric
        .labels
        .iter()
        .map(|label| format!("`{label}`"))
        .collect();
    format!(
        "| `{}` | {} | {} | {} | {programs} |\n",
        metric.name,
        metric.kind,
        labels.join(", "),
        metric.meaning.replace('|', r"\|"),
    )
}

/// Returns the sources of a crate without their tests: their paths from the root, and their texts.
fn sources(root: &Path, directory: &str) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(root.join(directory));
    for entry in entries.with_context(|| format!("failed to list {directory}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let path = format!("{directory}/{name}");
        if ["tests", "tests.rs"].contains(&name.as_str()) {
            continue;
        }
        if root.join(&path).is_dir() {
            found.extend(sources(root, &path)?);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
            let text = text
                .split("#[cfg(test)]\nmod tests")
                .next()
                .unwrap_or_default();
            found.push((path, text.to_owned()));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the metrics that a source registers. `sources` are those of its crate.
fn metrics(path: &str, text: &str, sources: &[(String, String)]) -> Result<Vec<Metric>> {
    let calls = Regex::new(
        r#"(?s)sub_registry_with_prefix\(\s*"([^"]+)"|\.register(_with_unit)?\(\s*"([a-z0-9_]+)",\s*"((?:[^"\\]|\\.)*)",\s*(?:Unit::Seconds,\s*)?([a-z_.]+?)(?:\.clone\(\))?,?\s*\)"#,
    )?;
    let given = PREFIXES.iter().find(|(file, _)| *file == path);
    let given = given.map(|(_, prefix)| *prefix);
    let mut own = None;
    let mut found = Vec::new();
    for call in calls.captures_iter(text) {
        if let Some(prefix) = call.get(1) {
            own = Some(prefix.as_str());
            continue;
        }
        let (name, variable) = (&call[3], call[5].rsplit('.').next().unwrap_or_default());
        let declared = declared(variable, text).or_else(|| {
            sources
                .iter()
                .find_map(|(_, text)| declared(variable, text))
        });
        let declared =
            declared.with_context(|| format!("{path}: the type of {name} is unknown"))?;
        let kind = kind(declared);
        let parts = [given, own, Some(name)].into_iter().flatten();
        let mut name = parts.collect::<Vec<_>>().join("_");
        if call.get(2).is_some() {
            name.push_str("_seconds");
        }
        if kind == "counter" {
            name.push_str("_total");
        }
        found.push(Metric {
            name,
            kind,
            labels: labels(declared, text)?,
            meaning: joined(&call[4])?,
        });
    }
    let calls = Regex::new(r#"\.register(_with_unit)?\(\s*""#)?
        .find_iter(text)
        .count();
    ensure!(
        calls == found.len(),
        "{path}: {calls} metrics are registered, and {} of these calls were understood",
        found.len()
    );
    Ok(found)
}

/// Returns the type with which a source declares a variable or field, if it is that of a metric.
fn declared<'a>(variable: &str, text: &'a str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (before, declared) = line.split_once([':', '='])?;
        let name = before.split_whitespace().next_back()?;
        let is_metric = ["Counter", "Gauge", "Histogram", "Durations<"]
            .iter()
            .any(|kind| declared.contains(kind));
        (name == variable && is_metric).then_some(declared)
    })
}

fn kind(declared: &str) -> &'static str {
    if declared.contains("Counter") {
        "counter"
    } else if declared.contains("Gauge") {
        "gauge"
    } else {
        "histogram"
    }
}

/// Returns the labels of a family: the fields of the type that its declaration names first.
fn labels(declared: &str, text: &str) -> Result<Vec<String>> {
    let Some(family) = Regex::new(r"(?:Family|Durations)(?:::)?<(\w+)")?.captures(declared) else {
        return Ok(Vec::new());
    };
    let structure = format!(r"(?s)struct {}(?:<[^>]*>)? \{{(.*?)\n\}}", &family[1]);
    let Some(fields) = Regex::new(&structure)?.captures(text) else {
        return Ok(Vec::new());
    };
    let field = Regex::new(r"(?m)^    (?:pub(?:\([a-z]+\))? )?([a-z_]+): ")?;
    Ok(field
        .captures_iter(&fields[1])
        .map(|field| field[1].to_owned())
        .collect())
}

/// Returns the string literal after the one with this name.
fn help_after(text: &str, name: &str) -> Option<String> {
    let after = text.split(&format!("\"{name}\"")).nth(1)?;
    after.split('"').nth(1).map(ToOwned::to_owned)
}

/// Returns the text of a string literal that may continue on the next line.
fn joined(literal: &str) -> Result<String> {
    Ok(Regex::new(r"\\\n\s*")?
        .replace_all(literal, "")
        .into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
struct RequestLabels {
    /// The route.
    route: &'static str,
    pub(crate) code: String,
}

struct Metrics {
    requests: Family<RequestLabels, Counter>,
    duration: Family<RouteLabels, Histogram, fn() -> Histogram>,
    held: Gauge,
}

fn new(registry: &mut Registry) {
    registry.register("first", "The first", held.clone());
    let registry = registry.sub_registry_with_prefix("oz_broker");
    registry.register(
        "requests",
        "Requests, by route and \
            code",
        metrics.requests.clone(),
    );
    registry.register_with_unit(
        "request_duration",
        "Time",
        Unit::Seconds,
        self.duration.clone(),
    );
}
"#;

    #[test]
    fn registered_metrics_have_the_names_of_the_text_format() {
        let found = metrics("a.rs", SOURCE, &[]).unwrap();
        let of = |name: &str, kind, labels: &[&str], meaning: &str| Metric {
            name: name.to_owned(),
            kind,
            labels: labels.iter().map(ToString::to_string).collect(),
            meaning: meaning.to_owned(),
        };
        assert_eq!(
            found,
            [
                of("first", "gauge", &[], "The first"),
                of(
                    "oz_broker_requests_total",
                    "counter",
                    &["route", "code"],
                    "Requests, by route and code"
                ),
                of(
                    "oz_broker_request_duration_seconds",
                    "histogram",
                    &[],
                    "Time"
                ),
            ]
        );
    }

    #[test]
    fn call_that_is_not_understood_is_an_error() {
        let unknown = "registry.register(\"a\", format!(\"b\"), c.clone());";
        let untyped = "registry.register(\"a\", \"b\", c.clone());";
        for source in [unknown, untyped] {
            assert!(metrics("a.rs", source, &[]).is_err(), "{source}");
        }
    }

    #[test]
    fn page_has_every_metric_of_alerts_and_dashboards() {
        let root = oz_testkit::repository();
        let page = page(&root).unwrap();
        let metric = Regex::new(r"\b(?:oz|admission)_[a-z_]+[a-z]\b").unwrap();
        let known = |name: &str| page.contains(&format!("| `{name}` |"));
        let mut seen = 0;
        for directory in ["charts/oz/alerts", "charts/oz/dashboards"] {
            for entry in fs::read_dir(root.join(directory)).unwrap() {
                let path = entry.unwrap().path();
                let text = fs::read_to_string(&path).unwrap();
                for found in metric.find_iter(&text).map(|found| found.as_str()) {
                    let plain = ["_bucket", "_sum", "_count"]
                        .iter()
                        .find_map(|ending| found.strip_suffix(ending));
                    // A job of the user sets this one.
                    let is_known = known(found)
                        || plain.is_some_and(known)
                        || found == "oz_audit_verify_failed";
                    assert!(is_known, "{}: {found}", path.display());
                    seen += 1;
                }
            }
        }
        assert!(seen > 50, "{seen} names");
    }
}
