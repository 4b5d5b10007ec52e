//! `ozctl sessions verify`: whether what is stored is what was recorded.

use std::path::PathBuf;

use clap::Args;
use oz_core::audit::{Action, Entry, Query};
use oz_core::recording::{Form, Head, SessionKey, Stored, check};

use super::identity::{Identities, IdentityArgs};
use super::source::{Source, unpacked};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::trail;

/// Verify that no recording was changed, left out or exchanged
#[derive(Args)]
#[command(after_help = "\
For each session that is on record as recorded, what is stored is compared with the head of its chain that the audit
trail has. Verify the trail itself with `ozctl audit verify`. It needs no key, also where recordings are encrypted; with
--identity it is told as well which part was changed, and what cannot be read.

Exit codes: 0 all is as it was recorded, 1 something is not, 2 nothing is on record.")]
pub(super) struct Verify {
    /// Only of this request, by name or UID
    request: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Read the recordings there, not through the gate: a directory with what the gate stored
    #[arg(long, value_name = "DIRECTORY")]
    from: Option<PathBuf>,
    /// Read the audit trail from these logs instead of the cluster's events; may be repeated
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "from")]
    log: Vec<PathBuf>,
    #[command(flatten)]
    identity: IdentityArgs,
}

impl Verify {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let identities = self.identity.read(context)?;
        let source = Source::new(context, self.from.as_deref()).await?;
        let heads = self.heads(context).await?;
        if heads.is_empty() {
            context.say("No recording is on record here.");
            return Ok(Exit::NOTHING);
        }
        let mut wrong = 0_usize;
        for (key, head) in &heads {
            let parts = source.parts(key, &identities).await?;
            let findings = check(&key.to_string(), Some(head), &parts);
            let mut findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
            if findings.is_empty() {
                findings = unread(&parts, &identities);
            }
            if findings.is_empty() {
                context.print(&format!("{key}: {} parts, as recorded\n", head.parts))?;
                continue;
            }
            wrong += 1;
            for finding in findings {
                context.print(&format!("{key}: {finding}\n"))?;
            }
        }
        if wrong > 0 {
            let message = format!("{wrong} of {} recordings are not what was recorded", heads.len());
            return Err(Failure::new(message));
        }
        context.say(&format!("{} recordings are what was recorded.", heads.len()));
        Ok(Exit::SUCCESS)
    }

    /// What is on record, by session.
    async fn heads(&self, context: &Context) -> Result<Vec<(SessionKey, Head)>> {
        let mut query = Query {
            action: Some(Action::SessionRecorded),
            grant: self.request.clone(),
            ..Query::default()
        };
        let mut entries = Vec::new();
        if self.log.is_empty() {
            let cluster = context.cluster().await?;
            query.namespace = (!self.all_namespaces).then(|| cluster.namespace.clone());
            entries = trail::entries(&cluster, &query).await?;
        } else {
            query.namespace.clone_from(&context.connection.namespace);
        }
        for path in &self.log {
            let text = crate::verbs::audit::log(path)?;
            entries.extend(text.lines().filter_map(|line| serde_json::from_str::<Entry>(line).ok()));
        }
        entries.retain(|entry| query.matches(entry));
        trail::sort(&mut entries);
        let heads = entries.iter().filter_map(|entry| {
            let details = &entry.record.details;
            let key = SessionKey::read(details.get("session")?)?;
            let (parts, digest) = (details.get("parts")?.parse().ok()?, details.get("head")?.clone());
            Some((key, Head { parts, digest }))
        });
        Ok(heads.collect())
    }
}

/// What is as it was recorded, and cannot be read with the identities that were given.
fn unread(parts: &[Stored], identities: &Identities) -> Vec<String> {
    let encrypted = |part: &&Stored| part.name.form != Form::Plain && !identities.is_empty();
    let read = |part: &Stored| unpacked(&part.name, &part.bytes, identities).err();
    let parts = parts.iter().filter(encrypted);
    let failures = parts.filter_map(|part| Some((part.name.number, read(part)?)));
    failures.map(|(number, why)| format!("part {number} is as recorded, but not read: {}", why.message())).collect()
}
