//! A session over a WebSocket. Both connections end here: a message is read whole, recorded and shown, and sent on in
//! frames of the gate's own. So nothing reaches the other side that the gate did not read, by construction; frames that
//! are none close the session.

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

use crate::message_room::{Held, MessageRoom, NoRoom};
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
    /// The meaning of messages; `None` if the gate does not read them, and sends none of its own.
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

/// A session that waits for so long was held: its client's pings have come meanwhile, and are old.
const HELD: Duration = Duration::from_secs(1);
/// How long pings are not passed on after that. An API server that closes a connection with a ping unread resets it, and
/// what it had not sent yet is lost.
const PINGS_PAUSE: Duration = Duration::from_secs(4);

type Reader<S> = SplitStream<WebSocketStream<S>>;
type Writer<S> = SplitSink<WebSocketStream<S>, Message>;

/// Carries messages until both sides have closed, or until `ended` says why it is over.
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
                // Who has nothing more to say may still have much to hear; and a command that reads no more may have
                // printed something before.
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
        // What is sent is written at once.
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
}

/// Tells a client why its session is over, and closes.
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

/// Carries the messages of a session.
#[derive(Clone, Copy)]
struct Carrier<'a> {
    spoken: Spoken,
    beside: Beside<'a>,
}

impl Carrier<'_> {
    /// From the user to the API server.
    async fn inward<C, U>(
        self,
        mut from: Reader<C>,
        to: &mut Writer<U>,
        held: &Held,
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
                        // It may have been held meanwhile.
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
                // It is answered already. The way to the API server stays in use by it.
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

    /// From the API server to the user.
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
                // The last thing that is waited for: what is dropped here was not read.
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
                // It broke off without a word.
                None => return write(to, close(CloseCode::Error)).await,
            }
        }
    }

    /// Ready when something may pass.
    async fn ready(&self) {
        if let Some(tape) = self.beside.tape {
            tape.room().await;
        }
        self.beside.traffic.flows().await;
    }

    /// Ready when something may pass to the client, which hears meanwhile what oz has to say.
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

    /// Ready with what oz has to say to the client.
    async fn word(&self) -> Message {
        let Some(words) = self.spoken.words else {
            return pending().await;
        };
        match self.beside.traffic.word().await {
            Word::Line(text) => Message::binary(notice(&text, words.tty)),
            // A pong that nobody asked for (RFC 6455, 5.5.3).
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

    /// Whether messages are read as what somebody says.
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

/// The message with this part of the content of one that was divided.
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

/// The next message; `None` when there is none any more.
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
                "{side} sent a message of more than {MAX_MESSAGE} bytes, which is as long as one may be; send shorter \
                 ones"
            ),
        )),
        error => Err(malformed(side, &error)),
    }
}

fn malformed(side: &str, error: &dyn std::error::Error) -> Broken {
    let message = format!(
        "{side} sent what is no message of a WebSocket ({error}), and nothing is passed on that the gate cannot read"
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

/// Waits for the connection to end on which a close was read: the answer to it is written meanwhile.
async fn drain<S: AsyncRead + AsyncWrite + Unpin>(from: &mut Reader<S>) {
    let rest = async { while let Some(Ok(_)) = from.next().await {} };
    let _ = timeout(CLOSE_TIMEOUT, rest).await;
}

#[cfg(test)]
mod differential;
#[cfg(test)]
mod tests;
