//! The few system calls that have no safe form in the standard library: a child that dies with its
//! parent, signals to a process group, and a new session. Separate so that `unsafe` stays in one
//! short file.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// A signal that ends a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM: a request to end.
    Terminate,
    /// SIGKILL: a forced end.
    Kill,
}

impl Signal {
    const fn number(self) -> libc::c_int {
        match self {
            Self::Terminate => libc::SIGTERM,
            Self::Kill => libc::SIGKILL,
        }
    }
}

/// Configures the kernel to send `signal` to the command's process when the *thread* that spawned
/// it ends (`PR_SET_PDEATHSIG`, Linux only; elsewhere children end on drop only). See
/// [`crate::spawn`] for the thread that never ends.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "pre_exec and prctl have no safe form")]
pub(crate) fn die_with_parent(command: &mut Command, signal: Signal) {
    let parent = std::process::id();
    // SAFETY: between fork and exec only prctl and getppid are called, both async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, signal.number()) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have ended before the call above: then the signal is never sent.
            if libc::getppid().cast_unsigned() != parent {
                return Err(io::Error::from(io::ErrorKind::BrokenPipe));
            }
            Ok(())
        });
    }
}

/// Does nothing: without the kernel's help, children end on drop only.
#[cfg(not(target_os = "linux"))]
pub(crate) fn die_with_parent(_command: &mut Command, _signal: Signal) {}

/// Sends `signal` to every process of the group that `leader` leads.
#[expect(unsafe_code, reason = "kill has no safe form")]
pub(crate) fn signal_group(leader: u32, signal: Signal) -> io::Result<()> {
    // SAFETY: kill takes two integers and touches no memory of ours.
    check(unsafe { libc::kill(-leader.cast_signed(), signal.number()) })
}

/// Sends `signal` to one process.
#[expect(unsafe_code, reason = "kill has no safe form")]
pub(crate) fn signal_process(pid: u32, signal: Signal) -> io::Result<()> {
    // SAFETY: kill takes two integers and touches no memory of ours.
    check(unsafe { libc::kill(pid.cast_signed(), signal.number()) })
}

/// Makes this process the leader of a new session, so that neither the terminal's Ctrl-C nor its
/// hang-up reaches it.
///
/// # Errors
///
/// Fails when the process already leads a process group.
#[expect(unsafe_code, reason = "setsid has no safe form")]
pub fn leave_the_terminal() -> io::Result<()> {
    // SAFETY: setsid takes nothing and touches no memory of ours.
    check(unsafe { libc::setsid() }.min(0))
}

/// Runs `action` when the process ends in an orderly way (not after a signal).
#[expect(unsafe_code, reason = "atexit has no safe form")]
pub(crate) fn at_exit(action: extern "C" fn()) {
    // SAFETY: the function outlives the process and does not unwind: its callers catch panics.
    // A failure (the table is full) only means that the next start sweeps instead.
    let _ = unsafe { libc::atexit(action) };
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
