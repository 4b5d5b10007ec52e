//! `ozctl sessions`: shows the open and the past sessions of the gate, and their recordings.
//! [`oz_client::sessions`] reads them, and filters them for a terminal.

mod identity;
mod list;
mod live;
mod play;
mod transcript;
mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(crate) use self::verify::{RecordedIn, show};
use clap::{Args, Subcommand};
pub(crate) use oz_client::sessions::Identities;
use oz_client::sessions::source::Source;
pub(crate) use oz_client::sessions::verification::Checked;
use oz_gating::recording::SessionKey;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;

/// Show, watch and terminate sessions through the gate; play and verify their recordings
#[derive(Args)]
#[command(after_help = "\
A session is identified by its request, NAME, which selects its last session; or as `ozctl sessions list` shows it,
NAME/SESSION. If several requests had the name, one after the other, the UID of a request takes the place of the name.
Playing a recording requires ClusterRole oz-recording-viewer in its namespace, and is recorded; listing,
watching and ending open sessions requires oz-session-moderator, and watching is recorded as well.

Examples:
  ozctl sessions list
  ozctl sessions list --live
  ozctl sessions watch mine
  ozctl sessions end mine --reason 'the change window is over'
  ozctl sessions play mine
  ozctl sessions play mine --speed 4 --idle 1s
  ozctl sessions transcript mine
  ozctl sessions play mine --identity auditor.key
  ozctl sessions verify
  ozctl sessions verify --from /mnt/recordings --log gate.jsonl")]
pub(crate) struct Sessions {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    List(list::List),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Show(live::Show),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Watch(live::Watch),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    End(live::End),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Play(play::Play),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Transcript(transcript::ShowTranscript),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Verify(verify::Verify),
}

impl Sessions {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        match self.verb {
            Verb::List(verb) => verb.run(context).await,
            Verb::Show(verb) => verb.run(context).await,
            Verb::Watch(verb) => verb.run(context).await,
            Verb::End(verb) => verb.run(context).await,
            Verb::Play(verb) => verb.run(context).await,
            Verb::Transcript(verb) => verb.run(context).await,
            Verb::Verify(verb) => verb.run(context).await,
        }
    }
}

/// Returns the source of recordings: a directory, or the gate.
async fn source(context: &Context, from: Option<&Path>) -> Result<Source> {
    Ok(match from {
        Some(path) => Source::Directory(path.to_owned()),
        None => Source::Gate(context.cluster().await?),
    })
}

/// Returns the recorded session that a user named.
async fn found_session(
    context: &Context,
    source: &Source,
    text: &str,
    identities: &Identities,
) -> Result<SessionKey> {
    let namespace = namespace(context, source);
    let found = source.session(&namespace, text, identities).await?;
    if found.may_be_other {
        context.say_plain(&format!(
            "oz: this is the last recording of requests with the name {text}; whether there was more than one is in \
             the audit trail, which requires ClusterRole oz-audit-reader"
        ));
    }
    Ok(found.key)
}

/// Returns the requests, as NAMESPACE/NAME, of which one name stands for several UIDs. `sessions` are NAMESPACE/NAME/SESSION,
/// each with the UID of its request.
fn shared_names<'a>(sessions: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeSet<&'a str> {
    let mut uids: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (session, uid) in sessions.filter(|(_, uid)| !uid.is_empty()) {
        uids.entry(request_of(session)).or_default().insert(uid);
    }
    uids.retain(|_, uids| uids.len() > 1);
    uids.into_keys().collect()
}

/// Returns the namespace and the name of the request of a session.
fn request_of(session: &str) -> &str {
    session
        .rsplit_once('/')
        .map_or(session, |(request, _)| request)
}

/// Returns the namespace in which to search for sessions.
fn namespace(context: &Context, source: &Source) -> String {
    match source {
        Source::Gate(cluster) => cluster.namespace.clone(),
        Source::Directory(_) => {
            let chosen = context.connection.namespace.clone();
            chosen.unwrap_or_else(|| "default".to_owned())
        }
    }
}
