//! From the socket to the extension and back.
//!
//! `accept` knows TLS and connections, `router` knows HTTP, `reviewer` knows reviews;
//! tests enter at whichever level they are about.

pub(crate) mod accept;
pub(crate) mod budget;
pub(crate) mod capacity;
pub(crate) mod conversions;
mod converter;
pub(crate) mod pace;
pub(crate) mod paths;
pub(crate) mod peer;
pub(crate) mod reviewer;
pub(crate) mod router;

use std::time::Duration;

/// What the server puts up with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Reviews under way at once; one more waits for a third of the webhook's timeout, and is then
    /// answered with 429. The API server does not try it again. This and the limits of `bodies` and `objects` hold for
    /// the hooks that fail closed, and once more for those that fail open
    /// ([`FailurePolicy::Ignore`](crate::FailurePolicy::Ignore)): what these have no room for goes on
    /// without them, so nobody may fill it through others; and once more for conversions. Where handlers vouch for
    /// callers, those that are not proven share a quarter of it. 256 by default.
    pub concurrent_reviews: usize,
    /// Open connections of those who have asked for a hook by its whole path; beyond, each
    /// is closed when it has had its answer. Where handlers vouch for callers, those that are not
    /// proven have an eighth as many of their own. 1024 by default.
    pub connections: usize,
    /// Open connections of those who have not, yet. Whoever comes when all are taken gets the
    /// place of the one who has waited for longest, and nobody waits for longer than
    /// `handshake` and `receive` together. 256 by default.
    pub strangers: usize,
    /// The same of one address; 128 by default.
    pub strangers_per_peer: usize,
    /// The size of a body in bytes. What is larger is refused, and the API server then goes by
    /// the hook's failure policy: with [`FailurePolicy::Ignore`](crate::FailurePolicy::Ignore),
    /// large objects get around it. etcd stores 1.5 MiB, in which a `<` is one byte and
    /// six in a review, and an update carries two objects; 24 MiB by default.
    pub body: usize,
    /// The size of all bodies at once in bytes; one more waits for a third of the webhook's timeout,
    /// and is then answered with 429. 32 MiB by default, and never less than one body takes.
    pub bodies: usize,
    /// What the objects in these bodies may take at once when they are decoded, in bytes, as
    /// estimated; a review that takes more goes alone. 48 MiB by default.
    pub objects: usize,
    /// The size of the head of a request in bytes; 32 KiB by default.
    pub head: usize,
    /// How long a TLS handshake may take; 10 s by default.
    pub handshake: Duration,
    /// How long a head or a body may take to come in once it has begun; 10 s by default.
    pub receive: Duration,
    /// How long a connection may be open without a request. Longer than the 90 s after
    /// which the API server closes it itself, so that no request meets a closing
    /// connection; 150 s by default. Over HTTP/2 a peer is asked five times as often whether
    /// it is still there, and has `receive` to answer.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            concurrent_reviews: 256,
            connections: 1024,
            strangers: 256,
            strangers_per_peer: 128,
            body: 24 << 20,
            bodies: 32 << 20,
            objects: 48 << 20,
            head: 32 << 10,
            handshake: Duration::from_secs(10),
            receive: Duration::from_secs(10),
            idle: Duration::from_secs(150),
        }
    }
}
