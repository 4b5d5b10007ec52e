//! Tests of the definitions as a public API: an outline of each is kept as a snapshot, so that no field,
//! default, limit or rule changes unnoticed. The files themselves are in the chart, and `cargo xtask generate
//! --check` compares those.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stop where they fail, too"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use oz_core::kinds::{self, Family, crds};
use serde_json::Value;

/// Parts that belong to Kubernetes, of which the outline is not checked.
const FOREIGN: [&str; 6] = [
    ".spec.resources",
    ".spec.defaults.resources",
    ".spec.podSpec",
    ".spec.controllerTargetMutationConfig.env",
    ".spec.controllerTargetMutationConfig.resources",
    ".status.conditions",
];

/// Returns the definitions of all kinds that are declared here.
fn all() -> Vec<CustomResourceDefinition> {
    let mut all = crds(Family::Access);
    all.extend(crds(Family::Harness));
    all
}

fn crd(kind: &str) -> CustomResourceDefinition {
    crds(Family::Access)
        .into_iter()
        .find(|crd| crd.spec.names.kind == kind)
        .unwrap()
}

fn schema(crd: &CustomResourceDefinition) -> &JSONSchemaProps {
    let schema = crd.spec.versions[0].schema.as_ref().unwrap();
    schema.open_api_v3_schema.as_ref().unwrap()
}

/// Calls `visit` for each field with its path, its schema and whether it is required.
fn walk<'a>(
    schema: &'a JSONSchemaProps,
    path: &str,
    required: bool,
    visit: &mut impl FnMut(&str, &'a JSONSchemaProps, bool),
) {
    visit(path, schema, required);
    if FOREIGN.contains(&path) {
        return;
    }
    for (name, property) in schema.properties.iter().flatten() {
        let required = schema.required.iter().flatten().any(|known| known == name);
        walk(property, &format!("{path}.{name}"), required, visit);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        walk(items, &format!("{path}[]"), false, visit);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        walk(values, &format!("{path}{{}}"), false, visit);
    }
}

/// Returns the outline: one line for each field.
fn outline(crd: &CustomResourceDefinition) -> String {
    let names = &crd.spec.names;
    let mut text = format!(
        "{} ({}), short {:?}, categories {:?}, {}\n",
        names.kind,
        crd.metadata.name.as_deref().unwrap(),
        names.short_names.as_deref().unwrap_or_default(),
        names.categories.as_deref().unwrap_or_default(),
        crd.spec.scope,
    );
    for column in crd.spec.versions[0]
        .additional_printer_columns
        .iter()
        .flatten()
    {
        let wide = if column.priority.is_some_and(|priority| priority > 0) {
            ", wide"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "column {}: {} {}{wide}",
            column.name, column.type_, column.json_path
        );
    }
    walk(schema(crd), "", false, &mut |path, schema, required| {
        let mut line = format!("{}:", if path.is_empty() { "." } else { path });
        for fact in facts(schema, required) {
            let _ = write!(line, " {fact}");
        }
        let _ = writeln!(text, "{line}");
        for rule in schema.x_kubernetes_validations.iter().flatten() {
            let _ = writeln!(text, "  rule {}", rule.rule);
        }
    });
    text
}

fn facts(schema: &JSONSchemaProps, required: bool) -> Vec<String> {
    let mut facts = vec![schema.type_.clone().unwrap_or_else(|| "any".to_owned())];
    let mut note = |name: &str, value: Option<String>| {
        facts.extend(value.map(|value| format!("{name}={value}")));
    };
    note("format", schema.format.clone());
    note(
        "enum",
        schema.enum_.as_ref().map(|values| {
            values
                .iter()
                .map(|value| value.0.to_string())
                .collect::<Vec<_>>()
                .join("|")
        }),
    );
    note(
        "default",
        schema.default.as_ref().map(|value| value.0.to_string()),
    );
    note("pattern", schema.pattern.clone());
    note(
        "maxLength",
        schema.max_length.map(|length| length.to_string()),
    );
    note(
        "minItems",
        schema.min_items.map(|length| length.to_string()),
    );
    note(
        "maxItems",
        schema.max_items.map(|length| length.to_string()),
    );
    note("list", schema.x_kubernetes_list_type.clone());
    note(
        "intOrString",
        schema
            .x_kubernetes_int_or_string
            .map(|value| value.to_string()),
    );
    note(
        "preserve",
        schema
            .x_kubernetes_preserve_unknown_fields
            .map(|value| value.to_string()),
    );
    if required {
        facts.push("required".to_owned());
    }
    facts
}

