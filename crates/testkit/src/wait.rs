//! Waiting for a condition, never for a time.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Calls `probe` until it gives a value, at most for `within`; asks again after 10 ms at first and
/// 200 ms at last.
///
/// A probe says `Ok(None)` for "not yet" and `Err` for "not yet, and this is what I saw": the last
/// error is in the message when the time is over.
///
/// # Errors
///
/// Fails when `within` has passed: `what` should complete the sentence "waited for …".
pub async fn eventually<T>(
    what: &str,
    within: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + within;
    let mut pause = FIRST_PAUSE;
    let mut seen = String::from("it never came");
    loop {
        // A probe that hangs must not outlive the deadline.
        let left = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => seen = format!("{error:#}"),
            Err(_) => bail!("waited {within:?} for {what}: {seen}"),
        }
        tokio::time::sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}
