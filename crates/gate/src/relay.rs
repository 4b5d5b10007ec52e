//! Bytes both ways, as they come. No more is held than one buffer each way; who does not read is not read from.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use oz_core::connect::Refusal;
use oz_core::gate::Exit;
use oz_core::gate::frames::{ALIVE, Frames, farewell, notice};
use oz_core::gate::messages::Messages;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::time::timeout;

use crate::tape::Tape;
use crate::traffic::{Traffic, Word};

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

/// What passes, and who is told of it.
#[derive(Clone, Copy)]
pub(crate) struct Beside<'a> {
    pub(crate) traffic: &'a Traffic,
    pub(crate) tape: Option<&'a Tape>,
}

/// One direction of a session.
trait Direction {
    /// This was written of what was read.
    fn passed(&mut self, bytes: &[u8]);

    /// This was written of what oz says itself.
    fn told(&mut self, bytes: &[u8]);

    /// Ready, with what oz has to say, when it may be said.
    async fn word(&self) -> Vec<u8>;
}

/// What the user says.
struct Inward<'a> {
    beside: Beside<'a>,
    speaks: Speaks,
    said: Messages,
}

impl Direction for Inward<'_> {
    fn passed(&mut self, bytes: &[u8]) {
        let Beside { traffic, tape } = self.beside;
        traffic.passed(true, bytes.len());
        if self.speaks != Speaks::Other {
            self.said.passed(bytes, |piece| {
                traffic.said(true, piece);
                if let Some(tape) = tape {
                    tape.said(true, piece);
                }
            });
        }
    }

    fn told(&mut self, _bytes: &[u8]) {}

    async fn word(&self) -> Vec<u8> {
        std::future::pending().await
    }
}

/// What they are told.
struct Outward<'a> {
    beside: Beside<'a>,
    speaks: Speaks,
    frames: Frames,
    said: Messages,
    exit: Exit,
}

impl Direction for Outward<'_> {
    fn passed(&mut self, bytes: &[u8]) {
        let Beside { traffic, tape } = self.beside;
        traffic.passed(false, bytes.len());
        if self.speaks != Speaks::Other {
            self.frames.passed(bytes);
            let exit = &mut self.exit;
            self.said.passed(bytes, |piece| {
                exit.said(piece);
                traffic.said(false, piece);
                if let Some(tape) = tape {
                    tape.said(false, piece);
                }
            });
        }
    }

    fn told(&mut self, bytes: &[u8]) {
        self.frames.passed(bytes);
    }

    async fn word(&self) -> Vec<u8> {
        match self.speaks {
            Speaks::Channels { tty } if self.frames.is_between_messages() => {
                match self.beside.traffic.word().await {
                    Word::Line(text) => notice(&text, tty),
                    Word::Alive => ALIVE.to_vec(),
                }
            }
            _ => std::future::pending().await,
        }
    }
}

