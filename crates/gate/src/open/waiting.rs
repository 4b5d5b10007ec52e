//! Sessions that wait for moderators. The client of such a session is answered at once, with the sub-protocol that the
//! API server is then asked for: it receives a notice with the missing moderators, and a lost client is detected.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use oz_core::connect::Refusal;
use oz_gating::moderation;
use oz_gating::path::Path;
use oz_gating::upgrade::Upgrade;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::Opener;
use super::request::Requested;
use crate::answer::Refused;
use crate::close::End;
use crate::handshake::switching;
use crate::recordings::Plan;
use crate::relay::{Carried, Side, UPGRADE_TIMEOUT, carry};
use crate::session::{Registered, Session};
use crate::socket::{Client, Spoken, Words};

/// The time after which a client receives the notice that its session waits. A moderator who already waits for the session may
/// join before.
const NOTICE_AFTER: Duration = Duration::from_secs(1);
/// The limits of a response of the API server that is read for its message.
const MAX_ANSWER: usize = 64 << 10;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The request for a session that waits.
pub(super) struct Wait {
    pub(super) plan: Plan,
    pub(super) path: Path,
    pub(super) parts: Parts,
}

impl Opener {
    /// Answers the client of a session that requires moderators. A task opens the session once enough of them watch.
    pub(super) fn wait(
        self: &Arc<Self>,
        session: Session,
        wait: Wait,
        (asked, client): (Upgrade, OnUpgrade),
    ) -> Result<Response<Body>, Refused> {
        let preferred = asked.preferred().and_then(|(alone, agreed)| {
            let spoken = Spoken::new(&agreed, &wait.path.options, session.data.way)?;
            Some((alone, agreed, spoken, spoken.words?))
        });
        let Some((alone, agreed, spoken, words)) = preferred else {
            // Sessions of other protocols are refused before.
            let message = "a session that requires a moderator needs a WebSocket";
            return Err(Refused::new(StatusCode::FORBIDDEN, "NotModerated", message));
        };
        let response = switching(&asked, &agreed)?;
        let opener = Arc::clone(self);
        tokio::spawn(opener.inform(session, wait, (client, alone), (spoken, words)));
        Ok(response)
    }

    /// Keeps the client informed until its session is open, and carries the session from then on.
    async fn inform(
        self: Arc<Self>,
        mut session: Session,
        wait: Wait,
        (client, asked): (OnUpgrade, Upgrade),
        (spoken, words): (Spoken, Words),
    ) {
        session.waits();
        let Ok(Ok(upgraded)) = timeout(UPGRADE_TIMEOUT, client).await else {
            return;
        };
        let room = session.data.slot.message_room();
        let mut client = Client::new(TokioIo::new(upgraded), room).await;
        let live = Arc::clone(&session.data.live);
        let opened = {
            let opens = pin!(self.open_moderated(session, &wait, &asked));
            tokio::select! {
                opened = opens => opened.map_err(Some),
                // The session is dropped, and records that it was not opened.
                why = client.waits(&live.traffic, words) => Err(why),
            }
        };
        match opened {
            Ok((session, upstream)) => {
                let client = Side::Waited(Box::new(client), spoken);
                carry(session, client, upstream).await;
            }
            Err(Some(why)) => {
                let user = &live.data.user.user;
                tracing::info!(user, reason = why.reason, "refused after a wait");
                client.leave(&why, spoken).await;
            }
            Err(None) => {}
        }
    }

    /// Opens a session as soon as enough moderators watch.
    async fn open_moderated(
        &self,
        mut session: Session,
        wait: &Wait,
        asked: &Upgrade,
    ) -> Result<(Session, OnUpgrade), Refusal> {
        if let Err(why) = wait_for_moderators(&session.data).await {
            session.end(&End::Terminated(why.clone()), Carried::default());
            return Err(why);
        }
        let Wait { plan, path, parts } = wait;
        let prepared = match self.prepare(&session.data, plan, path).await {
            Ok(prepared) => prepared,
            Err(refused) => {
                session.refused(&refused);
                return Err(refused.into());
            }
        };
        match self.request(session, prepared, parts, asked).await? {
            Requested::Open(session, _, upstream) => Ok((session, upstream)),
            Requested::Answered(answered) => Err(refusal_from(answered).await),
        }
    }
}

/// Waits until enough moderators watch a session. After a moment, the client receives a notice.
async fn wait_for_moderators(session: &Registered) -> Result<(), Refusal> {
    let live = &session.live;
    let Some(moderation) = &live.data.moderation else {
        return Ok(());
    };
    let notice = async {
        sleep(NOTICE_AFTER).await;
        let key = session.key();
        let notice = moderation::waits(&moderation.config, &key.namespace, &key.request);
        live.traffic.tell(notice);
        pending().await
    };
    let opened = tokio::select! {
        opened = moderation.opens() => opened,
        why = session.must_end(false) => Err(why),
        never = notice => never,
    };
    live.data.idle.used();
    opened
}

/// Returns the response of the API server as the reason why a session is not opened.
async fn refusal_from(answered: Response<kube::client::Body>) -> Refusal {
    let status = answered.status();
    let body = Limited::new(answered.into_body(), MAX_ANSWER).collect();
    let body = timeout(ANSWER_TIMEOUT, body).await;
    let said = body.ok().and_then(Result::ok).and_then(|body| {
        let answer: Value = serde_json::from_slice(&body.to_bytes()).ok()?;
        answer["message"].as_str().map(str::to_owned)
    });
    let message = match said {
        Some(said) => format!("the API server responded {status}: {said}"),
        None => format!("the API server responded {status}"),
    };
    Refusal::new("ApiServer", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn refusal_of_the_api_server_has_its_message_if_it_sent_one() {
        let status = r#"{"kind": "Status", "message": "pods \"web\" is forbidden"}"#;
        for (body, expected) in [
            (status, "403 Forbidden: pods \"web\" is forbidden"),
            ("<html>", "403 Forbidden"),
            ("", "403 Forbidden"),
        ] {
            let body = kube::client::Body::from(body.as_bytes().to_vec());
            let mut answered = Response::new(body);
            *answered.status_mut() = StatusCode::FORBIDDEN;
            let refusal = refusal_from(answered).await;
            let expected = format!("the API server responded {expected}");
            assert_eq!(refusal.message, expected);
        }
    }
}
