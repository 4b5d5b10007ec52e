//! Ctrl-C and the other signals that end a program: ozctl gives the access back first, so that no
//! user leaves access behind unknowingly.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// The timeout of the API server for the remaining work at the end.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// The signals that end a program. Once this value exists, they no longer end it automatically.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
}

impl Interrupts {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Waits for a signal, and returns the exit code of the process.
    pub(crate) async fn next(&mut self) -> Exit {
        // The exit code that a shell reports for a program that a signal ended: 128 and the
        // signal's number.
        tokio::select! {
            _ = self.interrupt.recv() => Exit::INTERRUPTED,
            _ = self.terminate.recv() => Exit::code(143),
            _ = self.hang_up.recv() => Exit::code(129),
            _ = self.quit.recv() => Exit::code(131),
        }
    }

    /// Returns the created object. If a signal comes first, returns the exit code of the process,
    /// and gives back an object that was created nevertheless.
    pub(crate) async fn made<T>(
        &mut self,
        making: impl Future<Output = Result<T>>,
        give_back: impl AsyncFnOnce(T, &mut Self) -> Result<()>,
    ) -> Result<Result<T, Exit>> {
        let mut making = std::pin::pin!(making);
        let exit = tokio::select! {
            made = &mut making => return made.map(Ok),
            exit = self.next() => exit,
        };
        // The object may exist already; the response contains its name.
        if let Some(Ok(made)) = self.unless(making).await {
            give_back(made, self)
                .await
                .map_err(|failure| failure.with(exit))?;
        }
        Ok(Err(exit))
    }

    /// Gives back the access `name`, and returns the result, unless the user interrupts the wait.
    /// `later` is the next step in that case.
    pub(crate) async fn given_back(
        &mut self,
        name: &str,
        giving: impl Future<Output = Result<()>>,
        later: String,
    ) -> Result<()> {
        self.unless(giving)
            .await
            .unwrap_or_else(|| {
                Err(Failure::new(format!(
                    "failed to revoke access ({name}): the API server does not respond"
                )))
            })
            .map_err(|failure| failure.next(later))
    }

    /// Returns the result of the work, unless another signal or the timeout is first.
    async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            _ = self.next() => None,
            () = tokio::time::sleep(ANSWERS_WITHIN) => None,
        }
    }
}
