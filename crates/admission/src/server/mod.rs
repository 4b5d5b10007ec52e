//! From the socket to the extension and back.
//!
//! `accept` knows TLS and connections, `router` knows HTTP, `reviewer` knows reviews;
//! tests enter at whichever level they are about.

pub(crate) mod accept;
pub(crate) mod health;
pub(crate) mod pace;
pub(crate) mod reviewer;
pub(crate) mod router;

use std::time::Duration;

/// What the server puts up with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Reviews under way at once; one more is answered with 429, which the API server tries
    /// again within the webhook's timeout. 256 by default.
    pub concurrent_reviews: usize,
    /// Open connections; further ones wait to be accepted. 1024 by default.
    pub connections: usize,
    /// The size of a body in bytes. The API server takes objects up to 3 MiB, and an
    /// update carries two of them; 8 MiB by default.
    pub body: usize,
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
            body: 8 << 20,
            head: 32 << 10,
            handshake: Duration::from_secs(10),
            receive: Duration::from_secs(10),
            idle: Duration::from_secs(150),
        }
    }
}
