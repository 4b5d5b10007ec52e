//! Where the interpreter runs: on a thread of its own. It recurses, on a stack that is large enough for whatever
//! is within the bounds of a policy; and it looks at the clock between its steps only, so that one step could last
//! for ever: then its thread is left behind.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

use crate::error::EvaluateError;

/// Reserved, and taken from memory as it is used.
const STACK: usize = 512 << 20;

/// Runs it, and waits that long at most.
pub(crate) fn run<T: Send + 'static>(
    timeout: Option<Duration>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EvaluateError> {
    let (sender, receiver) = channel();
    let started = Builder::new()
        .name("rego".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            // Nobody receives what comes too late.
            let _ = sender.send(work());
        });
    let thread = started.map_err(|error| EvaluateError::Thread(error.to_string()))?;
    let received = match timeout {
        Some(timeout) => receiver.recv_timeout(timeout),
        None => receiver.recv().map_err(RecvTimeoutError::from),
    };
    match (received, timeout) {
        (Ok(value), _) => Ok(value),
        (Err(RecvTimeoutError::Timeout), Some(timeout)) => Err(EvaluateError::Stuck(timeout)),
        // It panicked, which says on standard error where.
        (Err(_), _) => {
            let _ = thread.join();
            Err(EvaluateError::Internal)
        }
    }
}
