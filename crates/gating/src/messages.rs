//! The messages of a session over a WebSocket: in which pieces one is passed on, on which channel something is said in
//! it, and the messages that oz says itself.

use serde_json::json;

pub use super::channels::{CloseMalformed, ERROR, RESIZE, ReadChannels, STDERR, STDIN, STDOUT};
use super::upgrade::Subprotocol;

/// The longest message that is taken, in bytes: as long as a frame that the API server takes.
pub const MAX_MESSAGE: usize = 32 << 20;
/// The longest content of a message that is passed on, in bytes. A longer one becomes several.
pub const MAX_PIECE: usize = 64 << 10;

/// The meaning of the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A channel, and content.
    Channels,
    /// The same as text: the digit of a channel, and content in base64.
    Base64,
    /// A part of a stream of bytes.
    Stream,
}

impl Framing {
    /// The framing of a sub-protocol; the API server takes a WebSocket without one for channels.
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

    /// Divides a message into those that are passed on, which mean the same to whoever reads them: what each begins
    /// with, and its part of the content. Nothing comes of an empty one.
    pub fn divide(self, message: &[u8]) -> impl Iterator<Item = (Option<u8>, &[u8])> {
        let (channel, content) = match (self, message.split_first()) {
            (Self::Channels | Self::Base64, Some((channel, content))) => (Some(*channel), content),
            _ => (None, message),
        };
        // A channel without content is a message; base64 is divided where four letters end, as `MAX_PIECE` is.
        let alone = (channel.is_some() && content.is_empty()).then_some((channel, content));
        let chunks = content.chunks(MAX_PIECE);
        chunks.map(move |chunk| (channel, chunk)).chain(alone)
    }
}

/// A piece of what was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// On which channel.
    pub channel: u8,
    /// What.
    pub bytes: &'a [u8],
}

impl<'a> Piece<'a> {
    /// Reads a message on channels; `None` if there is nothing in it.
    #[must_use]
    pub fn read(message: &'a [u8]) -> Option<Self> {
        let (channel, bytes) = message.split_first()?;
        Some(Self {
            channel: *channel,
            bytes,
        })
    }
}

/// Returns what a client of a session on channels is sent at its end, before the close: a line for people, and a status
/// for programs. `tty` is whether it is on a terminal, which has one output only.
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
