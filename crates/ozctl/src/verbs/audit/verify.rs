//! `ozctl audit verify`: checks whether the audit trail is whole.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use oz_api::duration::GoDuration;
use oz_api::names::{AUDIT_KEY, AUDIT_PUBLIC_KEYS as KEYS};
use oz_trail::Query;
use oz_trail::verify::{Report, UnknownKey, Verdict};
use serde_json::json;

use super::read::{log, plain, when};
use crate::audit::{self, Collected, Kept, Verified, kept_since};
use crate::context::{Context, Style};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::{self, TextFormat, instant};
use crate::verbs::sessions::{Checked, Identities, RecordedIn, show};

/// Returns the keys in these files, one in each line.
pub(super) fn pinned(files: &[PathBuf]) -> Result<Vec<String>> {
    let contents = files.iter().map(log).collect::<Result<Vec<String>>>()?;
    Ok(audit::pinned(&contents)?)
}

/// The namespace of oz.
#[derive(Args)]
pub(crate) struct Oz {
    /// Namespace that oz runs in
    // Its own id: that of the namespace to work in is another.
    #[arg(
        id = "oz-namespace",
        long = "oz-namespace",
        default_value = "oz-system",
        value_name = "NAME"
    )]
    pub(crate) namespace: String,
}

/// Verify that no audit record is missing, changed, duplicate or out of order
///
/// Exits with 1 and names the first bad record, with 2 if there was no record to verify, which
/// proves nothing, and with 3 if the only finding is an unknown signing key: it was lost, or it
/// does not belong to oz. A trail is proven complete up to the last checkpoint of each writer,
/// given public keys that were pinned outside the cluster.
#[derive(Args)]
pub(super) struct Verify {
    /// File with the pinned public keys, one a line; may be repeated [default: what the cluster
    /// publishes, which proves nothing against its administrators]
    #[arg(long, value_name = "FILE")]
    key: Vec<PathBuf>,
    /// Judge these logs too; may be repeated
    #[arg(long, value_name = "FILE", num_args = 1..)]
    log: Vec<PathBuf>,
    /// Judge only logs, without a cluster
    #[arg(long, requires = "log", requires = "key")]
    offline: bool,
    /// Verify also that each stored recording of a session is equal to its audit record: through
    /// the gate, or in this directory, which has the files of the gate
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, require_equals = true)]
    recordings: Option<Option<PathBuf>>,
    /// Retention of events in the cluster: audit.retention of the configuration
    #[arg(long, default_value = "720h", value_name = "DURATION")]
    retention: GoDuration,
    /// Age or instant before which records may be missing from the logs, such as 24h
    #[arg(long, value_name = "WHEN", value_parser = when)]
    logs_since: Option<Timestamp>,
    /// Count records that no signature covers yet as bad
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    oz: Oz,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

