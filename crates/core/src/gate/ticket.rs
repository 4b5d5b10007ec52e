//! The word by which the connect hook knows whose session the gate opens. The gate acts as itself, and says the
//! ticket as something further that is known of it (`Impersonate-Extra-`); nobody else can seal one, and one that
//! somebody reads in an audit log is of no use soon.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use oz_api::Requester;
use serde::{Deserialize, Serialize};

use crate::access::grant::Grant;
use crate::lifecycle::seal::{self, Keys, Purpose, SealError};

/// The name under which the API server hands it on, in `userInfo.extra`.
pub const EXTRA: &str = "oz-ticket";

const PURPOSE: Purpose = Purpose::SessionToken;
/// How long it is good for, and how far the clocks of gate and webhook may be apart.
const GOOD_FOR: SignedDuration = SignedDuration::from_secs(20);
/// The longest that is read.
const MAX_LENGTH: usize = 8 << 10;

/// That the gate opens a session for somebody, by a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    /// UID of the request.
    pub request: String,
    /// Who passed the gate: the user's name.
    pub user: String,
    /// The identity provider's unique id, if it gave one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The container that is entered since it came by this grant, whatever containers the grant names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// When.
    pub at: Timestamp,
}

impl Ticket {
    /// One for a user and a grant.
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

    /// The same, for a container that came by the grant.
    #[must_use]
    pub fn to(self, container: Option<&str>) -> Self {
        let container = container.map(ToOwned::to_owned);
        Self { container, ..self }
    }

    /// As it is sent, in letters that a header may hold.
    ///
    /// # Errors
    /// Only if it does not serialise, which its types rule out.
    pub fn seal(&self, keys: &Keys) -> Result<String, SealError> {
        Ok(BASE64_URL_SAFE_NO_PAD.encode(seal::seal(keys, PURPOSE, self)?))
    }

    /// What was said to the API server, if it was sealed for now.
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

    /// The person, as far as it says.
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
    use crate::connect::tests::{at, grant, user};

    #[test]
    fn a_ticket_is_good_for_a_moment_and_only_if_we_sealed_it() {
        let keys = Keys::with_every_owner([[7; 32]]);
        let ticket = Ticket::new(&grant(), &user("alice", &["devs"]), at(10));
        let sealed = ticket.seal(&keys).unwrap();
        assert!(sealed.bytes().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(Ticket::open(&keys, &sealed, at(11)), Some(ticket));
        assert_eq!(Ticket::open(&keys, &sealed, at(31)), None);
        assert_eq!(Ticket::open(&keys, &sealed, at(-11)), None);
        let others = Keys::with_every_owner([[8; 32]]);
        assert_eq!(Ticket::open(&others, &sealed, at(11)), None);
        for text in ["", "e30", "!", &"A".repeat(9_000)] {
            assert_eq!(Ticket::open(&keys, text, at(11)), None);
        }
    }
}
