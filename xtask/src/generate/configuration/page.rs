//! The page with the fields of the configuration.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use oz_config::{Component, OzConfiguration};
use serde_json::Value;

use super::{DERIVED, IMAGES, join, kind_name, names, not_null};

/// The introduction of the page.
pub(super) const INTRODUCTION: &str = r#"<!-- Generated from crates/config by `cargo xtask generate`; do not edit. -->

# Configuration

Operator, webhook, gate and broker have one configuration, an `OzConfiguration`. It is in the ConfigMap
`oz-configuration` in oz's namespace, under the key `config.yaml`:

```yaml
apiVersion: config.oz.wizardofoz.co/v1alpha1
kind: OzConfiguration
access:
  namespaces: [shop, billing]
transient:
  bindableRoles: [view, shop/deployer]
  maxBindingWindow: 8h
audit:
  retention: 2160h
```

`apiVersion` and `kind` are required, and every other field is optional. The configuration has no secrets, only the
names of Secrets and of their keys. [Its JSON schema](ozconfiguration.schema.json) describes the same fields for editors.

**Change a value** with `helm upgrade`. The chart writes the ConfigMap, and each field is a value of the chart at the
same path, unless its row names another chart value. The upgrade replaces the pods of each component that reads a
section with a change. With another name of the release, or with `fullnameOverride`, the ConfigMap is called
NAME-configuration.

**An edit of the ConfigMap** takes effect at the next start of each process. Until then, `ozctl doctor` and the metric
`oz_configuration_outdated` report the replicas that run with another configuration; the metric
`oz_configuration_info` has the digest of the configuration of each replica. The next `helm upgrade` overwrites the
edit.

**Errors.** A process with an unknown field or an invalid value does not start. The message names the path:

```
invalid configuration: transient.maxBindingWindow: …
```

**Permissions.** The configuration decides who gets access. The admission policy `oz-configuration` allows changes of the
ConfigMap only to users who may update the Deployment `oz-operator`. `ozctl explain` and `ozctl doctor` read the
ConfigMap.

**Overrides.** The flag `--set=PATH=VALUE` of each program, such as `--set=transient.maxBindingWindow=8h`, replaces one
value of the file. VALUE is YAML, and `null` stands for the default. The audit record `WriterStarted` of a process has
the digest of its configuration, and each override. The other flags concern the process only, such as the address that
it listens on: see `oz-operator --help`, and `--help` of the other programs.

In the tables, `NAME` stands for any key of a map, and `[]` for each item of a list. Durations are written as `1h30m`.
"#;

/// A row of a table.
struct Row {
    path: String,
    /// The type.
    kind: String,
    default: String,
    meaning: String,
}

/// Returns the page with the fields.
pub(super) fn text(schema: &Value, values: &Value) -> Result<String> {
    let defaults = serde_json::to_value(OzConfiguration::default())?;
    let mut page = INTRODUCTION.to_owned();
    for section in Component::Operator.sections() {
        let fields = &schema["properties"][section];
        let mut rows = Vec::new();
        for (name, field) in fields["properties"].as_object().into_iter().flatten() {
            let required = is_required(fields, name);
            add(
                &mut rows,
                field,
                &join(section, name),
                required,
                &[&defaults, values],
            )?;
        }
        let meaning = described(fields, section)?;
        write!(
            page,
            "\n## {section}\n\n{meaning}\n\n| field | type | default | meaning |\n|---|---|---|---|\n"
        )?;
        for Row {
            path,
            kind,
            default,
            meaning,
        } in rows
        {
            writeln!(page, "| `{path}` | {kind} | {default} | {meaning} |")?;
        }
    }
    Ok(page)
}

fn is_required(object: &Value, name: &str) -> bool {
    let required = object["required"].as_array();
    required.into_iter().flatten().any(|one| one == name)
}

/// Returns the description of a field, for a cell of a table.
fn described(schema: &Value, path: &str) -> Result<String> {
    let text = schema["description"].as_str().unwrap_or_default();
    ensure!(
        !text.is_empty(),
        "field {path} of the configuration has no description"
    );
    Ok(text.replace('|', r"\|"))
}

