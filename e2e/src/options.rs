//! In which ways a process of oz may be started.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use oz_testkit::libfaketime;

use crate::ApiProxy;

/// What may differ from a plain installation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the replica.
    pub replica: String,
    /// Further flags.
    pub flags: Vec<String>,
    /// How far the process's clock is off, such as `+1h`.
    pub clock: Option<String>,
    /// Whether the operator runs scripts in containers. Where a container is not one, but a process
    /// of this machine, it should not.
    pub cut_sessions: bool,
    /// Further environment variables.
    pub environment: Vec<(String, String)>,
    /// The directory of the programs, if they are of another build than the one at hand.
    pub programs: Option<PathBuf>,
    /// The kubeconfig, if it is not that of the program's own service account.
    pub kubeconfig: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            replica: "oz-0".to_owned(),
            flags: Vec::new(),
            clock: None,
            cut_sessions: false,
            environment: Vec::new(),
            programs: None,
            kubeconfig: None,
        }
    }
}

impl Options {
    /// A replica of this name.
    #[must_use]
    pub fn replica(name: &str) -> Self {
        Self {
            replica: name.to_owned(),
            ..Self::default()
        }
    }

    /// With one more flag.
    #[must_use]
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// With harness runs, as an operator serves them. (A webhook takes `--harness` alone.)
    #[must_use]
    pub fn harness(self) -> Self {
        self.flag("--harness")
            .flag("--harness-image=registry.test/oz-harness:1")
    }

    /// With one more environment variable.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The programs of another build, which are in this directory.
    #[must_use]
    pub fn programs(mut self, directory: &Path) -> Self {
        self.programs = Some(directory.to_owned());
        self
    }

    /// Reaching the API server through this.
    #[must_use]
    pub fn through(mut self, proxy: &ApiProxy) -> Self {
        self.kubeconfig = Some(proxy.kubeconfig().to_owned());
        self
    }

    /// With sessions that are ended with their grant.
    #[must_use]
    pub fn cutting(mut self) -> Self {
        self.cut_sessions = true;
        self
    }

    /// With the limits of requests that the webhook has by itself, which others do without.
    #[must_use]
    pub fn limited(self) -> Self {
        let limits = [("waiting", 20), ("active", 20), ("namespace", 200)];
        limits.into_iter().fold(self, |options, (of, most)| {
            options.flag(&format!("--max-{of}-requests={most}"))
        })
    }

    /// With a clock that is off, in the syntax of libfaketime.
    #[must_use]
    pub fn clock(mut self, offset: &str) -> Self {
        self.clock = Some(offset.to_owned());
        self
    }
}

/// Whether clocks can be shifted here.
///
/// # Errors
/// When they cannot, and `OZ_REQUIRE_ALL` makes that a failure.
pub fn clocks_can_be_shifted() -> Result<bool> {
    if libfaketime().is_some() {
        return Ok(true);
    }
    ensure!(
        std::env::var_os("OZ_REQUIRE_ALL").is_none(),
        "libfaketime is missing (Debian: faketime)"
    );
    #[expect(
        clippy::print_stderr,
        reason = "whoever runs the tests must see what was not run"
    )]
    {
        eprintln!("skipped: libfaketime is missing (Debian: faketime)");
    }
    Ok(false)
}
