//! The word by which one replica of the gate believes another: the API server reaches any of them, and a session is in
//! one. It says for whom the API server's word was believed, for exactly which request, and when. It is good for what
//! is asked about open sessions, and for a moment; what came by it is not passed on once more.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use oz_api::Requester;
use oz_core::lifecycle::seal::{self, Keys, Purpose, SealError};
use serde::{Deserialize, Serialize};

use super::live;

/// The header that carries it.
pub const HEADER: &str = "x-oz-gate-peer";

const PURPOSE: Purpose = Purpose::PeerToken;
/// How long it is good for, and how far the clocks of two replicas may be apart.
const GOOD_FOR: SignedDuration = SignedDuration::from_secs(10);
/// The longest that is read: a user may be in many groups.
const MAX_LENGTH: usize = 48 << 10;

/// That a replica asks another for somebody.
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
    /// Its path and query.
    pub target: String,
    /// When.
    pub at: Timestamp,
}

impl Word {
    /// One for a user and a request.
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

    /// As it is sent.
    ///
    /// # Errors
    /// Only if it does not serialise, which its types rule out.
    pub fn seal(&self, keys: &Keys) -> Result<String, SealError> {
        Ok(BASE64_URL_SAFE_NO_PAD.encode(seal::seal(keys, PURPOSE, self)?))
    }

    /// For whom a request is, if the word that came with it was sealed for this very request, and for now.
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
        let path = target.split('?').next().unwrap_or_default();
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
