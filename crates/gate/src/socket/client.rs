//! The client of a session over a WebSocket. The gate answers the client of a session that waits for a moderator at
//! once: an API server reports neither lines of the gate nor a client that disconnects before that. During the wait, the
//! client receives lines of oz and pings, and its messages are kept until they can pass.

use std::collections::VecDeque;
use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use oz_core::connect::Refusal;
use oz_gating::messages::{Piece, STDIN};
use oz_gating::moderation;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::spoken::{Spoken, Words};
use super::wire::{Reader, Writer, config, in_message, read, take_leave};
use crate::message_room::{MessageRoom, RoomReservation, Watched};
use crate::relay::{Broken, FAREWELL_TIMEOUT};
use crate::traffic::Traffic;

/// The interval of the pings to a client that waits.
pub(super) const PING_EVERY: Duration = Duration::from_secs(9);
/// The time without a message, which every pong is, after which a client is gone at the next ping: within 30 seconds.
pub(super) const SILENT: Duration = Duration::from_secs(18);
/// The memory for the messages that are kept during a wait, in bytes. No more are read until the session opens.
pub(super) const MAX_EARLY: usize = 64 << 10;
/// The byte that a terminal sends for Ctrl-C.
const CTRL_C: u8 = 3;

/// The client of the [module](self).
pub(crate) struct Client<S> {
    pub(super) to: Writer<Watched<S>>,
    pub(super) from: Incoming<Watched<S>>,
}

/// The messages from a client: first those that were kept during its wait.
pub(super) struct Incoming<S> {
    early: VecDeque<Message>,
    /// The memory that the kept messages take, in bytes.
    size: usize,
    pub(super) reader: Reader<S>,
    pub(super) held: Arc<RoomReservation>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Incoming<S> {
    /// Returns the next message; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Message>, Broken> {
        match self.early.pop_front() {
            Some(message) => Ok(Some(message)),
            None => read(&mut self.reader, "the client").await,
        }
    }

    /// Records that a message was passed on. Kept messages take their room until the last of them has passed.
    pub(super) fn passed_on(&self) {
        if self.early.is_empty() {
            self.held.passed_on();
        }
    }

    fn keep(&mut self, message: Message) {
        self.size += message.len() + size_of::<Message>();
        self.early.push_back(message);
    }

    fn has_room(&self) -> bool {
        self.size < MAX_EARLY
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    /// Creates the client at the other end of a stream.
    pub(crate) async fn new(stream: S, room: &MessageRoom) -> Self {
        let (stream, held) = room.watch(stream);
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config())).await;
        let (to, reader) = socket.split();
        let from = Incoming {
            early: VecDeque::new(),
            size: 0,
            reader,
            held,
        };
        Self { to, from }
    }

    /// Sends a client that waits the lines of oz and pings. Ready when the client does not wait any longer, with the
    /// reason to send to it, if it can still receive one.
    ///
    /// The future can be dropped at any time: the client is then as it was, and waits again or is
    /// [relayed](super::relay).
    pub(crate) async fn waits(&mut self, traffic: &Traffic, words: Words) -> Option<Refusal> {
        let mut heard = Instant::now();
        let mut pings = interval_at(heard + PING_EVERY, PING_EVERY);
        loop {
            let reads = self.from.has_room();
            let message = tokio::select! {
                message = read(&mut self.from.reader, "the client"), if reads => {
                    heard = Instant::now();
                    match message {
                        Ok(Some(Message::Close(_)) | None) => return None,
                        Ok(Some(message)) => {
                            if self.hears(message, words) {
                                return Some(moderation::stopped());
                            }
                            continue;
                        }
                        Err(Broken::Malformed(why)) => return Some(why),
                        Err(Broken::Source | Broken::Destination) => return None,
                    }
                }
                word = traffic.word() => in_message(word, words),
                _ = pings.tick() => match reads {
                    true if heard.elapsed() >= SILENT => return None,
                    true => Message::Ping(Bytes::new()),
                    // A client with more messages than the gate keeps is not read, so its pings are not answered
                    // either. It is gone when this pong cannot be written.
                    false => Message::Pong(Bytes::new()),
                },
            };
            let sent = timeout(PING_EVERY, self.to.send(message)).await;
            if !matches!(sent, Ok(Ok(()))) {
                return None;
            }
        }
    }

    /// Handles a message of a client that waits. Returns true if its user stops the wait.
    fn hears(&mut self, message: Message, words: Words) -> bool {
        match message {
            Message::Binary(ref bytes) if words.tty && is_interrupt(bytes) => return true,
            Message::Binary(_) | Message::Text(_) => self.from.keep(message),
            // Pings are answered.
            Message::Ping(payload) | Message::Pong(payload) => {
                self.from.held.passed(payload.len());
            }
            Message::Close(_) | Message::Frame(_) => {}
        }
        false
    }

    /// Sends the client the reason why its session is not opened, and closes the connection.
    pub(crate) async fn leave(mut self, why: &Refusal, spoken: Spoken) {
        let _ = timeout(FAREWELL_TIMEOUT, take_leave(&mut self.to, why, spoken)).await;
    }
}

/// Checks whether a terminal sent Ctrl-C.
fn is_interrupt(message: &[u8]) -> bool {
    Piece::read(message)
        .is_some_and(|piece| piece.channel == STDIN && piece.bytes.contains(&CTRL_C))
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
