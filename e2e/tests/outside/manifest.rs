//! The dependencies of the library by its features, and its minimum version of Rust.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use oz_e2e::{repository, run};
use serde_json::Value;

use crate::application::{LIBRARY, cargo};

/// Returns the names of the packages that oz-admission depends on with these features.
fn tree(features: &str) -> Result<BTreeSet<String>> {
    let packages = packages(features)?;
    Ok(packages.into_iter().map(|(name, _)| name).collect())
}

/// Returns these packages, with their versions.
fn packages(features: &str) -> Result<BTreeSet<(String, String)>> {
    let mut command = cargo(&repository());
    command.args(["tree", "--offline", "--package", "oz-admission"]);
    command.args(["--no-default-features", "--features", features]);
    command.args(["--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    let text = run(command)?;
    let packages = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (name, version) = (words.next()?, words.next()?);
        Some((name.to_owned(), version.trim_start_matches('v').to_owned()))
    });
    Ok(packages.collect())
}

#[test]
fn disabled_feature_adds_no_dependency() -> Result<()> {
    let (aws, ring) = (["aws-lc-rs", "aws-lc-sys"], ["ring"]);
    let metrics = ["prometheus-client", "prometheus-client-derive-encode"];
    let programs = ["anyhow", "clap", "tracing-subscriber"];
    let never = [
        "kube-runtime",
        "chrono",
        "openssl",
        "oz-api",
        "oz-core",
        "oz-audit",
    ];
    for (features, with, without) in [
        ("default", [&aws[..], &metrics].concat(), ring.to_vec()),
        ("aws-lc-rs", aws.to_vec(), [&ring[..], &metrics].concat()),
        ("ring", ring.to_vec(), [&aws[..], &metrics].concat()),
        ("ring,metrics", [&ring[..], &metrics].concat(), aws.to_vec()),
    ] {
        let tree = tree(features)?;
        for name in with {
            ensure!(tree.contains(name), "{name} is missing with {features}");
        }
        for name in without.iter().chain(&programs).chain(&never) {
            ensure!(!tree.contains(*name), "{name} is there with {features}");
        }
    }
    Ok(())
}

fn metadata() -> Result<Value> {
    let mut command = cargo(&repository());
    command.args(["metadata", "--offline", "--format-version", "1"]);
    Ok(serde_json::from_str(&run(command)?)?)
}

/// Parses a version such as `1.89.0`, or `1.89`.
fn version(text: &str) -> Result<[u32; 3]> {
    let mut version = [0; 3];
    for (part, text) in version.iter_mut().zip(text.split('.')) {
        *part = text
            .parse()
            .with_context(|| format!("no version: {text}"))?;
    }
    Ok(version)
}

#[test]
fn the_library_asks_for_no_later_rust_than_kube_and_nothing_in_it_does() -> Result<()> {
    let metadata = metadata()?;
    let all = metadata["packages"].as_array().context("no packages")?;
    let mut asked = BTreeMap::new();
    for package in all {
        let text = |field: &str| package[field].as_str().map(ToOwned::to_owned);
        let name = text("name").zip(text("version"));
        let name = name.context("a package without a name or a version")?;
        if let Some(rust) = package["rust_version"].as_str() {
            asked.insert(name, version(rust)?);
        }
    }
    let of = |wanted: &str| asked.iter().find(|((name, _), _)| name == wanted);
    let (_, kube) = of("kube").context("kube says nothing")?;
    for name in LIBRARY {
        let (_, own) = of(name).with_context(|| format!("{name} says nothing"))?;
        ensure!(own <= kube, "{name} asks for {own:?}, kube for {kube:?}");
    }
    for package in packages("default")?.iter().chain(&packages("ring")?) {
        let rust = asked.get(package).copied().unwrap_or_default();
        ensure!(
            rust <= *kube,
            "{package:?} asks for {rust:?}, kube for {kube:?}"
        );
    }
    Ok(())
}

#[test]
fn a_library_depends_on_ranges_and_leaves_the_version_of_kubernetes_open() -> Result<()> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    for name in LIBRARY {
        let package = packages.iter().find(|package| package["name"] == name);
        let package = package.with_context(|| format!("{name} is no package"))?;
        ensure!(package["publish"].is_null(), "{name} cannot be published");
        let dependencies = package["dependencies"].as_array();
        let dependencies = dependencies.context("no dependencies")?;
        for dependency in dependencies.iter().filter(|one| one["kind"].is_null()) {
            let (on, asked) = (&dependency["name"], dependency["req"].as_str());
            let asked = asked.context("no version")?;
            ensure!(
                asked.starts_with('^') && !asked.contains(','),
                "{name} wants {on} {asked}, which is no range"
            );
            let features = dependency["features"].as_array();
            let mut features = features.into_iter().flatten().filter_map(Value::as_str);
            ensure!(
                !features.any(|feature| feature.starts_with("v1_") || feature == "latest"),
                "{name} chooses the version of Kubernetes"
            );
        }
    }
    Ok(())
}
