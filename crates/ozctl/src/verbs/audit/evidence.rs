//! `ozctl audit evidence`: writes one file with the events between two instants and the users who
//! could get access. It can be checked without a cluster and without oz.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use jiff::Timestamp;
use oz_api::duration::GoDuration;
use oz_compliance::evidence::Sample;
use oz_trail::verify::Verdict;

use super::read::when;
use super::verify::{Oz, pinned};
use crate::cluster::Cluster;
use crate::context::{Context, Style};
use crate::evidence::{Checked, Wanted, check, period, write};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::line;

/// Write the audit evidence of a period as a file that can be verified without a cluster
///
/// The file contains the audit records of the period, checkpoints and public keys, the result of
/// their verification, approvals with their approvers, one line for each request, templates and
/// access policies by digest, the entitlements, and the relation of these files to the controls of
/// SOC 2, ISO 27001, PCI DSS and NIST SP 800-53. The operator signs its sums with the audit key,
/// which requires the Role oz-evidence-sealer of oz's namespace. The file contains no Secret and no
/// content of a template; it contains reasons as users wrote them.
///
/// --check reads such a file. It exits with 1 and names the place if a byte was changed, a record
/// removed or a row added, with 2 if the file contains no record, and with 3 if it is not sealed,
/// or is sealed with an unknown key. Without --check, ozctl exits with 3 and names the objects that
/// could not be read.
#[derive(Args)]
#[command(
    group = ArgGroup::new("what").required(true).args(["from", "check"]),
    after_help = "\
Examples:
  ozctl audit evidence --from 2026-01-01T00:00:00Z --to 2026-04-01T00:00:00Z -o evidence.tar
  ozctl audit evidence --from 168h -o week.tar --sample 25 --seed 7
  ozctl audit evidence --check evidence.tar --key oz.pub"
)]
pub(super) struct Evidence {
    /// The first instant: 168h ago, or one such as 2026-01-02T15:04:05Z
    #[arg(long, value_name = "WHEN", value_parser = when, requires = "output")]
    from: Option<Timestamp>,
    /// The first instant after [default: a minute ago]
    #[arg(long, value_name = "WHEN", value_parser = when, conflicts_with = "check")]
    to: Option<Timestamp>,
    /// The file to write
    #[arg(short, long, value_name = "FILE", conflicts_with = "check")]
    output: Option<PathBuf>,
    /// Draw this many of the granted requests
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "check")]
    sample: Option<u32>,
    /// Draw others: the same seed draws the same
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "sample")]
    seed: u64,
    /// Do not have it sealed
    #[arg(long, conflicts_with = "check")]
    unsealed: bool,
    /// Retention of events in the cluster: audit.retention of the configuration
    #[arg(long, default_value = "720h", value_name = "DURATION")]
    retention: GoDuration,
    /// Check this file
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// File with the pinned public keys, one a line; may be repeated [default: those in the file,
    /// which do not prove its origin]
    #[arg(long, value_name = "FILE", requires = "check")]
    key: Vec<PathBuf>,
    #[command(flatten)]
    oz: Oz,
}

