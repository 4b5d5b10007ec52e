//! Waiting for a condition, never for a time.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::profile::record_wait;

/// The time for which a test waits for a condition before it fails: far above the time that a
/// condition takes on a busy machine.
pub const CONDITION_TIMEOUT: Duration = Duration::from_secs(120);

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Calls `probe` until it returns a value, at most for `within`; the pause between calls is 10 ms
/// at first and 200 ms at last.
///
/// A probe returns `Ok(None)` for "not yet" and `Err` for "not yet, with the observed state": the
/// message at the timeout contains the last error.
///
/// # Errors
///
/// Fails when `within` has passed: `what` should complete the sentence "waited for …".
pub async fn eventually<T>(
    what: &str,
    within: Duration,
    probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let began = Instant::now();
    let outcome = wait(what, began + within, within, probe).await;
    record_wait(what, began.elapsed());
    outcome
}

async fn wait<T>(
    what: &str,
    deadline: Instant,
    within: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let mut pause = FIRST_PAUSE;
    let mut seen = String::from("it never came");
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // A probe that hangs must not outlive the deadline.
        match tokio::time::timeout(left, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) | Err(_) => {}
            Ok(Err(error)) => seen = format!("{error:#}"),
        }
        if Instant::now() >= deadline {
            bail!("waited {within:?} for {what}: {seen}");
        }
        tokio::time::sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wait_ends_at_deadline_with_last_observation() {
        let within = Duration::from_millis(50);

        let result: Result<()> =
            eventually("rain", within, async || bail!("the sky is blue")).await;
        let hung: Result<()> = eventually("rain", within, std::future::pending).await;

        let error = result.unwrap_err().to_string();
        assert_eq!(error, "waited 50ms for rain: the sky is blue");
        assert_eq!(
            hung.unwrap_err().to_string(),
            "waited 50ms for rain: it never came"
        );
    }

    #[tokio::test]
    async fn a_condition_that_holds_at_once_is_seen_even_without_any_time() {
        let seen = eventually("now", Duration::ZERO, async || Ok(Some(1))).await;

        assert_eq!(seen.unwrap(), 1);
    }
}
