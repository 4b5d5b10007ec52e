//! The caller of a hook, as far as it is identified.
//!
//! The key in the paths of hooks proves little: the API server repeats the whole URL to its users when a
//! call fails. So a caller counts as an API server only if it presents a certificate, or if a handler
//! vouches for its address: the handler found data in a review that only the API server passes on
//! ([`Cx::vouch`](crate::Cx::vouch)).

pub(crate) mod known;
mod questions;

use std::net::IpAddr;

pub(crate) use known::KnownCallers;
pub(crate) use questions::limited;

/// The caller of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Caller {
    /// This process itself, or the extension's own server around
    /// [`Manager::router`](crate::Manager::router).
    Local,
    /// A peer with a verified certificate
    /// ([`ManagerBuilder::client_authority`](crate::ManagerBuilder::client_authority)).
    Certified(IpAddr),
    /// A peer with an address for which a handler of some replica vouched a short while ago.
    Vouched(IpAddr),
    /// An unidentified peer. It may be an API server for which no handler has vouched yet, so its reviews
    /// are answered; their content may be forged.
    Unproven(IpAddr),
}

tokio::task_local! {
    static CURRENT: Caller;
}

impl Caller {
    /// Checks whether the caller is proven to be an API server, so that its statements about a request
    /// count.
    #[must_use]
    pub const fn is_proven(self) -> bool {
        !matches!(self, Self::Unproven(_))
    }

    /// Returns the address of the caller, if it uses a connection.
    #[must_use]
    pub const fn address(self) -> Option<IpAddr> {
        match self {
            Self::Local => None,
            Self::Certified(address) | Self::Vouched(address) | Self::Unproven(address) => {
                Some(address)
            }
        }
    }

    /// Returns the caller of the review that this task handles, for code without access to the
    /// [`Cx`](crate::Cx). `None` outside of handlers, and in tasks that a handler spawned.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|caller| *caller).ok()
    }

    /// Runs a handler that is called by this caller.
    pub(crate) async fn during<F: Future>(self, handling: F) -> F::Output {
        CURRENT.scope(self, handling).await
    }
}
