//! `ozctl locks`: lists the locked users and objects, with the reason and the expiry.

use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt as _;
use oz_api::AccessLock;
use oz_core::access::lock::{holds, target, until};
use serde_json::Value;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::locks;
use crate::output::{self, Format, Table, short};

/// Show access locks: users, groups, namespaces and templates, with reason and expiry
#[derive(Args)]
#[command(after_help = "\
An expired lock has no effect, and stays until a user deletes it or changes its expiry.

Examples:
  ozctl locks
  ozctl locks -o json")]
pub(crate) struct Locks {
    /// Output format
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

impl Locks {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let all = locks::list(&cluster).await?;
        if all.is_empty() && matches!(self.output, Format::Table | Format::Wide) {
            context.say("Nothing is locked.");
            return Ok(Exit::SUCCESS);
        }
        let objects: Vec<Value> = all.iter().map(output::whole).collect::<Result<_>>()?;
        let now = Timestamp::now();
        output::objects(context, self.output, &objects, false, |wide| {
            table(&all, now, wide)
        })?;
        Ok(Exit::SUCCESS)
    }
}

fn table(all: &[AccessLock], now: Timestamp, wide: bool) -> Table {
    let mut head = vec!["NAME", "LOCKED", "LEFT", "EMERGENCIES", "REASON"];
    if wide {
        head.push("UNTIL");
    }
    let mut table = Table::new(&head);
    for lock in all {
        let spec = &lock.spec;
        let left = match until(lock) {
            _ if !holds(lock, now) => "over".to_owned(),
            Some(until) => short(until.duration_since(now)),
            None => "until unlocked".to_owned(),
        };
        let emergencies = match spec.except_emergency {
            true => "let through",
            false => "locked",
        };
        let mut cells = vec![
            Some(lock.name_any()),
            Some(target(&spec.target)),
            Some(left),
            Some(emergencies.to_owned()),
            Some(spec.reason.clone()),
        ];
        if wide {
            cells.push(spec.until.clone());
        }
        table.row_with_blanks(cells);
    }
    table
}
