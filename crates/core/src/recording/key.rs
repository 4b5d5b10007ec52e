//! Where a recording is: `NAMESPACE/REQUEST/SESSION`, and below it its parts.

use std::fmt;

use jiff::Timestamp;

use crate::validate::dns_subdomain;

/// How the names of parts end: asciicast, by zstd.
const SUFFIX: &str = ".cast.zst";
/// What follows where they are encrypted (age).
const ENCRYPTED: &str = ".age";

/// One session of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The namespace of the request.
    pub namespace: String,
    /// The name of the request.
    pub request: String,
    /// The session: when it was opened, by which replica, and its number there. Sorts by time.
    pub session: String,
}

impl SessionKey {
    /// The session that `replica` opened at `at` as its `number`th.
    #[must_use]
    pub fn new(namespace: &str, request: &str, at: Timestamp, replica: &str, number: u64) -> Self {
        let at = at.strftime("%Y%m%dt%H%M%S%3fz");
        let plain = |letter: char| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        };
        let replica: String = replica.to_ascii_lowercase().chars().map(plain).collect();
        Self {
            namespace: namespace.to_owned(),
            request: request.to_owned(),
            session: format!("{at}-{replica}-{number}"),
        }
    }

    /// Reads what [`fmt::Display`] writes; `None` for anything else.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let [namespace, request, session] = parts.as_slice() else {
            return None;
        };
        let all = [namespace, request, session];
        all.iter()
            .all(|one| dns_subdomain(one).is_ok())
            .then(|| Self {
                namespace: (*namespace).to_owned(),
                request: (*request).to_owned(),
                session: (*session).to_owned(),
            })
    }

    /// The name of its part with this number, from 0.
    #[must_use]
    pub fn part(&self, number: u32, encrypted: bool) -> String {
        let ending = if encrypted { ENCRYPTED } else { "" };
        format!("{self}/{number:06}{SUFFIX}{ending}")
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            request,
            session,
        } = self;
        write!(formatter, "{namespace}/{request}/{session}")
    }
}

/// A part, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartName {
    /// Its session.
    pub session: SessionKey,
    /// Its number, from 0.
    pub number: u32,
    /// Whether it is encrypted.
    pub encrypted: bool,
}

impl PartName {
    /// Reads what [`SessionKey::part`] writes; `None` for anything else.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (session, name) = text.rsplit_once('/')?;
        let (name, encrypted) = match name.strip_suffix(ENCRYPTED) {
            Some(name) => (name, true),
            None => (name, false),
        };
        let session = SessionKey::read(session)?;
        let number = name.strip_suffix(SUFFIX)?.parse().ok()?;
        let part = Self {
            session,
            number,
            encrypted,
        };
        (part.session.part(number, encrypted) == text).then_some(part)
    }
}
