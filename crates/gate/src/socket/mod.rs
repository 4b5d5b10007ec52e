//! A session over a WebSocket. Both connections end at the gate: it reads a whole message, records and shows it, and
//! sends it on in new frames. So the other side receives nothing that the gate did not read, by construction; invalid
//! frames close the session.

mod carrier;
mod client;
mod spoken;
mod wire;

use std::future::Future;
use std::pin::pin;

use futures::StreamExt as _;
use oz_core::connect::Refusal;
use oz_gating::Exit;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use self::carrier::Carrier;
pub(crate) use self::client::Client;
pub(crate) use self::spoken::{Spoken, Words, runs_command};
use self::wire::{config, take_leave};
use crate::relay::{Beside, Broken, CLOSE_TIMEOUT, Carried, FAREWELL_TIMEOUT};

/// Carries messages until both sides have closed, or until `ended` returns the reason for the end. The messages that a
/// client sent while it waited pass first.
pub(crate) async fn relay(
    client: Client<impl AsyncRead + AsyncWrite + Unpin>,
    upstream: impl AsyncRead + AsyncWrite + Unpin,
    ended: impl Future<Output = Refusal>,
    spoken: Spoken,
    beside: Beside<'_>,
) -> (Option<Refusal>, Carried) {
    let Client {
        to: mut to_client,
        from: from_client,
    } = client;
    let upstream = WebSocketStream::from_raw_socket(upstream, Role::Client, Some(config())).await;
    let (mut to_upstream, from_upstream) = upstream.split();
    let mut exit = Exit::default();
    let carrier = Carrier { spoken, beside };
    let why = {
        let mut up = pin!(carrier.inward(from_client, &mut to_upstream));
        let mut down = pin!(carrier.outward(from_upstream, &mut to_client, &mut exit));
        let both = async {
            tokio::select! {
                // A side that has nothing more to send may still have much to receive; and a command that no longer
                // reads may have printed output before.
                done = &mut up => match done {
                    Ok(()) | Err(Broken::Destination) => down.await.err(),
                    Err(broken) => Some(broken),
                },
                done = &mut down => match done {
                    Ok(()) => timeout(CLOSE_TIMEOUT, up).await.ok().and_then(Result::err),
                    Err(broken) => Some(broken),
                },
            }
        };
        tokio::select! {
            biased;
            why = ended => Some(why),
            broken = both => match broken {
                Some(Broken::Malformed(why)) => Some(why),
                _ => None,
            },
        }
    };
    if let Some(why) = &why {
        let _ = timeout(FAREWELL_TIMEOUT, take_leave(&mut to_client, why, spoken)).await;
    }
    let (inward, outward) = beside.traffic.bytes();
    let carried = Carried {
        inward,
        outward,
        exit: exit.code(),
    };
    (why, carried)
}

#[cfg(test)]
mod tests;
