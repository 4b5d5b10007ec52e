//! The crates from oz-api to oz-compliance decide, a policy is evaluated, and none does anything else: they depend on
//! no runtime, no client and no socket.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed one should stop where it failed"
)]

use std::collections::BTreeSet;
use std::process::Command;

/// Crates that would let I/O in, by themselves or through a feature.
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
        "oz-composites",
        "oz-compliance",
    ] {
        depends_on_none_of(package, "kube-core", &["rand", "getrandom"]);
    }
}

/// It runs in the pod of every agent.
#[test]
fn a_harness_depends_on_the_api_alone() {
    let tree = tree("oz-harness");
    let ours = tree.iter().filter(|name| name.starts_with("oz"));
    let ours: BTreeSet<&str> = ours.map(String::as_str).collect();
    assert_eq!(ours, BTreeSet::from(["oz-api", "oz-harness"]));
}

/// `rand` is there, by the interpreter's feature `std` without which its `net` does not compile; no policy
/// comes to it (refused.rs of its tests).
#[test]
fn a_policy_depends_on_no_runtime_and_no_client() {
    depends_on_none_of("oz-rego", "regorus", &["kube-core"]);
}

/// What puts the two together adds nothing.
#[test]
fn a_function_depends_on_no_runtime_and_no_client() {
    depends_on_none_of("oz-function", "oz-rego", &[]);
}

/// `package` depends on `known`, and on nothing impure nor on any of `others`.
fn depends_on_none_of(package: &str, known: &str, others: &[&str]) {
    let names = tree(package);
    let depends_on = |name: &str| names.iter().any(|one| one == name);
    assert!(depends_on(known), "the tree was not read: {names:?}");
    for impure in IMPURE.iter().chain(others) {
        assert!(!depends_on(impure), "{package} depends on {impure}");
    }
}

/// The names of everything that a package depends on, and its own.
fn tree(package: &str) -> Vec<String> {
    // Alone: in a build of the whole workspace, features of others would be counted in.
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
