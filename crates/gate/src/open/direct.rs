//! Sessions that open at once, and the way of those that wait.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Response;
use axum::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use oz_gating::path::Path;
use oz_gating::upgrade::Upgrade;

use super::request::Requested;
use super::waiting::Wait;
use super::{Entrant, Opener};
use crate::answer::Refused;
use crate::handshake::switching;
use crate::moderated::{self, Moderation};
use crate::recordings::Plan;
use crate::relay::{Side, carry};
use crate::socket::Spoken;
use crate::upstream::whole;

impl Opener {
    /// Opens a session, which a task carries from then on.
    pub(super) async fn open_session(
        self: &Arc<Self>,
        entrant: Entrant,
        path: &Path,
        parts: Parts,
        (asked, client): (Upgrade, OnUpgrade),
    ) -> Result<Response<Body>, Refused> {
        let slot = self.sessions.take(&entrant.user.user)?;
        let (way, recordings) = (path.rest.title(), self.recordings.as_ref());
        let whose = (&*entrant.grant, &entrant.user);
        let plan = Plan::decide(recordings, whose, way, Some(&asked)).await?;
        let moderation = moderated::needed(&entrant.grant, way, Some(&asked))?;
        let moderation =
            moderation.map(|config| Moderation::new(config, &entrant.grant, &entrant.user));
        let waits = moderation.is_some();
        let session = self.enter(entrant, path, &plan, moderation, slot);
        if waits {
            let path = path.clone();
            return self.wait(session, Wait { plan, path, parts }, (asked, client));
        }
        let prepared = self.prepare(&session.data, &plan, path).await?;
        let requested = self.request(session, prepared, &parts, &asked).await?;
        let (session, agreed, upstream) = match requested {
            Requested::Open(session, agreed, upstream) => (session, agreed, upstream),
            Requested::Answered(answered) => return Ok(whole(answered)),
        };
        let response = switching(&asked, &agreed)?;
        let spoken = Spoken::new(&agreed, &path.options, way);
        session.data.live.agreed(spoken);
        tokio::spawn(carry(session, Side::new(client, spoken), upstream));
        Ok(response)
    }
}
