//! Access on a real node: the users with a working exec, the users without, and the expiry.
//!
//! This oz does not end sessions (`sessions.rs` has one that does): a session that is open when the grant ends
//! continues,
//! since Kubernetes checks the permission when the session opens and never again. The test prints its observation on
//! standard error, and asserts nothing about it.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use anyhow::{Context, Result};
use jiff::Timestamp;
use oz_api::Phase;
use oz_e2e::{Scene, System, TEMPLATE, exec_request};
use oz_testkit::{CONDITION_TIMEOUT, eventually};

use crate::alone;
use crate::exec::exec;

#[tokio::test]
async fn a_grant_opens_the_container_for_one_until_its_end() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "story").await?;
    let alice = scene.requests("alice").await?;
    let granted = alice
        .granted(&exec_request("debug", TEMPLATE, "20s"))
        .await?;
    let pod = granted.pod();
    let until = granted.status().expires_at.context("no end")?;
    let hostname =
        |user: &str| exec(cluster, user, scene.name(), &[&pod, "--", "hostname"]).output();

    let mut open = exec(
        cluster,
        "alice",
        scene.name(),
        &["-i", &pod, "--", "sh", "-c", "echo open; cat"],
    )
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .spawn()?;
    let mut said = BufReader::new(open.stdout.take().context("no standard output")?);
    let mut line = String::new();
    said.read_line(&mut line)?;
    assert_eq!(line, "open\n");
    let by_alice = hostname("alice")?;
    assert_eq!(String::from_utf8(by_alice.stdout)?, format!("{pod}\n"));
    assert!(by_alice.status.success());
    let by_bob = hostname("bob")?;
    assert!(!by_bob.status.success());
    let refusal = String::from_utf8(by_bob.stderr)?;
    assert!(refusal.contains("Forbidden"), "{refusal}");

    alice.phase("debug", Phase::Expired).await?;
    assert!(Timestamp::now() >= until);
    let refusal = eventually(
        "alice's next exec to be refused",
        CONDITION_TIMEOUT,
        async || {
            let next = hostname("alice")?;
            Ok((!next.status.success()).then_some(String::from_utf8(next.stderr)?))
        },
    )
    .await?;
    assert!(refusal.contains("Forbidden"), "{refusal}");

    let survived = open.try_wait()?.is_none();
    writeln!(
        std::io::stderr(),
        "a session open at the end of its grant survived: {survived}"
    )?;
    drop(open.stdin.take());
    open.wait()?;
    Ok(())
}
