//! The audit records, as a table for users and as the written lines.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use oz_e2e::{Gate, System, records_in};
use oz_trail::Record;

use xtask::programs::{from_here, target_directory};
use xtask::screen::columns;

/// An audit record, and the process that wrote it.
pub(crate) struct Line {
    pub(crate) writer: &'static str,
    pub(crate) record: Record,
}

/// Reads the lines that webhook, operator and gate have written, ordered by time.
pub(crate) fn read(system: &System, gate: &Gate) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (writer, process) in [
        ("webhook", &system.webhook.process),
        ("operator", &system.operator.process),
        ("gate", &gate.process),
    ] {
        let records = records_in(process).with_context(|| format!("the record of the {writer}"))?;
        lines.extend(records.into_iter().map(|record| Line { writer, record }));
    }
    lines.sort_by_key(|line| line.record.time);
    Ok(lines)
}

/// Formats a table of time, writer, user, action, pod, decision and reason.
pub(crate) fn table(lines: &[Line]) -> Vec<String> {
    let head = [
        "TIME (UTC)",
        "WRITER",
        "WHO",
        "WHAT",
        "POD",
        "DECISION",
        "REASON",
    ];
    let rows = lines.iter().map(|Line { writer, record }| {
        let who = record.user.as_ref().map_or("-", |user| user.user.as_str());
        let pod = record.pod.as_ref().map_or("-", |pod| pod.name.as_str());
        vec![
            record.time.strftime("%H:%M:%S%.3f").to_string(),
            (*writer).to_owned(),
            who.to_owned(),
            record.action.to_string(),
            pod.to_owned(),
            record.decision.to_string(),
            record.reason.clone(),
        ]
    });
    let head = head.map(ToOwned::to_owned).to_vec();
    columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

/// Writes the lines, unchanged, to a file that remains after the cluster: in the target directory.
pub(crate) fn keep(system: &System, gate: &Gate) -> Result<PathBuf> {
    let path = target_directory()?.join("demo-records.jsonl");
    let mut lines = system.webhook.process.lines()?;
    lines.extend(system.operator.process.lines()?);
    lines.extend(gate.process.lines()?);
    lines.push(String::new());
    std::fs::write(&path, lines.join("\n"))
        .with_context(|| format!("failed to write {}", path.display()))?;
    Ok(from_here(&path))
}
