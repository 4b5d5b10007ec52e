//! The selection of audit records, from the cluster or from logs, and their output formats.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use oz_trail::{Action, Decision, Entry, Query};

use crate::audit::{self, InstantError};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::output::Table;
use crate::trail;

/// Which records.
#[derive(Args)]
pub(super) struct Filter {
    /// User of the records
    #[arg(long, value_name = "USER")]
    actor: Option<String>,
    /// About this request, by name or UID
    #[arg(long, value_name = "REQUEST")]
    grant: Option<String>,
    /// About this pod, by name or UID
    #[arg(long, value_name = "POD")]
    pod: Option<String>,
    /// Decision of the records: Allow, Deny, End, Note
    #[arg(long, value_name = "DECISION")]
    decision: Option<Decision>,
    /// Action of the records, such as AccessGranted
    #[arg(long, value_name = "ACTION")]
    action: Option<Action>,
    /// Maximum age of the records, such as 24h, or an instant such as 2026-01-02T15:04:05Z
    #[arg(long, value_name = "WHEN", value_parser = when)]
    since: Option<Timestamp>,
    /// Older than this
    #[arg(long, value_name = "WHEN", value_parser = when)]
    until: Option<Timestamp>,
    /// Read these logs instead of the cluster's events; may be repeated
    #[arg(long, value_name = "FILE", num_args = 1..)]
    log: Vec<PathBuf>,
}

impl Filter {
    pub(super) fn query(&self, context: &Context) -> Query {
        Query {
            user: self.actor.clone(),
            grant: self.grant.clone(),
            pod: self.pod.clone(),
            namespace: context.connection.namespace.clone(),
            decision: self.decision,
            action: self.action,
            since: self.since,
            until: self.until,
        }
    }

    /// Returns the selected records, oldest first.
    pub(super) async fn entries(&self, context: &Context) -> Result<Vec<Entry>> {
        let in_cluster = self.log.is_empty();
        entries(context, &self.query(context), in_cluster, &self.log).await
    }
}

/// Returns the matching records of the cluster, if the cluster is read, and of these logs, oldest
/// first.
pub(crate) async fn entries(
    context: &Context,
    query: &Query,
    in_cluster: bool,
    logs: &[PathBuf],
) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    if in_cluster {
        entries = trail::entries(&context.cluster().await?, query).await?;
    }
    for path in logs {
        entries.extend(audit::in_log(&log(path)?));
    }
    Ok(audit::select(entries, query))
}

/// Reads a whole file.
pub(super) fn log(path: &PathBuf) -> Result<String> {
    std::fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .map_err(|error| Failure::new(format!("failed to read {}: {error}", path.display())))
}

pub(super) fn when(text: &str) -> Result<Timestamp, InstantError> {
    audit::instant(text, Timestamp::now())
}

/// Returns the columns for users.
pub(super) fn table(entries: &[Entry], wide: bool) -> Table {
    let mut head = vec![
        "TIME",
        "USER",
        "ACTION",
        "DECISION",
        "REASON",
        "NAMESPACE",
        "REQUEST",
        "POD",
    ];
    if wide {
        head.extend(["WRITER", "SEQ", "MESSAGE"]);
    }
    let mut table = Table::new(&head);
    for entry in entries {
        table.row(cells(entry, wide));
    }
    table
}

pub(super) fn cells(entry: &Entry, wide: bool) -> Vec<String> {
    let record = &entry.record;
    let or_dash = |text: &str| plain(if text.is_empty() { "-" } else { text });
    let user = record.user.as_ref().map_or("-", |user| &user.user);
    let pod = record.pod.as_ref().map_or("-", |pod| &pod.name);
    let action = match &record.repeated {
        Some(repeated) => format!("{} x{}", record.action, repeated.count),
        None => record.action.to_string(),
    };
    let mut cells = vec![
        record.time.strftime("%Y-%m-%d %H:%M:%S%.3f").to_string(),
        or_dash(user),
        action,
        record.decision.to_string(),
        or_dash(&record.reason),
        or_dash(&record.request.namespace),
        or_dash(&record.request.name),
        or_dash(pod),
    ];
    if wide {
        cells.extend([
            format!(
                "{}/{}",
                entry.link.writer.component, entry.link.writer.replica
            ),
            entry.link.seq.to_string(),
            or_dash(&record.message),
        ]);
    }
    cells
}

/// Removes characters that could move the cursor: users choose some of these words.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}
