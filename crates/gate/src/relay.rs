//! Bytes both ways, as they come. No more is held than one buffer each way; who does not read is not read from.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oz_core::connect::Refusal;
use oz_core::gate::Exit;
use oz_core::gate::frames::{Frames, farewell};
use oz_core::gate::messages::Messages;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::time::timeout;

use crate::tape::Tape;

const BUFFER: usize = 32 << 10;
/// How long a client is waited for once the server has closed: it has nothing to say any more.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client may take to read why its session is over.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// What a client can be told at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// Messages on channels over a WebSocket.
    Channels {
        /// Whether on a terminal.
        tty: bool,
    },
    /// Something else: it is closed without a word.
    Other,
}

/// What a session carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) inward: u64,
    pub(crate) outward: u64,
    /// How the command ended, if the kubelet said so.
    pub(crate) exit: Option<i32>,
}

/// Carries bytes until both sides have closed, or until `ended` says why it is over.
pub(crate) async fn relay(
    client: impl AsyncRead + AsyncWrite,
    upstream: impl AsyncRead + AsyncWrite,
    ended: impl Future<Output = Refusal>,
    speaks: Speaks,
    tape: Option<&Tape>,
) -> (Option<Refusal>, Carried) {
    let (mut client_read, mut client_write) = split(client);
    let (mut upstream_read, mut upstream_write) = split(upstream);
    let (inward, outward) = (AtomicU64::new(0), AtomicU64::new(0));
    let (mut frames, mut exit) = (Frames::default(), Exit::default());
    let (mut said_in, mut said_out) = (Messages::default(), Messages::default());
    let why = {
        let mut up = pin!(async {
            pump(&mut client_read, &mut upstream_write, tape, |bytes| {
                inward.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                if let Some(tape) = tape {
                    said_in.passed(bytes, |piece| tape.said(true, piece));
                }
            })
            .await
        });
        let mut down = pin!(async {
            pump(&mut upstream_read, &mut client_write, tape, |bytes| {
                outward.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                if speaks != Speaks::Other {
                    frames.passed(bytes);
                    said_out.passed(bytes, |piece| {
                        exit.said(piece);
                        if let Some(tape) = tape {
                            tape.said(false, piece);
                        }
                    });
                }
            })
            .await
        });
        let both = async {
            tokio::select! {
                done = &mut up => if done.is_ok() {
                    // It has nothing more to say, and may still have much to hear.
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
    if let (Some(why), Speaks::Channels { tty }) = (&why, speaks)
        && frames.is_between_messages()
    {
        let told = async {
            client_write.write_all(&farewell(&why.message, tty)).await?;
            client_write.shutdown().await
        };
        let _ = timeout(FAREWELL_TIMEOUT, told).await;
    }
    let carried = Carried {
        inward: inward.into_inner(),
        outward: outward.into_inner(),
        exit: exit.code(),
    };
    (why, carried)
}

/// Copies until the source has closed, and closes the destination; waits while a tape has no room. Dropped at any point, `passed` was told of all
/// that was written.
async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    tape: Option<&Tape>,
    mut passed: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        if let Some(tape) = tape {
            tape.room().await;
        }
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        let mut left = &buffer[..read];
        while !left.is_empty() {
            let written = to.write(left).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            passed(&left[..written]);
            left = &left[written..];
        }
        to.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::duplex;
    use tokio::sync::oneshot;

    use super::*;

    fn over() -> Refusal {
        Refusal {
            reason: "Expired",
            message: "it is over".to_owned(),
        }
    }

    #[tokio::test]
    async fn every_byte_arrives_and_one_side_may_close_before_the_other() {
        let (mut alice, client) = duplex(1_000);
        let (mut pod, upstream) = duplex(1_000);
        let relayed = tokio::spawn(relay(client, upstream, pending(), Speaks::Other, None));
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
        // Alice has closed, and hears the answer all the same.
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
    async fn at_its_end_a_session_is_told_why_and_both_sides_are_closed() {
        let (mut alice, client) = duplex(10_000);
        let (mut pod, upstream) = duplex(10_000);
        let (end, ended) = oneshot::channel();
        let ended = async { ended.await.unwrap() };
        let speaks = Speaks::Channels { tty: true };
        let relayed = tokio::spawn(relay(client, upstream, ended, speaks, None));
        pod.write_all(&[0x82, 2, 1, b'$']).await.unwrap();
        let mut prompt = [0; 4];
        alice.read_exact(&mut prompt).await.unwrap();
        end.send(over()).unwrap();
        let mut heard = Vec::new();
        alice.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, farewell("it is over", true));
        assert_eq!(pod.read(&mut [0; 1]).await.unwrap(), 0);
        assert_eq!(relayed.await.unwrap().0, Some(over()));
    }

    #[tokio::test]
    async fn in_the_middle_of_a_message_nothing_is_put_in() {
        let (mut alice, client) = duplex(10_000);
        let (mut pod, upstream) = duplex(10_000);
        let (end, ended) = oneshot::channel();
        let ended = async { ended.await.unwrap() };
        let speaks = Speaks::Channels { tty: false };
        let relayed = tokio::spawn(relay(client, upstream, ended, speaks, None));
        pod.write_all(&[0x82, 9, 1, b'h']).await.unwrap();
        let mut begun = [0; 4];
        alice.read_exact(&mut begun).await.unwrap();
        end.send(over()).unwrap();
        let mut heard = Vec::new();
        alice.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"");
        assert_eq!(relayed.await.unwrap().0, Some(over()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_keeps_no_session_open() {
        let (_alice, client) = duplex(16);
        let (mut pod, upstream) = duplex(16);
        let (end, ended) = oneshot::channel();
        let ended = async { ended.await.unwrap() };
        let speaks = Speaks::Channels { tty: false };
        let relayed = tokio::spawn(relay(client, upstream, ended, speaks, None));
        // More than both buffers hold: the writer waits, so what is held is bounded.
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
