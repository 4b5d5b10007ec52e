//! A session over a WebSocket. Both connections end at the gate: it reads a whole message, records and shows it, and
//! sends it on in new frames. So the other side receives nothing that the gate did not read, by construction; invalid
//! frames close the session.

use std::future::{Future, pending};
use std::pin::pin;
use std::time::Duration;

use futures::stream::{SplitSink, SplitStream};
use futures::{FutureExt as _, SinkExt as _, StreamExt as _};
use oz_core::connect::Refusal;
use oz_gating::Exit;
use oz_gating::messages::{Framing, MAX_MESSAGE, Piece, RESIZE, ReadChannels, farewell, notice};
use oz_gating::query::Options;
use oz_gating::upgrade::Agreed;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};

use crate::message_room::{MessageRoom, NoRoom, RoomReservation};
use crate::relay::{BUFFER, Beside, Broken, CLOSE_TIMEOUT, Carried, FAREWELL_TIMEOUT};
use crate::tape::normal_size;
use crate::traffic::Word;

/// The reason of a session that ends because the client or the API server broke the WebSocket protocol.
const MALFORMED: &str = "FrameMalformed";
/// The reason of a session that ends because of a message over the size limit.
const TOO_LONG: &str = "MessageTooLong";

/// The meaning of what passes in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spoken {
    pub(crate) framing: Framing,
    /// The meaning of messages; `None` if the gate neither reads messages nor sends any.
    pub(crate) words: Option<Words>,
}

/// The meaning of the messages of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// True for a session on a terminal.
    pub(crate) tty: bool,
    /// The channels on which the API server reads.
    pub(crate) channels: ReadChannels,
}

impl Spoken {
    /// Returns the meaning under the protocol that was agreed on; `None` if that is not a WebSocket. Clients also forward
    /// ports over the sub-protocols of commands, and the channels of ports differ, so `way` is the operation.
    pub(crate) fn new(agreed: &Agreed, options: &Options, way: &str) -> Option<Self> {
        let Agreed::WebSocket(protocol) = agreed else {
            return None;
        };
        let read = protocol.filter(|_| agreed.is_recorded() && runs_command(way));
        Some(Self {
            framing: Framing::new(*protocol),
            words: read.map(|protocol| Words {
                tty: options.tty(),
                channels: ReadChannels::new(protocol, options),
            }),
        })
    }
}

/// Checks whether an operation is a session with a command.
pub(crate) fn runs_command(way: &str) -> bool {
    matches!(way, "exec" | "attach")
}

/// The minimum wait after which a session counts as held: the pings that its client sent during the wait are old.
const HELD: Duration = Duration::from_secs(1);
/// The time after such a wait in which pings are not passed on. An API server that closes a connection with an unread
/// ping resets it, and loses the data that it had not sent yet.
const PINGS_PAUSE: Duration = Duration::from_secs(4);

type Reader<S> = SplitStream<WebSocketStream<S>>;
type Writer<S> = SplitSink<WebSocketStream<S>, Message>;

/// Carries messages until both sides have closed, or until `ended` returns the reason for the end.
pub(crate) async fn relay(
    client: impl AsyncRead + AsyncWrite + Unpin,
    upstream: impl AsyncRead + AsyncWrite + Unpin,
    ended: impl Future<Output = Refusal>,
    (spoken, room): (Spoken, &MessageRoom),
    beside: Beside<'_>,
) -> (Option<Refusal>, Carried) {
    let (client, held) = room.watch(client);
    let client = WebSocketStream::from_raw_socket(client, Role::Server, Some(config())).await;
    let upstream = WebSocketStream::from_raw_socket(upstream, Role::Client, Some(config())).await;
    let (mut to_client, from_client) = client.split();
    let (mut to_upstream, from_upstream) = upstream.split();
    let mut exit = Exit::default();
    let carrier = Carrier { spoken, beside };
    let why = {
        let mut up = pin!(carrier.inward(from_client, &mut to_upstream, &held));
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

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        // Messages are written at once.
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
}

/// Sends a client the reason for the end of its session, and closes the connection.
/// See <https://www.rfc-editor.org/rfc/rfc6455#section-5.5.1>.
async fn take_leave<S: AsyncRead + AsyncWrite + Unpin>(
    client: &mut Writer<S>,
    why: &Refusal,
    spoken: Spoken,
) -> Result<(), Error> {
    if let Some(words) = spoken.words {
        for message in farewell(&why.message, words.tty) {
            client.feed(Message::binary(message)).await?;
        }
    }
    let code = match why.reason {
        MALFORMED => CloseCode::Protocol,
        TOO_LONG => CloseCode::Size,
        _ => CloseCode::Normal,
    };
    client.send(close(code)).await?;
    client.close().await
}

/// The carrier of the messages of a session.
#[derive(Clone, Copy)]
struct Carrier<'a> {
    spoken: Spoken,
    beside: Beside<'a>,
}

