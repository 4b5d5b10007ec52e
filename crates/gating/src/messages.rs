//! The messages of a session over a WebSocket: their division into pieces, their channels, and the messages that oz
//! sends.

use serde_json::json;

pub use super::channels::{CloseMalformed, ERROR, RESIZE, ReadChannels, STDERR, STDIN, STDOUT};
use super::upgrade::Subprotocol;

/// The maximum length of an incoming message, in bytes: the maximum length of a frame that the API server accepts.
pub const MAX_MESSAGE: usize = 32 << 20;
/// The maximum length of the content of a forwarded message, in bytes. A longer message is divided.
pub const MAX_PIECE: usize = 64 << 10;

/// The meaning of the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A byte for the channel, and the content.
    Channels,
    /// The same as text: the digit of a channel, and the content in base64.
    Base64,
    /// A piece of a byte stream.
    Stream,
}

impl Framing {
    /// Returns the framing of a sub-protocol. The API server uses channels for a WebSocket without a sub-protocol.
    #[must_use]
    pub fn new(protocol: Option<Subprotocol>) -> Self {
        match protocol {
            None | Some(Subprotocol::V5 | Subprotocol::V4 | Subprotocol::Channels) => {
                Self::Channels
            }
            Some(Subprotocol::V4Base64 | Subprotocol::Base64) => Self::Base64,
            Some(Subprotocol::Tunnel) => Self::Stream,
        }
    }

    /// Divides a message into the messages that are forwarded, which have the same meaning for every reader. Returns
    /// the first byte and the content of each. An empty message yields none.
    pub fn divide(self, message: &[u8]) -> impl Iterator<Item = (Option<u8>, &[u8])> {
        let (channel, content) = match (self, message.split_first()) {
            (Self::Channels | Self::Base64, Some((channel, content))) => (Some(*channel), content),
            _ => (None, message),
        };
        // A channel without content is a message. `MAX_PIECE` is a multiple of four letters, so base64 is divided
        // between its groups.
        let alone = (channel.is_some() && content.is_empty()).then_some((channel, content));
        let chunks = content.chunks(MAX_PIECE);
        chunks.map(move |chunk| (channel, chunk)).chain(alone)
    }
}

/// A piece of the data of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The channel of the piece.
    pub channel: u8,
    /// The content of the piece.
    pub bytes: &'a [u8],
}

impl<'a> Piece<'a> {
    /// Reads a message on channels. Returns `None` if the message is empty.
    #[must_use]
    pub fn read(message: &'a [u8]) -> Option<Self> {
        let (channel, bytes) = message.split_first()?;
        Some(Self {
            channel: *channel,
            bytes,
        })
    }
}

/// Returns the messages that a client of a session on channels receives at its end, before the close: a line for the
/// user, and a status for programs. `tty` is true for a terminal, which has only one output.
#[must_use]
pub fn farewell(why: &str, tty: bool) -> [Vec<u8>; 2] {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": "InternalError", "code": 500, "message": format!("oz: {why}"),
    });
    [notice(why, tty), on(ERROR, status.to_string().as_bytes())]
}

/// Returns a line for the user of a session, as a message.
#[must_use]
pub fn notice(text: &str, tty: bool) -> Vec<u8> {
    let line = format!("\r\noz: {text}\r\n");
    on(if tty { STDOUT } else { STDERR }, line.as_bytes())
}

fn on(channel: u8, content: &[u8]) -> Vec<u8> {
    [&[channel], content].concat()
}
