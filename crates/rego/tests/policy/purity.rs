//! A policy is evaluated and nothing else: there is no runtime, no client and no socket. `rand` is there, by the
//! interpreter's feature `std` without which its `net` does not compile; no policy comes to it (refused.rs).

use std::process::Command;

/// Crates that would let I/O in, by themselves or through a feature.
const IMPURE: [&str; 7] = [
    "tokio",
    "hyper",
    "kube-client",
    "kube-runtime",
    "reqwest",
    "rustls",
    "kube-core",
];

#[test]
fn a_policy_depends_on_no_runtime_and_no_client() {
    // Alone: in a build of the whole workspace, features of others would be counted in.
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--package",
            "oz-rego",
            "--edges",
            "normal",
            "--prefix",
            "none",
        ])
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
    assert!(names.contains(&"regorus"), "the tree was not read: {tree}");
    for impure in IMPURE {
        assert!(!names.contains(&impure), "oz-rego depends on {impure}");
    }
}
