//! `ozctl sessions list`.

use std::collections::BTreeMap;

use clap::Args;
use jiff::Timestamp;
use oz_gating::recording::ENCRYPTED_TO;
use oz_trail::{Action, Query, Record};
use serde_json::json;

use super::live;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{self, Table, TextFormat, instant, short};
use crate::trail;

/// Show which sessions went through the gate and what is recorded of them, or which are open
#[derive(Args)]
#[command(after_help = "\
Read from the audit trail: sessions are listed once they are over. With --live, the gate is asked for those that are
open, of each request that you see. A session is named as the other commands take it.

Exit codes: 0 done, 3 with --live: a replica of the gate did not answer.

Examples:
  ozctl sessions list -A
  ozctl sessions list --live
  ozctl sessions list mine -o json")]
pub(super) struct List {
    /// Only of this request, by name or UID
    request: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Those that are open, as the gate has them
    #[arg(long)]
    live: bool,
    /// How to show them
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

/// The audit records of one session.
#[derive(Default)]
struct Seen {
    ended: Option<Record>,
    recorded: Option<Record>,
    unrecorded: bool,
}

impl List {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        if self.live {
            return live::list(
                context,
                self.request.as_deref(),
                self.all_namespaces,
                self.output,
            )
            .await;
        }
        let cluster = context.cluster().await?;
        let query = Query {
            grant: self.request.clone(),
            namespace: (!self.all_namespaces).then(|| cluster.namespace.clone()),
            ..Query::default()
        };
        let entries = trail::entries(&cluster, &query).await?;
        let mut sessions: BTreeMap<String, Seen> = BTreeMap::new();
        for entry in entries.into_iter().filter(|entry| query.matches(entry)) {
            let record = entry.record;
            let Some(key) = record.details.get("session").cloned() else {
                continue;
            };
            match record.action {
                Action::SessionEnded | Action::SessionCut => {
                    sessions.entry(key).or_default().ended = Some(record)
                }
                Action::SessionRecorded => sessions.entry(key).or_default().recorded = Some(record),
                Action::SessionUnrecorded => sessions.entry(key).or_default().unrecorded = true,
                _ => {}
            }
        }
        let mut found: Vec<Row> = sessions
            .into_iter()
            .map(|(key, seen)| Row::of(&key, &seen))
            .collect();
        found.sort_by(|one, other| {
            (&one.opened, &one.session).cmp(&(&other.opened, &other.session))
        });
        let text = match self.output {
            TextFormat::Text if found.is_empty() => {
                context.say("No session through the gate is on record here.");
                return Ok(Exit::SUCCESS);
            }
            TextFormat::Text => self.table(&found).to_string(),
            TextFormat::Json => output::json(&json(&found))?,
            TextFormat::Yaml => output::yaml(&json(&found))?,
        };
        context.print(&text)?;
        Ok(Exit::SUCCESS)
    }

    fn table(&self, found: &[Row]) -> Table {
        let mut head = Vec::new();
        if self.all_namespaces {
            head.push("NAMESPACE");
        }
        head.extend([
            "SESSION", "USER", "POD", "WAY", "OPENED", "LASTED", "END", "EXIT", "RECORDED",
        ]);
        let mut table = Table::new(&head);
        for row in found {
            let (namespace, session) = row.session.split_once('/').unwrap_or_default();
            let mut cells = Vec::new();
            if self.all_namespaces {
                cells.push(namespace.to_owned());
            }
            cells.extend([
                session.to_owned(),
                row.user.clone(),
                row.pod.clone(),
                row.way.clone(),
                row.opened.map(instant).unwrap_or_default(),
                row.opened
                    .zip(row.ended)
                    .map(|(from, to)| short(to.duration_since(from)))
                    .unwrap_or_default(),
                row.end.clone(),
                row.exit.clone().unwrap_or_default(),
                row.recorded.clone(),
            ]);
            table.row(cells);
        }
        table
    }
}

/// A session in the output.
struct Row {
    session: String,
    user: String,
    pod: String,
    way: String,
    opened: Option<Timestamp>,
    ended: Option<Timestamp>,
    end: String,
    exit: Option<String>,
    recorded: String,
    parts: Option<String>,
    encrypted_to: Vec<String>,
}

impl Row {
    fn of(key: &str, seen: &Seen) -> Self {
        let ended = seen.ended.as_ref();
        let either = ended.or(seen.recorded.as_ref());
        let detail = |name: &str| ended.and_then(|record| record.details.get(name).cloned());
        let parts = seen
            .recorded
            .as_ref()
            .and_then(|record| record.details.get("parts").cloned());
        let recipients = seen
            .recorded
            .as_ref()
            .and_then(|record| record.details.get(ENCRYPTED_TO));
        let encrypted_to: Vec<String> = recipients
            .map(|all| all.split(',').map(str::to_owned).collect())
            .unwrap_or_default();
        let encrypted = if encrypted_to.is_empty() {
            ""
        } else {
            ", encrypted"
        };
        let interrupted = seen
            .recorded
            .as_ref()
            .is_some_and(|record| record.reason == "Interrupted");
        Self {
            session: key.to_owned(),
            user: either
                .and_then(|one| one.user.as_ref())
                .map(|user| user.user.clone())
                .unwrap_or_default(),
            pod: either
                .and_then(|one| one.pod.as_ref())
                .map(|pod| pod.name.clone())
                .unwrap_or_default(),
            way: detail("way").unwrap_or_default(),
            opened: detail("openedAt").and_then(|at| at.parse().ok()),
            ended: ended.map(|record| record.time),
            end: ended
                .map(|record| record.reason.clone())
                .unwrap_or_default(),
            exit: detail("exitCode"),
            recorded: match (&parts, seen.unrecorded, interrupted) {
                (None, _, _) => "no".to_owned(),
                (Some(_), false, false) => format!("yes{encrypted}"),
                (Some(_), true, _) => format!("in part{encrypted}"),
                (Some(_), false, true) => format!("until the gate stopped{encrypted}"),
            },
            parts,
            encrypted_to,
        }
    }
}

fn json(found: &[Row]) -> serde_json::Value {
    let rows = found.iter().map(|row| {
        json!({
            "session": row.session, "user": row.user, "pod": row.pod, "way": row.way,
            "openedAt": row.opened, "endedAt": row.ended, "end": row.end, "exitCode": row.exit,
            "recorded": row.recorded, "parts": row.parts, "encryptedTo": row.encrypted_to,
        })
    });
    json!({"sessions": rows.collect::<Vec<_>>()})
}
