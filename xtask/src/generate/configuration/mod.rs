//! The JSON schema of the configuration, the page with its fields, and the schema of the chart's values, which are
//! the same fields and those of the chart alone.

mod page;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use oz_config::OzConfiguration;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The JSON schema of the configuration.
const SCHEMA: &str = "docs/reference/ozconfiguration.schema.json";
/// The page with the fields of the configuration.
const PAGE: &str = "docs/reference/configuration.md";
/// The schema of the chart's values.
const VALUES_SCHEMA: &str = "charts/oz/values.schema.json";
/// The chart's values.
const VALUES: &str = "charts/oz/values.yaml";
/// The part of that schema that is written by hand: the values of the chart alone, and limits of the chart, as a
/// patch (RFC 7396) of the part that follows from the configuration.
const BASE: &str = include_str!("values.base.json");
/// Fields that are no values of the chart, and from which values the chart derives them.
const DERIVED: [(&str, &str); 10] = [
    ("apiVersion", ""),
    ("kind", ""),
    (
        "installation.name",
        "`fullnameOverride`, else from `nameOverride` and the release",
    ),
    ("installation.users", "none"),
    ("installation.policies", "`policies.create`"),
    ("installation.secrets", "none"),
    (
        "composites.account",
        "none; `composites.defaultAccount` has its rights",
    ),
    ("gate.recordings.spool.directory", "none"),
    ("harness.pullPolicy", "`harness.image.pullPolicy`"),
    ("harness.broker.labels", "none"),
];
/// Fields with the name of an image, which are objects in the chart's values.
const IMAGES: [&str; 2] = ["harness.image", "harness.gitImage"];

/// Returns the generated files: their paths from the root of the repository, and their texts.
pub(super) fn files(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let schema = schema();
    let values = std::fs::read_to_string(root.join(VALUES))
        .with_context(|| format!("failed to read {VALUES}"))?;
    let values =
        serde_saphyr::from_str(&values).with_context(|| format!("failed to parse {VALUES}"))?;
    Ok(BTreeMap::from([
        (PathBuf::from(PAGE), page::text(&schema, &values)?),
        (
            PathBuf::from(VALUES_SCHEMA),
            format!("{:#}\n", values_schema(&schema)?),
        ),
        (PathBuf::from(SCHEMA), format!("{schema:#}\n")),
    ]))
}

/// Returns the JSON schema of the configuration, without references.
fn schema() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let generator = settings.into_generator();
    let mut schema = generator
        .into_root_schema_for::<OzConfiguration>()
        .to_value();
    join_lines(&mut schema);
    schema
}

/// Writes each description in one line.
fn join_lines(schema: &mut Value) {
    match schema {
        Value::Object(keywords) => {
            if let Some(Value::String(text)) = keywords.get_mut("description") {
                *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            }
            keywords.values_mut().for_each(join_lines);
        }
        Value::Array(items) => items.iter_mut().for_each(join_lines),
        _ => {}
    }
}

/// Returns the schema of the chart's values.
fn values_schema(schema: &Value) -> Result<Value> {
    let mut values = as_values(schema, "").context("the configuration has no fields")?;
    let base: Value = serde_json::from_str(BASE).context("failed to parse values.base.json")?;
    json_patch::merge(&mut values, &base);
    Ok(values)
}

/// Returns the schema of the chart's value for a field; `None` if there is no such value.
fn as_values(schema: &Value, path: &str) -> Option<Value> {
    if DERIVED.iter().any(|(derived, _)| *derived == path) || IMAGES.contains(&path) {
        return None;
    }
    let mut schema = not_null(schema).as_object()?.clone();
    if let Some(kind) = kind_name(&schema) {
        schema.insert("type".to_owned(), kind.into());
    }
    // The defaults are in values.yaml, and no validator knows the formats of numbers.
    for keyword in ["$schema", "default", "format", "title"] {
        schema.remove(keyword);
    }
    if let Some(names) = names(&schema) {
        schema.remove("oneOf");
        schema.insert("enum".to_owned(), names.into());
    }
    if let Some(Value::Object(properties)) = schema.remove("properties") {
        let value = |(name, property): (String, Value)| {
            let value = as_values(&property, &join(path, &name))?;
            Some((name, value))
        };
        let properties: Map<String, Value> = properties.into_iter().filter_map(value).collect();
        if properties.is_empty() {
            return None;
        }
        schema.insert("properties".to_owned(), properties.into());
    }
    for (keyword, name) in [("items", "[]"), ("additionalProperties", "NAME")] {
        if let Some(inner) = schema.get(keyword).filter(|inner| inner.is_object()) {
            let inner = as_values(inner, &join(path, name))?;
            schema.insert(keyword.to_owned(), inner);
        }
    }
    Some(schema.into())
}

