//! The way from the socket to the extension and back.
//!
//! `accept` implements TLS and connections, `router` HTTP, and `reviewer` reviews; tests enter at the level
//! that they cover.

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

/// The limits of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The limit of concurrent reviews; a further one waits for a third of the webhook's timeout, and then
    /// gets 429. The API server does not retry it. This limit and those of `bodies` and `objects` apply to
    /// the hooks that fail closed, separately to those that fail open
    /// ([`FailurePolicy::Ignore`](crate::FailurePolicy::Ignore)), and separately to conversions. The API
    /// server processes requests without a hook that fails open if there is no capacity for it, so reviews
    /// of other hooks must not use this capacity. If handlers vouch for callers, unproven callers share a
    /// quarter of it. 256 by default.
    pub concurrent_reviews: usize,
    /// The limit of open connections from clients that have requested a hook by its whole path; beyond it,
    /// a connection is closed after its response. If handlers vouch for callers, unproven callers have a
    /// separate limit of an eighth. 1024 by default.
    pub connections: usize,
    /// The limit of open connections from clients that have not requested a hook yet. If all are taken, a
    /// new connection takes the slot of the one that has waited for longest, and no connection waits for
    /// longer than `handshake` and `receive` together. 256 by default.
    pub strangers: usize,
    /// The limit of such connections from one address; 128 by default.
    pub strangers_per_peer: usize,
    /// The maximum size of a body in bytes. A larger body is refused, and the API server then applies the
    /// hook's failure policy: with [`FailurePolicy::Ignore`](crate::FailurePolicy::Ignore), large objects
    /// bypass the hook. etcd stores 1.5 MiB, in which a `<` is one byte and six in a review, and an update
    /// carries two objects; 24 MiB by default.
    pub body: usize,
    /// The maximum size of all concurrent bodies in bytes; a further one waits for a third of the webhook's
    /// timeout, and then gets 429. 32 MiB by default, and never less than the size of one body.
    pub bodies: usize,
    /// The maximum estimated size of all decoded objects in these bodies, in bytes; a review that exceeds
    /// it runs alone. 48 MiB by default.
    pub objects: usize,
    /// The maximum size of the head of a request in bytes; 32 KiB by default.
    pub head: usize,
    /// The timeout of a TLS handshake; 10 s by default.
    pub handshake: Duration,
    /// The timeout for a head or a body once it has begun; 10 s by default.
    pub receive: Duration,
    /// The maximum time for which a connection is open without a request. It is longer than the 90 s after
    /// which the API server closes the connection itself, so that no request meets a closing connection;
    /// 150 s by default. Over HTTP/2, the server sends pings five times as often, and a peer has `receive`
    /// to respond.
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
