//! `ozctl audit list` and `export`: print audit records as a table, JSON or CSV.

use clap::{Args, ValueEnum};
use oz_compliance::csv;
use oz_trail::Entry;
use serde_json::{Value, json};

use super::read::{Filter, cells, table};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output;

/// Show records
#[derive(Args)]
pub(super) struct List {
    #[command(flatten)]
    filter: Filter,
    /// How to show them
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

/// Write records for other programs: one JSON object a line, or CSV
#[derive(Args)]
pub(super) struct Export {
    #[command(flatten)]
    filter: Filter,
    /// How to write them
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
        context.print(&shown(&entries, self.output)?)?;
        Ok(Exit::SUCCESS)
    }
}

impl Export {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let entries = self.filter.entries(context).await?;
        context.print(&shown(&entries, self.output)?)?;
        Ok(Exit::SUCCESS)
    }
}

fn shown(entries: &[Entry], format: Format) -> Result<String> {
    let values = || entries.iter().map(Entry::value);
    Ok(match format {
        Format::Table => table(entries, false).to_string(),
        Format::Wide => table(entries, true).to_string(),
        Format::Json => output::json(&json!(values().collect::<Vec<Value>>()))?,
        Format::Lines => lines(entries),
        Format::Csv => table_csv(entries),
    })
}

/// Formats each chain in its order, as its log has it: verification treats a record in any other
/// place as moved.
fn lines(entries: &[Entry]) -> String {
    let mut entries: Vec<&Entry> = entries.iter().collect();
    entries.sort_by_key(|entry| (&entry.link.writer, entry.link.seq));
    let lines = entries
        .into_iter()
        .map(|entry| format!("{}\n", entry.value()));
    lines.collect()
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

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use oz_trail::verify::{Evidence, Terms, verify};
    use oz_trail::{Action, AuditKey, Chain, Decision, Record, Trust, Writer};

    use super::*;

    #[test]
    fn exported_lines_verify_even_if_a_clock_was_set_back() {
        let (now, key) = (
            Timestamp::constant(1_790_000_000, 0),
            AuditKey::new(&[7; 32]),
        );
        let mut entries = Vec::new();
        for replica in ["oz-0", "oz-1"] {
            let writer = Writer::new("oz-operator", replica, now, 1);
            let (mut chain, first) = Chain::begin(writer, now, &[], &key);
            entries.push(first);
            for minutes in [30, 0, 31] {
                let time = now + SignedDuration::from_mins(minutes);
                let (action, note) = (Action::KeyRotated, Decision::Note);
                let record = Record::about(time, action, note, "x", "Test", "test");
                entries.push(chain.append(record, &key));
            }
        }
        entries.sort_by_key(|entry| entry.record.time);
        let mut evidence = Evidence::default();
        evidence.log("exported", &shown(&entries, Format::Lines).unwrap());
        let terms = Terms {
            trust: Trust::pinned([key.public().as_str()]).unwrap(),
            ..Terms::default()
        };
        let report = verify(evidence, &terms);
        assert!(report.is_whole(), "{:?}", report.problems);
        assert_eq!(report.records(), 8);
    }
}
