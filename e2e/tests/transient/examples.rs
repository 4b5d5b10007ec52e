//! Every manifest in `examples/transient` is applied, with current instants, and has the effect that its header
//! describes.

use std::io::Write as _;

use anyhow::Result;
use kube::Api;
use oz_api::{Phase, TransientClusterRoleBinding};
use oz_e2e::{repository, run};

use crate::support::*;

#[tokio::test]
async fn every_example_applies_as_it_is() -> Result<()> {
    let fixture = Fixture::set("examples").await?;
    let mut applied = 0;
    for entry in std::fs::read_dir(repository().join("examples/transient"))? {
        // The user who applies the manifest chooses the instants: a window opens within days.
        let manifest = std::fs::read_to_string(entry?.path())?
            .replace("2099-01-31T09:00:00+01:00", &from_now(900))
            .replace("2099-01-31T10:00:00+01:00", &from_now(1800));
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(manifest.as_bytes())?;
        let mut kubectl = fixture.cluster.kubectl("lea");
        kubectl
            .args(["create", "-n", fixture.name(), "-f"])
            .arg(file.path());
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
