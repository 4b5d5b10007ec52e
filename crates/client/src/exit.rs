//! Exit codes. Documented in `docs/guides/ozctl.md`; scripts rely on them.

use std::process::ExitCode;

/// The exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(u8);

impl Exit {
    /// Success.
    pub const SUCCESS: Self = Self(0);
    /// Failure, or a negative result.
    pub const FAILURE: Self = Self(1);
    /// `audit verify`: there was no audit record to verify. `rego test`: no test to run.
    pub const NOTHING: Self = Self(2);
    /// `audit verify`: signatures by unknown keys, and no other finding. `audit evidence --check`: the same, or no
    /// seal.
    pub const UNCHECKED: Self = Self(3);
    /// `audit entitlements`, `audit evidence`: some objects could not be read.
    pub const INCOMPLETE: Self = Self(3);
    /// `composites plan`: something would change.
    pub const CHANGES: Self = Self(2);
    /// `run submit --wait`: the run was cancelled.
    pub const CANCELLED: Self = Self(2);
    /// `exec`, `pod`: access ended while the command ran, as with timeout(1). `run submit --wait`: the run did not
    /// complete in time.
    pub const ENDED: Self = Self(124);
    /// `exec`, `pod`, `run submit --wait`: ozctl failed, and not the command that it was to run, as with env(1).
    pub const NOT_RUN: Self = Self(125);
    /// Ctrl-C during a wait, as in a shell.
    pub const INTERRUPTED: Self = Self(130);

    /// Returns any other code: that of a remote command.
    pub const fn code(code: u8) -> Self {
        Self(code)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}
