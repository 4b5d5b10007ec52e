//! The waits of a test binary, for `cargo xtask test --profile`.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The environment variable that names the directory for the files of waits.
pub const PROFILE: &str = "OZ_TEST_PROFILE";

/// One wait of a test for a condition.
#[derive(Debug, Serialize, Deserialize)]
pub struct Wait {
    /// The name of the thread, which libtest names after its test.
    pub test: String,
    /// The condition, as in "waited for …".
    pub condition: String,
    /// The duration of the wait.
    pub milliseconds: u64,
}

/// Appends a wait to the file of this process, if a profile is made.
pub(crate) fn record_wait(condition: &str, took: Duration) {
    static OUT: OnceLock<Option<Mutex<File>>> = OnceLock::new();
    let Some(out) = OUT.get_or_init(open) else {
        return;
    };
    let wait = Wait {
        test: std::thread::current()
            .name()
            .unwrap_or("unnamed thread")
            .to_owned(),
        condition: condition.to_owned(),
        milliseconds: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    };
    if let Ok(line) = serde_json::to_string(&wait) {
        // A profile that lacks a line is better than a test that fails for lack of disk space.
        let _ = writeln!(out.lock(), "{line}");
    }
}

fn open() -> Option<Mutex<File>> {
    let directory = std::env::var_os(PROFILE)?;
    let name = format!("waits-{}.jsonl", std::process::id());
    File::create(Path::new(&directory).join(name))
        .ok()
        .map(Mutex::new)
}
