//! The core decides, a policy is evaluated, and neither does anything else: they depend on no runtime, no client
//! and no socket.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed one should stop where it failed"
)]

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
fn the_core_depends_on_no_runtime_and_no_client() {
    depends_on_none_of("oz-core", "kube-core", &["rand", "getrandom"]);
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
    let names: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(names.contains(&known), "the tree was not read: {tree}");
    for impure in IMPURE.iter().chain(others) {
        assert!(!names.contains(impure), "{package} depends on {impure}");
    }
}
