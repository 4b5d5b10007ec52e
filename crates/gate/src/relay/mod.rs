//! The relay of an open session, until a side closes it or the session must end.

mod bytes;
mod followed;
mod side;

use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use oz_core::connect::Refusal;

pub(crate) use self::bytes::{BUFFER, Beside, Broken, CLOSE_TIMEOUT, Carried, FAREWELL_TIMEOUT};
pub(crate) use self::followed::followed;
use self::side::Connected;
pub(crate) use self::side::Side;
use crate::close::End;
use crate::session::{Registered, Session};
use crate::tape::{Tape, Writer};
use crate::{slowed, socket};

/// The maximum time in which both sides must switch protocols after the API server accepted.
pub(crate) const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);

/// Carries the data of a session that the API server opened, until its end.
pub(crate) async fn carry(mut session: Session, client: Side, upstream: OnUpgrade) {
    session.opens();
    let (why, carried) = relayed(&session, client, upstream).await;
    session.end(&End::from_reason(why), carried);
}

async fn relayed(
    session: &Session,
    client: Side,
    upstream: OnUpgrade,
) -> (Option<Refusal>, Carried) {
    let data = &*session.data;
    let client = client.connected(data.slot.message_room());
    let both = async { tokio::try_join!(client, upstream) };
    let (client, upstream) = match tokio::time::timeout(UPGRADE_TIMEOUT, both).await {
        Ok(Ok((client, upstream))) => (client, TokioIo::new(upstream)),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a session was not opened");
            return (None, Carried::default());
        }
        Err(_elapsed) => return (None, Carried::default()),
    };
    let tape = session.recording().map(Writer::tape);
    let ended = must_end(data, tape);
    let beside = Beside {
        traffic: &data.live.traffic,
        tape: tape.map(Arc::as_ref),
        idle: &data.live.data.idle,
    };
    match client {
        Connected::Messages(client, spoken) => {
            socket::relay(*client, upstream, ended, spoken, beside).await
        }
        Connected::Bytes(client) => bytes::relay(client, upstream, ended, beside).await,
    }
}

/// Waits until an open session must end, and returns the reason. Meanwhile, pauses the session while it requires
/// moderators, and reports when it is slowed down.
async fn must_end(session: &Registered, tape: Option<&Arc<Tape>>) -> Refusal {
    let (traffic, idle) = (&session.live.traffic, &session.live.data.idle);
    tokio::select! {
        why = session.must_end(true) => why,
        why = session.pauses() => why,
        why = not_recorded(tape), if session.must_be_recorded => why,
        never = slowed::look_after(tape, traffic, idle, &session.journal.metrics) => match never {},
    }
}

/// Ready when a session that must be recorded is no longer recorded.
async fn not_recorded(tape: Option<&Arc<Tape>>) -> Refusal {
    let why = match tape {
        Some(tape) => tape.broken().await,
        None => std::future::pending().await,
    };
    let message = format!("this session requires a recording, which failed: {why}");
    Refusal {
        reason: "NotRecorded",
        message,
    }
}
