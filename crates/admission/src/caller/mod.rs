//! Who calls a hook, as far as it is known.
//!
//! The key in the paths of hooks proves little: the API server repeats the whole URL to its users when a call fails.
//! So a caller is one of an API server only if it presents a certificate, or if a handler vouches for its address: it
//! found something in a review that nobody but the API server passes on ([`Cx::vouch`](crate::Cx::vouch)).

pub(crate) mod known;
mod questions;

use std::net::IpAddr;

pub(crate) use known::KnownCallers;
pub(crate) use questions::limited;

/// Who calls a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Caller {
    /// This process itself, or a server of the extension's own around [`Manager::router`](crate::Manager::router).
    Local,
    /// A peer that proved itself by a certificate
    /// ([`ManagerBuilder::client_authority`](crate::ManagerBuilder::client_authority)).
    Certified(IpAddr),
    /// A peer with an address for which a handler of some replica vouched a short while ago.
    Vouched(IpAddr),
    /// A peer of which nothing is known. It may be an API server for which no handler has vouched yet, so its reviews
    /// are answered; what they say may be forged.
    Unproven(IpAddr),
}

tokio::task_local! {
    static CURRENT: Caller;
}

impl Caller {
    /// Whether what it says of a request is what an API server says.
    #[must_use]
    pub const fn is_proven(self) -> bool {
        !matches!(self, Self::Unproven(_))
    }

    /// Its address, if it came by a connection.
    #[must_use]
    pub const fn address(self) -> Option<IpAddr> {
        match self {
            Self::Local => None,
            Self::Certified(address) | Self::Vouched(address) | Self::Unproven(address) => {
                Some(address)
            }
        }
    }

    /// The caller of the review that this task handles, for what has no [`Cx`](crate::Cx) at hand. None outside of
    /// handlers, and in tasks that a handler spawned.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|caller| *caller).ok()
    }

    /// Runs a handler that is called by this caller.
    pub(crate) async fn during<F: Future>(self, handling: F) -> F::Output {
        CURRENT.scope(self, handling).await
    }
}
