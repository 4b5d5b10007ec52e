//! Sessions that wait for moderators. The client of such a session is answered at once, with the sub-protocol that the
//! API server is then asked for: it learns for whom the session waits, and a client that is gone is noticed.

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

use crate::answer::Refused;
use crate::handshake::switching;
use crate::opening::{OpeningSession, WaitingSession};
use crate::recordings::Plan;
use crate::relay::Carried;
use crate::router::{Door, Requested, Session, UPGRADE_TIMEOUT, how_it_ended};
use crate::side::Side;
use crate::socket::{Client, Spoken, Words};
use crate::tape::Writer;

/// The time after which a client learns for whom its session waits. A moderator who already waits for the session may
/// join before.
const NOTICE_AFTER: Duration = Duration::from_secs(1);
/// The limits of a response of the API server that is read for its message.
const MAX_ANSWER: usize = 64 << 10;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The request for a session that waits.
pub(crate) struct Wait {
    pub(crate) plan: Plan,
    pub(crate) path: Path,
    pub(crate) parts: Parts,
}

/// A session that the API server opened after its wait.
struct Opened {
    session: Session,
    upstream: OnUpgrade,
    writer: Option<Writer>,
    unrecorded: Option<String>,
}

impl Door {
    /// Answers the client of a session that requires moderators. A task opens the session once enough of them watch.
    pub(crate) fn wait(
        self: &Arc<Self>,
        session: Session,
        wait: Wait,
        (asked, client): (Upgrade, OnUpgrade),
    ) -> Result<Response<Body>, Refused> {
        let preferred = asked.preferred().and_then(|(alone, agreed)| {
            let spoken = Spoken::new(&agreed, &wait.path.options, session.way)?;
            Some((alone, agreed, spoken, spoken.words?))
        });
        let Some((alone, agreed, spoken, words)) = preferred else {
            // Sessions of other protocols are refused before.
            let message = "a session that requires a moderator needs a WebSocket";
            return Err(Refused::new(StatusCode::FORBIDDEN, "NotModerated", message));
        };
        let response = switching(&asked, &agreed)?;
        tokio::spawn(Arc::clone(self).waits(session, wait, (client, alone), (spoken, words)));
        Ok(response)
    }

    /// Keeps the client informed until its session is open, and carries the session from then on.
    async fn waits(
        self: Arc<Self>,
        session: Session,
        wait: Wait,
        (client, asked): (OnUpgrade, Upgrade),
        (spoken, words): (Spoken, Words),
    ) {
        let upgraded = {
            let waiting = WaitingSession::new(&self, &session);
            let upgraded = timeout(UPGRADE_TIMEOUT, client).await;
            let Ok(Ok(upgraded)) = upgraded else { return };
            waiting.ends();
            TokioIo::new(upgraded)
        };
        let mut client = Client::new(upgraded, self.sessions.message_room()).await;
        let live = Arc::clone(&session.live);
        let opened = {
            let opens = pin!(self.opens(session, &wait, &asked));
            tokio::select! {
                opened = opens => opened.map_err(Some),
                // What opens is dropped, and records that the session was not opened.
                why = client.waits(&live.traffic, words) => Err(why),
            }
        };
        match opened {
            Ok(opened) => {
                self.is_unrecorded(&opened.session, opened.unrecorded);
                let client = Side::Waited(Box::new(client), spoken);
                let sides = (client, opened.upstream);
                self.carry(opened.session, sides, opened.writer).await;
            }
            Err(Some(why)) => {
                tracing::info!(
                    user = live.user.user,
                    reason = why.reason,
                    "refused after a wait"
                );
                client.leave(&why, spoken).await;
            }
            Err(None) => {}
        }
    }

    /// Opens a session as soon as enough moderators watch.
    async fn opens(
        self: &Arc<Self>,
        session: Session,
        wait: &Wait,
        asked: &Upgrade,
    ) -> Result<Opened, Refusal> {
        self.moderators(&session).await?;
        let Wait { plan, path, parts } = wait;
        let waiting = WaitingSession::new(self, &session);
        let ready = async {
            let (target, entered) = self.enters(&session.grant, path).await?;
            let ticket = self.ticket(&session.grant, &session.user, entered.as_deref())?;
            // Before the API server is asked: a command that must be recorded does not run where it cannot be.
            let (writer, unrecorded) = self.record(&session, plan, &path.options).await?;
            Ok::<_, Refused>((target, ticket, writer, unrecorded))
        };
        let (target, ticket, writer, unrecorded) = match ready.await {
            Ok(ready) => ready,
            Err(refused) => {
                waiting.fails(&refused.message);
                return Err(refused.into());
            }
        };
        waiting.ends();
        let opening = OpeningSession::new(self, session, writer);
        let requested = self.request(opening, asked, (parts, &target, &ticket));
        let (opening, upstream) = match requested.await? {
            Requested::Open(opening, _, upstream) => (opening, upstream),
            Requested::Answered(answered) => return Err(refusal_from(answered).await),
        };
        let Some((session, writer)) = opening.opened() else {
            return Err(Refusal::new(
                "ApiServer",
                "the session was not opened; try again",
            ));
        };
        Ok(Opened {
            session,
            upstream,
            writer,
            unrecorded,
        })
    }

    /// Waits until enough moderators watch a session.
    async fn moderators(&self, session: &Session) -> Result<(), Refusal> {
        let Some(moderation) = &session.live.moderation else {
            return Ok(());
        };
        let waiting = WaitingSession::new(self, session);
        let notice = async {
            sleep(NOTICE_AFTER).await;
            let (namespace, request) = (&session.key.namespace, &session.key.request);
            let notice = moderation::waits(&moderation.config, namespace, request);
            session.live.traffic.tell(notice);
            std::future::pending().await
        };
        let opened = tokio::select! {
            opened = moderation.opens() => opened,
            why = self.end_of(session, false) => Err(why),
            never = notice => never,
        };
        waiting.ends();
        session.idle.used();
        opened.inspect_err(|why| {
            let carried = Carried::default();
            session.live.traffic.end(&how_it_ended(Some(why), carried));
            self.note_end(session, Some(why), carried);
        })
    }
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
