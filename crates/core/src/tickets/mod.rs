//! Change tickets and on-call checks: the configured checks ([`Checks`]), the last response of a server about a
//! [`Subject`] ([`Said`]), and the effect that queries a server ([`Ask`]). The operator implements the query.

mod checks;
mod secret;
mod subject;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::controller::{Effect, Failure, Step};

pub use checks::{Check, Checks, FailurePolicy};
pub use secret::{CheckError, CheckSecret};
pub use subject::{Person, Subject, SubjectError};

/// Name of the port.
pub const PORT: &str = "tickets";

/// The response of a server about a change ticket, or about a requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The ticket permits access; the requester is on call.
    Accepted,
    /// The ticket does not permit access, or the requester is not on call, for this reason.
    Refused(String),
    /// The server did not respond, for this reason. The subject is neither accepted nor refused.
    Away(String),
}

/// The last response of the server of one check about a change ticket, or about a requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The time of the query.
    pub asked_at: Timestamp,
    /// The response.
    pub answer: Answer,
    /// The time since which the server has not responded about this subject, if the last response is missing.
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

/// The data about the change ticket and the requester of one request.
#[derive(Clone, Debug, Default)]
pub struct Tickets {
    /// The configured checks; `None` if they are unknown.
    pub checks: Option<Arc<BTreeMap<String, CheckTerms>>>,
    /// The last response about the ticket, by check.
    pub said: BTreeMap<String, Said>,
    /// The last response about users with the name of the requester, by user and check. A response counts only for
    /// exactly the user in its query.
    pub on_call: BTreeMap<Person, BTreeMap<String, Said>>,
}

/// The effect that queries a server about a subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ask {
    /// Name of the check.
    pub check: String,
    /// The change ticket or the requester.
    pub subject: Subject,
    /// UID of the request that is reconciled after the response.
    pub request: String,
    /// Name of the user who requests access. The query counts for this user.
    pub user: String,
    /// Whether the request waits for the response, accepted or not.
    pub waits: bool,
}

impl From<Ask> for Step {
    fn from(ask: Ask) -> Self {
        let mut key = format!("{}/{}", ask.check, ask.request);
        // One check can be asked for several groups.
        if let Subject::Requester(Person {
            group: Some(group), ..
        }) = &ask.subject
        {
            key = format!("{key}/{group}");
        }
        Self::Effect(Effect {
            port: PORT.to_owned(),
            key,
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