impl Verify {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let pinned = pinned(&self.key)?;
        let mut collected = Collected::default();
        if !self.offline {
            let cluster = context.cluster().await?;
            collected = Collected::read(&cluster, &self.oz.namespace).await?;
        }
        for path in &self.log {
            collected.log(&path.display().to_string(), &log(path)?);
        }
        let kept = Kept {
            objects: kept_since(Timestamp::now(), self.retention),
            logs: self.logs_since,
        };
        let Verified { report, is_pinned } = collected.verify(pinned, kept)?;
        let verdict = report.verdict(self.strict);
        let recordings = self.recordings(context).await?;
        self.show(context, &report, verdict, is_pinned, recordings.as_deref())?;
        if recordings.is_some_and(|checked| checked.iter().any(Checked::is_wrong)) {
            return Ok(Exit::FAILURE);
        }
        Ok(match verdict {
            Verdict::Valid => Exit::SUCCESS,
            Verdict::Invalid => Exit::FAILURE,
            Verdict::Unchecked => Exit::UNCHECKED,
            Verdict::Empty => Exit::NOTHING,
        })
    }

    /// Checks the recorded recordings of all namespaces, if the user requests it.
    async fn recordings(&self, context: &Context) -> Result<Option<Vec<Checked>>> {
        let Some(from) = &self.recordings else {
            return Ok(None);
        };
        if self.offline && from.is_none() {
            return Err(Failure::new(
                "recordings are read from the gate, which requires a cluster",
            )
            .next("name their directory: `--recordings=DIRECTORY`"));
        }
        let trail = RecordedIn {
            cluster: !self.offline,
            logs: &self.log,
        };
        let (all, identities) = (Query::default(), Identities::default());
        let checked = trail.check(context, all, from.as_deref(), &identities);
        checked.await.map(Some)
    }

    fn show(
        &self,
        context: &Context,
        report: &Report,
        verdict: Verdict,
        is_pinned: bool,
        recordings: Option<&[Checked]>,
    ) -> Result<()> {
        let value = || -> Result<_> {
            let mut value = output::to_value(report)?;
            value["valid"] = json!(verdict == Verdict::Valid);
            value["verdict"] = json!(verdict);
            value["keysPinned"] = json!(is_pinned);
            if let Some(checked) = recordings {
                value["recordings"] = json!(checked);
            }
            Ok(value)
        };
        match self.output {
            TextFormat::Json => return context.print(&output::json(&value()?)?),
            TextFormat::Yaml => return context.print(&output::yaml(&value()?)?),
            TextFormat::Text => {}
        }
        self.tell(context, report, verdict, is_pinned)?;
        match recordings {
            None => Ok(()),
            Some([]) => {
                context.say("No recordings in the audit trail.");
                Ok(())
            }
            Some(checked) => show(context, checked),
        }
    }

    /// Shows the result of the verification, for users.
    fn tell(
        &self,
        context: &Context,
        report: &Report,
        verdict: Verdict,
        is_pinned: bool,
    ) -> Result<()> {
        let mut table =
            output::Table::new(&["WRITER", "RECORDS", "FROM", "TO", "PROVEN", "UNSIGNED"]);
        for chain in &report.chains {
            table.row(vec![
                plain(&chain.writer.to_string()),
                chain.records.to_string(),
                chain.first.to_string(),
                chain.last.to_string(),
                chain.complete_through.to_string(),
                chain.unsigned.to_string(),
            ]);
        }
        if verdict != Verdict::Empty {
            context.print(&table.to_string())?;
        }
        for note in &report.notes {
            context.say(&format!("Note: {}", plain(note)));
        }
        if !is_pinned {
            context.say(
                "Note: the public keys come from the cluster itself; pin them outside with \
                 `ozctl audit keys` and verify with --key",
            );
        }
        if verdict == Verdict::Empty {
            let text = context.paint_output(Style::Red, "NOTHING TO VERIFY");
            return context.print(&format!(
                "{text}: there are no audit records, which proves nothing. A trail that was \
                 removed as a whole cannot be distinguished from a new one: compare it with a log \
                 (--log), and check whether audit.objects is true in oz's configuration.\n"
            ));
        }
        if verdict == Verdict::Valid {
            let text = context.paint_output(Style::Green, "Valid");
            return context.print(&format!(
                "{text}: {} records of {} writers, none missing or changed.\n",
                report.records(),
                report.chains.len()
            ));
        }
        for unknown in &report.unknown_keys {
            context.say(&format!("Note: {}", describe(unknown)));
        }
        if verdict == Verdict::Unchecked {
            let text = context.paint_output(Style::Red, "NOT CHECKED");
            return context.print(&format!(
                "{text}: audit records signed by these keys may be forged. Verify again with --key \
                 and the public keys that `ozctl audit keys` printed earlier; without them the \
                 result proves nothing.\n"
            ));
        }
        let text = context.paint_output(Style::Red, "NOT WHOLE");
        let first = report.problems.first().map_or_else(
            || format!("{} records are not signed", report.unsigned()),
            |problem| plain(&problem.to_string()),
        );
        context.print(&format!("{text}. First: {first}\n"))?;
        for problem in report.problems.iter().skip(1) {
            context.print(&format!("  also {}\n", plain(&problem.to_string())))?;
        }
        Ok(())
    }
}

/// Describes the records that an unknown key signed.
fn describe(unknown: &UnknownKey) -> String {
    let UnknownKey {
        key,
        records,
        checkpoints,
        first,
        last,
    } = unknown;
    let (first, last) = (instant(*first), instant(*last));
    format!(
        "key {} signed {records} records and {checkpoints} checkpoints, from {first} to {last}, \
         and is neither pinned nor vouched for: it was lost with Secret {AUDIT_KEY} and ConfigMap \
         {KEYS}, or it is not a key of oz",
        plain(key)
    )
}
