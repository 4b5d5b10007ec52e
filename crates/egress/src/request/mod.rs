//! The decision about one request, after hyper parsed its head: [`route`], then [`decide`], then, with the credential
//! that the broker lent, [`forward`]; and [`response`] for the response.
//!
//! The rules, in the order in which they apply:
//!
//! 1. A request that two servers could understand differently is refused (`framing`).
//! 2. The host of the request is the host of the connection (`route`).
//! 3. A policy grants the host and the port.
//! 4. A placeholder is in the place that the policy names, once, over TLS, at a host of its credential.
//! 5. A request to a host that has a credential carries no other value in a place where credentials are sent
//!    (`places`): with an attacker's own key it would carry the workspace to the attacker's account.
//! 6. With an injected credential, headers that change what the credential is used for are removed (F-21).
//!
//! A key in a path or a body is not recognized.

mod decide;
mod forward;
mod framing;
mod places;
mod route;

use http::StatusCode;
use oz_api::harness::wire::EgressReason;

pub use decide::decide;
pub use forward::{forward, response};
pub use framing::{ambiguous, is_websocket};
pub use route::route;

/// The connection on which a request arrived.
#[derive(Clone, Copy, Debug)]
pub struct Connection<'a> {
    /// The name in the TLS handshake, in lower case and without the dot at its end; `None` for plain HTTP.
    pub host: Option<&'a str>,
    /// The port to which the client connected.
    pub port: u16,
    /// Whether the client speaks TLS.
    pub tls: bool,
}

/// The destination of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The host, in lower case, without the dot at its end.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// A request that is not forwarded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The status of the response.
    pub status: StatusCode,
    /// The reason for the report.
    pub reason: EgressReason,
    /// The name of the credential that the refusal is about.
    pub credential: Option<String>,
    /// The message for the user.
    pub message: String,
}

impl Refused {
    pub(crate) fn new(
        status: StatusCode,
        reason: EgressReason,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            reason,
            credential: None,
            message: message.into(),
        }
    }

    /// A request that is malformed.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, EgressReason::Protocol, message)
    }

    /// A request that a rule forbids.
    pub(crate) fn forbidden(reason: EgressReason, message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, reason, message)
    }

    pub(crate) fn about(mut self, credential: &str) -> Self {
        self.credential = Some(credential.to_owned());
        self
    }
}

/// The way in which a request is forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Without a credential.
    Plain,
    /// The request passes with the value of this credential instead of its placeholder.
    Inject {
        /// The name of the credential.
        credential: String,
    },
}
