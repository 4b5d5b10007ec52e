//! Every manifest in `examples/transient` is applied, and does what its header says.

use anyhow::Result;
use kube::Api;
use oz_core::api::{Phase, TransientClusterRoleBinding};
use oz_e2e::{repository, run};

use crate::support::*;

#[tokio::test]
async fn every_example_applies_as_it_is() -> Result<()> {
    let fixture = Fixture::set("examples").await?;
    let mut applied = 0;
    for entry in std::fs::read_dir(repository().join("examples/transient"))? {
        let mut kubectl = fixture.cluster.kubectl("lea");
        kubectl
            .args(["create", "-n", fixture.name(), "-f"])
            .arg(entry?.path());
        run(kubectl)?;
        applied += 1;
    }
    assert_eq!(applied, 3);
    fixture.phase("shift", Phase::Pending).await?;
    fixture.phase("incident", Phase::Active).await?;
    let all = Api::<TransientClusterRoleBinding>::all(fixture.lead.clone());
    phase_of(&all, "audit", Phase::Active).await?;
    Ok(())
}
