//! The events for the change from one status to the next, of any object that is granted and ends: a change of
//! phase, or a new obstacle.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::{Phase, conditions};

use crate::controller::Transition;

/// The name of an event: its reason, and its action.
type Name = (&'static str, &'static str);

/// The names of the events about a kind.
pub(crate) struct Names {
    pub(crate) active: Name,
    pub(crate) expired: Name,
    pub(crate) revoked: Name,
    pub(crate) denied: Name,
    pub(crate) failed: Name,
    pub(crate) waiting: Name,
    /// Whether the event for the active phase is a warning.
    pub(crate) loud: bool,
}

/// A change of status.
pub(crate) struct Change<'a> {
    pub(crate) names: &'a Names,
    /// The phase before, and after.
    pub(crate) phase: (Phase, Phase),
    /// The note for a change of phase, if there is anything to say.
    pub(crate) note: Option<String>,
    /// The instant at which the new phase was due.
    pub(crate) due: Option<Timestamp>,
    /// An additional event with a change of phase, for users who examine the history and not the current
    /// state.
    pub(crate) besides: Option<Transition>,
    /// The conditions before.
    pub(crate) before: &'a [Condition],
    /// The conditions after, which are obstacles if they do not hold.
    pub(crate) needed: Vec<&'a Condition>,
}

impl Change<'_> {
    /// Returns the events.
    pub(crate) fn events(self) -> Vec<Transition> {
        let names = self.names;
        let (warning, name) = match self.phase {
            (was, phase) if was == phase || was.is_granted() && phase.is_granted() => {
                return self.obstacles();
            }
            (_, Phase::Pending) => return self.besides.into_iter().collect(),
            (_, Phase::Starting | Phase::Active) => (names.loud, names.active),
            (_, Phase::Expired) => (false, names.expired),
            (_, Phase::Revoked) => (true, names.revoked),
            (_, Phase::Denied) => (true, names.denied),
            (_, Phase::Failed) => (true, names.failed),
        };
        let change = Transition {
            due: self.due,
            ..event(warning, name, self.note.unwrap_or_default())
        };
        [change].into_iter().chain(self.besides).collect()
    }

    fn obstacles(self) -> Vec<Transition> {
        let stands = |now: &&Condition| {
            let then = conditions::find(self.before, &now.type_);
            let known = then.filter(|then| then.status == "False" && then.reason == now.reason);
            now.status == "False" && known.is_none()
        };
        let news = self.needed.iter().copied().filter(stands);
        news.map(|now| {
            let note = format!("{}: {}", now.reason, now.message);
            event(true, self.names.waiting, note)
        })
        .collect()
    }
}

/// Creates an event that was due at no instant.
pub(crate) fn event(warning: bool, (reason, action): Name, note: String) -> Transition {
    Transition {
        warning,
        reason,
        action,
        note,
        due: None,
    }
}
