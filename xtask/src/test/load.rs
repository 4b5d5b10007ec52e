//! Additional load for `cargo xtask test --stress`.

use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use oz_testkit::{Running, spawn_dependent};

/// The number of busy loops for each processor.
const LOOPS_PER_PROCESSOR: usize = 2;
const BUSY_LOOP: &str = "while :; do :; done";
/// The loop that writes 16 MiB at a time, each block of which waits until it is on the disk.
const DISK_LOOP: &str =
    "while :; do dd if=/dev/zero of=\"$1\" bs=64k count=256 oflag=dsync status=none; done";

/// Processes that end when this value is dropped.
pub(super) struct Load {
    _processes: Vec<Running>,
}

impl Load {
    /// Starts the loops, with the niceness of the tests; the one of the disk writes to a file in `directory`.
    ///
    /// # Errors
    ///
    /// Fails when a shell cannot be started.
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let busy = (0..processors * LOOPS_PER_PROCESSOR).map(|_| shell(BUSY_LOOP));
        let mut writes = shell(DISK_LOOP);
        writes.arg("sh").arg(directory.join("stress"));
        let commands = busy.chain([writes]);
        let processes = commands.map(|command| {
            spawn_dependent(command).context("failed to start a shell that makes load")
        });
        Ok(Self {
            _processes: processes.collect::<Result<_>>()?,
        })
    }
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("nice");
    command.args(["sh", "-c", script]).stdin(Stdio::null());
    command
}
