//! Change tickets: the configured checks ([`Checks`]), the last response of a server about a ticket ([`Said`]), and the
//! effect that queries a server ([`Ask`]). The operator implements the query.

mod checks;
mod secret;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::controller::{Effect, Failure, Step};

pub use checks::{Check, Checks, FailurePolicy};
pub use secret::{CheckError, CheckSecret};

/// Name of the port.
pub const PORT: &str = "tickets";

/// The response of a server about a change ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The ticket permits access.
    Accepted,
    /// The ticket does not permit access, for this reason.
    Refused(String),
    /// The server did not respond, for this reason. The ticket is neither accepted nor refused.
    Away(String),
}

/// The last response of the server of one check about a change ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The time of the query.
    pub asked_at: Timestamp,
    /// The response.
    pub answer: Answer,
    /// The time since which the server has not responded about this ticket, if the last response is missing.
    pub away_since: Option<Timestamp>,
}

/// The settings of a check that a decision requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckTerms {
    /// The failure policy of the check.
    pub failure_policy: FailurePolicy,
    /// The interval between two queries while access lasts.
    pub interval: SignedDuration,
    /// The timeout of the server.
    pub timeout: SignedDuration,
}

impl CheckTerms {
    /// The terms of a check that is no longer configured, so that no server can be queried.
    pub const UNKNOWN: Self = Self {
        failure_policy: FailurePolicy::Fail,
        interval: SignedDuration::from_secs(60),
        timeout: SignedDuration::from_secs(3),
    };
}

/// The data about one change ticket.
#[derive(Clone, Debug, Default)]
pub struct Tickets {
    /// The configured checks; `None` if they are unknown.
    pub checks: Option<Arc<BTreeMap<String, CheckTerms>>>,
    /// The last response about the ticket, by check.
    pub said: BTreeMap<String, Said>,
}

/// The effect that queries a server about a change ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ask {
    /// Name of the check.
    pub check: String,
    /// The change ticket.
    pub ticket: String,
    /// UID of the request that is reconciled after the response.
    pub request: String,
    /// Whether the request waits for the response, accepted or not.
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
