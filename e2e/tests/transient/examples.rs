//! Every manifest in `examples/transient` is applied, and does what its header says.

use anyhow::Result;
use kube::Api;
use oz_core::api::{Phase, TransientClusterRoleBinding};
use oz_e2e::{repository, run};

use crate::support::*;

#[tokio::test]
async fn every_example_applies_as_it_is() -> Result<()> {
    let place = Place::set("examples").await?;
    let mut applied = 0;
    for entry in std::fs::read_dir(repository().join("examples/transient"))? {
        let mut kubectl = place.cluster.kubectl("lea");
        kubectl
            .args(["create", "-n", place.name(), "-f"])
            .arg(entry?.path());
        run(kubectl)?;
        applied += 1;
    }
    assert_eq!(applied, 3);
    place.phase("shift", Phase::Pending).await?;
    place.phase("incident", Phase::Active).await?;
    let all = Api::<TransientClusterRoleBinding>::all(place.lead.clone());
    phase_of(&all, "audit", Phase::Active).await?;
    Ok(())
}
