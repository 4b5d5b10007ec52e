//! `ozctl audit list` and `export`: print audit records as a table, JSON or CSV.

use clap::{Args, ValueEnum};
use oz_compliance::csv;
use oz_trail::Entry;
use serde_json::{Value, json};

use super::read::{Filter, cells, table};
use crate::audit::export;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output;

/// Show audit records
#[derive(Args)]
pub(super) struct List {
    #[command(flatten)]
    filter: Filter,
    /// Output format
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

/// Export audit records as JSON lines or CSV
#[derive(Args)]
pub(super) struct Export {
    #[command(flatten)]
    filter: Filter,
    /// Output format
    #[arg(short, long, default_value = "lines", value_name = "FORMAT")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    // Columns for people
    Table,
    // Columns, with further ones
    Wide,
    // A JSON list
    Json,
    // One JSON object a line, as the log has it: `verify` reads it again
    Lines,
    // Comma-separated values, with a head
    Csv,
}

impl List {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let entries = self.filter.entries(context).await?;
        if entries.is_empty() && matches!(self.output, Format::Table | Format::Wide) {
            context.say("No such records found.");
            return Ok(Exit::SUCCESS);
        }
        context.print(&render(&entries, self.output)?)?;
        Ok(Exit::SUCCESS)
    }
}

impl Export {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let entries = self.filter.entries(context).await?;
        context.print(&render(&entries, self.output)?)?;
        Ok(Exit::SUCCESS)
    }
}

fn render(entries: &[Entry], format: Format) -> Result<String> {
    let values = || entries.iter().map(Entry::value);
    Ok(match format {
        Format::Table => table(entries, false).to_string(),
        Format::Wide => table(entries, true).to_string(),
        Format::Json => output::json(&json!(values().collect::<Vec<Value>>()))?,
        Format::Lines => export(entries),
        Format::Csv => table_csv(entries),
    })
}

fn table_csv(entries: &[Entry]) -> String {
    let mut text =
        String::from("time,user,action,decision,reason,namespace,request,pod,writer,seq,message\n");
    for entry in entries {
        let mut cells = cells(entry, true);
        if let Some(time) = cells.first_mut() {
            *time = entry.record.time.to_string();
        }
        text.push_str(&csv::row(cells));
    }
    text
}
