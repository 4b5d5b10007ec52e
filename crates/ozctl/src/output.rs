//! The standard output of the verbs: tables for users, JSON and YAML for programs, names for other
//! commands. The JSON is that of the API, complete, with `apiVersion` and `kind`.

use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};
use kube::Resource;
pub(crate) use oz_client::objects::{to_value, whole};
pub(crate) use oz_client::printable::{line, lines};
use serde::Serialize;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Failure, Result};

/// The output format of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    // Columns for people
    #[default]
    Table,
    // Columns, with further ones
    Wide,
    // JSON, stable and documented
    Json,
    // YAML of the same content
    Yaml,
    // kind/name, one a line
    Name,
}

/// The output format of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextFormat {
    // Text for people
    #[default]
    Text,
    // JSON, stable and documented
    Json,
    // YAML of the same content
    Yaml,
}

/// Returns a number with the word for what it counts.
pub(crate) fn counted(count: usize, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}

/// The output format of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ObjectFormat {
    // Text for people
    #[default]
    Text,
    // JSON, stable and documented
    Json,
    // YAML of the same content
    Yaml,
    // kind/name
    Name,
}

/// Formats JSON with an indent of two, and a final newline.
pub(crate) fn json(value: &Value) -> Result<String> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| Failure::new(format!("failed to write it as JSON: {error}")))
}

/// Formats YAML, with a final newline.
pub(crate) fn yaml(value: &Value) -> Result<String> {
    serde_saphyr::to_string(value)
        .map(|text| text.trim_end().to_owned() + "\n")
        .map_err(|error| Failure::new(format!("failed to write it as YAML: {error}")))
}

/// Formats objects of the API for output; an object that the user requested by name is not in a
/// list.
pub(crate) fn objects(
    context: &Context,
    format: Format,
    objects: &[Value],
    single: bool,
    table: impl FnOnce(bool) -> Table,
) -> Result<()> {
    let document = || match objects {
        [one] if single => one.clone(),
        many => json!({"apiVersion": "v1", "kind": "List", "items": many}),
    };
    match format {
        Format::Table | Format::Wide => context.print(&table(format == Format::Wide).to_string()),
        Format::Json => context.print(&json(&document())?),
        Format::Yaml => context.print(&yaml(&document())?),
        Format::Name => context.print(&names(objects)),
    }
}

/// Formats one object of the API for output.
pub(crate) fn object<K>(
    context: &Context,
    format: ObjectFormat,
    object: &K,
    text: impl FnOnce() -> String,
) -> Result<()>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    context.print(&match format {
        ObjectFormat::Text => text(),
        ObjectFormat::Json => json(&whole(object)?)?,
        ObjectFormat::Yaml => yaml(&whole(object)?)?,
        ObjectFormat::Name => names(&[whole(object)?]),
    })
}

/// Formats names as `kubectl -o name` does.
fn names(objects: &[Value]) -> String {
    let names = objects.iter().filter_map(|object| {
        let kind = object["kind"].as_str()?.to_lowercase();
        let name = object["metadata"]["name"].as_str()?;
        Some(match object["apiVersion"].as_str()?.split_once('/') {
            Some((group, _)) => format!("{kind}.{group}/{name}\n"),
            None => format!("{kind}/{name}\n"),
        })
    });
    names.collect()
}

/// Returns a function that writes pieces of a stream of others to standard output, and returns
/// whether the reader is still there: bytes stay unchanged, but a terminal gets no sequence that
/// could draw on it.
pub(crate) fn pass_on(context: &Context) -> impl Fn(&[u8]) -> Result<bool> {
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
    move |bytes| match is_terminal {
        true => context.pass_on(lines(&String::from_utf8_lossy(bytes)).as_bytes()),
        false => context.pass_on(bytes),
    }
}

/// Columns, aligned as in kubectl.
pub(crate) struct Table {
    rows: Vec<Vec<Option<String>>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![head.iter().map(|&word| Some(word.to_owned())).collect()],
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.row_with_blanks(cells.into_iter().map(Some).collect());
    }

    /// Adds a row; a cell without a value is blank.
    pub(crate) fn row_with_blanks(&mut self, cells: Vec<Option<String>>) {
        let cells = cells.iter().map(|cell| cell.as_deref().map(line));
        self.rows.push(cells.collect());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                let widths = cells.flatten().map(|cell| cell.chars().count());
                widths.max().unwrap_or(0)
            })
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                match cell {
                    Some(cell) => line.push_str(&format!("{cell:<width$}   ")),
                    None => line.extend(std::iter::repeat_n(' ', width + 3)),
                }
            }
            writeln!(formatter, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Formats an instant in whole seconds, for users.
pub(crate) fn instant(at: Timestamp) -> String {
    at.round(jiff::Unit::Second).unwrap_or(at).to_string()
}

/// Formats an age or a remaining time as kubectl formats ages: `45s`, `12m`, `3h20m`, `5d`.
pub(crate) fn short(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 != 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        172_800.. => format!("{days}d"),
    }
}

/// Returns the age of an object, for a column.
pub(crate) fn age(metadata: &Value, now: Timestamp) -> String {
    metadata["creationTimestamp"]
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok())
        .map_or_else(
            || "<unknown>".to_owned(),
            |created| short(now.duration_since(created)),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_aligns_its_columns_and_leaves_no_blanks_at_the_end() {
        let mut table = Table::new(&["NAME", "AGE"]);
        table.row(vec!["a-long-name".into(), "5s".into()]);
        table.row(vec!["b".into(), String::new()]);
        assert_eq!(
            table.to_string(),
            "NAME          AGE\na-long-name   5s\nb\n"
        );
    }

    #[test]
    fn table_escapes_control_characters() {
        let mut table = Table::new(&["REASON"]);
        table.row(vec!["INC-1\nalice \x1b[2Jroot\x07".into()]);
        assert_eq!(
            table.to_string(),
            "REASON\nINC-1 alice \u{fffd}[2Jroot\u{fffd}\n"
        );
    }

    #[test]
    fn durations_are_written_as_kubectl_writes_ages() {
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (301, "5m1s"),
            (3600, "60m"),
            (10_800, "3h"),
            (12_000, "3h20m"),
            (100_000, "27h"),
            (500_000, "5d"),
        ] {
            assert_eq!(short(SignedDuration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_name_is_what_kubectl_takes_again() {
        let object = json!({
            "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "ExecAccessRequest",
            "metadata": {"name": "a"},
        });
        assert_eq!(names(&[object]), "execaccessrequest.crds.wizardofoz.co/a\n");
    }
}
