//! What the chart renders, as snapshots: everything for the default values, and for each other file
//! of values what it changes.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use oz_e2e::run;
use serde_json::{Value, json};

use crate::{chart, helm, name_of, rendered, value_files};

fn objects(flags: &[&str]) -> Result<BTreeMap<String, Value>> {
    let objects = rendered(flags)?.into_iter().map(|mut object| {
        let name = name_of(&object);
        if object["kind"] == "CustomResourceDefinition" {
            // The schema is generated, and has snapshots of its own.
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

fn text(objects: &BTreeMap<String, Value>, removed: &[&String]) -> Result<String> {
    let mut text = String::new();
    for name in removed {
        text += &format!("# {name}: not there\n");
    }
    for (name, object) in objects {
        text += &format!("---\n# {name}\n{}", serde_saphyr::to_string(object)?);
    }
    Ok(text)
}

#[test]
fn every_file_of_values_renders_what_it_did() -> Result<()> {
    let default = objects(&[])?;
    for (name, path) in value_files()? {
        let values = format!("--values={}", path.display());
        let all = objects(&[&values])?;
        let removed: Vec<&String> = default.keys().filter(|it| !all.contains_key(*it)).collect();
        let shown = if name == "default" {
            text(&all, &[])?
        } else {
            let changed = all
                .iter()
                .filter(|(name, object)| default.get(*name) != Some(*object))
                .map(|(name, object)| (name.clone(), object.clone()));
            text(&changed.collect(), &removed)?
        };
        insta::assert_snapshot!(name, shown);
    }
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

#[test]
fn two_objects_never_share_a_key() -> Result<()> {
    for (name, path) in value_files()? {
        let values = format!("--values={}", path.display());
        let all = rendered(&[&values])?;
        assert_eq!(all.len(), objects(&[&values])?.len(), "{name}");
    }
    Ok(())
}

/// What Kubernetes calls restricted, and a root file system that cannot be written.
#[test]
fn every_container_is_restricted() -> Result<()> {
    let mut seen = 0;
    for object in rendered(&[])? {
        let pod = match object["kind"].as_str() {
            Some("Deployment" | "Job") => &object["spec"]["template"]["spec"],
            Some("Pod") => &object["spec"],
            _ => continue,
        };
        let name = name_of(&object);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        let profile = &pod["securityContext"]["seccompProfile"]["type"];
        assert_eq!(profile, "RuntimeDefault", "{name}");
        for container in pod["containers"].as_array().context("no containers")? {
            let expected = json!({
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            });
            assert_eq!(container["securityContext"], expected, "{name}");
            assert!(container["resources"]["limits"]["memory"].is_string());
            seen += 1;
        }
    }
    assert_eq!(seen, 4);
    Ok(())
}
