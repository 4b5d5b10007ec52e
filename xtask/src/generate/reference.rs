//! The reference pages of the custom resource definitions: a page for each kind with every field, and an index.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::Value;

/// The directory of the pages.
pub(super) const DIRECTORY: &str = "docs/reference/crds";
/// The API reference of Kubernetes.
const KUBERNETES: &str = "https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.35/#";
/// The fields with a type of Kubernetes, to which the pages link: the name of the field, the type in words, and its
/// anchor there.
const EMBEDDED: [(&str, &str, &str); 5] = [
    ("conditions", "list of Condition", "condition-v1-meta"),
    ("env", "list of EnvVar", "envvar-v1-core"),
    ("labelSelector", "LabelSelector", "labelselector-v1-meta"),
    ("podSpec", "PodSpec", "podspec-v1-core"),
    (
        "resources",
        "ResourceRequirements",
        "resourcerequirements-v1-core",
    ),
];
const HEADER: &str = "<!-- Generated from the custom resource definitions by `cargo xtask generate`; do not edit. -->\n\n";
const INDEX: &str = "\
# Custom resource definitions

One page for each kind, with all fields, their types, defaults and limits, and the validation rules of the API
server. The webhook enforces further rules; the description of a field states them.

| kind | API version | scope | description |
|---|---|---|---|
";
const FIELDS: &str = "\
| field | type | required | default | limits | description |
|---|---|---|---|---|---|
";

/// Returns the pages and the index: their paths from the root of the repository, and their texts. `definitions` are
/// the definitions by the paths of their files.
pub(super) fn files(definitions: &[(PathBuf, Value)]) -> Result<BTreeMap<PathBuf, String>> {
    let mut files = BTreeMap::new();
    let mut index = format!("{HEADER}{INDEX}");
    let mut sorted: Vec<&(PathBuf, Value)> = definitions.iter().collect();
    sorted.sort_by_key(|(_, crd)| {
        (
            text(&crd["spec"]["group"]),
            text(&crd["spec"]["names"]["kind"]),
        )
    });
    for (source, crd) in sorted {
        let spec = &crd["spec"];
        for version in items(&spec["versions"]) {
            let kind = text(&spec["names"]["kind"]);
            let name = file_name(spec);
            let description = description(&version["schema"]["openAPIV3Schema"]);
            writeln!(
                index,
                "| [{kind}]({name}) | `{}` | {} | {description} |",
                api_version(spec, version),
                scope(spec),
            )?;
            let page = page(source, spec, version)?;
            files.insert(Path::new(DIRECTORY).join(name), page);
        }
    }
    files.insert(Path::new(DIRECTORY).join("README.md"), index);
    Ok(files)
}

/// Returns the name of the page of a definition. The published transient bindings have the names of other kinds.
fn file_name(spec: &Value) -> String {
    let kind = text(&spec["names"]["kind"]).to_lowercase();
    match text(&spec["group"]) {
        group @ oz_api::example_com::GROUP => format!("{kind}.{group}.md"),
        _ => format!("{kind}.md"),
    }
}

/// Returns the page of a definition, which is in the file `source`.
fn page(source: &Path, spec: &Value, version: &Value) -> Result<String> {
    let names = &spec["names"];
    let schema = &version["schema"]["openAPIV3Schema"];
    let mut page = format!("{HEADER}# {}\n\n", text(&names["kind"]));
    writeln!(
        page,
        "{}\n\n| property | value |\n|---|---|",
        description(schema)
    )?;
    for (property, value) in [
        ("API version", code(&api_version(spec, version))),
        ("scope", scope(spec).to_owned()),
        ("plural", code(text(&names["plural"]))),
        ("short names", codes(&names["shortNames"])),
        ("categories", codes(&names["categories"])),
        (
            "definition",
            format!("[{0}](../../../{0})", source.display()),
        ),
    ] {
        if !value.is_empty() {
            writeln!(page, "| {property} | {value} |")?;
        }
    }
    let (sections, others): (Vec<_>, Vec<_>) = fields(schema).partition(|(name, field)| {
        ["spec", "status"].contains(name) && field["properties"].is_object()
    });
    let mut rows = Vec::new();
    for (name, field) in others {
        add(&mut rows, field, name, is_required(schema, name))?;
    }
    if !rows.is_empty() {
        write!(page, "\n## Fields\n\n{FIELDS}{}", rows.concat())?;
    }
    for (section, field) in sections {
        let mut rows = Vec::new();
        for (name, inner) in fields(field) {
            let path = format!("{section}.{name}");
            add(&mut rows, inner, &path, is_required(field, name))?;
        }
        let description = description(field);
        let rows = rows.concat();
        write!(page, "\n## {section}\n\n{description}\n\n{FIELDS}{rows}")?;
    }
    page.push_str(&validation(schema)?);
    page.push_str(&columns(version)?);
    Ok(page)
}

