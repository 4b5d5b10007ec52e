//! The crates that are linked into programs, as cargo's metadata lists them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

/// A package of the dependency tree.
#[derive(Deserialize)]
pub(crate) struct Package {
    id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// The licence, as an SPDX expression.
    pub(crate) license: Option<String>,
    /// The file with the licence, from the directory of the manifest.
    pub(crate) license_file: Option<PathBuf>,
    /// The registry; none for a package of this workspace.
    pub(crate) source: Option<String>,
    pub(crate) manifest_path: PathBuf,
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

/// The dependency tree for one target.
pub(crate) struct Dependencies {
    packages: BTreeMap<String, Package>,
    /// The packages to which each package is linked.
    links: BTreeMap<String, Vec<String>>,
}

impl Dependencies {
    /// Reads the tree of the workspace at `root`, as it is compiled for `target`.
    ///
    /// # Errors
    /// When cargo fails, as without the packages of Cargo.lock and without their registry.
    pub(crate) fn read(root: &Path, target: &str) -> Result<Self> {
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
        Self::parse(&output.stdout)
    }

    /// Parses the output of `cargo metadata`.
    ///
    /// # Errors
    /// When it is no such output.
    pub(crate) fn parse(metadata: &[u8]) -> Result<Self> {
        let metadata: Metadata =
            serde_json::from_slice(metadata).context("failed to parse the metadata of cargo")?;
        let packages = metadata.packages.into_iter();
        let nodes = metadata.resolve.nodes.into_iter();
        Ok(Self {
            packages: packages.map(|it| (it.id.clone(), it)).collect(),
            links: nodes.map(|node| (node.id.clone(), linked(node))).collect(),
        })
    }

    /// Returns the packages that the programs of the packages `roots` of this workspace contain, with the roots, by
    /// name and version.
    ///
    /// # Errors
    /// When the workspace has no such package.
    pub(crate) fn linked(&self, roots: &[&str]) -> Result<Vec<&Package>> {
        let mut open: Vec<&str> = Vec::new();
        for root in roots {
            let local = |package: &&Package| package.source.is_none() && package.name == *root;
            let package = self.packages.values().find(local);
            let package = package.with_context(|| format!("failed to find package {root}"))?;
            open.push(&package.id);
        }
        let mut found = BTreeSet::new();
        while let Some(id) = open.pop() {
            if found.insert(id) {
                open.extend(self.links.get(id).into_iter().flatten().map(String::as_str));
            }
        }
        let package = |id: &str| self.packages.get(id).context("failed to find a dependency");
        let mut packages: Vec<&Package> = found.into_iter().map(package).collect::<Result<_>>()?;
        packages.sort_by_key(|package| (&package.name, &package.version));
        Ok(packages)
    }

    /// Returns the packages to which `package` is linked.
    pub(crate) fn direct(&self, package: &Package) -> Vec<&Package> {
        let ids = self.links.get(&package.id).into_iter().flatten();
        ids.filter_map(|id| self.packages.get(id)).collect()
    }
}

fn linked(node: Node) -> Vec<String> {
    node.deps
        .into_iter()
        .filter(|it| it.dep_kinds.iter().any(|it| it.kind.is_none()))
        .map(|it| it.pkg)
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the tree oz → a → b, with the package `test` for tests and builds, and the separate package `other`.
    pub(crate) fn dependencies() -> Dependencies {
        let package = |name: &str, source: Option<&str>| {
            json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0",
                   "source": source, "manifest_path": format!("/{name}/Cargo.toml")})
        };
        let on =
            |name: &str, kind: Option<&str>| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("oz", None), package("a", Some("r")), package("b", Some("r")),
                         package("test", Some("r")), package("other", None)],
            "resolve": {"nodes": [
                {"id": "oz", "deps": [on("a", None), on("test", Some("dev"))]},
                {"id": "a", "deps": [on("b", None), on("test", Some("build"))]},
                {"id": "b", "deps": []}, {"id": "test", "deps": []}, {"id": "other", "deps": []},
            ]},
        });
        Dependencies::parse(metadata.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn linked_packages_are_listed_and_build_or_test_packages_are_not() {
        let dependencies = dependencies();
        let linked = dependencies.linked(&["oz"]).unwrap();
        let names: Vec<&str> = linked.iter().map(|package| package.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "oz"]);
        let direct = dependencies.direct(linked[0]);
        assert_eq!(direct.len(), 1);
        assert_eq!(direct[0].name, "b");
        assert!(dependencies.linked(&["a"]).is_err());
    }
}
