//! Exit codes. Documented in `docs/guides/ozctl.md`; scripts rely on them.

use std::process::ExitCode;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(u8);

impl Exit {
    /// Done.
    pub const SUCCESS: Self = Self(0);
    /// Failed, or the answer is no.
    pub const FAILURE: Self = Self(1);
    /// `audit verify`: there was no record to verify. `rego test`: no test to run.
    pub const NOTHING: Self = Self(2);
    /// `audit verify`: signatures by keys of which nothing is known, and nothing else is wrong. `audit evidence --check`:
    /// the same, or no seal.
    pub const UNCHECKED: Self = Self(3);
    /// `audit entitlements`, `audit evidence`: something could not be read.
    pub const INCOMPLETE: Self = Self(3);
    /// `run submit --wait`: the run was cancelled.
    pub const CANCELLED: Self = Self(2);
    /// `exec`, `pod`: access ended while the command ran, as timeout(1) says it. `run submit --wait`: the run is
    /// not over in time.
    pub const ENDED: Self = Self(124);
    /// `exec`, `pod`, `run submit --wait`: ozctl failed, and not what it was to run, as env(1) says it.
    pub const NOT_RUN: Self = Self(125);
    /// Ctrl-C while waiting, as a shell says it.
    pub const INTERRUPTED: Self = Self(130);

    /// Any other code: that of a remote command.
    pub const fn code(code: u8) -> Self {
        Self(code)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}
