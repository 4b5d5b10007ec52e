//! The requests that had one name, one after the other, as messages list them.

use std::fmt;

use oz_gating::recording::SessionKey;

/// The maximum number of requests in a message.
const NAMED: usize = 5;

/// A request that a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRequest {
    /// The UID of the request.
    pub uid: String,
    /// The last session of the request, if one is known.
    pub last: Option<SessionKey>,
}

impl fmt::Display for NamedRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, last } = self;
        match last {
            Some(key) => write!(formatter, "UID {uid} (last session {})", key.session),
            None => write!(formatter, "UID {uid} (no session)"),
        }
    }
}

/// Lists requests, at most [`NAMED`] of them.
pub(super) fn list(requests: &[NamedRequest]) -> String {
    let named = requests.iter().take(NAMED).map(NamedRequest::to_string);
    let named: Vec<String> = named.collect();
    match requests.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}
