//! What a process does besides answering: tasks, with who runs them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::RuntimeError;

/// The pause before a task is begun again that panicked.
const RESTART_PAUSE: Duration = Duration::from_secs(10);
/// How long a service may take to end once it was told to, before it is dropped.
const SERVICE_STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Who runs a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The replica that leads, as long as it leads.
    Leader,
    /// Every replica.
    Everyone,
}

/// Work that goes on as long as the process, and that the process can go on without.
pub trait Task: Send + Sync + 'static {
    /// Works until it is dropped, at the end of the process or of leadership. What ends by itself is
    /// done; what panics is begun again after a pause.
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

/// Whatever went wrong in a service.
pub type TaskError = Box<dyn std::error::Error + Send + Sync>;

type Run =
    Arc<dyn Fn(CancellationToken) -> BoxFuture<'static, Result<(), TaskError>> + Send + Sync>;

/// A task or a service, whose type has been forgotten.
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

    /// Runs until it is done, or until `stop` and a moment longer.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), RuntimeError> {
        let expired = async {
            stop.cancelled().await;
            tokio::time::sleep(SERVICE_STOP_TIMEOUT).await;
        };
        tokio::pin!(expired);
        loop {
            // In a task of its own, so that a panic is its end only.
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
