//! `ozctl` into a real container when another user must approve: the command waits, and runs after the approval.

use std::process::{Command, Output};

use anyhow::{Result, ensure};
use oz_e2e::{Scene, System, approval_rule, approved_template};
use oz_testkit::{CONDITION_TIMEOUT, cargo_binary, eventually};

use crate::alone;

/// Runs ozctl as a user, off the threads that the operator's watchers share.
async fn ozctl(scene: &Scene, user: &str, words: &[&str]) -> Result<Output> {
    let mut command = Command::new(cargo_binary("ozctl")?);
    command
        .args(["-n", scene.name()])
        .args(words)
        .env("KUBECONFIG", scene.cluster.kubeconfig(user))
        .env("USER", user);
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn a_command_waits_for_who_has_to_agree_and_runs_when_they_have() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "agreed").await?;
    scene.people_may_look().await?;
    scene.may_approve("leads").await?;
    cluster.issue_kubeconfig("lead", &["leads", "interns"])?;
    let rules = vec![approval_rule("lead", &["lead"], &[], 1)];
    scene
        .template(&approved_template("asked", rules, "10m"))
        .await?;

    let words = ["exec", "template/asked", "--reason", "INC-42", "--", "id"];
    let alice = ozctl(&scene, "alice", &words);
    let lead = async {
        let name = eventually("the lead to see it", CONDITION_TIMEOUT, async || {
            let listed = ozctl(&scene, "lead", &["approvals"]).await?;
            let said = text(&listed.stdout);
            ensure!(listed.status.success(), "{}", text(&listed.stderr));
            let row = said.lines().find(|line| line.contains("INC-42"));
            let name = row.and_then(|row| row.split_whitespace().next());
            Ok(name.map(ToOwned::to_owned))
        })
        .await?;
        let approved = ozctl(&scene, "lead", &["approve", &name, "--reason", "seen"]).await?;
        ensure!(approved.status.success(), "{}", text(&approved.stderr));
        anyhow::Ok(())
    };
    let (ran, ()) = tokio::try_join!(alice, lead)?;
    let (said, aside) = (text(&ran.stdout), text(&ran.stderr));
    ensure!(ran.status.success(), "{aside}");
    ensure!(said.starts_with("uid="), "{said}{aside}");
    ensure!(aside.contains("waiting for lead: lead may"), "{aside}");
    Ok(())
}

#[tokio::test]
async fn command_ends_at_once_when_approver_denies() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "denied").await?;
    scene.people_may_look().await?;
    scene.may_approve("leads").await?;
    cluster.issue_kubeconfig("lead", &["leads", "interns"])?;
    let rules = vec![approval_rule("lead", &["lead"], &[], 1)];
    scene
        .template(&approved_template("asked", rules, "10m"))
        .await?;
    let words = ["exec", "template/asked", "--", "id"];
    let alice = ozctl(&scene, "alice", &words);
    let lead = async {
        let waiting = eventually("the lead to see it", CONDITION_TIMEOUT, async || {
            let listed = ozctl(&scene, "lead", &["approvals"]).await?;
            let said = text(&listed.stdout);
            let row = said.lines().nth(1);
            let name = row.and_then(|row| row.split_whitespace().next());
            Ok(name.map(ToOwned::to_owned))
        });
        let denied = ["deny", &waiting.await?, "--reason", "the freeze"];
        let denied = ozctl(&scene, "lead", &denied).await?;
        ensure!(denied.status.success(), "{}", text(&denied.stderr));
        anyhow::Ok(())
    };
    let (ran, ()) = tokio::try_join!(alice, lead)?;
    let aside = text(&ran.stderr);
    ensure!(!ran.status.success(), "{}", text(&ran.stdout));
    ensure!(aside.contains("lead denied it: the freeze"), "{aside}");
    Ok(())
}