impl Carrier<'_> {
    /// Carries messages from the user to the API server.
    async fn inward<C, U>(
        self,
        mut from: Reader<C>,
        to: &mut Writer<U>,
        held: &RoomReservation,
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
            let Some(message) = read(&mut from, "the client").await? else {
                break;
            };
            match message {
                Message::Binary(_) | Message::Text(_) => {
                    let message = message.into_data();
                    let is_read = words.as_mut().map(|words| words.channels.reads(&message));
                    let is_read = is_read.transpose();
                    if is_read.map_err(|error| malformed("the client", &error))? == Some(false) {
                        held.passed_on();
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
                    held.passed_on();
                }
                Message::Close(_) => {
                    write(to, message).await?;
                    drain(&mut from).await;
                    break;
                }
                // The ping is already answered. Passing it on keeps the connection to the API server in use.
                Message::Ping(ref payload) => {
                    held.passed(payload.len());
                    let flows = self.ready().now_or_never().is_some();
                    if flows && Instant::now() >= pings_pass_at {
                        write(to, message).await?;
                    }
                }
                Message::Pong(payload) => held.passed(payload.len()),
                Message::Frame(_) => {}
            }
        }
        to.close().await.map_err(|_| Broken::Destination)
    }

    /// Carries messages from the API server to the user.
    async fn outward<C, U>(
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
        match self.beside.traffic.word().await {
            Word::Line(text) => Message::binary(notice(&text, words.tty)),
            // An unsolicited pong (RFC 6455, 5.5.3).
            Word::Alive => Message::Pong(Bytes::new()),
        }
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

fn close(code: CloseCode) -> Message {
    Message::Close(Some(CloseFrame {
        code,
        reason: Utf8Bytes::default(),
    }))
}

/// Returns the next message; `None` at the end of the stream.
async fn read<S: AsyncRead + AsyncWrite + Unpin>(
    from: &mut Reader<S>,
    side: &str,
) -> Result<Option<Message>, Broken> {
    use ProtocolError::{ReceivedAfterClosing, ResetWithoutClosingHandshake};
    let error = match from.next().await {
        Some(Err(error)) => error,
        Some(Ok(message)) => return Ok(Some(message)),
        None => return Ok(None),
    };
    match error {
        Error::Protocol(ResetWithoutClosingHandshake | ReceivedAfterClosing)
        | Error::ConnectionClosed
        | Error::AlreadyClosed => Ok(None),
        Error::Io(error) if NoRoom::is_why(&error) => Err(refused(TOO_LONG, error.to_string())),
        Error::Io(_) => Err(Broken::Source),
        Error::Capacity(_) => Err(refused(
            TOO_LONG,
            format!(
                "{side} sent a message of more than {MAX_MESSAGE} bytes, which is the maximum; \
                 send shorter messages"
            ),
        )),
        error => Err(malformed(side, &error)),
    }
}

fn malformed(side: &str, error: &dyn std::error::Error) -> Broken {
    let message = format!(
        "{side} sent an invalid WebSocket message ({error}); the gate forwards only messages that \
            it can read"
    );
    refused(MALFORMED, message)
}

fn refused(reason: &'static str, message: String) -> Broken {
    Broken::Malformed(Refusal { reason, message })
}

async fn write<S: AsyncRead + AsyncWrite + Unpin>(
    to: &mut Writer<S>,
    message: Message,
) -> Result<(), Broken> {
    to.send(message).await.map_err(|_| Broken::Destination)
}

/// Waits for the end of a connection on which a close was read: the reply to the close is written during the wait.
/// See <https://www.rfc-editor.org/rfc/rfc6455#section-7.1.1>.
async fn drain<S: AsyncRead + AsyncWrite + Unpin>(from: &mut Reader<S>) {
    let rest = async { while let Some(Ok(_)) = from.next().await {} };
    let _ = timeout(CLOSE_TIMEOUT, rest).await;
}

#[cfg(test)]
mod differential;
#[cfg(test)]
mod tests;
