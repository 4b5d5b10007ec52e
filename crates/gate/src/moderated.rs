//! Moderated sessions: which sessions require moderators, and how each waits, is held, and continues.
//! `oz_gating::moderation` decides whether enough moderators watch, and how long a session waits for them.

use std::time::Duration;

use axum::http::StatusCode;
use oz_api::{ModerationConfig, Requester};
use oz_core::access::grant::Grant;
use oz_core::connect::Refusal;
use oz_core::gate::watchers;
use oz_gating::moderation::{self, Moderated, Phase};
use oz_gating::upgrade::Upgrade;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::answer::Refused;

/// The interval at which the client of a held or slowed session receives a sign of life: kubectl gives up after a
/// minute.
pub(crate) const ALIVE_EVERY: Duration = Duration::from_secs(15);

/// The moderation of one session.
#[derive(Debug)]
pub(crate) struct Moderation {
    pub(crate) config: ModerationConfig,
    /// The users who do not count as moderators: the user of the session and the requester of the access.
    whose: Vec<Requester>,
    asked: Instant,
    state: Mutex<Moderated>,
    /// The current viewers.
    viewers: watch::Sender<Vec<Requester>>,
}

/// The next step of a moderated session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The phase of the session has changed.
    Stands(Phase),
    /// The session has been held for a while.
    StillHeld,
}

impl Moderation {
    /// Creates the moderation of a session of this user.
    pub(crate) fn new(config: ModerationConfig, grant: &Grant, user: &Requester) -> Self {
        Self {
            config,
            whose: vec![user.clone(), grant.requester.clone()],
            asked: Instant::now(),
            state: Mutex::default(),
            viewers: watch::Sender::new(Vec::new()),
        }
    }

    /// Returns the phase at the last check.
    pub(crate) fn phase(&self) -> Phase {
        self.state.lock().phase()
    }

    /// Records that a viewer has begun to watch.
    pub(crate) fn came(&self, viewer: &Requester) {
        self.viewers
            .send_modify(|viewers| viewers.push(viewer.clone()));
    }

    /// Records that a viewer has left.
    pub(crate) fn left(&self, viewer: &Requester) {
        self.viewers.send_modify(|viewers| {
            if let Some(at) = viewers.iter().position(|one| one == viewer) {
                viewers.remove(at);
            }
        });
    }

    /// Waits for the next step.
    pub(crate) async fn turn(&self) -> Turn {
        let mut viewers = self.viewers.subscribe();
        let before = self.phase();
        let still_held = Instant::now() + ALIVE_EVERY;
        loop {
            let phase = {
                let watching = viewers.borrow_and_update();
                let whose: Vec<&Requester> = self.whose.iter().collect();
                let enough = moderation::is_enough(&self.config, &whose, watching.iter());
                let mut state = self.state.lock();
                state.look(self.asked.elapsed(), enough)
            };
            if phase != before {
                return Turn::Stands(phase);
            }
            let (until, held) = match phase {
                Phase::Waiting(until) => (Some(until), false),
                Phase::Paused(until) => (Some(until), true),
                Phase::Open | Phase::ViewerTimeout | Phase::ViewerReturnTimeout => (None, false),
            };
            let end = async {
                match until {
                    Some(until) => tokio::time::sleep_until(self.asked + until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The sender lives as long as this value.
                _ = viewers.changed() => {}
                () = end => {}
                () = tokio::time::sleep_until(still_held), if held => return Turn::StillHeld,
            }
        }
    }

    /// Waits until enough moderators watch.
    pub(crate) async fn opens(&self) -> Result<(), Refusal> {
        loop {
            match self.turn().await {
                Turn::Stands(Phase::Open) => return Ok(()),
                Turn::Stands(Phase::ViewerTimeout | Phase::ViewerReturnTimeout) => {
                    return Err(moderation::nobody_came(&self.config));
                }
                Turn::Stands(Phase::Waiting(_) | Phase::Paused(_)) | Turn::StillHeld => {}
            }
        }
    }
}

/// Returns the moderation that a session of this operation requires, if any. Logs require none: reading them changes
/// nothing.
///
/// # Errors
/// When the session requires moderators and its protocol cannot be shown to them.
pub(crate) fn needed(
    grant: &Grant,
    way: &str,
    asked: Option<&Upgrade>,
) -> Result<Option<ModerationConfig>, Refused> {
    let Some(config) = grant.sessions.moderation.as_ref() else {
        return Ok(None);
    };
    let refused = |why: &str| {
        let (template, who) = (&grant.template, watchers(config));
        let message = format!(
            "a session by template {template} opens once {who} (spec.accessConfig.moderation), and {why}"
        );
        Err(Refused::new(StatusCode::FORBIDDEN, "NotModerated", message))
    };
    match way {
        "exec" | "attach" if asked.is_some_and(Upgrade::is_recorded) => Ok(Some(config.clone())),
        "exec" | "attach" => refused(
            "moderation requires a WebSocket; use kubectl 1.30 or newer, or ozctl. If the session \
                was waiting before, no viewer arrived in time",
        ),
        "portforward" => refused("the data of a forwarded port cannot be watched"),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(user: &str, groups: &[&str]) -> Requester {
        Requester {
            user: user.to_owned(),
            uid: String::new(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
        }
    }

    fn moderation() -> Moderation {
        Moderation {
            config: ModerationConfig {
                viewers: 1,
                groups: vec!["security".to_owned()],
            },
            whose: vec![person("alice", &["security"])],
            asked: Instant::now(),
            state: Mutex::default(),
            viewers: watch::Sender::new(Vec::new()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn moderated_session_is_held_without_viewer_and_ends_after_timeout() {
        let moderation = moderation();
        moderation.came(&person("alice", &["security"]));
        let early = tokio::time::timeout(Duration::from_secs(60), moderation.opens()).await;
        assert!(early.is_err(), "it opened with its user alone");
        let bob = person("bob", &["security"]);
        moderation.came(&bob);
        assert_eq!(moderation.opens().await, Ok(()));
        moderation.left(&bob);
        let held = moderation.turn().await;
        assert!(matches!(held, Turn::Stands(Phase::Paused(_))), "{held:?}");
        assert_eq!(moderation.turn().await, Turn::StillHeld);
        moderation.came(&bob);
        assert_eq!(moderation.turn().await, Turn::Stands(Phase::Open));
        moderation.left(&bob);
        let began = Instant::now();
        let mut turns = 0;
        while moderation.turn().await != Turn::Stands(Phase::ViewerReturnTimeout) {
            turns += 1;
            assert!(turns < 10, "it is held for ever");
        }
        assert_eq!(began.elapsed(), oz_gating::moderation::HOLD);
    }

    #[tokio::test(start_paused = true)]
    async fn moderated_session_without_viewers_is_refused_at_timeout() {
        let moderation = moderation();
        let refused = moderation.opens().await.unwrap_err();
        assert_eq!(refused.reason, "NotModerated");
        assert_eq!(moderation.asked.elapsed(), oz_gating::moderation::WAIT);
    }
}
