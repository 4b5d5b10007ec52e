//! Every manifest in `examples/` is applied, and does what its header says.

use std::path::PathBuf;

use anyhow::{Context, Result};
use oz_e2e::repository;

use crate::scene;

/// Refused on purpose: the header of each says why.
const REFUSED: [&str; 1] = ["bad_pod_access_template.yaml"];
/// Needs kinds that the embedded cluster does not have.
const FOREIGN: [&str; 1] = ["rollout.yaml"];

fn examples() -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(repository().join("examples"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "yaml")
    });
    // Workloads and templates before the requests that name them.
    files.sort_by_key(|file| (file.to_string_lossy().contains("request"), file.clone()));
    Ok(files)
}

#[tokio::test]
async fn every_example_applies_as_it_is() -> Result<()> {
    let scene = scene("examples").await?;
    let mut applied = 0;
    for file in examples()? {
        let name = file
            .file_name()
            .context("no name")?
            .to_string_lossy()
            .into_owned();
        if FOREIGN.contains(&name.as_str()) {
            continue;
        }
        let mut kubectl = scene.cluster.kubectl("admin");
        kubectl.args([
            "--as=carol",
            "--as-group=admins",
            "--as-group=devs",
            "--as-group=system:masters",
        ]);
        kubectl.args(["apply", "-n", scene.name(), "-f"]).arg(&file);
        let output = kubectl.output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.success(),
            !REFUSED.contains(&name.as_str()),
            "{name}: {told}"
        );
        applied += 1;
    }
    assert!(applied > 10, "only {applied} examples");
    Ok(())
}
