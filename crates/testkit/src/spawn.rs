//! Child processes that end with this process, in any case.
//!
//! The kernel's death signal fires when the spawning *thread* ends, and tests spawn from runtime
//! threads that start and end; so one thread that never ends spawns all processes.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use crate::system::{Signal, die_with_parent, signal_group, signal_process};
use parking_lot::Mutex;

struct Job {
    command: Command,
    reply: Sender<io::Result<Child>>,
}

static SPAWNER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();

/// A child process that leads its own process group; the group is killed on drop.
#[derive(Debug)]
pub struct Running {
    child: Child,
    exited: Option<ExitStatus>,
}

/// Starts `command` as the leader of a new process group. The process is killed when the returned value is
/// dropped, and also when this process ends without that, as after SIGTERM or SIGKILL.
///
/// # Errors
///
/// Fails when the program cannot be started.
pub fn spawn_dependent(command: Command) -> io::Result<Running> {
    spawn(command, Signal::Kill)
}

/// Starts `command` so that it receives `at_death` when this process ends.
pub(crate) fn spawn(mut command: Command, at_death: Signal) -> io::Result<Running> {
    use std::os::unix::process::CommandExt as _;
    command.process_group(0);
    die_with_parent(&mut command, at_death);
    let (reply, answer) = channel();
    let gone = || io::Error::other("failed to reach the spawning thread");
    SPAWNER
        .get_or_init(start_spawner)
        .lock()
        .send(Job { command, reply })
        .map_err(|_| gone())?;
    let child = answer.recv().map_err(|_| gone())??;
    Ok(Running {
        child,
        exited: None,
    })
}

fn start_spawner() -> Mutex<Sender<Job>> {
    let (jobs, queue) = channel::<Job>();
    // If the thread cannot start, the receiver of the queue is dropped and every spawn reports it.
    let _ = std::thread::Builder::new()
        .name("spawner".into())
        .spawn(move || {
            for Job { mut command, reply } in queue {
                let _ = reply.send(command.spawn());
            }
        });
    Mutex::new(jobs)
}

impl Running {
    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status of the process, or `None` while it runs.
    ///
    /// # Errors
    ///
    /// Fails when the system does not report the status.
    pub fn exited(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.exited.is_none() {
            self.exited = self.child.try_wait()?;
        }
        Ok(self.exited)
    }

    /// Sends `signal` to the process alone.
    pub(crate) fn signal(&mut self, signal: Signal) -> io::Result<()> {
        match self.exited()? {
            Some(_) => Ok(()),
            None => signal_process(self.pid(), signal),
        }
    }

    /// Waits for the process to end, at most `within`. Returns `None` if it still runs then.
    ///
    /// # Errors
    ///
    /// Fails when the system does not report the status.
    pub fn wait(&mut self, within: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.exited()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the process and all processes in its group; does nothing once the process has ended.
    pub fn kill(&mut self) {
        // Before reaping: until then no other group can have the group's number.
        if self.exited.is_none() {
            let _ = signal_group(self.pid(), Signal::Kill);
            self.exited = self.child.wait().ok();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
