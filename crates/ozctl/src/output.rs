//! The standard output of the verbs: tables for users, JSON and YAML for programs, names for other
//! commands. The JSON is that of the API, complete, with `apiVersion` and `kind`.

use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};
use kube::Resource;
use serde::Serialize;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Failure, Result};

/// How a list is shown.
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

/// How a report is shown.
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

/// How one object is shown.
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

/// Returns an object with the `apiVersion` and `kind` that a typed object lacks, and without the
/// fields that only the API server needs.
pub(crate) fn whole<K>(object: &K) -> Result<Value>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let mut value = to_value(object)?;
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    Ok(value)
}

/// Converts any value to JSON.
pub(crate) fn to_value<T: Serialize>(value: &T) -> Result<Value> {
    serde_json::to_value(value)
        .map_err(|error| Failure::new(format!("failed to write it as JSON: {error}")))
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
    let mut text = String::new();
    for object in objects {
        let field = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = field(&object["kind"]).to_lowercase();
        let group = field(&object["apiVersion"]);
        let group = group.split_once('/').map_or("", |(group, _)| group);
        let name = field(&object["metadata"]["name"]);
        let dot = if group.is_empty() { "" } else { "." };
        text.push_str(&format!("{kind}{dot}{group}/{name}\n"));
    }
    text
}

/// Returns text from other users as lines without control characters for a terminal.
pub(crate) fn lines(text: &str) -> String {
    let harmless = |letter: char| match letter {
        '\n' | '\t' => letter,
        letter if letter.is_control() => '\u{fffd}',
        letter => letter,
    };
    text.chars().map(harmless).collect()
}

/// Returns such text as one line.
pub(crate) fn line(text: &str) -> String {
    lines(&text.replace(['\n', '\t', '\r'], " "))
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
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![head.iter().map(|&word| word.to_owned()).collect()],
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows
            .push(cells.iter().map(|cell| line(cell)).collect());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:<width$}   "));
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
    fn an_object_is_shown_with_its_kind_and_without_who_wrote_which_field() {
        let template: oz_api::ExecAccessTemplate = serde_json::from_value(json!({
            "metadata": {"name": "shell", "managedFields": [{"manager": "kubectl"}]},
            "spec": {
                "accessConfig": {"allowedGroups": ["devs"]},
                "controllerTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            },
        }))
        .unwrap();
        let shown = whole(&template).unwrap();
        assert_eq!(shown["kind"], "ExecAccessTemplate");
        assert_eq!(shown["metadata"], json!({"name": "shell"}));
    }

    #[test]
    fn what_others_wrote_cannot_draw_on_the_terminal() {
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
