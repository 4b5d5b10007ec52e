//! Tasks: work that exactly one replica does, such as a reconciler.
//!
//! Webhooks and watchers run on every replica; a task runs on the replica that holds the Lease, and is
//! cancelled when the Lease is lost.

use std::{future::Future, sync::Arc};

use oz_runtime::TaskError;
use tokio_util::sync::CancellationToken;

use crate::review::Cx;

/// A task that only the leader runs.
///
/// ```
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::Namespace;
/// use kube::Api;
/// use oz_admission::{CancellationToken, Cx, Task, TaskError};
///
/// /// Counts namespaces each minute.
/// struct Count;
///
/// impl Task for Count {
///     async fn run(&self, cx: &Cx, stop: CancellationToken) -> Result<(), TaskError> {
///         let namespaces: Api<Namespace> = Api::all(cx.client.clone());
///         loop {
///             let found = namespaces.list_metadata(&Default::default()).await?;
///             println!("{} namespaces", found.items.len());
///             let pause = tokio::time::sleep(Duration::from_secs(60));
///             if stop.run_until_cancelled(pause).await.is_none() {
///                 return Ok(());
///             }
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a task",
    label = "does not implement `Task`",
    note = "implement `oz_admission::Task` for it; a task is a type with `async fn run(&self, &Cx, CancellationToken)`"
)]
pub trait Task: Send + Sync + 'static {
    /// Runs until `stop` is cancelled, which means that another replica may take over at any moment: return
    /// soon, and write nothing more. The function is called again when the replica regains leadership.
    ///
    /// # Errors
    /// An error ends the process, so that the failure is visible and another replica takes over.
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
