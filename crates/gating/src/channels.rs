//! The channels of `v4` and `v5.channel.k8s.io`: the first byte of each message. The API server reads some of them.
//! See <https://pkg.go.dev/k8s.io/apimachinery/pkg/util/remotecommand>.

use super::query::Options;
use super::upgrade::Subprotocol;

/// Standard input, from the client.
pub const STDIN: u8 = 0;
/// Standard output.
pub const STDOUT: u8 = 1;
/// Standard error.
pub const STDERR: u8 = 2;
/// The result of a session, as a Status.
pub const ERROR: u8 = 3;
/// The new size of a terminal, from the client.
pub const RESIZE: u8 = 4;

/// The first byte of a message of `v5.channel.k8s.io` that closes the channel in its second byte.
const CLOSE: u8 = 255;
/// The number of channels.
const COUNT: u8 = 5;

/// The channels on which the API server reads messages of a client of exec or attach (package `wsstream` of
/// Kubernetes). The gate forwards and records these messages only, so a recording has no input that did not reach the
/// command.
/// See <https://pkg.go.dev/k8s.io/apimachinery/pkg/util/httpstream/wsstream>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadChannels {
    stdin: bool,
    resize: bool,
    /// True if the client can close a channel.
    closes: bool,
}

/// A malformed close of a channel, at which the API server ends the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the close of a channel requires two bytes, 255 and a channel from 0 to 4")]
pub struct CloseMalformed;

impl ReadChannels {
    /// Returns the channels of a new session. The API server reads sizes also without a terminal.
    #[must_use]
    pub fn new(protocol: Subprotocol, options: &Options) -> Self {
        Self {
            stdin: options.stdin(),
            resize: true,
            closes: protocol == Subprotocol::V5,
        }
    }

    /// Returns whether the API server reads this message, and closes the channel that the message closes.
    ///
    /// # Errors
    /// If the API server ends the session at this message.
    pub fn reads(&mut self, message: &[u8]) -> Result<bool, CloseMalformed> {
        match message {
            [] => Ok(false),
            [CLOSE, rest @ ..] if self.closes => match rest {
                [channel @ 0..COUNT] => {
                    self.stdin &= *channel != STDIN;
                    self.resize &= *channel != RESIZE;
                    Ok(true)
                }
                _ => Err(CloseMalformed),
            },
            [STDIN, ..] => Ok(self.stdin),
            [RESIZE, ..] => Ok(self.resize),
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path;

    fn channels(protocol: Subprotocol, query: &str) -> ReadChannels {
        let prefix = oz_core::gate::prefix("shop", "debug");
        let path = format!("{prefix}/api/v1/namespaces/shop/pods/db-0/exec");
        let path = path::read("GET", &path, Some(query)).unwrap();
        ReadChannels::new(protocol, &path.options)
    }

    #[test]
    fn message_is_read_on_open_channels_only() {
        let mut both = channels(Subprotocol::V5, "stdin=1&tty=1");
        for (message, read) in [
            (&b"\0ls"[..], true),
            (b"\0", true),
            (b"\x04{}", true),
            (b"\x01forged", false),
            (b"\x03forged", false),
            (b"\x05", false),
            (b"\xfe", false),
            (b"", false),
            (b"\xff\x01", true),
            (b"\0ls", true),
            (b"\xff\0", true),
            (b"\0forged", false),
            (b"\x04{}", true),
            (b"\xff\x04", true),
            (b"\x04{}", false),
            // A second close has no effect.
            (b"\xff\0", true),
            (b"\0forged", false),
        ] {
            assert_eq!(both.reads(message), Ok(read), "{message:?}");
        }
        let mut none = channels(Subprotocol::V5, "stdin=false&tty=1");
        assert_eq!(none.reads(b"\0forged"), Ok(false));
        assert_eq!(none.reads(b"\x04{}"), Ok(true));
    }

    #[test]
    fn malformed_close_is_an_error_in_v5_only() {
        for message in [&b"\xff"[..], b"\xff\x05", b"\xff\xff", b"\xff\0\0"] {
            let mut five = channels(Subprotocol::V5, "stdin=1");
            assert_eq!(five.reads(message), Err(CloseMalformed), "{message:?}");
            let mut four = channels(Subprotocol::V4, "stdin=1");
            assert_eq!(four.reads(message), Ok(false), "{message:?}");
            assert_eq!(four.reads(b"\0ls"), Ok(true));
        }
    }
}
