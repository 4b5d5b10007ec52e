//! `ozctl requests`: lists the requests, with their requesters and their remaining time.

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{self, Format, Table, short};
use crate::request::{self, Filter, Listed};

/// Show access requests with requester, phase and remaining time
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl requests
  ozctl requests --mine --active
  ozctl requests -A -o json")]
pub(crate) struct Requests {
    /// List only your own requests
    #[arg(long)]
    mine: bool,
    /// List only active requests
    #[arg(long)]
    active: bool,
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Output format
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

impl Requests {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let filter = Filter {
            everywhere: self.all_namespaces,
            mine: self.mine,
            active: self.active,
        };
        let found = request::list(&cluster, filter).await?;
        if found.is_empty() && matches!(self.output, Format::Table | Format::Wide) {
            context.say("No requests found.");
            return Ok(Exit::SUCCESS);
        }
        let objects: Vec<Value> = found.iter().map(|one| one.object.clone()).collect();
        output::objects(context, self.output, &objects, false, |wide| {
            self.table(found, wide, Timestamp::now())
        })?;
        Ok(Exit::SUCCESS)
    }

    fn table(&self, found: Vec<Listed>, wide: bool, now: Timestamp) -> Table {
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
        for one in found {
            let mut cells = Vec::new();
            if self.all_namespaces {
                cells.push(one.namespace);
            }
            let left = one.until.filter(|_| one.phase.is_granted());
            cells.extend([
                Some(one.name),
                Some(one.purpose.to_owned()),
                Some(one.phase.to_string()),
                Some(one.requester.unwrap_or_else(|| "<unknown>".to_owned())),
                Some(one.asked.template),
                one.pod,
                left.map(|until| short(until.duration_since(now))),
            ]);
            if wide {
                cells.extend([one.until.map(|at| at.to_string()), one.asked.reason]);
            }
            table.row_with_blanks(cells);
        }
        table
    }
}
