//! The messages of a WebSocket on each side of the gate: reading, writing, and the close.

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use oz_core::connect::Refusal;
use oz_gating::messages::{MAX_MESSAGE, farewell, notice};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};

use super::spoken::{Spoken, Words};
use crate::message_room::NoRoom;
use crate::relay::{BUFFER, Broken, CLOSE_TIMEOUT};
use crate::traffic::Word;

/// The reason of a session that ends because the client or the API server broke the WebSocket protocol.
pub(super) const MALFORMED: &str = "FrameMalformed";
/// The reason of a session that ends because of a message over the size limit.
pub(super) const TOO_LONG: &str = "MessageTooLong";

pub(super) type Reader<S> = SplitStream<WebSocketStream<S>>;
pub(super) type Writer<S> = SplitSink<WebSocketStream<S>, Message>;

pub(super) fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        // Messages are written at once.
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
}

/// Sends a client the reason for the end of its session, and closes the connection.
/// See <https://www.rfc-editor.org/rfc/rfc6455#section-5.5.1>.
pub(super) async fn take_leave<S: AsyncRead + AsyncWrite + Unpin>(
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

pub(super) fn close(code: CloseCode) -> Message {
    Message::Close(Some(CloseFrame {
        code,
        reason: Utf8Bytes::default(),
    }))
}

/// Returns the next message; `None` at the end of the stream.
pub(super) async fn read<S: AsyncRead + AsyncWrite + Unpin>(
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

pub(super) fn malformed(side: &str, error: &dyn std::error::Error) -> Broken {
    let message = format!(
        "{side} sent an invalid WebSocket message ({error}); the gate forwards only messages that \
            it can read"
    );
    refused(MALFORMED, message)
}

fn refused(reason: &'static str, message: String) -> Broken {
    Broken::Malformed(Refusal { reason, message })
}

pub(super) async fn write<S: AsyncRead + AsyncWrite + Unpin>(
    to: &mut Writer<S>,
    message: Message,
) -> Result<(), Broken> {
    to.send(message).await.map_err(|_| Broken::Destination)
}

/// Waits for the end of a connection on which a close was read: the reply to the close is written during the wait.
/// See <https://www.rfc-editor.org/rfc/rfc6455#section-7.1.1>.
pub(super) async fn drain<S: AsyncRead + AsyncWrite + Unpin>(from: &mut Reader<S>) {
    let rest = async { while let Some(Ok(_)) = from.next().await {} };
    let _ = timeout(CLOSE_TIMEOUT, rest).await;
}

/// Returns a message to the client with a word of oz.
pub(super) fn in_message(word: Word, words: Words) -> Message {
    match word {
        Word::Line(text) => Message::binary(notice(&text, words.tty)),
        // An unsolicited pong (RFC 6455, 5.5.3).
        Word::Alive => Message::Pong(Bytes::new()),
    }
}
