//! `ozctl audit attest`: records the decision of a user about each line of the list of users who
//! could get access.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt as _;
use oz_compliance::entitlements::attest::{Decided, Sheet};

use super::verify::Oz;
use crate::attest::attest;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::line;

/// The maximum size of a file that is read.
const LONGEST: u64 = 64 << 20;
/// The maximum number of problems of a file, and of lines to remove, that are shown.
const SHOWN: usize = 20;

/// Record an attestation of entitlements: keep or remove, for each line
///
/// FILE is what `ozctl audit entitlements --to-attest` wrote, with keep or remove as the decision of each line and a
/// rationale. Nothing else of it may have been changed: its lines must have the digest of the list that was made.
///
/// What is recorded is an AccessReview in oz's namespace, sealed with your name as the API server knows you: the digests
/// of the list and of the file, how many lines are kept and removed, and those that are to be removed, up to 64. Keep
/// the file: its digest proves what was decided about each line. Nothing is removed by this; what to do is said.
///
/// Exits with 3 if lines are not decided yet, or without a rationale, and says which.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl audit entitlements --to-attest -o csv > review.csv
  ozctl audit attest review.csv --dry-run
  ozctl audit attest review.csv")]
pub(super) struct Attest {
    /// The list with decisions, as CSV or JSON
    file: PathBuf,
    /// Only say what is missing, and record nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    oz: Oz,
}

impl Attest {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let text = self.read()?;
        let sheet = Sheet::read(&text).map_err(|why| self.failed("use", &why.to_string()))?;
        let all = sheet.lines.len();
        context.print(&format!("Decided: {} of {all} lines.\n", sheet.decided()))?;
        let decided = match sheet.attested(&text) {
            Ok(decided) => decided,
            Err(problems) => return incomplete(context, &problems),
        };
        for gap in &sheet.gaps {
            context.say_plain(&format!("Gap: {gap}"));
        }
        let attestation = &decided.attestation;
        let counts = format!("{} kept, {} removed", attestation.kept, attestation.removed);
        if self.dry_run {
            context.print(&format!("It can be attested: {counts}.\n"))?;
        } else {
            let cluster = context.cluster().await?;
            let now = Timestamp::now();
            let made = attest(&cluster, &self.oz.namespace, attestation.clone(), now).await?;
            context.print(&format!("attested: {counts} ({})\n", made.name_any()))?;
        }
        context.print(&format!(
            "Entitlements: {}\nFile: {}\n",
            attestation.entitlements, attestation.file
        ))?;
        what_to_do(context, &decided)?;
        Ok(Exit::SUCCESS)
    }

    fn read(&self) -> Result<String> {
        let failed = |error: std::io::Error| self.failed("read", &error.to_string());
        let mut text = String::new();
        let file = File::open(&self.file).map_err(failed)?;
        file.take(LONGEST + 1)
            .read_to_string(&mut text)
            .map_err(failed)?;
        match u64::try_from(text.len()).is_ok_and(|length| length <= LONGEST) {
            true => Ok(text),
            false => Err(self.failed("read", "it is longer than 64 MiB")),
        }
    }

    fn failed(&self, verb: &str, why: &str) -> Failure {
        Failure::new(format!(
            "failed to {verb} {}: {}",
            self.file.display(),
            line(why)
        ))
    }
}

/// Prints the missing parts.
fn incomplete(context: &Context, problems: &[String]) -> Result<Exit> {
    for problem in problems.iter().take(SHOWN) {
        context.print(&format!("  {}\n", line(problem)))?;
    }
    if let Some(more @ 1..) = problems.len().checked_sub(SHOWN) {
        context.print(&format!("  and {more} more\n"))?;
    }
    context.say("nothing is recorded: decide about each line, with a rationale");
    Ok(Exit::INCOMPLETE)
}

/// Prints how to remove the entitlements to remove.
fn what_to_do(context: &Context, decided: &Decided) -> Result<()> {
    if decided.removed.is_empty() {
        return Ok(());
    }
    context.print("To be removed manually:\n")?;
    for one in decided.removed.iter().take(SHOWN) {
        context.print(&format!(
            "  line {}: {}\n    {}\n",
            one.number,
            line(&one.entitlement.sentence()),
            one.entitlement.way.removal()
        ))?;
    }
    if let Some(more @ 1..) = decided.removed.len().checked_sub(SHOWN) {
        context.print(&format!("  and {more} more\n"))?;
    }
    Ok(())
}
