//! Whether what passes in a session is use of it. Clients and servers ask each other every few seconds whether they
//! are still there: that keeps no session in use. What counts is content, and a stream that is opened.

use super::frames::Frames;

/// The control frame of SPDY that opens a stream.
const SYN_STREAM: [u8; 2] = [0, 1];

/// Follows one direction of a session.
#[derive(Clone, Debug)]
pub struct Activity(Protocol);

#[derive(Clone, Debug)]
enum Protocol {
    WebSocket(Frames),
    Spdy(SpdyFrames),
    /// Every byte counts.
    Other,
}

impl Activity {
    /// By the protocol that both sides went over to, as the header `Upgrade` names it.
    #[must_use]
    pub fn of(upgrade: Option<&[u8]>) -> Self {
        let is = |name: &[u8]| upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case(name));
        Self(if is(b"websocket") {
            Protocol::WebSocket(Frames::default())
        } else if is(b"SPDY/3.1") {
            Protocol::Spdy(SpdyFrames::default())
        } else {
            Protocol::Other
        })
    }

    /// Whether there was use in what was passed on.
    pub fn passed(&mut self, bytes: &[u8]) -> bool {
        match &mut self.0 {
            Protocol::WebSocket(frames) => frames.passed(bytes),
            Protocol::Spdy(frames) => frames.passed(bytes),
            Protocol::Other => !bytes.is_empty(),
        }
    }
}

/// Where the frames of SPDY begin and end.
#[derive(Clone, Debug, Default)]
struct SpdyFrames {
    head: Vec<u8>,
    /// How much of the frame is still to come.
    left: usize,
    /// Whether that is content.
    content: bool,
}

impl SpdyFrames {
    fn passed(&mut self, mut bytes: &[u8]) -> bool {
        let mut used = false;
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let taken = self.left.min(bytes.len());
                self.left -= taken;
                used |= self.content;
                bytes = &bytes[taken..];
                continue;
            }
            self.head.push(*first);
            bytes = rest;
            if let [first, _, high, low, _flags, length @ ..] = self.head.as_slice()
                && length.len() == 3
            {
                let control = first & 0x80 != 0;
                self.content = !control;
                used |= control && [*high, *low] == SYN_STREAM;
                let add = |sum, byte: &u8| (sum << 8) | usize::from(*byte);
                self.left = length.iter().fold(0, add);
                self.head.clear();
            }
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each of these is use, by whatever pieces it comes in.
    fn uses(upgrade: &str, parts: &[(&[u8], bool)]) {
        for piece in [1, 3, 1000] {
            let mut activity = Activity::of(Some(upgrade.as_bytes()));
            for (part, expected) in parts {
                let used = part.chunks(piece).map(|piece| activity.passed(piece));
                // Not `any`: all of it has to pass.
                let used = used.fold(false, |all, one| all | one);
                assert_eq!(used, *expected, "{upgrade}: {part:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn pings_closes_and_empty_messages_of_a_web_socket_are_no_use_of_it() {
        uses(
            "WebSocket",
            &[
                (&[0x89, 0x80, 1, 2, 3, 4], false),
                (&[0x89, 4, b'p', b'i', b'n', b'g'], false),
                (&[0x8a, 0x84, 0, 0, 0, 0, b'p', b'i', b'n', b'g'], false),
                (&[0x82, 0], false),
                (&[0x82, 2, 1, b'$'], true),
                (&[0x82, 0x82, 0, 0, 0, 0, 0, b'l'], true),
                // A ping between the parts of a message.
                (&[0x02, 1, 1, 0x89, 0, 0x80, 1, b'x'], true),
                (&[0x8a, 1, 0], false),
                (&[0x88, 2, 3, 0xe8], false),
            ],
        );
    }

    #[test]
    fn pings_and_settings_of_spdy_are_no_use_of_it() {
        uses(
            "SPDY/3.1",
            &[
                (&[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1], false),
                (&[0x80, 3, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0], false),
                (&[0x80, 3, 0, 1, 0, 0, 0, 2, 0, 1], true),
                (&[0, 0, 0, 1, 0, 0, 0, 2, b'l', b's'], true),
                // Only the end of a stream.
                (&[0, 0, 0, 1, 1, 0, 0, 0], false),
                (&[0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0], false),
            ],
        );
    }

    #[test]
    fn of_a_protocol_that_is_not_known_every_byte_counts() {
        uses("h2c", &[(&[0], true), (&[], false)]);
        assert!(Activity::of(None).passed(b"line\n"));
    }
}