/// Adds the row of a field, and those of the fields in it.
fn add(rows: &mut Vec<String>, schema: &Value, path: &str, required: bool) -> Result<()> {
    let meaning = description(schema);
    ensure!(
        !meaning.is_empty(),
        "field {path} has no description; list the name of its Kubernetes type in EMBEDDED"
    );
    let name = path.rsplit('.').next().unwrap_or(path);
    let embedded = EMBEDDED.iter().find(|(field, ..)| *field == name);
    let kind = embedded.map_or_else(
        || kind(schema),
        |(_, kind, anchor)| format!("[{kind}]({KUBERNETES}{anchor})"),
    );
    let required = if required { "yes" } else { "" };
    let default = match &schema["default"] {
        Value::Null => String::new(),
        Value::String(value) if value.is_empty() => "empty".to_owned(),
        Value::String(value) => code(value),
        value => code(&value.to_string()),
    };
    rows.push(format!(
        "| `{path}` | {kind} | {required} | {default} | {} | {meaning} |\n",
        limits(schema).join(", ")
    ));
    if embedded.is_none() {
        let (suffix, inner) = innermost(schema);
        for (name, field) in fields(inner) {
            let path = format!("{path}{suffix}.{name}");
            add(rows, field, &path, is_required(inner, name))?;
        }
    }
    Ok(())
}

/// Returns the schema of the items of nested lists and maps, with the path to them.
fn innermost(schema: &Value) -> (String, &Value) {
    for (keyword, suffix) in [("items", "[]"), ("additionalProperties", ".NAME")] {
        if schema[keyword].is_object() {
            let (rest, inner) = innermost(&schema[keyword]);
            return (format!("{suffix}{rest}"), inner);
        }
    }
    (String::new(), schema)
}

/// Returns the type of a field, in words.
fn kind(schema: &Value) -> String {
    if schema["enum"].is_array() {
        return codes(&schema["enum"]);
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    match (text(&schema["type"]), text(&schema["format"])) {
        ("", _) => "any value".to_owned(),
        ("array", _) => format!("list of {}", kind(&schema["items"])),
        ("object", _) if schema["additionalProperties"].is_object() => {
            format!("map of {}", kind(&schema["additionalProperties"]))
        }
        ("object", _) if schema["x-kubernetes-preserve-unknown-fields"] == true => {
            "object with any fields".to_owned()
        }
        (kind, "") => kind.to_owned(),
        (kind, format) => format!("{kind} ({format})"),
    }
}

/// Returns the limits of a value, and of the items of a list.
fn limits(schema: &Value) -> Vec<String> {
    let mut limits = Vec::new();
    for (least, most, unit) in [
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
        ("minimum", "maximum", ""),
    ] {
        let number = |keyword: &str| schema[keyword].as_f64();
        match (number(least), number(most)) {
            (None, None) => {}
            (Some(least), Some(most)) => limits.push(format!("{least} to {most}{unit}")),
            (Some(least), None) => limits.push(format!("at least {least}{unit}")),
            (None, Some(most)) => limits.push(format!("at most {most}{unit}")),
        }
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        limits.push(code(pattern));
    }
    match text(&schema["x-kubernetes-list-type"]) {
        "set" => limits.push("unique items".to_owned()),
        "map" => limits.push(format!(
            "unique {}",
            codes(&schema["x-kubernetes-list-map-keys"])
        )),
        _ => {}
    }
    if schema["items"].is_object() {
        let inner = self::limits(&schema["items"]);
        limits.extend(inner.into_iter().map(|limit| format!("each item: {limit}")));
    }
    limits
}

/// Returns the table of the validation rules: the fields of each message.
fn validation(schema: &Value) -> Result<String> {
    let mut rules: Vec<(String, Vec<String>)> = Vec::new();
    collect(schema, "", &mut rules);
    if rules.is_empty() {
        return Ok(String::new());
    }
    let mut table = String::from(
        "\n## Validation rules\n\nThe API server evaluates these rules \
         ([CEL](https://kubernetes.io/docs/reference/using-api/cel/)) when an object is created or changed.\n\n\
         | field | rule |\n|---|---|\n",
    );
    for (message, fields) in rules {
        writeln!(table, "| {} | {message} |", fields.join(", "))?;
    }
    Ok(table)
}

/// Adds the rules of a field, and those of the fields in it.
fn collect(schema: &Value, path: &str, rules: &mut Vec<(String, Vec<String>)>) {
    for rule in items(&schema["x-kubernetes-validations"]) {
        let message = match text(&rule["message"]) {
            "" => code(text(&rule["rule"])),
            message => cell(message),
        };
        let field = format!("{path}{}", text(&rule["fieldPath"]));
        let field = match field.trim_start_matches('.') {
            "" => "the object".to_owned(),
            field => code(field),
        };
        match rules.iter_mut().find(|(other, _)| *other == message) {
            Some((_, fields)) if fields.contains(&field) => {}
            Some((_, fields)) => fields.push(field),
            None => rules.push((message, vec![field])),
        }
    }
    let (suffix, inner) = innermost(schema);
    if !suffix.is_empty() {
        collect(inner, &format!("{path}{suffix}"), rules);
    }
    for (name, field) in fields(schema) {
        collect(field, &format!("{path}.{name}"), rules);
    }
}

/// Returns the table of the columns of `kubectl get`.
fn columns(version: &Value) -> Result<String> {
    let columns = items(&version["additionalPrinterColumns"]);
    if columns.is_empty() {
        return Ok(String::new());
    }
    let mut table = String::from(
        "\n## Columns of `kubectl get`\n\n| column | field | with `-o wide` only | description |\n|---|---|---|---|\n",
    );
    for column in columns {
        let wide = if column["priority"].as_i64().unwrap_or_default() > 0 {
            "yes"
        } else {
            ""
        };
        let [name, path] = [&column["name"], &column["jsonPath"]].map(text);
        writeln!(
            table,
            "| {name} | {} | {wide} | {} |",
            code(path),
            description(column)
        )?;
    }
    Ok(table)
}

fn api_version(spec: &Value, version: &Value) -> String {
    format!("{}/{}", text(&spec["group"]), text(&version["name"]))
}

fn scope(spec: &Value) -> &'static str {
    match text(&spec["scope"]) {
        "Namespaced" => "namespaced",
        _ => "cluster",
    }
}

