//! How [`Step::EndSessions`](oz_core::controller::Step::EndSessions) is carried out. Apart from the
//! engine, which knows nothing of what runs in a pod.

use futures::FutureExt;
use futures::future::BoxFuture;
use oz_core::controller::{Failure, Sessions, SessionsEnded};

/// Ends sessions.
pub trait EndSessions: Send + Sync + 'static {
    /// Ends what runs of these sessions now. A failure is transient: something may run on, and it is
    /// tried again.
    fn end<'a>(
        &'a self,
        sessions: &'a Sessions,
    ) -> BoxFuture<'a, Result<Option<SessionsEnded>, Failure>>;
}

/// Ends none: for those who do not run anything in pods.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaveSessions;

impl EndSessions for LeaveSessions {
    fn end<'a>(&'a self, _: &'a Sessions) -> BoxFuture<'a, Result<Option<SessionsEnded>, Failure>> {
        futures::future::ready(Ok(None)).boxed()
    }
}
