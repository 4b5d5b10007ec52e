//! Moderated sessions: they open with moderators, are held without them, and end.

use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use oz_api::{ExecAccessTemplate, ModerationConfig};
use oz_e2e::{Scene, exec_request, gate_template};
use oz_gating::live::State;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;

use crate::Whole;
use crate::live::{Running, listed, noted};
use crate::passing::said;

pub(crate) const MODERATED: &str = "moderated";

pub(crate) fn template(groups: &[&str]) -> ExecAccessTemplate {
    let mut template = gate_template();
    template.metadata.name = Some(MODERATED.to_owned());
    template.spec.access_config.moderation = Some(ModerationConfig {
        viewers: 1,
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
    });
    template
}

/// A program that is killed when this is dropped.
pub(crate) struct Program(Child);

impl Program {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn()?))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the one session of request `mine` has this state and this number of watchers.
pub(crate) async fn stands(scene: &Scene, user: &str, state: State, watchers: usize) -> Result<()> {
    eventually(
        &format!("a session that is {state}"),
        CONDITION_TIMEOUT,
        async || {
            let listing = listed(scene, user)?;
            let mut sessions = listing.sessions.iter();
            let found = sessions.any(|one| one.state == state && one.watchers.len() == watchers);
            ensure!(found, "{listing:?}");
            Ok(Some(()))
        },
    )
    .await
}

#[tokio::test]
async fn a_moderated_session_opens_when_watched_is_held_without_and_ends_a_minute_later()
-> Result<()> {
    let whole = Whole::start("moderated").await?;
    let (scene, gate) = (&whole.scene, &whole.gate);
    scene.may_moderate_sessions("moderators").await?;
    scene.may_moderate_sessions("devs").await?;
    let moderator = format!("{}-moderators", scene.name());
    // Alice is a member of the groups.
    scene.template(&template(&["moderators", "devs"])).await?;
    let alice = scene.requests("alice").await?;
    let granted = alice
        .granted(&exec_request("mine", MODERATED, "10m"))
        .await?;
    let message = granted.status().access_message.context("no message")?;
    ensure!(message.contains("ozctl sessions watch mine"), "{message}");
    let pod = granted.pod();
    eventually("alice to get in", CONDITION_TIMEOUT, async || {
        let output = scene
            .through_gate("alice", "mine", &["get", "pod", &pod])
            .output()?;
        Ok(output.status.success().then_some(()))
    })
    .await?;

    // The gate at once refuses a session that it cannot show to a moderator.
    let command = ["exec", &pod, "--", "true"];
    let mut old = scene.through_gate("alice", "mine", &command);
    let refused = old
        .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")
        .output()?;
    ensure!(
        !refused.status.success() && said(&refused).contains("moderation requires a WebSocket"),
        "{}",
        said(&refused)
    );

    let talks = "echo here; while true; do echo still; sleep 1; done";
    let command = ["exec", "-i", &pod, "--", "sh", "-c", talks];
    let command = scene.through_gate("alice", "mine", &command);
    let opening = tokio::task::spawn_blocking(move || Running::start(command, "here"));
    stands(scene, &moderator, State::Waiting, 0).await?;
    let watch = |user: &str| Program::start(scene.ozctl(user, &["sessions", "watch", "mine"])?);
    let alone = watch("alice")?;
    stands(scene, &moderator, State::Waiting, 1).await?;
    drop(alone);
    stands(scene, &moderator, State::Waiting, 0).await?;
    let watching = watch(&moderator)?;
    let alices = tokio::time::timeout(CONDITION_TIMEOUT, opening).await???;
    stands(scene, &moderator, State::Open, 1).await?;

    drop(watching);
    stands(scene, &moderator, State::Paused, 0).await?;
    let again = watch(&moderator)?;
    stands(scene, &moderator, State::Open, 1).await?;
    noted(gate, scene, Action::SessionPaused, &["Paused", "Resumed"]).await?;
    drop(again);
    let told = said(&alices.ended().await?);
    for words in [
        format!("oz: {moderator} watches this session"),
        "oz: this session is paused until a user of moderators, devs".to_owned(),
        "oz: this session continues".to_owned(),
        "that was not the case for 60 seconds".to_owned(),
    ] {
        ensure!(told.contains(&words), "{words}: {told}");
    }
    noted(gate, scene, Action::SessionTerminated, &["NotModerated"]).await?;
    let watched = noted(gate, scene, Action::SessionWatched, &["Began", "Ended"]).await?;
    let by_moderator = watched
        .iter()
        .filter(|one| one.user.as_ref().is_some_and(|user| user.user == moderator));
    assert_eq!(by_moderator.count(), 4, "{watched:?}");
    Ok(())
}

#[tokio::test]
async fn a_session_that_waits_can_be_ended_and_moderation_takes_a_gate() -> Result<()> {
    let whole = Whole::start("waiting").await?;
    let (scene, gate) = (&whole.scene, &whole.gate);
    scene.may_moderate_sessions("moderators").await?;
    let moderator = format!("{}-moderators", scene.name());
    let mut ungated = template(&["moderators"]);
    ungated.metadata.name = Some("ungated".to_owned());
    ungated.spec.access_config.sessions = oz_api::Sessions::Required;
    let refused = scene
        .template(&ungated)
        .await
        .err()
        .context("it was taken")?;
    ensure!(
        refused.to_string().contains("spec.accessConfig.moderation"),
        "{refused}"
    );
    scene.template(&template(&["moderators"])).await?;
    let alice = scene.requests("alice").await?;
    let pod = alice
        .granted(&exec_request("mine", MODERATED, "10m"))
        .await?
        .pod();
    eventually("alice to get in", CONDITION_TIMEOUT, async || {
        let output = scene
            .through_gate("alice", "mine", &["get", "pod", &pod])
            .output()?;
        Ok(output.status.success().then_some(()))
    })
    .await?;
    let mut command = scene.through_gate("alice", "mine", &["exec", &pod, "--", "true"]);
    let opening = tokio::task::spawn_blocking(move || command.output());
    stands(scene, &moderator, State::Waiting, 0).await?;
    let ended = scene
        .ozctl(&moderator, &["sessions", "end", "mine"])?
        .output()?;
    ensure!(ended.status.success(), "{}", said(&ended));
    let refused = tokio::time::timeout(CONDITION_TIMEOUT, opening).await???;
    ensure!(!refused.status.success(), "{}", said(&refused));
    let cut = noted(gate, scene, Action::SessionTerminated, &["EndedByUser"]).await?;
    assert_eq!(cut[0].details.get("endedBy"), Some(&moderator));
    Ok(())
}