/// Returns the path of a field in an object, a list or a map.
fn join(path: &str, name: &str) -> String {
    match (path, name) {
        ("", name) => name.to_owned(),
        (path, "[]") => format!("{path}[]"),
        (path, name) => format!("{path}.{name}"),
    }
}

/// Returns the names that an enumeration permits; `None` for other types.
fn names(schema: &Map<String, Value>) -> Option<Vec<Value>> {
    let variants = schema.get("oneOf")?.as_array()?;
    variants
        .iter()
        .map(|variant| variant.get("const").cloned())
        .collect()
}

/// Returns the schema of a value that may be missing.
fn not_null(schema: &Value) -> &Value {
    let variants = schema["anyOf"].as_array();
    let mut variants = variants.into_iter().flatten();
    variants
        .find(|variant| variant["type"] != "null")
        .unwrap_or(schema)
}

/// Returns the name of the type of a value, without that of a missing one.
fn kind_name(schema: &Map<String, Value>) -> Option<String> {
    let kind = match schema.get("type")? {
        Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null")?,
        kind => kind,
    };
    kind.as_str().map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test should stop where it failed")]

    use serde_json::json;

    use super::*;

    #[test]
    fn example_of_the_page_is_valid() {
        let example = page::INTRODUCTION.split("```yaml\n").nth(1).unwrap();
        let example = example.split("```").next().unwrap();
        OzConfiguration::read(example).unwrap();
    }

    /// Returns the paths of all fields outside lists and maps.
    fn paths(schema: &Value, path: &str) -> Vec<String> {
        let fields = schema["properties"].as_object().into_iter().flatten();
        let paths = fields.flat_map(|(name, field)| {
            let path = join(path, name);
            let mut paths = paths(field, &path);
            paths.push(path);
            paths
        });
        paths.collect()
    }

    /// Returns the schema of a chart value.
    fn value<'a>(values: &'a Value, path: &str) -> Option<&'a Value> {
        let pointer: String = path
            .split('.')
            .map(|name| format!("/properties/{name}"))
            .collect();
        values.pointer(&pointer)
    }

    #[test]
    fn every_field_is_a_chart_value_or_is_derived() {
        let schema = schema();
        let values = values_schema(&schema).unwrap();
        for path in paths(&schema, "") {
            let within = |(derived, _): &(&str, _)| {
                let rest = path.strip_prefix(derived);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let is_derived = DERIVED.iter().any(within) || path == "installation";
            assert_eq!(value(&values, &path).is_none(), is_derived, "{path}");
        }
        for (path, _) in DERIVED {
            assert!(value(&schema, path).is_some(), "{path}");
        }
        for path in IMAGES {
            assert_eq!(value(&values, path).unwrap()["type"], "object", "{path}");
        }
    }

    #[test]
    fn page_has_every_field() {
        let schema = schema();
        let page = page::text(&schema, &json!({})).unwrap();
        for path in paths(&schema, "") {
            let is_section = schema["properties"].get(&path).is_some();
            assert!(
                is_section || page.contains(&format!("| `{path}` |")),
                "{path}"
            );
        }
        assert!(
            page.contains("| `access.pods` | boolean | `true` |"),
            "{page}"
        );
        assert!(
            page.contains("| `transient.maxBindingWindow` | duration | `24h` |"),
            "{page}"
        );
        assert!(
            page.contains("| `notifications.routes[].name` | text | required |"),
            "{page}"
        );
        assert!(
            page.contains("| `tickets.checks.NAME.failurePolicy` | `Fail` or `Ignore` | `Fail` |"),
            "{page}"
        );
    }

    #[test]
    fn page_names_a_default_that_the_chart_replaces() {
        let page = page::text(&schema(), &json!({"log": {"format": "json"}})).unwrap();
        assert!(page.contains("| `text`; of the chart `json` |"), "{page}");
    }

    #[test]
    fn schema_of_values_keeps_no_object_open() {
        fn check(schema: &Value, path: &str) {
            if schema["properties"].is_object() && schema.get("additionalProperties").is_none() {
                panic!("{path} accepts misspelt values");
            }
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                check(field, &join(path, name));
            }
        }
        check(&values_schema(&schema()).unwrap(), "");
    }
}
