//! The options for the start of an oz process.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use oz_testkit::libfaketime;

use crate::ApiProxy;

/// The differences from a plain installation.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the replica.
    pub replica: String,
    /// Additional flags.
    pub flags: Vec<String>,
    /// The offset of the process's clock, such as `+1h`.
    pub clock: Option<String>,
    /// True if the operator runs scripts in containers. It should not where containers are processes of this
    /// machine.
    pub terminate_sessions: bool,
    /// Additional environment variables.
    pub environment: Vec<(String, String)>,
    /// The directory of the programs, if they are of another build than the current one.
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
            terminate_sessions: false,
            environment: Vec::new(),
            programs: None,
            kubeconfig: None,
        }
    }
}

impl Options {
    /// Returns the options of a replica with this name.
    #[must_use]
    pub fn replica(name: &str) -> Self {
        Self {
            replica: name.to_owned(),
            ..Self::default()
        }
    }

    /// Adds a flag.
    #[must_use]
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// Sets a field of the configuration; the value is YAML. The last value of a field counts, also of a list or a map.
    #[must_use]
    pub fn set(self, path: &str, value: impl Display) -> Self {
        self.flag(&format!("--set={path}={value}"))
    }

    /// Enables harness runs.
    #[must_use]
    pub fn harness(self) -> Self {
        self.set("harness.enabled", true)
            .set("harness.image", "registry.test/oz-harness:1")
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Uses the programs of another build in this directory.
    #[must_use]
    pub fn programs(mut self, directory: &Path) -> Self {
        self.programs = Some(directory.to_owned());
        self
    }

    /// Connects to the API server through this proxy.
    #[must_use]
    pub fn through(mut self, proxy: &ApiProxy) -> Self {
        self.kubeconfig = Some(proxy.kubeconfig().to_owned());
        self
    }

    /// Enables the termination of sessions with their grant.
    #[must_use]
    pub fn cutting(mut self) -> Self {
        self.terminate_sessions = true;
        self
    }

    /// Sets the webhook's default limits of requests, which other tests disable.
    #[must_use]
    pub fn limited(self) -> Self {
        let limits = [("waiting", 20), ("active", 20), ("namespace", 200)];
        limits.into_iter().fold(self, |options, (of, most)| {
            options.set(&format!("webhook.limits.{of}"), most)
        })
    }

    /// Shifts the clock, in the syntax of libfaketime.
    #[must_use]
    pub fn clock(mut self, offset: &str) -> Self {
        self.clock = Some(offset.to_owned());
        self
    }
}

/// Checks whether clocks can be shifted here.
///
/// # Errors
/// When they cannot be shifted, and `OZ_REQUIRE_ALL` makes that a failure.
pub fn clocks_can_be_shifted() -> Result<bool> {
    if libfaketime().is_some() {
        return Ok(true);
    }
    ensure!(
        std::env::var_os("OZ_REQUIRE_ALL").is_none(),
        "libfaketime is missing (Debian: faketime)"
    );
    #[expect(clippy::print_stderr, reason = "skipped tests must be visible")]
    {
        eprintln!("skipped: libfaketime is missing (Debian: faketime)");
    }
    Ok(false)
}
