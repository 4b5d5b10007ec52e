//! Tasks: work that exactly one replica does, such as a reconciler.
//!
//! Webhooks and watchers run on every replica; a task runs on the one that holds the
//! Lease, and is told to stop when the Lease is lost.

use std::{future::Future, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use crate::review::Cx;

/// Whatever went wrong in a task.
pub type TaskError = Box<dyn std::error::Error + Send + Sync>;

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

type Run =
    Arc<dyn Fn(Cx, CancellationToken) -> BoxFuture<'static, Result<(), TaskError>> + Send + Sync>;

/// A task whose type has been forgotten.
#[derive(Clone)]
pub(crate) struct NamedTask {
    pub(crate) name: Arc<str>,
    pub(crate) run: Run,
}

impl NamedTask {
    pub(crate) fn new<T: Task>(name: &str, task: T) -> Self {
        let task = Arc::new(task);
        let run: Run = Arc::new(move |cx, stop| {
            let task = task.clone();
            async move { task.run(&cx, stop).await }.boxed()
        });
        Self {
            name: name.into(),
            run,
        }
    }
}
