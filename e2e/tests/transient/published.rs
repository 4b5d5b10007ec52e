//! The published kinds: their samples apply as they are, and the same plan serves them.

use std::path::Path;

use anyhow::Result;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::Api;
use oz_api::{Phase, example_com};
use oz_e2e::run;
use serde_json::Value;

use crate::support::*;

const SAMPLES: [&str; 2] = [
    "transient-rolebinding-example.yaml",
    "transient-clusterrolebinding-example.yaml",
];

fn sample(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/transient/published")
        .join(file)
}

fn kubectl_apply(fixture: &Fixture, file: &Path) -> Result<String> {
    let mut kubectl = fixture.cluster.kubectl("admin");
    kubectl
        .args(["apply", "-n", fixture.name(), "-f"])
        .arg(file);
    run(kubectl)
}

#[tokio::test]
async fn the_published_samples_apply_as_they_are() -> Result<()> {
    let fixture = Fixture::set("published").await?;
    for file in SAMPLES {
        kubectl_apply(&fixture, &sample(file))?;
    }
    let roles = Api::<example_com::RoleBinding>::namespaced(fixture.admin.clone(), fixture.name());
    let clusters = Api::<example_com::ClusterRoleBinding>::all(fixture.admin.clone());
    // The samples have instants of 2022.
    phase_of(&roles, "test1", Phase::Expired).await?;
    let status = phase_of(&clusters, "test2", Phase::Expired).await?;
    assert_eq!(condition(&status, "effective"), "False (NeverActive)");
    // A second application changes nothing.
    for file in SAMPLES {
        assert!(kubectl_apply(&fixture, &sample(file))?.contains("unchanged"));
    }
    Ok(())
}

#[tokio::test]
async fn a_sample_with_a_window_of_now_is_bound_until_it_is_over() -> Result<()> {
    let fixture = Fixture::set("generated").await?;
    for (file, name) in [(SAMPLES[0], "now1"), (SAMPLES[1], "now2")] {
        // The published script has a window from ten seconds ago, for six minutes; here it is shorter.
        let text = std::fs::read_to_string(sample(file))?;
        let mut object: Value = serde_saphyr::from_str(&text)?;
        object["metadata"]["name"] = name.into();
        object["validFrom"] = from_now(-10).into();
        object["validUntil"] = from_now(20).into();
        let path = fixture.cluster.state_dir().join(format!("{name}.json"));
        std::fs::write(&path, object.to_string())?;
        kubectl_apply(&fixture, &path)?;
    }
    let roles = Api::<example_com::RoleBinding>::namespaced(fixture.admin.clone(), fixture.name());
    let clusters = Api::<example_com::ClusterRoleBinding>::all(fixture.admin.clone());
    let made = Api::<RoleBinding>::namespaced(fixture.admin.clone(), fixture.name());
    let made_for_all = Api::<ClusterRoleBinding>::all(fixture.admin.clone());
    let status = phase_of(&roles, "now1", Phase::Active).await?;
    assert_eq!(condition(&status, "effective"), "True (Active)");
    assert_eq!(made.get("now1").await?.role_ref.name, "view");
    phase_of(&clusters, "now2", Phase::Active).await?;
    assert_eq!(made_for_all.get("now2").await?.role_ref.name, "view");
    phase_of(&roles, "now1", Phase::Expired).await?;
    phase_of(&clusters, "now2", Phase::Expired).await?;
    assert!(made.get_opt("now1").await?.is_none());
    assert!(made_for_all.get_opt("now2").await?.is_none());
    Ok(())
}
