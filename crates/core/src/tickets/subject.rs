//! The subjects of checks: a change ticket, or the requester in an on-call check.

use oz_api::Requester;
use serde::{Deserialize, Serialize};

/// The subject of a query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Subject {
    /// A change ticket, by its name.
    Ticket(String),
    /// The requester of an on-call check.
    Requester(Person),
}

/// The requester of an on-call check, by the values that the check can use.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Person {
    /// User name.
    pub user: String,
    /// Unique ID from the identity provider; empty if it provides none.
    pub uid: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// The group for which the check is asked, if it is asked for one.
    pub group: Option<String>,
}

/// The reason why a server cannot be asked about a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// The check is an on-call check.
    #[error("the check is an on-call check, and cannot be asked about a change ticket")]
    OnCall,
    /// The check is a ticket check.
    #[error("the check is a ticket check, and cannot be asked about a requester")]
    Ticket,
    /// A value is missing, or would name another path of the server.
    #[error(
        "the URL of the check requires {0}, and the request has no value for it that a URL can contain"
    )]
    Value(&'static str),
}

impl Person {
    /// Returns the subject of an on-call check for this group.
    #[must_use]
    pub fn new(requester: &Requester, group: Option<&str>) -> Self {
        Self {
            user: requester.user.clone(),
            uid: requester.uid.clone(),
            groups: requester.groups.clone(),
            group: group.map(ToOwned::to_owned),
        }
    }
}

impl Subject {
    /// Checks whether the subject is a change ticket.
    #[must_use]
    pub const fn is_ticket(&self) -> bool {
        matches!(self, Self::Ticket(_))
    }
}
