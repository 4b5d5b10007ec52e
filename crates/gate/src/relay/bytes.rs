//! The relay of bytes in both directions, unchanged, for a session over SPDY. The relay holds at most one buffer per
//! direction; it does not read from a side while the other side does not read. Sessions that are recorded or watched
//! use a WebSocket ([`crate::socket`]).

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use oz_core::connect::Refusal;
use oz_gating::activity::Activity;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::time::timeout;

use crate::idle::Idle;
use crate::tape::Tape;
use crate::traffic::Traffic;

/// The size of one read, in bytes.
pub(crate) const BUFFER: usize = 32 << 10;
/// The time for which the relay waits for a client after the server has closed: the client has nothing more to send.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which a client can read the reason for the end of its session.
pub(crate) const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// The traffic that a session carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) inward: u64,
    pub(crate) outward: u64,
    /// The exit code of the command, if the kubelet reported it.
    pub(crate) exit: Option<i32>,
}

/// The observers of the traffic of a session.
#[derive(Clone, Copy)]
pub(crate) struct Beside<'a> {
    pub(crate) traffic: &'a Traffic,
    pub(crate) tape: Option<&'a Tape>,
    pub(crate) idle: &'a Idle,
}

/// The failure of one direction.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The connection to the side that is read from broke.
    Source,
    /// The connection to the side that is written to broke.
    Destination,
    /// One side sent data that cannot be passed on.
    Malformed(Refusal),
}

/// Carries bytes until both sides have closed, or until `ended` returns the reason for the end.
pub(crate) async fn relay(
    client: impl AsyncRead + AsyncWrite,
    upstream: impl AsyncRead + AsyncWrite,
    ended: impl Future<Output = Refusal>,
    beside: Beside<'_>,
) -> (Option<Refusal>, Carried) {
    let (mut client_read, mut client_write) = split(client);
    let (mut upstream_read, mut upstream_write) = split(upstream);
    let why = {
        let mut up = pin!(pump(&mut client_read, &mut upstream_write, true, beside));
        let mut down = pin!(pump(&mut upstream_read, &mut client_write, false, beside));
        let both = async {
            tokio::select! {
                // A side that has nothing more to send may still have much to receive; and a command that no longer
                // reads may have printed output before.
                done = &mut up => if !matches!(done, Err(Broken::Source)) {
                    let _ = down.await;
                },
                done = &mut down => if done.is_ok() {
                    let _ = timeout(CLOSE_TIMEOUT, up).await;
                },
            }
        };
        tokio::select! {
            biased;
            why = ended => Some(why),
            () = both => None,
        }
    };
    let (inward, outward) = beside.traffic.bytes();
    let carried = Carried {
        inward,
        outward,
        exit: None,
    };
    (why, carried)
}

