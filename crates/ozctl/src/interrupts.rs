//! Ctrl-C and the other signals that end a program: what was got is given back first, so that nobody
//! leaves access behind that they do not know of.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// How long the API server may take for what is left to do at the end.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// The signals that end a program. From when this is made, they no longer end it by themselves.
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

    /// How the process is to end, once one comes.
    pub(crate) async fn next(&mut self) -> Exit {
        // As a shell reports a program that a signal ended: 128 and the signal's number.
        tokio::select! {
            _ = self.interrupt.recv() => Exit::INTERRUPTED,
            _ = self.terminate.recv() => Exit::code(143),
            _ = self.hang_up.recv() => Exit::code(129),
            _ = self.quit.recv() => Exit::code(131),
        }
    }

    /// What is made. How the process is to end, if a signal came first; what was made all the same
    /// is given back then.
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
        // It may be there already; its name is in the answer.
        if let Some(Ok(made)) = self.unless(making).await {
            give_back(made, self)
                .await
                .map_err(|failure| failure.with(exit))?;
        }
        Ok(Err(exit))
    }

    /// What comes of giving back what is called `name`, unless whoever waits for it has had enough.
    /// `later` says what to do then.
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
                    "failed to give access back ({name}): the API server does not answer"
                )))
            })
            .map_err(|failure| failure.next(later))
    }

    /// What comes of the work, unless another signal comes first or it takes too long.
    async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            _ = self.next() => None,
            () = tokio::time::sleep(ANSWERS_WITHIN) => None,
        }
    }
}
