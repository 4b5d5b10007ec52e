//! `ozctl bind`, as a user at a terminal.

use std::process::Output;

use anyhow::Result;
use oz_api::Phase;
use oz_testkit::cargo_binary;

use crate::support::*;

fn ozctl(fixture: &Fixture, user: &str, words: &[&str]) -> Result<Output> {
    let mut command = std::process::Command::new(cargo_binary("ozctl")?);
    command
        .args(words)
        .args(["-n", fixture.name(), "--kubeconfig"])
        .arg(fixture.cluster.kubeconfig(user))
        .env("NO_COLOR", "1");
    Ok(command.output()?)
}

#[tokio::test]
async fn a_role_is_bound_by_one_line_and_listed() -> Result<()> {
    let fixture = Fixture::set("ozctl").await?;
    let line = [
        "bind", "view", "--user", "alison", "--for", "10m", "--reason", "INC-7", "-N", "lea",
        "--wait", "2m",
    ];
    let done = ozctl(&fixture, "lea", &line)?;
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{done:?}");
    assert!(
        told.starts_with("ClusterRole view is bound until "),
        "{told}"
    );
    let all = fixture
        .bindings()
        .list(&kube::api::ListParams::default())
        .await?;
    let [object] = &all.items[..] else {
        anyhow::bail!("{} objects", all.items.len());
    };
    assert_eq!(object.spec.reason.as_deref(), Some("INC-7"));
    let status = object.status.clone().unwrap_or_default();
    assert_eq!(status.phase, Phase::Active);
    assert!(fixture.alice_may()?);

    let listed = ozctl(&fixture, "lea", &["get", "trb", "-o", "wide"])?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for word in ["TransientRoleBinding", "true", "Active", "view"] {
        assert!(listed.contains(word), "{word}: {listed}");
    }

    let name = object.metadata.name.clone().unwrap_or_default();
    let explained = ozctl(&fixture, "admin", &["explain", &format!("trb/{name}")])?;
    let told = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.status.success(), "{explained:?}");
    for words in [
        "asked by   lea",
        "subject    User alison",
        "Status: Active",
        "yes window: it is open until",
        "yes requester: lea may bind ClusterRole view",
        "create RoleBinding",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }

    let refused = ozctl(&fixture, "ina", &line)?;
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    assert!(told.contains("may not bind ClusterRole view"), "{told}");
    Ok(())
}