/// Copies until the source has closed, and closes the destination. If the future is dropped, the bytes that were
/// written are counted.
async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    inward: bool,
    beside: Beside<'_>,
) -> Result<(), Broken> {
    let mut activity = Activity::default();
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer).await.map_err(|_| Broken::Source)?;
        if read == 0 {
            return to.shutdown().await.map_err(|_| Broken::Destination);
        }
        let mut bytes = &buffer[..read];
        if activity.passed(bytes) {
            beside.idle.used();
        }
        while !bytes.is_empty() {
            let length = to.write(bytes).await.map_err(|_| Broken::Destination)?;
            if length == 0 {
                return Err(Broken::Destination);
            }
            beside.traffic.passed(inward, length);
            bytes = &bytes[length..];
        }
        to.flush().await.map_err(|_| Broken::Destination)?;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io;

    use tokio::io::{DuplexStream, duplex};
    use tokio::sync::oneshot;
    use tokio_util::io::StreamReader;

    use super::*;

    pub(crate) fn over() -> Refusal {
        Refusal {
            reason: "Expired",
            message: "it is over".to_owned(),
        }
    }

    async fn relayed(
        client: impl AsyncRead + AsyncWrite,
        upstream: DuplexStream,
        ended: impl Future<Output = Refusal>,
    ) -> (Option<Refusal>, Carried) {
        let beside = Beside {
            traffic: &Traffic::default(),
            tape: None,
            idle: &Idle::new(None),
        };
        relay(client, upstream, ended, beside).await
    }

    #[tokio::test]
    async fn every_byte_arrives_and_one_side_may_close_before_the_other() {
        let (mut alice, client) = duplex(1_000);
        let (mut pod, upstream) = duplex(1_000);
        let relayed = tokio::spawn(relayed(client, upstream, pending()));
        let sent: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let expected = sent.clone();
        let told = tokio::spawn(async move {
            alice.write_all(&sent).await.unwrap();
            alice.shutdown().await.unwrap();
            let mut heard = Vec::new();
            alice.read_to_end(&mut heard).await.unwrap();
            heard
        });
        let mut received = Vec::new();
        pod.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, expected);
        // Alice has closed, and receives the response nevertheless.
        pod.write_all(b"done").await.unwrap();
        drop(pod);
        assert_eq!(told.await.unwrap(), b"done");
        let (why, carried) = relayed.await.unwrap();
        assert_eq!(why, None);
        let expected = Carried {
            inward: 200_000,
            outward: 4,
            exit: None,
        };
        assert_eq!(carried, expected);
    }

    #[tokio::test]
    async fn output_before_end_of_command_is_delivered_despite_unread_input() {
        // The side that is polled first is random.
        for _ in 0..64 {
            let (mut alice, client) = duplex(1_000);
            let (mut pod, upstream) = duplex(1_000);
            pod.write_all(b"printed").await.unwrap();
            drop(pod);
            alice.write_all(b"more input").await.unwrap();
            let relayed = relayed(client, upstream, pending());
            let mut heard = Vec::new();
            let (_, read) = tokio::join!(relayed, alice.read_to_end(&mut heard));
            read.unwrap();
            assert_eq!(heard, b"printed");
        }
    }

    #[tokio::test]
    async fn a_client_that_breaks_off_ends_its_session_though_the_command_says_nothing() {
        let (mut pod, upstream) = duplex(1_000);
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        let broken = futures::stream::iter([Err::<&[u8], _>(reset)]);
        let client = tokio::io::join(StreamReader::new(broken), tokio::io::sink());
        let (why, carried) = relayed(client, upstream, pending()).await;
        assert_eq!((why, carried), (None, Carried::default()));
        assert_eq!(pod.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn both_sides_are_closed_at_the_end_of_a_session() {
        let (mut alice, client) = duplex(10_000);
        let (mut pod, upstream) = duplex(10_000);
        let (end, ended) = oneshot::channel();
        let ended = async { ended.await.unwrap() };
        let relayed = tokio::spawn(relayed(client, upstream, ended));
        pod.write_all(b"$").await.unwrap();
        assert_eq!(alice.read_u8().await.unwrap(), b'$');
        end.send(over()).unwrap();
        assert_eq!(alice.read(&mut [0; 1]).await.unwrap(), 0);
        assert_eq!(pod.read(&mut [0; 1]).await.unwrap(), 0);
        assert_eq!(relayed.await.unwrap().0, Some(over()));
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_reads_nothing_does_not_delay_end_of_session() {
        let (_alice, client) = duplex(16);
        let (mut pod, upstream) = duplex(16);
        let (end, ended) = oneshot::channel();
        let ended = async { ended.await.unwrap() };
        let relayed = tokio::spawn(relayed(client, upstream, ended));
        // More than both buffers hold: the writer waits, so the held bytes are bounded.
        let flood = tokio::spawn(async move {
            loop {
                if pod.write_all(&[0; 1024]).await.is_err() {
                    return;
                }
            }
        });
        end.send(over()).unwrap();
        let (why, carried) = relayed.await.unwrap();
        assert_eq!(why, Some(over()));
        assert!(carried.outward <= 16, "{carried:?}");
        flood.await.unwrap();
    }
}