fn fields(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties.map(|(name, field)| (name.as_str(), field))
}

fn is_required(object: &Value, name: &str) -> bool {
    items(&object["required"]).iter().any(|one| one == name)
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns a description in one line, for a cell of a table.
fn description(schema: &Value) -> String {
    let words: Vec<&str> = text(&schema["description"]).split_whitespace().collect();
    cell(&words.join(" "))
}

/// Returns a text for a cell of a table, in which `|` is escaped also in code, and other markup outside of code.
fn cell(text: &str) -> String {
    let escaped = |(number, part): (usize, &str)| {
        let part = part.replace('|', r"\|");
        let is_code = number % 2 == 1;
        if is_code {
            part
        } else {
            part.replace('*', r"\*").replace('<', r"\<")
        }
    };
    let parts: Vec<String> = text.split('`').enumerate().map(escaped).collect();
    parts.join("`")
}

/// Returns a value as code. A text with a backtick has two on each side.
fn code(value: &str) -> String {
    let value = value.replace('|', r"\|");
    match value.as_str() {
        "" => String::new(),
        value if value.contains('`') => format!("`` {value} ``"),
        value => format!("`{value}`"),
    }
}

fn codes(list: &Value) -> String {
    let codes: Vec<String> = items(list)
        .iter()
        .map(|item| match text(item) {
            "" => "empty".to_owned(),
            item => code(item),
        })
        .collect();
    codes.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn field_is_a_row_with_type_default_and_limits() {
        let row = |schema: Value| {
            let mut rows = Vec::new();
            add(&mut rows, &schema, "spec.a", false).unwrap();
            rows.concat()
        };
        for (schema, expected) in [
            (
                json!({"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^a|b$"}),
                r"| `spec.a` | string |  |  | 1 to 64 characters, `^a\|b$` | A. |",
            ),
            (
                json!({"type": "string", "enum": ["", "On", "Off"], "default": "On"}),
                "| `spec.a` | empty, `On`, `Off` |  | `On` |  | A. |",
            ),
            (
                json!({"type": "integer", "format": "int32", "minimum": 1.0, "default": 2}),
                "| `spec.a` | integer (int32) |  | `2` | at least 1 | A. |",
            ),
            (
                json!({"type": "array", "maxItems": 8, "x-kubernetes-list-type": "set",
                    "items": {"type": "string", "maxLength": 9}}),
                "| `spec.a` | list of string |  |  | at most 8 items, unique items, each item: at most 9 characters | A. |",
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                "| `spec.a` | map of string |  |  |  | A. |",
            ),
            (
                json!({"x-kubernetes-int-or-string": true}),
                "| `spec.a` | integer or string |  |  |  | A. |",
            ),
            (
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
                "| `spec.a` | object with any fields |  |  |  | A. |",
            ),
            (
                json!({"x-kubernetes-preserve-unknown-fields": true}),
                "| `spec.a` | any value |  |  |  | A. |",
            ),
        ] {
            let mut schema = schema;
            schema["description"] = json!("A.");
            assert_eq!(row(schema), format!("{expected}\n"));
        }
    }

    #[test]
    fn nested_field_has_a_dotted_path_and_kubernetes_type_a_link() {
        let leaf = json!({"type": "string", "description": "Leaf."});
        let schema = json!({
            "description": "List.", "type": "array",
            "items": {"type": "object", "required": ["b"], "properties": {
                "b": {"description": "Map.", "type": "object",
                    "additionalProperties": {"type": "object", "properties": {"c": leaf}}},
                "env": {"description": "Variables.", "type": "array",
                    "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            }},
        });
        let mut rows = Vec::new();
        add(&mut rows, &schema, "spec.a", true).unwrap();
        let expected = [
            "| `spec.a` | list of object | yes |  |  | List. |\n".to_owned(),
            "| `spec.a[].b` | map of object | yes |  |  | Map. |\n".to_owned(),
            "| `spec.a[].b.NAME.c` | string |  |  |  | Leaf. |\n".to_owned(),
            format!(
                "| `spec.a[].env` | [list of EnvVar]({KUBERNETES}envvar-v1-core) |  |  |  | Variables. |\n"
            ),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn markup_is_escaped_outside_of_code() {
        for (text, expected) in [
            ("a plain text", "a plain text"),
            ("*, <b> or `*.` | `a|<b>`", r"\*, \<b> or `*.` \| `a\|<b>`"),
        ] {
            assert_eq!(cell(text), expected);
        }
    }

    #[test]
    fn field_without_description_is_an_error() {
        let error = add(&mut Vec::new(), &json!({"type": "string"}), "spec.a", false).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("field spec.a has no description")
        );
    }

    #[test]
    fn validation_rule_has_its_fields_once() {
        let rule = |path: &str| json!([{"rule": "r", "message": "must be b", "fieldPath": path}]);
        let schema = json!({
            "x-kubernetes-validations": [{"rule": "a | b"}],
            "properties": {"spec": {
                "x-kubernetes-validations": rule(".a"),
                "properties": {
                    "a": {"x-kubernetes-validations": rule("")},
                    "list": {"items": {"x-kubernetes-validations": rule(".c")}},
                },
            }},
        });
        let table = validation(&schema).unwrap();
        assert!(
            table.ends_with(
                "| the object | `a \\| b` |\n| `spec.a`, `spec.list[].c` | must be b |\n"
            ),
            "{table}"
        );
        assert_eq!(validation(&json!({})).unwrap(), "");
    }

    #[test]
    fn published_kind_has_a_page_beside_the_kind_of_the_same_name() {
        let crd = |group: &str| {
            let schema = json!({"description": "A binding.", "properties": {
                "spec": {"description": "Terms.", "properties": {}}}});
            let value = json!({"spec": {"group": group, "scope": "Cluster",
                "names": {"kind": "Binding", "plural": "bindings", "shortNames": ["b"]},
                "versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}});
            (PathBuf::from("crds/bindings.yaml"), value)
        };
        let files = files(&[crd("crds.wizardofoz.co"), crd("example.com")]).unwrap();
        let names: Vec<String> = files
            .keys()
            .map(|path| path.strip_prefix(DIRECTORY).unwrap().display().to_string())
            .collect();
        assert_eq!(names, ["README.md", "binding.example.com.md", "binding.md"]);
        let page = &files[&Path::new(DIRECTORY).join("binding.md")];
        for line in [
            "# Binding",
            "A binding.",
            "| API version | `crds.wizardofoz.co/v1` |",
            "| scope | cluster |",
            "| short names | `b` |",
            "| definition | [crds/bindings.yaml](../../../crds/bindings.yaml) |",
            "## spec",
        ] {
            assert!(page.lines().any(|one| one == line), "{line}\n{page}");
        }
    }
}