/// Carries bytes until both sides have closed, or until `ended` says why it is over.
pub(crate) async fn relay(
    client: impl AsyncRead + AsyncWrite,
    upstream: impl AsyncRead + AsyncWrite,
    ended: impl Future<Output = Refusal>,
    speaks: Speaks,
    beside: Beside<'_>,
) -> (Option<Refusal>, Carried) {
    let (mut client_read, mut client_write) = split(client);
    let (mut upstream_read, mut upstream_write) = split(upstream);
    let said = Messages::default();
    let mut inward = Inward {
        beside,
        speaks,
        said,
    };
    let mut outward = Outward {
        beside,
        speaks,
        frames: Frames::default(),
        said: Messages::default(),
        exit: Exit::default(),
    };
    let why = {
        let mut up = pin!(pump(
            &mut client_read,
            &mut upstream_write,
            &mut inward,
            beside
        ));
        let mut down = pin!(pump(
            &mut upstream_read,
            &mut client_write,
            &mut outward,
            beside
        ));
        let both = async {
            tokio::select! {
                // Who has nothing more to say may still have much to hear; and a command that reads no more may have
                // printed something before.
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
    if let (Some(why), Speaks::Channels { tty }) = (&why, speaks)
        && outward.frames.is_between_messages()
    {
        let told = async {
            client_write.write_all(&farewell(&why.message, tty)).await?;
            client_write.shutdown().await
        };
        let _ = timeout(FAREWELL_TIMEOUT, told).await;
    }
    let (inward, outward_bytes) = beside.traffic.bytes();
    let carried = Carried {
        inward,
        outward: outward_bytes,
        exit: outward.exit.code(),
    };
    (why, carried)
}

/// Which side broke off.
#[derive(Debug)]
enum Broken {
    Source,
    Destination,
}

/// Copies until the source has closed, and closes the destination; waits while a tape has no room, and while the
/// session is held. Dropped at any point, `direction` was told of all that was written.
async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    direction: &mut impl Direction,
    beside: Beside<'_>,
) -> Result<(), Broken> {
    let Beside { traffic, tape } = beside;
    let mut buffer = vec![0; BUFFER];
    // What was read while it was held.
    let mut waiting: Option<usize> = None;
    loop {
        let next = async {
            if let Some(length) = waiting {
                traffic.flows().await;
                return Ok(length);
            }
            if let Some(tape) = tape {
                tape.room().await;
            }
            traffic.flows().await;
            // The last thing that is waited for: what is dropped here was not read.
            from.read(&mut buffer).await
        };
        let (read, word) = tokio::select! {
            read = next => (read.map_err(|_| Broken::Source)?, None),
            word = direction.word() => (0, Some(word)),
        };
        if let Some(word) = word {
            write(to, &word, |bytes| direction.told(bytes)).await?;
            continue;
        }
        if traffic.is_held() {
            waiting = Some(read);
            continue;
        }
        waiting = None;
        if read == 0 {
            return to.shutdown().await.map_err(|_| Broken::Destination);
        }
        write(to, &buffer[..read], |bytes| direction.passed(bytes)).await?;
    }
}

/// Writes all of it, and tells of each piece that was written.
async fn write(
    to: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    mut written: impl FnMut(&[u8]),
) -> Result<(), Broken> {
    while !bytes.is_empty() {
        let length = to.write(bytes).await.map_err(|_| Broken::Destination)?;
        if length == 0 {
            return Err(Broken::Destination);
        }
        written(&bytes[..length]);
        bytes = &bytes[length..];
    }
    to.flush().await.map_err(|_| Broken::Destination)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io;
    use std::sync::Arc;

    use tokio::io::{DuplexStream, duplex};
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;
    use tokio_util::io::StreamReader;

    use super::*;

    fn over() -> Refusal {
        Refusal {
            reason: "Expired",
            message: "it is over".to_owned(),
        }
    }

    async fn relayed(
        client: impl AsyncRead + AsyncWrite,
        upstream: DuplexStream,
        ended: impl Future<Output = Refusal>,
        speaks: Speaks,
    ) -> (Option<Refusal>, Carried) {
        let (traffic, tape) = (&Traffic::default(), None);
        relay(client, upstream, ended, speaks, Beside { traffic, tape }).await
    }

    /// A session that goes on, of which `traffic` is told.
    fn with_traffic(
        client: DuplexStream,
        upstream: DuplexStream,
        speaks: Speaks,
        traffic: &Arc<Traffic>,
    ) -> JoinHandle<(Option<Refusal>, Carried)> {
        let traffic = Arc::clone(traffic);
        tokio::spawn(async move {
            let beside = Beside {
                traffic: &traffic,
                tape: None,
            };
            relay(client, upstream, pending(), speaks, beside).await
        })
    }

    #[tokio::test]
    async fn a_word_of_oz_is_said_between_messages() {
        let (mut alice, client) = duplex(10_000);
        let (mut pod, upstream) = duplex(10_000);
        let traffic = Arc::new(Traffic::default());
        let relayed = with_traffic(client, upstream, Speaks::Channels { tty: true }, &traffic);
        pod.write_all(&[0x82, 3, 1, b'a']).await.unwrap();
        let mut half = [0; 4];
        alice.read_exact(&mut half).await.unwrap();
        traffic.tell("bob watches".to_owned());
        pod.write_all(b"b").await.unwrap();
        let expected = notice("bob watches", true);
        let mut heard = vec![0; 1 + expected.len()];
        alice.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, [b"b".as_slice(), &expected].concat());
        drop((alice, pod));
        let (_, carried) = relayed.await.unwrap();
        assert_eq!(carried.outward, 5, "what oz says itself counts as nobody's");
    }

    #[tokio::test(start_paused = true)]
    async fn while_it_is_held_nothing_passes_but_what_oz_says_and_nothing_is_lost() {
        let (mut alice, client) = duplex(10_000);
        let (mut pod, upstream) = duplex(10_000);
        let traffic = Arc::new(Traffic::default());
        let relayed = with_traffic(client, upstream, Speaks::Channels { tty: false }, &traffic);
        // Both directions wait for something to be read when it is held.
        tokio::task::yield_now().await;
        traffic.hold(true);
        traffic.tell("held".to_owned());
        pod.write_all(&[0x82, 2, 1, b'a']).await.unwrap();
        alice.write_all(&[0x82, 2, 0, b'b']).await.unwrap();
        let expected = notice("held", false);
        let mut heard = vec![0; expected.len()];
        alice.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, expected);
        let mut byte = [0];
        let second = Duration::from_secs(1);
        assert!(
            timeout(second, alice.read(&mut byte)).await.is_err(),
            "something passed out"
        );
        assert!(
            timeout(second, pod.read(&mut byte)).await.is_err(),
            "something passed in"
        );
        traffic.alive();
        let mut pong = [0; 2];
        alice.read_exact(&mut pong).await.unwrap();
        assert_eq!(pong, ALIVE);
        traffic.hold(false);
        let mut message = [0; 4];
        alice.read_exact(&mut message).await.unwrap();
        assert_eq!(message, [0x82, 2, 1, b'a']);
        pod.read_exact(&mut message).await.unwrap();
        assert_eq!(message, [0x82, 2, 0, b'b']);
        drop((alice, pod));
        relayed.await.unwrap();
    }

    #[tokio::test]
    async fn every_byte_arrives_and_one_side_may_close_before_the_other() {
        let (mut alice, client) = duplex(1_000);
        let (mut pod, upstream) = duplex(1_000);
        let relayed = tokio::spawn(relayed(client, upstream, pending(), Speaks::Other));
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
    async fn what_a_command_printed_before_it_ended_arrives_though_it_reads_no_more() {
        // Which side is looked at first is a matter of chance.
        for _ in 0..64 {
            let (mut alice, client) = duplex(1_000);
            let (mut pod, upstream) = duplex(1_000);
            pod.write_all(b"printed").await.unwrap();
            drop(pod);
            alice.write_all(b"more input").await.unwrap();
            let relayed = relayed(client, upstream, pending(), Speaks::Other);
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
        let (why, carried) = relayed(client, upstream, pending(), Speaks::Other).await;
        assert_eq!((why, carried), (None, Carried::default()));
        assert_eq!(pod.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn at_its_end_a_session_is_told_why_and_both_sides_are_closed() {
        let (mut alice, client) = duplex(10_000);
        let (mut pod, upstream) = duplex(10_000);
        let (end, ended) = oneshot::channel();
        let ended = async { ended.await.unwrap() };
        let speaks = Speaks::Channels { tty: true };
        let relayed = tokio::spawn(relayed(client, upstream, ended, speaks));
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
        let relayed = tokio::spawn(relayed(client, upstream, ended, speaks));
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
        let relayed = tokio::spawn(relayed(client, upstream, ended, speaks));
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
