//! The request to the API server for a session.

use axum::http::Response;
use axum::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use oz_gating::path::Path;
use oz_gating::query::Options;
use oz_gating::upgrade::{Agreed, Upgrade};

use super::Opener;
use crate::answer::Refused;
use crate::recordings::{Opening, Plan};
use crate::session::{Registered, Session};
use crate::tape::Writer;
use crate::upstream::{UpgradeResponse, is_permitted};

/// The request for a session that the API server is about to receive.
pub(super) struct Prepared {
    /// The path and query.
    target: String,
    /// The session token.
    ticket: String,
    recording: Option<Writer>,
    /// The reason why the session is not recorded although it should be.
    unrecorded: Option<String>,
}

/// The response of the API server to the request for a session.
pub(super) enum Requested {
    /// The session is open.
    Open(Session, Agreed, OnUpgrade),
    /// The API server sent another response, and the session is not opened.
    Answered(Response<kube::client::Body>),
}

impl Opener {
    /// Prepares the request for a session: completes the authorization, and begins the recording.
    pub(super) async fn prepare(
        &self,
        session: &Registered,
        plan: &Plan,
        path: &Path,
    ) -> Result<Prepared, Refused> {
        let (grant, user) = (&session.grant, session.user());
        let (target, entered) = self.authorizer.complete(grant, user, path).await?;
        let ticket = self.authorizer.ticket(grant, user, entered.as_deref())?;
        // Before the API server is asked: a command that must be recorded does not run where it cannot be.
        let (recording, unrecorded) = self.record(session, plan, &path.options).await?;
        Ok(Prepared {
            target,
            ticket,
            recording,
            unrecorded,
        })
    }

    /// Begins to record a session, as planned. Returns the recording, or the reason why the session is not recorded.
    async fn record(
        &self,
        session: &Registered,
        plan: &Plan,
        options: &Options,
    ) -> Result<(Option<Writer>, Option<String>), Refused> {
        let why = match (plan, &self.recordings) {
            (Plan::None, _) => return Ok((None, None)),
            (Plan::Record(config), Some(recordings)) => {
                let opening = Opening {
                    grant: &session.grant,
                    user: session.user(),
                    way: session.way,
                    key: session.key(),
                    options,
                    at: session.opened_at(),
                };
                match recordings.begin(&opening, config).await {
                    Ok(writer) => return Ok((Some(writer), None)),
                    Err(refused) if session.must_be_recorded => return Err(refused),
                    Err(refused) => refused.message,
                }
            }
            (Plan::Record(_), None) => "there is no storage for it".to_owned(),
            (Plan::Cannot(why), _) => why.clone(),
        };
        Ok((None, Some(why)))
    }

    /// Requests a session from the API server.
    pub(super) async fn request(
        &self,
        mut session: Session,
        prepared: Prepared,
        parts: &Parts,
        asked: &Upgrade,
    ) -> Result<Requested, Refused> {
        let Prepared {
            target,
            ticket,
            recording,
            unrecorded,
        } = prepared;
        session.requests(recording);
        let upstream = &self.authorizer.upstream;
        let answered = match upstream.open((parts, &target), &ticket, asked).await {
            Ok(answered) => answered,
            Err(refused) => {
                session.refused(&refused);
                return Err(refused);
            }
        };
        Ok(match answered {
            UpgradeResponse::Open(agreed, upstream) => {
                if let Some(why) = unrecorded {
                    session.data.note_unrecorded(&why);
                }
                Requested::Open(session, agreed, upstream)
            }
            UpgradeResponse::Answered(answered) => {
                let permitted = is_permitted(answered.headers());
                session.answered(answered.status(), permitted);
                Requested::Answered(answered)
            }
        })
    }
}
