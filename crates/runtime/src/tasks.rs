//! Tasks: the work of a process apart from requests, and the replicas that run it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::RuntimeError;

/// The pause before a task that panicked is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(10);
/// The maximum time for the stop of a service, after which it is dropped.
const SERVICE_STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// The replicas that run a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The replica that leads, as long as it leads.
    Leader,
    /// Every replica.
    Everyone,
}

/// Work that lasts as long as the process, and that the process does not require.
pub trait Task: Send + Sync + 'static {
    /// Runs until it is dropped, at the end of the process or of leadership. A task that returns has
    /// finished; a task that panics is started again after a pause.
    fn run(&self) -> impl Future<Output = ()> + Send;
}

impl<F, Work> Task for F
where
    F: Fn() -> Work + Send + Sync + 'static,
    Work: Future<Output = ()> + Send,
{
    fn run(&self) -> impl Future<Output = ()> + Send {
        self()
    }
}

/// The error of a service.
pub type TaskError = Box<dyn std::error::Error + Send + Sync>;

type Run =
    Arc<dyn Fn(CancellationToken) -> BoxFuture<'static, Result<(), TaskError>> + Send + Sync>;

/// A task or a service with its type erased.
#[derive(Clone)]
pub(crate) struct Named {
    name: Arc<str>,
    pub(crate) who: Who,
    run: Run,
}

impl Named {
    pub(crate) fn task(name: &str, who: Who, task: impl Task) -> Self {
        let task = Arc::new(task);
        let run: Run = Arc::new(move |stop| {
            let task = Arc::clone(&task);
            async move {
                stop.run_until_cancelled(task.run()).await;
                Ok(())
            }
            .boxed()
        });
        Self {
            name: name.into(),
            who,
            run,
        }
    }

    pub(crate) fn service<F, Work>(name: &str, who: Who, run: F) -> Self
    where
        F: Fn(CancellationToken) -> Work + Send + Sync + 'static,
        Work: Future<Output = Result<(), TaskError>> + Send + 'static,
    {
        Self {
            name: name.into(),
            who,
            run: Arc::new(move |stop| run(stop).boxed()),
        }
    }

    /// Runs until it has finished, or until shortly after `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), RuntimeError> {
        let expired = async {
            stop.cancelled().await;
            tokio::time::sleep(SERVICE_STOP_TIMEOUT).await;
        };
        tokio::pin!(expired);
        loop {
            // A separate task, so that a panic ends only this one.
            let run = tokio::spawn((self.run)(stop.clone()));
            let mut run = AbortOnDropHandle::new(run);
            let ended = tokio::select! {
                ended = &mut run => ended,
                () = &mut expired => return Ok(()),
            };
            match ended {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => {
                    return Err(RuntimeError::Task {
                        name: self.name,
                        error,
                    });
                }
                Err(panic) => {
                    tracing::error!(task = %self.name, %panic, "a task panicked and is begun again");
                }
            }
            let pause = tokio::time::sleep(RESTART_PAUSE);
            if stop.run_until_cancelled(pause).await.is_none() {
                return Ok(());
            }
        }
    }
}
