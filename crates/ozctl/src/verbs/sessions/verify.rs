//! `ozctl sessions verify`: checks whether the stored recordings are as they were recorded.

use std::path::{Path, PathBuf};

use clap::Args;
use oz_client::sessions::Identities;
use oz_client::sessions::verification::{self, Checked};
use oz_trail::{Action, Query};

use super::identity::IdentityArgs;
use super::{request_of, shared_names, source};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::verbs::audit;

/// Verify that no session recording was changed, removed or replaced
#[derive(Args)]
#[command(after_help = "\
Compares each stored recording with the head of its chain in the audit trail. Verify the trail itself with
`ozctl audit verify`. Encrypted recordings need no key for this; --identity adds which part was changed, and which cannot
be read.

Exit codes: 0 all recordings match, 1 one does not, 2 there are no recordings in the audit trail.")]
pub(super) struct Verify {
    /// Name or UID of the request
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
        let mut query = Query {
            grant: self.request,
            ..Query::default()
        };
        if self.log.is_empty() {
            let cluster = context.cluster().await?;
            query.namespace = (!self.all_namespaces).then_some(cluster.namespace);
        } else {
            query.namespace.clone_from(&context.connection.namespace);
        }
        let trail = RecordedIn {
            cluster: self.log.is_empty(),
            logs: &self.log,
        };
        let checked = trail
            .check(context, query, self.from.as_deref(), &identities)
            .await?;
        if checked.is_empty() {
            context.say("No recordings in the audit trail here.");
            return Ok(Exit::NOTHING);
        }
        show(context, &checked)?;
        let wrong = checked.iter().filter(|one| one.is_wrong()).count();
        if wrong > 0 {
            let message = format!(
                "{wrong} of {} recordings differ from the audit trail",
                checked.len()
            );
            return Err(Failure::new(message));
        }
        context.say(&format!(
            "{} recordings match the audit trail.",
            checked.len()
        ));
        Ok(Exit::SUCCESS)
    }
}

/// The places of the audit records about recordings.
pub(crate) struct RecordedIn<'a> {
    /// The cluster.
    pub(crate) cluster: bool,
    /// The logs.
    pub(crate) logs: &'a [PathBuf],
}

impl RecordedIn<'_> {
    /// Compares each recording of these records with its stored data: in a directory, or through
    /// the gate.
    pub(crate) async fn check(
        &self,
        context: &Context,
        query: Query,
        from: Option<&Path>,
        identities: &Identities,
    ) -> Result<Vec<Checked>> {
        let action = Some(Action::SessionRecorded);
        let query = Query { action, ..query };
        let entries = audit::entries(context, &query, self.cluster, self.logs).await?;
        let heads = verification::heads(&entries);
        let source = source(context, from).await?;
        Ok(verification::check(&source, &heads, identities).await?)
    }
}

/// Shows the findings; the UID of a request whose name stands for several requests.
pub(crate) fn show(context: &Context, checked: &[Checked]) -> Result<()> {
    let uids = checked.iter();
    let uids = uids.map(|one| (one.session.as_str(), one.request_uid.as_str()));
    let shared = shared_names(uids);
    for Checked {
        session,
        request_uid,
        parts,
        findings,
    } in checked
    {
        let session = match shared.contains(request_of(session)) {
            true => format!("{session} (request UID {request_uid})"),
            false => session.clone(),
        };
        if findings.is_empty() {
            context.print(&format!("{session}: {parts} parts, as recorded\n"))?;
        }
        for finding in findings {
            context.print(&format!("{session}: {finding}\n"))?;
        }
    }
    Ok(())
}