/// Adds the row of a field, and those of the fields in it. `documents` are the configuration and the chart's values,
/// with their defaults.
fn add(
    rows: &mut Vec<Row>,
    schema: &Value,
    path: &str,
    required: bool,
    documents: &[&Value; 2],
) -> Result<()> {
    let mut meaning = described(schema, path)?;
    let schema = not_null(schema);
    if let Some((_, from)) = DERIVED.iter().find(|(derived, _)| *derived == path) {
        write!(meaning, " Chart value: {from}.")?;
    }
    if IMAGES.contains(&path) {
        write!(
            meaning,
            " Chart values: `{path}.repository`, `{path}.tag`, `{path}.digest`."
        )?;
    }
    let inner = [
        (schema, ""),
        (&schema["items"], "[]"),
        (&schema["additionalProperties"], "NAME"),
    ];
    let inner = inner
        .into_iter()
        .find(|(inner, _)| inner["properties"].is_object());
    let default = match inner {
        _ if required => "required".to_owned(),
        Some((_, "")) => String::new(),
        _ => default(schema, path, documents),
    };
    let kind = kind(schema);
    rows.push(Row {
        path: path.to_owned(),
        kind,
        default,
        meaning,
    });
    if let Some((inner, name)) = inner {
        let parent = if name.is_empty() {
            path.to_owned()
        } else {
            join(path, name)
        };
        for (name, field) in inner["properties"].as_object().into_iter().flatten() {
            add(
                rows,
                field,
                &join(&parent, name),
                is_required(inner, name),
                documents,
            )?;
        }
    }
    Ok(())
}

/// Returns the type of a field, in words.
fn kind(schema: &Value) -> String {
    let schema = not_null(schema);
    if let Some(names) = schema.as_object().and_then(names) {
        let names: Vec<String> = names.iter().map(code).collect();
        let (last, others) = names
            .split_last()
            .map_or(("", [].as_slice()), |(last, others)| {
                (last.as_str(), others)
            });
        return match others {
            [] => last.to_owned(),
            others => format!("{} or {last}", others.join(", ")),
        };
    }
    let name = schema.as_object().and_then(kind_name);
    match name.as_deref().unwrap_or_default() {
        "string" if is_duration(schema) => "duration".to_owned(),
        "string" => "text".to_owned(),
        "integer" => match (&schema["minimum"], &schema["maximum"]) {
            (minimum, Value::Null) => format!("integer, {minimum} or more"),
            (minimum, maximum) => format!("integer, {minimum} to {maximum}"),
        },
        "array" => format!("list of {}", kind_of_many(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map of {}", kind_of_many(&schema["additionalProperties"]))
        }
        kind => kind.to_owned(),
    }
}

fn kind_of_many(schema: &Value) -> String {
    match kind(schema).as_str() {
        "text" => "text".to_owned(),
        kind => format!("{kind}s"),
    }
}

fn is_duration(schema: &Value) -> bool {
    let pattern = schema["pattern"].as_str();
    pattern.is_some_and(|pattern| pattern.contains("|ms|s|m|h)"))
}

/// Returns a value as the page shows it.
fn code(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => String::new(),
        Value::String(text) => format!("`{text}`"),
        Value::Null => String::new(),
        value => format!("`{value}`"),
    }
}

/// Returns the default of a field, and the chart's, if that is another.
fn default(schema: &Value, path: &str, [configuration, values]: &[&Value; 2]) -> String {
    let pointer = format!("/{}", path.replace('.', "/"));
    let stated = configuration
        .pointer(&pointer)
        .unwrap_or(&schema["default"]);
    let ours = shown(stated);
    let is_value = !IMAGES.contains(&path);
    match values.pointer(&pointer).map(shown) {
        Some(theirs) if theirs != ours && is_value => format!("{ours}; of the chart {theirs}"),
        _ => ours,
    }
}

/// Returns a default as the page shows it: durations without units of zero, as in `24h0m0s`.
fn shown(value: &Value) -> String {
    let text = code(value);
    let is_duration = text
        .chars()
        .all(|one| one.is_ascii_digit() || "hms`".contains(one));
    match is_duration {
        true => text.replace("m0s`", "m`").replace("h0m`", "h`"),
        false => text,
    }
}
