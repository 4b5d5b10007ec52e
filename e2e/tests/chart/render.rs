//! The rendering of the chart, as snapshots: all of it for the default values, and for each other file of values the
//! lines
//! that differ.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use oz_e2e::{repository, run};
use serde_json::{Value, json};
use similar::TextDiff;
use walkdir::WalkDir;

use crate::{chart, helm, name_of, rendered, value_files};

const POLICY: &str = "ValidatingAdmissionPolicy";
/// Labels that every object has.
const COMMON: [&str; 5] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name",
    "app.kubernetes.io/version",
    "helm.sh/chart",
];

/// Returns the texts, rules and policies that the chart copies from other files of the repository.
fn copied() -> Result<Vec<Value>> {
    let mut copied = Vec::new();
    for directory in ["deploy", "charts/oz/alerts", "charts/oz/dashboards"] {
        for file in WalkDir::new(repository().join(directory)) {
            let file = file?;
            let text = match file.file_type().is_file() {
                true => std::fs::read_to_string(file.path())?,
                false => continue,
            };
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text)?;
            copied.push(Value::String(text));
            for mut document in documents {
                for field in ["rules", "groups"] {
                    let items = document[field].as_array_mut().map(std::mem::take);
                    copied.extend(items.into_iter().flatten());
                }
                if document["kind"] == POLICY {
                    copied.push(document);
                }
            }
        }
    }
    Ok(copied)
}

/// Replaces the copied values with `…`.
fn shorten(value: &mut Value, copied: &[Value]) {
    if copied.contains(value) {
        *value = json!("…");
    }
    match value {
        Value::Array(all) => all.iter_mut().for_each(|one| shorten(one, copied)),
        Value::Object(all) => all.values_mut().for_each(|one| shorten(one, copied)),
        _ => {}
    }
}

/// Returns the objects that the chart renders with these flags. Copied values are replaced with `…`.
fn objects(flags: &[&str], copied: &[Value]) -> Result<BTreeMap<String, Value>> {
    let objects = rendered(flags)?.into_iter().map(|mut object| {
        let name = name_of(&object);
        shorten(&mut object, copied);
        let is_this = |policy: &Value| {
            policy["metadata"]["name"] == object["metadata"]["name"]
                && policy["spec"] == object["spec"]
        };
        if object["kind"] == POLICY && copied.iter().any(is_this) {
            object["spec"] = json!("…");
        }
        if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
            COMMON.iter().for_each(|label| drop(labels.remove(*label)));
        }
        if object["kind"] == "CustomResourceDefinition" {
            // The schema is generated, and has separate snapshots.
            object["spec"] = json!("…");
        }
        let hook = object["metadata"]["annotations"]["helm.sh/hook"].as_str();
        let name = match hook {
            Some(hook) => format!("{name} ({hook})"),
            None => name,
        };
        (name, object)
    });
    Ok(objects.collect())
}

fn text(objects: &BTreeMap<String, Value>) -> Result<String> {
    let mut text = String::new();
    for (name, object) in objects {
        text += &format!("---\n# {name}\n{}", serde_saphyr::to_string(object)?);
    }
    Ok(text)
}

/// The files of values that are compared with another file. The rest is compared with the default.
const BASES: [(&str, &str); 9] = [
    ("deployments", "everything"),
    ("extra_env", "everything"),
    ("global_registry", "everything"),
    ("image_registry", "everything"),
    ("platform_users", "everything"),
    ("recordings", "gate"),
    ("recordings_role", "recordings"),
    ("recordings_volume", "recordings"),
    ("security_contexts", "everything"),
];

/// Returns the removed objects, and the changed lines of each object with one line of context.
fn differences(base: &BTreeMap<String, Value>, all: &BTreeMap<String, Value>) -> Result<String> {
    let gone = base.keys().filter(|name| !all.contains_key(*name));
    let mut shown: String = gone.map(|name| format!("# {name}: not there\n")).collect();
    for (name, object) in all {
        let after = serde_saphyr::to_string(object)?;
        let before = base.get(name).map(serde_saphyr::to_string).transpose()?;
        let before = before.unwrap_or_default();
        let diff = TextDiff::from_lines(&before, &after);
        for group in diff.grouped_ops(1) {
            shown += &format!("@@ {name}\n");
            for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
                shown += &format!("{}{change}", change.tag());
            }
        }
    }
    Ok(shown)
}

#[test]
fn every_file_of_values_renders_what_it_did() -> Result<()> {
    let copied = copied()?;
    let mut renderings = BTreeMap::new();
    for (name, path) in value_files()? {
        let values = format!("--values={}", path.display());
        renderings.insert(name, objects(&[&values], &copied)?);
    }
    let bases = BTreeMap::from(BASES);
    for (name, all) in &renderings {
        let shown = match name.as_str() {
            "default" => text(all)?,
            "names" => continue,
            _ => {
                let base = bases.get(name.as_str()).unwrap_or(&"default");
                differences(&renderings[*base], all)?
            }
        };
        insta::assert_snapshot!(name.as_str(), shown);
    }
    Ok(())
}

/// The names in the values replace `oz-` with `gate-`; the snapshot has the other differences.
#[test]
fn objects_follow_the_names_in_the_values() -> Result<()> {
    let mut default = serde_json::to_string(&objects(&[], &[])?)?.replace("oz-", "gate-");
    for stays in ["grant-", "system", env!("CARGO_PKG_VERSION")] {
        default = default.replace(&format!("gate-{stays}"), &format!("oz-{stays}"));
    }
    let (_, path) = value_files()?
        .into_iter()
        .find(|(name, _)| name == "names")
        .context("no file names")?;
    let values = format!("--values={}", path.display());
    let shown = differences(&serde_json::from_str(&default)?, &objects(&[&values], &[])?)?;
    insta::assert_snapshot!("names", shown);
    Ok(())
}

#[test]
fn the_chart_passes_strict_linting_with_every_file_of_values() -> Result<()> {
    for (name, path) in value_files()? {
        let mut lint = helm()?;
        lint.args(["lint", "--strict", "--namespace=oz-system"])
            .arg(chart())
            .arg("--values")
            .arg(path);
        run(lint).with_context(|| name)?;
    }
    Ok(())
}

/// The snapshots leave these labels out.
#[test]
fn every_object_has_the_common_labels() -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let expected = ["oz", "Helm", "oz", version, &format!("oz-{version}")];
    let expected = COMMON
        .into_iter()
        .zip(expected)
        .chain([("team", "platform")]);
    let expected: Vec<(&str, &str)> = expected.collect();
    for (name, path) in value_files()? {
        let values = format!("--values={}", path.display());
        for object in rendered(&[&values, "--set=commonLabels.team=platform"])? {
            // Definitions are copied as they are.
            if object["kind"] != "CustomResourceDefinition" {
                for (label, value) in &expected {
                    let found = &object["metadata"]["labels"][label];
                    assert_eq!(found, value, "{name}: {}: {label}", name_of(&object));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn two_objects_never_share_a_key() -> Result<()> {
    for (name, path) in value_files()? {
        let values = format!("--values={}", path.display());
        let all = rendered(&[&values])?;
        assert_eq!(all.len(), objects(&[&values], &[])?.len(), "{name}");
    }
    Ok(())
}
