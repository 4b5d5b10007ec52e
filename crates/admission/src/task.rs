//! Tasks: work that exactly one replica does, such as a reconciler.
//!
//! Webhooks and watchers run on every replica; a task runs on the one that holds the
//! Lease, and is told to stop when the Lease is lost.

use std::{future::Future, sync::Arc};

use oz_runtime::TaskError;
use tokio_util::sync::CancellationToken;

use crate::review::Cx;

/// Work for the leader alone.
pub trait Task: Send + Sync + 'static {
    /// Runs until `stop` is cancelled, which means that another replica may take over any
    /// moment: return soon, and write nothing more. Called again when leadership comes back.
    ///
    /// # Errors
    /// An error ends the process, so that the failure is seen and another replica takes over.
    fn run(
        &self,
        cx: &Cx,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<(), TaskError>> + Send;
}

impl<T: Task> Task for Arc<T> {
    fn run(
        &self,
        cx: &Cx,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<(), TaskError>> + Send {
        T::run(self, cx, stop)
    }
}
