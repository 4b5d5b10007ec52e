//! Every manifest in `examples/` is applied, and has the effect that its header describes.

use std::path::PathBuf;

use anyhow::{Context, Result};
use oz_e2e::{repository, run};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use serde_json::json;

use crate::scene;

/// The manifests that are denied on purpose: the header of each states the reason.
const REFUSED: [&str; 1] = ["bad_pod_access_template.yaml"];

/// The manifest that applies to the whole cluster, which other tests share: the suite `audit` applies it, alone.
const ALONE: &str = "policy.yaml";

/// The part of the names of manifests that name a request that must have been granted.
const CONTINUES: &str = "extends";

/// Defines the kind of Argo Rollouts, as far as an example needs it.
fn define_rollouts(cluster: &Cluster) -> Result<()> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "rollouts.argoproj.io"},
        "spec": {
            "group": "argoproj.io",
            "scope": "Namespaced",
            "names": {"kind": "Rollout", "plural": "rollouts"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    });
    let manifest = cluster.state_dir().join("rollouts.json");
    std::fs::write(&manifest, definition.to_string())?;
    let mut apply = cluster.kubectl("admin");
    apply.args(["apply", "-f"]).arg(manifest);
    run(apply)?;
    let mut wait = cluster.kubectl("admin");
    wait.args(["wait", "--for=condition=Established", "--timeout=60s"]);
    wait.arg("crd/rollouts.argoproj.io");
    run(wait).map(drop)
}

fn examples() -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(repository().join("examples"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "yaml")
            && !file.ends_with(ALONE)
    });
    // Workloads and templates come before the requests that name them, and these before the requests that continue
    // them.
    let order = |file: &PathBuf| {
        let text = file.to_string_lossy();
        (
            text.contains(CONTINUES),
            text.contains("request"),
            file.clone(),
        )
    };
    files.sort_by_key(order);
    Ok(files)
}

#[tokio::test]
async fn every_example_applies_as_it_is() -> Result<()> {
    let scene = scene("examples").await?;
    define_rollouts(scene.cluster)?;
    let mut applied = 0;
    for file in examples()? {
        let name = file
            .file_name()
            .context("no name")?
            .to_string_lossy()
            .into_owned();
        let apply = || {
            let mut kubectl = scene.cluster.kubectl("admin");
            kubectl.args([
                "--as=carol",
                "--as-group=admins",
                "--as-group=devs",
                "--as-group=system:masters",
            ]);
            kubectl.args(["apply", "-n", scene.name(), "-f"]).arg(&file);
            kubectl.output()
        };
        let mut output = apply()?;
        if name.contains(CONTINUES) {
            // The request that it names is granted in a moment.
            output = eventually("what is continued to last", CONDITION_TIMEOUT, async || {
                let output = apply()?;
                Ok(output.status.success().then_some(output))
            })
            .await?;
        }
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
