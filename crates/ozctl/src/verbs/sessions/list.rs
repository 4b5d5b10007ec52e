//! `ozctl sessions list`.

use clap::Args;
use oz_client::sessions::past::{self, Past, Recorded};
use oz_trail::Query;
use serde_json::json;

use super::live;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{self, Table, TextFormat, instant, short};

/// Show the sessions through the gate and their recordings, or the open sessions
#[derive(Args)]
#[command(after_help = "\
Lists the sessions that have ended, from the audit trail. With --live, lists the open sessions of each request that you
may read, from the gate. The names can be used in the other commands. If several requests had one name, one after the
other, the sessions of each are listed, with the UIDs of the requests.

Exit codes: 0 done, 3 with --live: a replica of the gate did not respond.

Examples:
  ozctl sessions list -A
  ozctl sessions list --live
  ozctl sessions list mine -o json")]
pub(super) struct List {
    /// Name or UID of the request
    request: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// List the open sessions of the gate
    #[arg(long)]
    live: bool,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
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
        let found = past::list(&cluster, &query).await?;
        let text = match self.output {
            TextFormat::Text if found.is_empty() => {
                context.say("No sessions through the gate in the audit trail here.");
                return Ok(Exit::SUCCESS);
            }
            TextFormat::Text => self.table(&found).to_string(),
            TextFormat::Json => output::json(&json(&found))?,
            TextFormat::Yaml => output::yaml(&json(&found))?,
        };
        context.print(&text)?;
        Ok(Exit::SUCCESS)
    }

    fn table(&self, found: &[Past]) -> Table {
        let mut head = Vec::new();
        if self.all_namespaces {
            head.push("NAMESPACE");
        }
        head.extend([
            "SESSION", "USER", "POD", "WAY", "OPENED", "LASTED", "END", "EXIT", "RECORDED",
        ]);
        let shares_name = found.iter().any(|row| row.shares_name);
        if shares_name {
            head.push("REQUEST UID");
        }
        let mut table = Table::new(&head);
        for row in found {
            let (namespace, session) = row.session.split_once('/').unzip();
            let mut cells = Vec::new();
            if self.all_namespaces {
                cells.push(namespace.map(str::to_owned));
            }
            let lasted = row.opened.zip(row.ended);
            cells.extend([
                session.map(str::to_owned),
                Some(row.user.clone()),
                Some(row.pod.clone()),
                Some(row.way.clone()),
                row.opened.map(instant),
                lasted.map(|(from, to)| short(to.duration_since(from))),
                Some(row.end.clone()),
                row.exit.clone(),
                Some(recorded(row)),
            ]);
            if shares_name {
                cells.push(Some(row.request_uid.clone()));
            }
            table.row_with_blanks(cells);
        }
        table
    }
}

fn recorded(row: &Past) -> String {
    let recorded = match row.recorded {
        Recorded::No => return "no".to_owned(),
        Recorded::Whole => "yes",
        Recorded::InPart => "in part",
        Recorded::UntilStop => "until the gate stopped",
    };
    let encrypted = if row.is_encrypted() {
        ", encrypted"
    } else {
        ""
    };
    format!("{recorded}{encrypted}")
}

fn json(found: &[Past]) -> serde_json::Value {
    let rows = found.iter().map(|row| {
        json!({
            "session": row.session, "requestUid": row.request_uid,
            "user": row.user, "pod": row.pod, "way": row.way,
            "openedAt": row.opened, "endedAt": row.ended, "end": row.end, "exitCode": row.exit,
            "recorded": recorded(row), "parts": row.parts, "encryptedTo": row.encrypted_to,
        })
    });
    json!({"sessions": rows.collect::<Vec<_>>()})
}
