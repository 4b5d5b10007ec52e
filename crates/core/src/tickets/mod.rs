//! Tickets, as the operator asks for them and controllers see the answers: the checks that are configured
//! ([`Checks`]), what a server said of a ticket ([`Said`]), and the port that asks ([`Ask`]). How that is done
//! is the operator's business.

mod checks;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::controller::{Effect, Failure, Step};

pub use checks::{Check, CheckError, Checks, WhenAway};

/// Name of the port.
pub const PORT: &str = "tickets";

/// What a server said of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is one that lets somebody in.
    Accepted,
    /// It is none, for this reason.
    Refused(String),
    /// The server did not say, for this reason: that is neither.
    Away(String),
}

/// What was said last of a ticket, by the server of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// When it was asked.
    pub asked_at: Timestamp,
    /// What came of it.
    pub answer: Answer,
    /// Since when the server has not answered about this ticket, if the last answer was none.
    pub away_since: Option<Timestamp>,
}

/// What a decision needs to know of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckTerms {
    /// What holds while its server does not answer.
    pub when_away: WhenAway,
    /// How often its server is asked while access lasts.
    pub every: SignedDuration,
    /// How long its server has to answer.
    pub timeout: SignedDuration,
}

impl CheckTerms {
    /// Those of a check that is not configured any more: nobody can be asked.
    pub const UNKNOWN: Self = Self {
        when_away: WhenAway::Refuse,
        every: SignedDuration::from_secs(60),
        timeout: SignedDuration::from_secs(3),
    };
}

/// What is known of one ticket.
#[derive(Clone, Debug, Default)]
pub struct Tickets {
    /// The checks that are configured; `None` where that is not known.
    pub checks: Option<Arc<BTreeMap<String, CheckTerms>>>,
    /// What was said of the ticket, by check.
    pub said: BTreeMap<String, Said>,
}

/// That a ticket is to be asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ask {
    /// By which check.
    pub check: String,
    /// The ticket.
    pub ticket: String,
    /// UID of the request that is looked at again when the answer is there.
    pub request: String,
    /// Whether it waits for the answer, whatever that is.
    pub waits: bool,
}

impl From<Ask> for Step {
    fn from(ask: Ask) -> Self {
        Self::Effect(Effect {
            port: PORT.to_owned(),
            key: format!("{}/{}", ask.check, ask.request),
            // Strings: they always serialise. Nothing in their place fails at the port.
            payload: serde_json::to_value(ask).unwrap_or_default(),
        })
    }
}

impl TryFrom<&Effect> for Ask {
    type Error = Failure;

    fn try_from(effect: &Effect) -> Result<Self, Failure> {
        Self::deserialize(&effect.payload).map_err(|error| {
            let key = &effect.key;
            let message = format!("failed to read the effect {key} of the port {PORT}: {error}");
            Failure::invalid("InvalidEffect", message)
        })
    }
}
