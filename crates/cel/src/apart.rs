//! Work on a separate thread with a separate stack. An expression from a user can end that thread, but no other
//! thread.

use std::sync::mpsc;
use std::thread::Builder;
use std::time::Duration;

use crate::CelError;

/// The size of the stack: far more than a bounded expression needs.
pub const STACK: usize = 16 * 1024 * 1024;

/// Returns the result of `work`, if it finishes in time. Work that does not finish continues on its thread; its result
/// is dropped.
///
/// # Errors
/// The work did not finish in time, failed, or could not be started.
pub fn apart<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CelError> {
    let (done, answer) = mpsc::channel();
    Builder::new()
        .name("policy".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            let _ = done.send(work());
        })
        .map_err(|error| CelError::NoThread {
            error: error.to_string(),
        })?;
    answer.recv_timeout(patience).map_err(|error| match error {
        mpsc::RecvTimeoutError::Timeout => CelError::NoAnswer { patience },
        mpsc::RecvTimeoutError::Disconnected => CelError::Failed,
    })
}
