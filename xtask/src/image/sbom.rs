//! The content of the image, as CycloneDX: every crate that is linked into its programs, with version,
//! licence and checksum.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// None for a dependency of the program; otherwise one of its tests or its build.
    kind: Option<String>,
}

/// Creates the inventory of the image `name` with the programs of `packages`, compiled for `target`.
pub(super) fn of(name: &str, packages: &[&str], target: &str, root: &Path) -> Result<Vec<u8>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["metadata", "--format-version=1", "--locked"])
        .arg(format!("--filter-platform={target}"))
        .output()
        .context("failed to run cargo metadata")?;
    if !output.status.success() {
        bail!(
            "failed to read the dependencies: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let metadata = serde_json::from_slice(&output.stdout).context("failed to parse metadata")?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("failed to read it")?;
    let mut text =
        serde_json::to_vec_pretty(&inventory(name, packages, &metadata, &checksums(&lock))?)?;
    text.push(b'\n');
    Ok(text)
}

fn inventory(
    name: &str,
    roots: &[&str],
    metadata: &Metadata,
    checksums: &BTreeMap<(String, String), String>,
) -> Result<Value> {
    let packages: BTreeMap<&str, &Package> = metadata
        .packages
        .iter()
        .map(|package| (package.id.as_str(), package))
        .collect();
    let nodes: BTreeMap<&str, Vec<&str>> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| (node.id.as_str(), linked(node)))
        .collect();
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = Vec::new();
    for root in roots {
        let local = |package: &&&Package| package.source.is_none() && package.name == *root;
        let package = packages.values().find(local);
        let package = package.with_context(|| format!("failed to find package {root}"))?;
        open.push(&package.id);
    }
    while let Some(id) = open.pop() {
        if found.insert(id) {
            open.extend(nodes.get(id).into_iter().flatten());
        }
    }
    let reference = |id: &str| packages.get(id).map(|package| purl(package));
    let mut components = BTreeMap::new();
    let mut dependencies = BTreeMap::new();
    for id in found {
        let package = packages.get(id).context("failed to find a dependency")?;
        components.insert(purl(package), component(package, checksums));
        let mut on: Vec<String> = nodes
            .get(id)
            .into_iter()
            .flatten()
            .filter_map(|id| reference(id))
            .collect();
        on.sort();
        let dependency = json!({"ref": purl(package), "dependsOn": on});
        dependencies.insert(purl(package), dependency);
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container", "name": name, "version": env!("CARGO_PKG_VERSION"),
            },
        },
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": dependencies.into_values().collect::<Vec<_>>(),
    }))
}

fn linked(node: &Node) -> Vec<&str> {
    node.deps
        .iter()
        .filter(|it| it.dep_kinds.iter().any(|it| it.kind.is_none()))
        .map(|it| it.pkg.as_str())
        .collect()
}

fn component(package: &Package, checksums: &BTreeMap<(String, String), String>) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(package),
        "name": package.name,
        "version": package.version,
        "purl": purl(package),
    });
    if let Some(license) = &package.license {
        // The syntax that crates used before SPDX had expressions.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    let key = (package.name.clone(), package.version.clone());
    if let Some(checksum) = checksums.get(&key) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}

fn purl(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

/// Returns the checksums in Cargo.lock, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |part: &str, name: &str| {
        part.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))
            .map(|value| value.trim_matches('"').to_owned())
    };
    lock.split("[[package]]")
        .filter_map(|part| {
            let key = (field(part, "name")?, field(part, "version")?);
            Some((key, field(part, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_packages_are_listed_and_build_or_test_packages_are_not() {
        let package = |name: &str, source: Option<&str>| {
            json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0",
                   "source": source})
        };
        let on =
            |name: &str, kind: Option<&str>| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata: Metadata = serde_json::from_value(json!({
            "packages": [package("oz", None), package("a", Some("r")), package("b", Some("r")),
                         package("test", Some("r")), package("other", None)],
            "resolve": {"nodes": [
                {"id": "oz", "deps": [on("a", None), on("test", Some("dev"))]},
                {"id": "a", "deps": [on("b", None), on("test", Some("build"))]},
                {"id": "b", "deps": []}, {"id": "test", "deps": []}, {"id": "other", "deps": []},
            ]},
        }))
        .unwrap();
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"01\"\n";
        let inventory = inventory("oz", &["oz"], &metadata, &checksums(lock)).unwrap();
        let names: Vec<&Value> = inventory["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["name"])
            .collect();
        assert_eq!(names, ["a", "b", "oz"]);
        let first = &inventory["components"][0];
        assert_eq!(first["hashes"][0]["content"], "01");
        assert_eq!(first["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(
            inventory["dependencies"][2]["dependsOn"],
            json!(["pkg:cargo/a@1.0.0"])
        );
    }
}
