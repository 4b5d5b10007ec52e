//! The peer token with which one replica of the gate authenticates to another. The API server connects to any replica,
//! but one replica carries a session. The token names the user that the first replica authenticated by the API server,
//! the exact request, and the time. It is valid for a short time, for requests about open sessions only; a replica does
//! not forward a request that it received with a peer token.
//! See docs/adr/0034-how-replicas-of-the-gate-ask-each-other.md.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use oz_api::Requester;
use oz_core::lifecycle::seal::{self, Keys, Purpose, SealError};
use serde::{Deserialize, Serialize};

use super::live;

/// The header with the peer token.
pub const HEADER: &str = "x-oz-gate-peer";

const PURPOSE: Purpose = Purpose::PeerToken;
/// The validity of a peer token, and the maximum difference between the clocks of two replicas.
const GOOD_FOR: SignedDuration = SignedDuration::from_secs(10);
/// The maximum length of a token that is read, in bytes: a user may be in many groups.
const MAX_LENGTH: usize = 48 << 10;

/// The content of a peer token: one replica sends a request to another for a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Word {
    /// The user's name.
    pub user: String,
    /// The identity provider's unique id, if it gave one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The user's groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The method of the request.
    pub method: String,
    /// The path and query of the request.
    pub target: String,
    /// The time at which the token was issued.
    pub at: Timestamp,
}

impl Word {
    /// Creates a token for a user and a request.
    #[must_use]
    pub fn new(user: &Requester, method: &str, target: &str, at: Timestamp) -> Self {
        Self {
            user: user.user.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            method: method.to_owned(),
            target: target.to_owned(),
            at,
        }
    }

    /// Seals the token in the form of the header.
    ///
    /// # Errors
    /// If the token cannot be serialised, which its types rule out.
    pub fn seal(&self, keys: &Keys) -> Result<String, SealError> {
        Ok(BASE64_URL_SAFE_NO_PAD.encode(seal::seal(keys, PURPOSE, self)?))
    }

    /// Returns the user of a request, if its token was sealed for exactly this request and is valid now.
    #[must_use]
    pub fn open(
        keys: &Keys,
        text: &str,
        method: &str,
        target: &str,
        now: Timestamp,
    ) -> Option<Requester> {
        if text.len() > MAX_LENGTH {
            return None;
        }
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        live::read(path)?;
        let sealed = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let word: Self = seal::open(keys, PURPOSE, &sealed).ok()?;
        let fresh = now.duration_since(word.at).abs() <= GOOD_FOR;
        let same = word.method == method && word.target == target;
        (fresh && same && !word.user.is_empty()).then_some(Requester {
            user: word.user,
            uid: word.uid,
            groups: word.groups,
        })
    }
}
