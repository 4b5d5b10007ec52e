//! Messages about the size of a terminal, and the streams of channels.

use oz_gating::messages::{Piece, STDERR, STDIN, STDOUT};
use oz_gating::recording::Stream;
use serde::{Deserialize, Serialize};

/// The longest message about the size of a terminal.
const MAX_RESIZE: usize = 256;

/// The size of a terminal, as clients write it.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    #[serde(alias = "width")]
    width: u16,
    #[serde(alias = "height")]
    height: u16,
}

fn read_size(message: &[u8]) -> Option<Size> {
    let message = Some(message).filter(|bytes| bytes.len() <= MAX_RESIZE)?;
    serde_json::from_slice(message).ok()
}

/// Reads the size of a terminal, columns and rows, from a message about it.
pub(crate) fn size(piece: Piece<'_>) -> Option<(u16, u16)> {
    read_size(piece.bytes).map(|size| (size.width, size.height))
}

/// Returns the content of a resize message in the form that the gate sends; `None` if the message is not exactly one
/// size. The API server accepts several sizes in one message and other spellings, which the gate does not record.
pub(crate) fn normal_size(message: &[u8]) -> Option<Vec<u8>> {
    serde_json::to_vec(&read_size(message)?).ok()
}

/// Returns the stream of a channel in one direction, if the channel carries input or output.
pub(crate) fn stream(inward: bool, channel: u8) -> Option<Stream> {
    match (inward, channel) {
        (true, STDIN) => Some(Stream::Stdin),
        (false, STDOUT) => Some(Stream::Stdout),
        (false, STDERR) => Some(Stream::Stderr),
        _ => None,
    }
}
