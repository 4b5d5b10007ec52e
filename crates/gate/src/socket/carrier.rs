//! The carriage of messages between the two sides of an open session.

use std::future::pending;
use std::time::Duration;

use futures::{FutureExt as _, SinkExt as _};
use oz_gating::Exit;
use oz_gating::messages::{Framing, Piece, RESIZE};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message, Utf8Bytes};

use super::client::Incoming;
use super::spoken::Spoken;
use super::wire::{Reader, Writer, close, drain, in_message, malformed, read, write};
use crate::relay::{Beside, Broken};
use crate::tape::normal_size;

/// The minimum wait after which a session counts as held: the pings that its client sent during the wait are old.
const HELD: Duration = Duration::from_secs(1);
/// The time after such a wait in which pings are not passed on. An API server that closes a connection with an unread
/// ping resets it, and loses the data that it had not sent yet.
const PINGS_PAUSE: Duration = Duration::from_secs(4);

/// The carrier of the messages of a session.
#[derive(Clone, Copy)]
pub(super) struct Carrier<'a> {
    pub(super) spoken: Spoken,
    pub(super) beside: Beside<'a>,
}

impl Carrier<'_> {
    /// Carries messages from the user to the API server.
    pub(super) async fn inward<C, U>(
        self,
        mut from: Incoming<C>,
        to: &mut Writer<U>,
    ) -> Result<(), Broken>
    where
        C: AsyncRead + AsyncWrite + Unpin,
        U: AsyncRead + AsyncWrite + Unpin,
    {
        let mut words = self.spoken.words;
        let mut pings_pass_at = Instant::now();
        loop {
            let waited = Instant::now();
            self.ready().await;
            if waited.elapsed() >= HELD {
                pings_pass_at = Instant::now() + PINGS_PAUSE;
            }
            let Some(message) = from.next().await? else {
                break;
            };
            match message {
                Message::Binary(_) | Message::Text(_) => {
                    let message = message.into_data();
                    let is_read = words.as_mut().map(|words| words.channels.reads(&message));
                    let is_read = is_read.transpose();
                    if is_read.map_err(|error| malformed("the client", &error))? == Some(false) {
                        from.passed_on();
                        continue;
                    }
                    for (channel, part) in self.spoken.framing.divide(&message) {
                        // The session may have been held since the last check.
                        self.ready().await;
                        let Some(part) = self.normal(&message, channel, part) else {
                            continue;
                        };
                        self.passes(true, &part);
                        if let Some(tape) = self.beside.tape {
                            tape.kept().await;
                        }
                        write(to, self.message(part)?).await?;
                    }
                    from.passed_on();
                }
                Message::Close(_) => {
                    write(to, message).await?;
                    drain(&mut from.reader).await;
                    break;
                }
                // The ping is already answered. Passing it on keeps the connection to the API server in use.
                Message::Ping(ref payload) => {
                    from.held.passed(payload.len());
                    let flows = self.ready().now_or_never().is_some();
                    if flows && Instant::now() >= pings_pass_at {
                        write(to, message).await?;
                    }
                }
                Message::Pong(payload) => from.held.passed(payload.len()),
                Message::Frame(_) => {}
            }
        }
        to.close().await.map_err(|_| Broken::Destination)
    }

    /// Carries messages from the API server to the user.
    pub(super) async fn outward<C, U>(
        self,
        mut from: Reader<U>,
        to: &mut Writer<C>,
        exit: &mut Exit,
    ) -> Result<(), Broken>
    where
        C: AsyncRead + AsyncWrite + Unpin,
        U: AsyncRead + AsyncWrite + Unpin,
    {
        loop {
            let next = async {
                self.ready().await;
                // The last await of this future: if the future is dropped before it completes, it has read nothing.
                read(&mut from, "the API server").await
            };
            let message = tokio::select! {
                message = next => message?,
                word = self.word() => {
                    write(to, word).await?;
                    continue;
                }
            };
            match message {
                Some(message @ (Message::Binary(_) | Message::Text(_))) => {
                    let message = message.into_data();
                    for (channel, part) in self.spoken.framing.divide(&message) {
                        self.ready_and_heard(to).await?;
                        let part = join(&message, channel, part);
                        if self.is_read()
                            && let Some(piece) = Piece::read(&part)
                        {
                            exit.said(piece);
                        }
                        self.passes(false, &part);
                        write(to, self.message(part)?).await?;
                    }
                }
                Some(message @ Message::Close(_)) => {
                    write(to, message).await?;
                    drain(&mut from).await;
                    return Ok(());
                }
                Some(message @ Message::Ping(_)) => write(to, message).await?,
                Some(Message::Pong(_) | Message::Frame(_)) => {}
                // The connection broke without a close message.
                None => return write(to, close(CloseCode::Error)).await,
            }
        }
    }

    /// Waits until data may pass.
    async fn ready(&self) {
        if let Some(tape) = self.beside.tape {
            tape.room().await;
        }
        self.beside.traffic.flows().await;
    }

    /// Waits until data may pass to the client, and sends it the messages of oz during the wait.
    async fn ready_and_heard<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        to: &mut Writer<S>,
    ) -> Result<(), Broken> {
        loop {
            tokio::select! {
                biased;
                () = self.ready() => return Ok(()),
                word = self.word() => write(to, word).await?,
            }
        }
    }

    /// Waits for the next message of oz to the client.
    async fn word(&self) -> Message {
        let Some(words) = self.spoken.words else {
            return pending().await;
        };
        in_message(self.beside.traffic.word().await, words)
    }

    /// Returns a part of a client's message in the form that the gate sends; `None` if it is dropped.
    fn normal(&self, message: &Bytes, channel: Option<u8>, part: &[u8]) -> Option<Bytes> {
        if !(self.is_read() && channel == Some(RESIZE)) {
            return Some(join(message, channel, part));
        }
        let size = normal_size(part)?;
        Some([&[RESIZE], &size[..]].concat().into())
    }

    /// Checks whether the gate reads the content of messages.
    fn is_read(&self) -> bool {
        self.spoken.words.is_some()
    }

    /// Counts, shows and records a message that is about to be passed on.
    fn passes(&self, inward: bool, message: &[u8]) {
        let Beside {
            traffic,
            tape,
            idle,
        } = self.beside;
        idle.used();
        traffic.passed(inward, message.len());
        if self.is_read()
            && let Some(piece) = Piece::read(message)
        {
            if let Some(tape) = tape {
                tape.said(inward, piece);
            }
            traffic.said(inward, piece);
        }
    }

    fn message(&self, bytes: Bytes) -> Result<Message, Broken> {
        match self.spoken.framing {
            Framing::Channels | Framing::Stream => Ok(Message::Binary(bytes)),
            Framing::Base64 => match Utf8Bytes::try_from(bytes) {
                Ok(text) => Ok(Message::Text(text)),
                Err(error) => Err(malformed("one side", &error)),
            },
        }
    }
}

/// Returns a message with one part of the content of a divided message.
fn join(message: &Bytes, channel: Option<u8>, part: &[u8]) -> Bytes {
    match channel {
        _ if message.len() == part.len() + usize::from(channel.is_some()) => message.clone(),
        None => message.slice_ref(part),
        Some(channel) => [&[channel], part].concat().into(),
    }
}
