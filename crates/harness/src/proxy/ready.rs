//! The state of the proxy for the kubelet's hook, in a file that only the proxy's container has.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::authority::write;

/// The file.
const FILE: &str = "state";
/// The content once the proxy serves; otherwise it is the reason why not.
const READY: &str = "ready";

/// Writes the state.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn set(directory: &Path, missing: Option<&str>) -> Result<()> {
    let content = missing.unwrap_or(READY);
    write(&directory.join(FILE), content.as_bytes(), 0o600)
}

/// Waits until the proxy serves.
///
/// # Errors
/// The reason why it does not, after this time.
pub(crate) fn wait(directory: &Path, within: Duration) -> Result<()> {
    const PAUSE: Duration = Duration::from_millis(10);
    let until = Instant::now() + within;
    loop {
        match check(directory) {
            Err(_) if Instant::now() < until => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
}

fn check(directory: &Path) -> Result<()> {
    let state = fs::read_to_string(directory.join(FILE)).context("the proxy has not started")?;
    if state != READY {
        bail!("{state}");
    }
    Ok(())
}