#[test]
fn the_api_is_what_it_was() {
    for crd in all() {
        insta::assert_snapshot!(crd.spec.names.plural.as_str(), outline(&crd));
    }
}

#[test]
fn every_field_explains_itself() {
    for crd in all() {
        walk(schema(&crd), "", false, &mut |path, schema, _| {
            let is_field = !path.ends_with(['[', ']', '}']);
            let description = schema.description.as_deref().unwrap_or_default();
            assert!(
                !is_field || !description.is_empty(),
                "{}{path}",
                crd.spec.names.kind
            );
            assert!(!description.contains('\n'), "{}{path}", crd.spec.names.kind);
        });
    }
}

#[test]
fn no_field_stores_null_but_a_value_in_a_patch() {
    for crd in all() {
        walk(schema(&crd), "", false, &mut |path, schema, _| {
            let may = path.ends_with(".patchSpecOperations[].value");
            assert_eq!(
                schema.nullable,
                may.then_some(true),
                "{}{path}",
                crd.spec.names.kind
            );
        });
    }
}

/// Calls `visit` for each schema in `value`.
fn each_schema(value: &Value, visit: &mut impl FnMut(&Value)) {
    visit(value);
    match value {
        Value::Object(fields) => fields.values().for_each(|field| each_schema(field, visit)),
        Value::Array(items) => items.iter().for_each(|item| each_schema(item, visit)),
        _ => {}
    }
}

/// Since 1.37, an API server warns about each other format.
#[test]
fn every_format_is_known_to_api_servers() {
    let known = [
        ("integer", "int32"),
        ("integer", "int64"),
        ("string", "date-time"),
    ];
    let mut formats = 0;
    for crd in kinds::all().iter().filter_map(kinds::Entry::definition) {
        let name = &crd.spec.names.kind;
        let versions = serde_json::to_value(&crd.spec.versions).unwrap();
        each_schema(&versions, &mut |schema| {
            // A field of this name has a schema, not a text.
            if let (Some(of), Some(format)) = (schema["type"].as_str(), schema["format"].as_str()) {
                assert!(known.contains(&(of, format)), "{name}: {of} {format}");
                formats += 1;
            }
        });
    }
    assert!(formats > 100, "{formats}");
}

/// The directories of the definitions: those of the chart, and the published ones.
const DEFINITIONS: [&str; 4] = [
    "charts/oz/files/crds",
    "charts/oz/files/harness",
    "charts/oz/files/composites",
    "deploy/example-com",
];

#[test]
fn every_definition_in_a_file_is_of_a_kind_in_the_registry_and_vice_versa() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut defined = BTreeSet::new();
    for directory in DEFINITIONS {
        for entry in fs::read_dir(root.join(directory)).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            let crds = documents.iter();
            let crds = crds.filter(|document| document["kind"] == "CustomResourceDefinition");
            defined.extend(crds.map(|crd| crd["metadata"]["name"].as_str().unwrap().to_owned()));
        }
    }
    let registered = kinds::all().into_iter().map(|kind| kind.resource);
    let registered: BTreeSet<String> = registered
        .map(|kind| format!("{}.{}", kind.plural, kind.group))
        .collect();
    assert_eq!(defined, registered);
}

/// Field, type, and whether it is required, as in the original. Existing manifests and stored objects depend
/// on these.
const ORIGINAL: &[(&str, &str, &str, bool)] = &[
    ("*Template", ".spec.accessConfig", "object", true),
    (
        "*Template",
        ".spec.accessConfig.allowedGroups",
        "array",
        true,
    ),
    (
        "*Template",
        ".spec.accessConfig.allowedGroups[]",
        "string",
        false,
    ),
    (
        "*Template",
        ".spec.accessConfig.defaultDuration",
        "string",
        false,
    ),
    (
        "*Template",
        ".spec.accessConfig.maxDuration",
        "string",
        false,
    ),
    (
        "*Template",
        ".spec.accessConfig.accessCommand",
        "string",
        false,
    ),
    (
        "ExecAccessTemplate",
        ".spec.controllerTargetRef",
        "object",
        true,
    ),
    (
        "PodAccessTemplate",
        ".spec.controllerTargetRef",
        "object",
        false,
    ),
    (
        "*Template",
        ".spec.controllerTargetRef.apiVersion",
        "string",
        true,
    ),
    (
        "*Template",
        ".spec.controllerTargetRef.kind",
        "string",
        true,
    ),
    (
        "*Template",
        ".spec.controllerTargetRef.name",
        "string",
        true,
    ),
    (
        "PodAccessTemplate",
        ".spec.controllerTargetMutationConfig",
        "object",
        false,
    ),
    ("PodAccessTemplate", ".spec.podSpec", "object", false),
    ("PodAccessTemplate", ".spec.maxStorage", "any", false),
    ("PodAccessTemplate", ".spec.maxCpu", "any", false),
    ("PodAccessTemplate", ".spec.maxMemory", "any", false),
    ("*Request", ".spec.templateName", "string", true),
    ("*Request", ".spec.duration", "string", false),
    ("ExecAccessRequest", ".spec.targetPod", "string", false),
    ("*", ".spec", "object", false),
    ("*", ".status", "object", false),
    ("*", ".status.conditions", "array", false),
    ("*", ".status.ready", "boolean", false),
    ("*", ".status.accessMessage", "string", false),
    ("*Request", ".status.podName", "string", false),
];

