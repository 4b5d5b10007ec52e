//! Tests that the crates from oz-api to oz-compliance only decide and evaluate policies: they depend on no
//! runtime, no client and no socket.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed one should stop where it failed"
)]

use std::collections::BTreeSet;
use std::process::Command;

/// Crates that would add I/O, directly or through a feature.
const IMPURE: [&str; 6] = [
    "tokio",
    "hyper",
    "kube-client",
    "kube-runtime",
    "reqwest",
    "rustls",
];

#[test]
fn the_crates_that_decide_depend_on_no_runtime_and_no_client() {
    for package in [
        "oz-api",
        "oz-trail",
        "oz-core",
        "oz-gating",
        "oz-runs",
        "oz-egress",
        "oz-composites",
        "oz-compliance",
    ] {
        depends_on_none_of(package, "kube-core", &["rand", "getrandom"]);
    }
}

/// The harness runs in the pod of every agent.
#[test]
fn harness_depends_only_on_api_egress_and_outbound() {
    let tree = tree("oz-harness");
    let ours = tree.iter().filter(|name| name.starts_with("oz"));
    let ours: BTreeSet<&str> = ours.map(String::as_str).collect();
    assert_eq!(
        ours,
        BTreeSet::from(["oz-api", "oz-egress", "oz-harness", "oz-outbound"])
    );
}

/// `rand` is a dependency because of the interpreter's feature `std`, without which its `net` does not
/// compile; no policy can reach it (refused.rs of its tests).
#[test]
fn a_policy_depends_on_no_runtime_and_no_client() {
    depends_on_none_of("oz-rego", "regorus", &["kube-core"]);
}

/// The crate that combines the two adds nothing.
#[test]
fn a_function_depends_on_no_runtime_and_no_client() {
    depends_on_none_of("oz-function", "oz-rego", &[]);
}

/// Checks that `package` depends on `known`, and on nothing impure nor on any of `others`.
fn depends_on_none_of(package: &str, known: &str, others: &[&str]) {
    let names = tree(package);
    let depends_on = |name: &str| names.iter().any(|one| one == name);
    assert!(depends_on(known), "the tree was not read: {names:?}");
    for impure in IMPURE.iter().chain(others) {
        assert!(!depends_on(impure), "{package} depends on {impure}");
    }
}

/// Returns the names of all dependencies of a package, and its own.
fn tree(package: &str) -> Vec<String> {
    // For one package only: in a build of the whole workspace, features of others would be included.
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--package", package])
        .args(["--edges", "normal", "--prefix", "none"])
        .args(["--format", "{p}", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let tree = String::from_utf8(tree.stdout).unwrap();
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    names.map(ToOwned::to_owned).collect()
}