impl Evidence {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        match (&self.check, self.from, &self.output) {
            (Some(file), ..) => self.checked(context, file),
            (None, Some(from), Some(file)) => self.make(context, from, file).await,
            // The parser rejects all others.
            _ => Err(Failure::new(
                "one of --from with -o, and --check, must be given",
            )),
        }
    }

    fn checked(&self, context: &Context, path: &Path) -> Result<Exit> {
        let pinned = pinned(&self.key)?;
        let file = File::open(path).map_err(|error| on(path, "read", &error))?;
        let checked = check(BufReader::new(file), &pinned);
        show(context, &checked, !pinned.is_empty())
    }

    async fn make(&self, context: &Context, from: Timestamp, path: &Path) -> Result<Exit> {
        let now = Timestamp::now();
        let (from, to) = period(from, self.to, now, self.retention)?;
        let cluster = context.cluster().await?;
        let wanted = Wanted {
            from,
            to,
            sample: self.sample.map(|size| Sample {
                size,
                seed: self.seed,
            }),
            oz: self.oz.namespace.clone(),
        };
        let part = partial(path);
        let file = private(&part)?;
        let written = self.write(context, &cluster, &wanted, file).await;
        let exit = match written {
            Ok(exit) => exit,
            Err(failure) => {
                let _ = std::fs::remove_file(&part);
                return Err(failure);
            }
        };
        std::fs::rename(&part, path).map_err(|error| on(path, "write", &error))?;
        Ok(exit)
    }

    async fn write(
        &self,
        context: &Context,
        cluster: &Cluster,
        wanted: &Wanted,
        file: File,
    ) -> Result<Exit> {
        let written = write(cluster, wanted, !self.unsealed, file).await?;
        written.file.sync_all()?;
        context.print(&format!(
            "Records: {}, requests: {}, granted: {}, from {} until {}.\nSums: {}\n",
            written.records,
            written.requests,
            written.granted,
            wanted.from,
            wanted.to,
            written.sums
        ))?;
        if written.verdict != Verdict::Valid {
            context.say(
                "Note: the audit records are incomplete or not verified: `ozctl audit \
                verify` shows the cause",
            );
        }
        if self.unsealed {
            context.say(
                "Note: the bundle is not sealed: any part of it but the audit records could \
                    be changed unnoticed",
            );
        }
        for gap in &written.gaps {
            context.say_plain(&format!("Gap: {gap}"));
        }
        Ok(match (written.verdict, written.gaps.is_empty()) {
            (Verdict::Valid, true) => Exit::SUCCESS,
            (Verdict::Invalid, _) => Exit::FAILURE,
            _ => Exit::INCOMPLETE,
        })
    }
}

/// Returns the path of a file until it is complete.
fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// Creates a file that only its owner can read, since it contains the access of users. Removes the
/// leftover of an aborted attempt.
fn private(path: &Path) -> Result<File> {
    let _ = std::fs::remove_file(path);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
        .open(path)
        .map_err(|error| on(path, "write", &error))
}

fn on(path: &Path, verb: &str, error: &io::Error) -> Failure {
    Failure::new(format!("failed to {verb} {}: {error}", path.display()))
}

fn show(context: &Context, checked: &Checked, pinned: bool) -> Result<Exit> {
    if let Some(manifest) = &checked.manifest {
        let (requests, granted) = checked.accounts.requests();
        context.print(&format!(
            "Records: {}, requests: {requests}, granted: {granted}, from {} until {}.\n",
            checked.accounts.records(),
            manifest.from,
            manifest.to
        ))?;
    }
    if let Some(seal) = &checked.seal {
        context.print(&format!(
            "Sealed at {} as {} asked, sums {}.\n",
            seal.at,
            line(&seal.by),
            seal.sums
        ))?;
    }
    for note in &checked.report.notes {
        context.say_plain(&format!("Note: {note}"));
    }
    if !pinned {
        context.say(
            "Note: the public keys are those in the file; verify with --key and the output of \
                `ozctl audit keys`",
        );
    }
    let verdict = checked.verdict();
    let (style, text, why, exit) = match verdict {
        Verdict::Valid => (
            Style::Green,
            "Valid",
            "no byte of it was changed since it was sealed, and none of its records is missing.",
            Exit::SUCCESS,
        ),
        Verdict::Invalid => (
            Style::Red,
            "NOT WHOLE",
            "the file is not a valid bundle of evidence.",
            Exit::FAILURE,
        ),
        Verdict::Empty => (
            Style::Red,
            "NOTHING TO CHECK",
            "the bundle has no audit records, which proves nothing.",
            Exit::NOTHING,
        ),
        Verdict::Unchecked if checked.seal.is_none() && checked.report.is_whole() => (
            Style::Red,
            "NOT SEALED",
            "its audit records are complete; all else in it follows from them, or may have been \
                changed.",
            Exit::UNCHECKED,
        ),
        Verdict::Unchecked => (
            Style::Red,
            "NOT CHECKED",
            "it is signed by unknown keys.",
            Exit::UNCHECKED,
        ),
    };
    context.print(&format!("{}: {why}\n", context.paint_output(style, text)))?;
    let of_records = checked.report.problems.iter().map(ToString::to_string);
    let of_file = checked.problems.iter().map(ToString::to_string);
    for problem in of_file.chain(of_records) {
        context.print(&format!("  {}\n", line(&problem)))?;
    }
    Ok(exit)
}
