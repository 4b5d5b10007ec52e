//! Flags about the audit trail.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{ArgAction, Args};
use jiff::SignedDuration;
use oz_api::duration;
use oz_trail::verify::PUBLISHED_WITHIN;

use crate::ledger::BACKLOG;
use crate::log::{Fsync, Out, Target};

/// Flags about the audit trail, the same for every oz binary.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Audit")]
pub struct AuditArgs {
    /// Where to write each record as a line of JSON: stdout, none, or a file to append to.
    #[arg(long = "audit-log", default_value = "stdout", value_name = "WHERE")]
    pub(crate) audit_log: LogTarget,

    /// Whether a record in a file counts as written only once it is on the disk.
    #[arg(
        long = "audit-fsync",
        value_enum,
        default_value_t = Fsync::Always,
        value_name = "WHEN"
    )]
    pub(crate) audit_fsync: Fsync,

    /// Write each record as an AuditEvent into the cluster.
    #[arg(long = "audit-objects", action = ArgAction::Set, num_args = 0..=1, default_value_t = true, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) audit_objects: bool,

    /// Send each record as a CloudEvent to this URL.
    #[arg(long = "audit-http", value_name = "URL")]
    pub(crate) audit_http: Option<http::Uri>,

    /// File with the bearer token for --audit-http; read again when it changes.
    #[arg(
        long = "audit-http-token-file",
        value_name = "FILE",
        requires = "audit_http"
    )]
    pub(crate) audit_http_token_file: Option<PathBuf>,

    /// CA bundle (PEM) to verify the server of --audit-http.
    #[arg(long = "audit-http-ca", value_name = "FILE", requires = "audit_http")]
    pub(crate) audit_http_ca: Option<PathBuf>,

    /// Let nobody in while the server of --audit-http does not take records.
    #[arg(long = "audit-http-required", requires = "audit_http")]
    pub(crate) audit_http_required: bool,

    /// How many records wait in memory for the server of --audit-http; when it is away for longer,
    /// the oldest are dropped (they stay in the log and in the cluster).
    #[arg(
        long = "audit-http-spool",
        default_value_t = 10_000,
        value_name = "COUNT"
    )]
    pub(crate) audit_http_spool: usize,

    /// Who is told of which records: {"routes": [{"name", "url", "format", "events", "namespaces"}]}.
    #[arg(long = "notifications", value_name = "JSON")]
    pub(crate) notifications: Option<String>,

    /// How old the key by which this component signs the audit trail gets before the next one replaces it.
    #[arg(long = "audit-key-life", default_value = "2160h", value_name = "DURATION", value_parser = duration::not_negative)]
    pub(crate) audit_key_life: SignedDuration,

    /// How long after a record a signed checkpoint covers it, 30s at most.
    #[arg(long = "audit-checkpoint", default_value = "5s", value_name = "DURATION", value_parser = interval)]
    pub(crate) audit_checkpoint: Duration,
}

/// The value of `--audit-log`.
#[derive(Clone, Debug)]
pub(crate) struct LogTarget(Target);

impl AuditArgs {
    /// Checks whether each record is written as an AuditEvent into the cluster.
    #[must_use]
    pub const fn has_objects(&self) -> bool {
        self.audit_objects
    }

    /// Returns the maximum number of records that wait for the collector. For a required collector it is at least the
    /// size of the backlog: after a dropped record, no user would ever get access again.
    pub(crate) fn spool(&self) -> usize {
        if self.audit_http_required {
            self.audit_http_spool.max(BACKLOG)
        } else {
            self.audit_http_spool
        }
    }
}

impl std::str::FromStr for LogTarget {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl LogTarget {
    pub(crate) fn open(&self) -> Result<Option<Out>> {
        match &self.0 {
            Target::Stdout => Ok(Some(Out::Stdout(std::io::stdout()))),
            Target::File(path) => Out::file(path)
                .map(Some)
                .with_context(|| format!("failed to open {} (--audit-log)", path.display())),
            Target::None => Ok(None),
        }
    }
}

/// Parses the interval of checkpoints. A verifier reports a checkpoint that is much later as removed.
fn interval(text: &str) -> Result<Duration> {
    let interval = duration::not_negative(text)?;
    ensure!(
        interval <= PUBLISHED_WITHIN,
        "must not be longer than 30s: verifying would miss it"
    );
    Ok(interval.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Process {
        #[command(flatten)]
        audit: AuditArgs,
    }

    fn parsed(flags: &[&str]) -> Result<AuditArgs, String> {
        let words = ["oz", "--audit-http=http://collector"].iter().chain(flags);
        let process = Process::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(process.audit)
    }

    #[test]
    fn spool_of_required_collector_holds_whole_backlog() {
        let spool = |flags: &[&str]| parsed(flags).unwrap().spool();
        assert_eq!(spool(&["--audit-http-spool=10"]), 10);
        assert_eq!(
            spool(&["--audit-http-spool=10", "--audit-http-required"]),
            BACKLOG
        );
        assert_eq!(spool(&["--audit-http-required"]), 10_000);
    }

    #[test]
    fn a_checkpoint_comes_soon_enough_to_be_missed() {
        for (interval, works) in [("0s", true), ("30s", true), ("31s", false), ("-1s", false)] {
            let flag = format!("--audit-checkpoint={interval}");
            assert_eq!(parsed(&[&flag]).is_ok(), works, "{interval}");
        }
    }
}
