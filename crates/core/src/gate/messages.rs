//! What is said on the channels of a WebSocket, out of the bytes that pass by. Nothing is held but the head of the
//! frame that is being read; a message of any length is told in pieces.

pub use super::channels::{ERROR, RESIZE, STDERR, STDIN, STDOUT};
use super::frames::Frame;

/// Follows one direction.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    head: Vec<u8>,
    frame: Frame,
    /// How much of the frame's payload has been seen.
    seen: u64,
    /// How much is still to come.
    left: u64,
    /// The channel of the message that is being read, once its first byte was seen.
    channel: Option<u8>,
    clear: Vec<u8>,
}

/// A piece of what was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// On which channel.
    pub channel: u8,
    /// What; may be empty at the end of a message.
    pub bytes: &'a [u8],
    /// Whether the message is over with it.
    pub last: bool,
}

impl Messages {
    /// Takes in what passes; tells `piece` of each piece of a message.
    pub fn passed(&mut self, mut bytes: &[u8], mut piece: impl FnMut(Piece<'_>)) {
        while !bytes.is_empty() {
            if self.left == 0 {
                bytes = self.read_head(bytes, &mut piece);
                continue;
            }
            let taken = usize::try_from(self.left)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let (now, rest) = bytes.split_at(taken);
            self.payload(now, &mut piece);
            bytes = rest;
        }
    }

    /// Reads one byte of a head.
    fn read_head<'a>(&mut self, bytes: &'a [u8], piece: &mut impl FnMut(Piece<'_>)) -> &'a [u8] {
        let Some((first, rest)) = bytes.split_first() else {
            return bytes;
        };
        self.head.push(*first);
        if let Some(frame) = Frame::read(&self.head) {
            self.head.clear();
            self.frame = frame;
            (self.seen, self.left) = (0, frame.length);
            if frame.starts() {
                self.channel = None;
            }
            if frame.length == 0 && frame.is_data() && frame.last {
                self.over(&[], piece);
            }
        }
        rest
    }

    fn payload(&mut self, bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) {
        let at = self.seen;
        self.seen += bytes.len() as u64;
        self.left -= bytes.len() as u64;
        if !self.frame.is_data() {
            return;
        }
        let mut clear = std::mem::take(&mut self.clear);
        let mut said = match self.frame.mask {
            None => bytes,
            Some(mask) => {
                clear.clear();
                clear.extend(
                    bytes
                        .iter()
                        .zip(at..)
                        .map(|(byte, at)| byte ^ mask[(at % 4) as usize]),
                );
                &clear
            }
        };
        if self.channel.is_none()
            && let Some((channel, rest)) = said.split_first()
        {
            self.channel = Some(*channel);
            said = rest;
        }
        if self.left == 0 && self.frame.last {
            self.over(said, piece);
        } else if let Some(channel) = self.channel
            && !said.is_empty()
        {
            piece(Piece {
                channel,
                bytes: said,
                last: false,
            });
        }
        self.clear = clear;
    }

    fn over(&mut self, bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) {
        if let Some(channel) = self.channel.take() {
            piece(Piece {
                channel,
                bytes,
                last: true,
            });
        }
    }
}