/// Fields of `.spec.controllerTargetMutationConfig` in the original; none is required.
const ORIGINAL_MUTATION: &[(&str, &str)] = &[
    ("defaultContainerName", "string"),
    ("keepTerminationGracePeriod", "boolean"),
    ("keepLivenessProbe", "boolean"),
    ("keepReadinessProbe", "boolean"),
    ("keepStartupProbe", "boolean"),
    ("keepTopologySpreadConstraints", "boolean"),
    ("purgeAnnotations", "boolean"),
    ("podAnnotations", "object"),
    ("nodeSelector", "object"),
    ("podLabels", "object"),
    ("command", "array"),
    ("args", "array"),
    ("resources", "object"),
    ("env", "array"),
    ("patchSpecOperations", "array"),
];

#[test]
fn every_field_of_the_original_is_there() {
    let mut original: Vec<(&str, String, &str, bool)> = ORIGINAL
        .iter()
        .map(|&(kinds, path, type_, required)| (kinds, path.to_owned(), type_, required))
        .collect();
    original.extend(ORIGINAL_MUTATION.iter().map(|(name, type_)| {
        let path = format!(".spec.controllerTargetMutationConfig.{name}");
        ("PodAccessTemplate", path, *type_, false)
    }));
    for crd in crds(Family::Access) {
        let kind = crd.spec.names.kind.as_str();
        let ours = [
            "AuditEvent",
            "AccessRequestApproval",
            "AccessLock",
            "AccessPolicy",
            "AccessReview",
        ];
        if ours.contains(&kind) || kind.starts_with("Transient") {
            // The original does not have these kinds.
            continue;
        }
        let mut fields = BTreeMap::new();
        walk(schema(&crd), "", false, &mut |path, schema, required| {
            let type_ = schema.type_.clone().unwrap_or_else(|| "any".to_owned());
            fields.insert(path.to_owned(), (type_, required));
        });
        for (kinds, path, type_, required) in &original {
            if kind.ends_with(kinds.trim_start_matches('*')) {
                assert_eq!(
                    fields.get(path),
                    Some(&((*type_).to_owned(), *required)),
                    "{kind}{path}"
                );
            }
        }
        // A field that oz added must not be required, or a manifest of the original would be rejected.
        for (path, (_, required)) in &fields {
            let known = original.iter().any(|(kinds, known, _, _)| {
                known == path && kind.ends_with(kinds.trim_start_matches('*'))
            });
            // Fields of objects that oz added as a whole, and that are optional.
            let in_ours = [
                "patchSpecOperations[].",
                ".approval.",
                ".emergency.",
                ".moderation.",
            ];
            let in_ours = in_ours.iter().any(|part| path.contains(part));
            assert!(
                known || !required || in_ours,
                "{kind}{path} is new and required"
            );
        }
    }
}

#[test]
fn the_original_columns_come_first() {
    let columns = |kind: &str| {
        let crd = crd(kind);
        let columns = crd.spec.versions[0]
            .additional_printer_columns
            .clone()
            .unwrap();
        columns
            .into_iter()
            .map(|column| (column.name, column.type_, column.json_path))
    };
    let column =
        |name: &str, type_: &str, path: &str| (name.to_owned(), type_.to_owned(), path.to_owned());
    for kind in ["ExecAccessTemplate", "PodAccessTemplate"] {
        assert_eq!(
            columns(kind).next(),
            Some(column("Ready", "boolean", ".status.ready"))
        );
    }
    for kind in ["ExecAccessRequest", "PodAccessRequest"] {
        assert!(columns(kind).take(3).eq([
            column("Template", "string", ".spec.templateName"),
            column("Pod", "string", ".status.podName"),
            column("Ready", "boolean", ".status.ready"),
        ]));
    }
}
