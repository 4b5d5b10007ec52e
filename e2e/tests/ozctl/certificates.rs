//! Client certificates of every version that kubectl takes.

use anyhow::{Context, Result};
use oz_e2e::TEMPLATE;
use serde_json::Value;

use crate::{run, scene};

#[tokio::test]
async fn a_certificate_of_version_1_is_presented_as_kubectl_does() -> Result<()> {
    let scene = scene("version1").await?;
    let Some(kubeconfig) = scene.cluster.kubeconfig_of_version_1("alice", &["devs"])? else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig)?;
    let path = path.to_str().context("no path")?;
    let mut kubectl = scene.cluster.kubectl("alice");
    let known = kubectl
        .args(["--kubeconfig", path, "auth", "whoami"])
        .output()?;
    assert!(known.status.success(), "{known:?}");
    let mine = run(&scene, "alice", &["templates", "--kubeconfig", path]).await?;
    mine.ended_with(0)?;
    assert!(mine.stdout.contains(TEMPLATE), "{}", mine.stdout);

    // ozctl still detects a certificate and a key that do not match.
    let (hers, his) = (
        parsed(scene.cluster, "alice")?,
        parsed(scene.cluster, "bob")?,
    );
    let mut mixed = hers;
    mixed["users"][0]["user"]["client-key-data"] =
        his["users"][0]["user"]["client-key-data"].clone();
    std::fs::write(path, mixed.to_string())?;
    let refused = run(&scene, "alice", &["templates", "--kubeconfig", path]).await?;
    refused.ended_with(1)?;
    assert!(refused.stderr.contains("KeyMismatch"), "{}", refused.stderr);
    Ok(())
}

fn parsed(cluster: &oz_testkit::Cluster, user: &str) -> Result<Value> {
    let text = std::fs::read_to_string(cluster.kubeconfig(user))?;
    Ok(serde_json::from_str(&text)?)
}
