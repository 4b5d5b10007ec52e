//! `ozctl requests`: lists the requests, with their requesters and their remaining time.

use clap::Args;
use futures::FutureExt as _;
use futures::future::try_join_all;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ListParams;
use oz_core::for_each_kind;
use oz_core::kinds::AccessRequest;
use serde_json::Value;

use crate::choose;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{self, Format, Table, short};
use crate::request::{Ask, user};

/// Show what was asked for, by whom, and how much of it is left
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl requests
  ozctl requests --mine --active
  ozctl requests -A -o json")]
pub(crate) struct Requests {
    /// Only your own
    #[arg(long)]
    mine: bool,
    /// Only those that are not over
    #[arg(long)]
    active: bool,
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// How to show them
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

struct Row {
    object: Value,
    namespace: String,
    cells: Vec<String>,
    more: Vec<String>,
}

impl Requests {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let parameters = ListParams::default();
        let me = if self.mine {
            Some(choose::myself(&cluster).await?.user)
        } else {
            None
        };
        let (asking, me) = (&cluster, me.as_deref());
        let mut lists = Vec::new();
        for_each_kind!(requests R => {
            let api = asking.api_in::<R>(self.all_namespaces);
            let (parameters, flags) = (&parameters, &self);
            let list = async move {
                let found = asking.answer(api.list(parameters)).await?;
                flags.rows(found.items, me, Timestamp::now())
            };
            lists.push(list.boxed_local());
        });
        let rows = try_join_all(lists).await?.into_iter().flatten();
        let rows: Vec<Row> = rows.collect();
        if rows.is_empty() && matches!(self.output, Format::Table | Format::Wide) {
            context.say("No requests found.");
            return Ok(Exit::SUCCESS);
        }
        let objects: Vec<Value> = rows.iter().map(|row| row.object.clone()).collect();
        output::objects(context, self.output, &objects, false, |wide| {
            self.table(rows, wide)
        })?;
        Ok(Exit::SUCCESS)
    }

    fn rows<R: AccessRequest>(
        &self,
        requests: Vec<R>,
        me: Option<&str>,
        now: Timestamp,
    ) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for request in requests {
            let status = request.status().cloned().unwrap_or_default();
            let requester = user(&request);
            if (self.active && status.phase.is_terminal())
                || me.is_some_and(|me| requester.as_deref() != Some(me))
            {
                continue;
            }
            let asked = Ask::of(&request);
            let left = match (status.phase, status.expires_at) {
                (phase, Some(until)) if phase.is_granted() => short(until.duration_since(now)),
                _ => String::new(),
            };
            rows.push(Row {
                namespace: request.namespace().unwrap_or_default(),
                cells: vec![
                    request.name_any(),
                    R::PURPOSE.to_owned(),
                    status.phase.to_string(),
                    requester.unwrap_or_else(|| "<unknown>".to_owned()),
                    asked.template,
                    status.pod_name.unwrap_or_default(),
                    left,
                ],
                more: vec![
                    status.expires_at.map_or(String::new(), |at| at.to_string()),
                    asked.reason.unwrap_or_default(),
                ],
                object: output::whole(&request)?,
            });
        }
        Ok(rows)
    }

    fn table(&self, rows: Vec<Row>, wide: bool) -> Table {
        let mut head = Vec::new();
        if self.all_namespaces {
            head.push("NAMESPACE");
        }
        head.extend([
            "NAME",
            "FOR",
            "PHASE",
            "REQUESTER",
            "TEMPLATE",
            "POD",
            "LEFT",
        ]);
        if wide {
            head.extend(["UNTIL", "REASON"]);
        }
        let mut table = Table::new(&head);
        for row in rows {
            let mut cells = Vec::new();
            if self.all_namespaces {
                cells.push(row.namespace);
            }
            cells.extend(row.cells);
            if wide {
                cells.extend(row.more);
            }
            table.row(cells);
        }
        table
    }
}
