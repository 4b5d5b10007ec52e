//! The session token, in which the connect hook reads the user of a session that the gate opens. The gate
//! acts with its own account, and sends the session token as extra user information (`Impersonate-Extra-`);
//! only the gate can seal one, and one that is read from an audit log expires soon.
//! See docs/adr/0032-session-tokens-identify-the-user.md.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use oz_api::Requester;
use serde::{Deserialize, Serialize};

use crate::access::grant::Grant;
use crate::lifecycle::seal::{self, Keys, Purpose, SealError};

const PURPOSE: Purpose = Purpose::SessionToken;
/// The validity of a session token, and the maximum difference between the clocks of gate and webhook.
const GOOD_FOR: SignedDuration = SignedDuration::from_secs(20);
/// The maximum length of a session token.
const MAX_LENGTH: usize = 8 << 10;

/// The statement that the gate opens a session for a user, by a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    /// UID of the request.
    pub request: String,
    /// Name of the user who connected through the gate.
    pub user: String,
    /// The unique id from the identity provider, if it issued one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The container to which the user connects because it was added by this grant, regardless of the grant's
    /// containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The time of issue.
    pub at: Timestamp,
}

impl Ticket {
    /// Creates a session token for a user and a grant.
    #[must_use]
    pub fn new(grant: &Grant, user: &Requester, at: Timestamp) -> Self {
        Self {
            request: grant.request.uid.clone(),
            user: user.user.clone(),
            uid: user.uid.clone(),
            container: None,
            at,
        }
    }

    /// Restricts the token to a container that was added by the grant.
    #[must_use]
    pub fn to(self, container: Option<&str>) -> Self {
        let container = container.map(ToOwned::to_owned);
        Self { container, ..self }
    }

    /// Seals the token, in letters that a header may hold.
    ///
    /// # Errors
    /// Only if it does not serialise, which its types rule out.
    pub fn seal(&self, keys: &Keys) -> Result<String, SealError> {
        Ok(BASE64_URL_SAFE_NO_PAD.encode(seal::seal(keys, PURPOSE, self)?))
    }

    /// Opens a token that was sent to the API server, if it is valid now.
    #[must_use]
    pub fn open(keys: &Keys, text: &str, now: Timestamp) -> Option<Self> {
        if text.len() > MAX_LENGTH {
            return None;
        }
        let sealed = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let ticket: Self = seal::open(keys, PURPOSE, &sealed).ok()?;
        let age = now.duration_since(ticket.at);
        (age.abs() <= GOOD_FOR).then_some(ticket)
    }

    /// Returns the person, as far as the token contains them.
    #[must_use]
    pub fn person(&self) -> Requester {
        Requester {
            user: self.user.clone(),
            uid: self.uid.clone(),
            groups: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::tests::{grant, timestamp, user};

    #[test]
    fn a_ticket_is_good_for_a_moment_and_only_if_we_sealed_it() {
        let keys = Keys::with_every_owner([[7; 32]]);
        let ticket = Ticket::new(&grant(), &user("alice", &["devs"]), timestamp(10));
        let sealed = ticket.seal(&keys).unwrap();
        assert!(sealed.bytes().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(Ticket::open(&keys, &sealed, timestamp(11)), Some(ticket));
        assert_eq!(Ticket::open(&keys, &sealed, timestamp(31)), None);
        assert_eq!(Ticket::open(&keys, &sealed, timestamp(-11)), None);
        let others = Keys::with_every_owner([[8; 32]]);
        assert_eq!(Ticket::open(&others, &sealed, timestamp(11)), None);
        for text in ["", "e30", "!", &"A".repeat(9_000)] {
            assert_eq!(Ticket::open(&keys, text, timestamp(11)), None);
        }
    }
}
