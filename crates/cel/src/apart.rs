//! Work on a thread with a stack of its own. What somebody else wrote may end that thread, and no other.

use std::sync::mpsc;
use std::thread::Builder;
use std::time::Duration;

/// Far more than a bounded expression takes.
pub const STACK: usize = 16 * 1024 * 1024;

/// The answer of `work`, if it comes in time. One that does not goes on, and nobody hears of it.
///
/// # Errors
/// That it did not come, or could not be begun.
pub fn apart<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (done, answer) = mpsc::channel();
    Builder::new()
        .name("policy".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            let _ = done.send(work());
        })
        .map_err(|error| format!("no thread for it: {error}"))?;
    answer.recv_timeout(patience).map_err(|error| match error {
        mpsc::RecvTimeoutError::Timeout => format!("no answer within {patience:?}"),
        mpsc::RecvTimeoutError::Disconnected => "its evaluation failed".to_owned(),
    })
}
