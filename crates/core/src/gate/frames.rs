//! Where messages end in what the API server sends over a WebSocket, and a last one: a session that is closed in
//! the middle of a message leaves a client with an error of its protocol, and without a reason.

use serde_json::json;

use super::channels::{ERROR, STDERR, STDOUT};

/// The longest head of a frame: two bytes, eight of length, four of a mask.
const LONGEST_HEAD: usize = 14;
/// The opcode of a frame that closes.
const CLOSE: u8 = 8;
/// What tells a client that the other side is there: a pong that nobody asked for (RFC 6455, 5.5.3).
pub const ALIVE: [u8; 2] = [0x8a, 0];
/// The longest text in a frame whose length takes one byte.
const SHORT: usize = 125;

/// Follows the frames of one direction. Holds no content.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    head: Vec<u8>,
    /// How much of the payload is still to come.
    left: u64,
    /// Whether that is of a message, and not of a ping, an answer to one, or a close.
    content: bool,
    /// Whether a message goes on in the next frame.
    goes_on: bool,
    /// Whether a close frame was seen.
    closed: bool,
}

impl Frames {
    /// Takes in what was passed on; gives back whether some of it was of a message.
    pub fn passed(&mut self, mut bytes: &[u8]) -> bool {
        let mut content = false;
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let taken = usize::try_from(self.left)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                self.left -= taken as u64;
                content |= self.content;
                bytes = &bytes[taken..];
                continue;
            }
            self.head.push(*first);
            bytes = rest;
            if let Some(frame) = Frame::read(&self.head) {
                self.left = frame.length;
                if frame.is_data() {
                    self.goes_on = !frame.last;
                }
                self.closed |= frame.opcode == CLOSE;
                self.content = frame.is_data();
                self.head.clear();
            }
        }
        content
    }

    /// Whether a message may follow.
    #[must_use]
    pub fn is_between_messages(&self) -> bool {
        self.left == 0 && self.head.is_empty() && !self.goes_on && !self.closed
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    opcode: u8,
    /// Whether the message is over with it.
    pub(super) last: bool,
    /// How long its payload is.
    pub(super) length: u64,
    /// With what its payload is masked.
    pub(super) mask: Option<[u8; 4]>,
}

impl Frame {
    /// Reads a head; `None` if there is more of it to come.
    pub(super) fn read(head: &[u8]) -> Option<Self> {
        let (first, second) = (head.first()?, head.get(1)?);
        let (long, length) = match second & 0x7f {
            126 => (2, head.get(2..4).map(big_endian)),
            127 => (8, head.get(2..10).map(big_endian)),
            short => (0, Some(u64::from(short))),
        };
        let mask = if second & 0x80 == 0 { 0 } else { 4 };
        let (length, at) = (length?, 2 + long);
        debug_assert!(head.len() <= LONGEST_HEAD);
        (head.len() == at + mask).then(|| Self {
            opcode: first & 0x0f,
            last: first & 0x80 != 0,
            length,
            mask: head.get(at..at + 4).and_then(|mask| mask.try_into().ok()),
        })
    }

    /// Whether it carries a part of a message. Control frames may come within one.
    pub(super) fn is_data(self) -> bool {
        self.opcode < 8
    }

    /// Whether a message begins with it.
    pub(super) fn starts(self) -> bool {
        matches!(self.opcode, 1..8)
    }
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

/// What a client of a session on this protocol is told at its end: a line for people, a status for programs, and
/// the close. `tty` is whether it is on a terminal, which has one output only.
#[must_use]
pub fn farewell(why: &str, tty: bool) -> Vec<u8> {
    let line = format!("\r\noz: {why}\r\n");
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": "InternalError", "code": 500, "message": format!("oz: {why}"),
    });
    let mut bytes = frame(if tty { STDOUT } else { STDERR }, line.as_bytes());
    bytes.extend(frame(ERROR, status.to_string().as_bytes()));
    // Close, normally (1000).
    bytes.extend([0x88, 2, 0x03, 0xe8]);
    bytes
}

/// A line that the user of a session is told while it goes on.
#[must_use]
pub fn notice(text: &str, tty: bool) -> Vec<u8> {
    let line = format!("\r\noz: {text}\r\n");
    frame(if tty { STDOUT } else { STDERR }, line.as_bytes())
}

/// A whole message of this channel.
fn frame(channel: u8, text: &[u8]) -> Vec<u8> {
    // What is said of an end is short; names in it are not ours.
    let text = &text[..text.len().min(usize::from(u16::MAX) - 1)];
    let length = text.len() + 1;
    let mut bytes = vec![0x82];
    match u8::try_from(length).ok().filter(|_| length <= SHORT) {
        Some(short) => bytes.push(short),
        None => {
            bytes.push(126);
            bytes.extend(u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    bytes.push(channel);
    bytes.extend(text);
    bytes
}
