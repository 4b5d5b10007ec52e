//! The pauses of an open session: without enough moderators, no data passes, and its user is informed.

use std::future::pending;

use oz_core::connect::Refusal;
use oz_gating::moderation::{self, Phase};
use oz_trail::{Action, Decision, Record};

use crate::moderated::Turn;
use crate::session::Registered;

impl Registered {
    /// Pauses the session while too few moderators watch it; ready after the timeout of a pause.
    pub(crate) async fn pauses(&self) -> Refusal {
        let traffic = &self.live.traffic;
        let Some(moderation) = &self.live.data.moderation else {
            return pending().await;
        };
        loop {
            match moderation.turn().await {
                Turn::Stands(Phase::Open) => self.pause(false, moderation::RESUMED.to_owned()),
                Turn::Stands(Phase::Paused(_)) => {
                    self.pause(true, moderation::held(&moderation.config));
                    traffic.alive();
                }
                Turn::StillHeld => traffic.alive(),
                Turn::Stands(Phase::ViewerTimeout | Phase::ViewerReturnTimeout) => {
                    return moderation::nobody_came_back(&moderation.config);
                }
                Turn::Stands(Phase::Waiting(_)) => {}
            }
        }
    }

    /// Pauses or resumes the session, writes an audit record, and notifies its user.
    fn pause(&self, paused: bool, notice: String) {
        let (traffic, key) = (&self.live.traffic, self.key());
        traffic.hold(paused);
        self.live.data.idle.hold(paused);
        let (action, now) = (Action::SessionPaused, self.journal.now());
        let reason = if paused { "Paused" } else { "Resumed" };
        let message = format!("session {key} of {}: {notice}", self.user().user);
        let mut record = self.record(now, action, Decision::Note, reason, message);
        // There is one each time.
        record.id = Record::id(action, &format!("{key} {now} {reason}"));
        self.journal.trail.note(record);
        traffic.tell(notice);
    }
}
