//! The detection of activity in a session over SPDY. Clients and servers exchange pings every few seconds; these are
//! not activity. Content and the opening of a stream are activity. In a session over a WebSocket, the messages are
//! activity; the gate reads them anyway.

/// The control frame of SPDY that opens a stream.
/// See <https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/>.
const SYN_STREAM: [u8; 2] = [0, 1];

/// The state of the frames of SPDY in one direction of a session.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    head: Vec<u8>,
    /// The number of bytes of the frame that have not arrived yet.
    left: usize,
    /// True if the frame is content.
    content: bool,
}

impl Activity {
    /// Reads bytes that were forwarded, and returns whether they contain activity.
    pub fn passed(&mut self, mut bytes: &[u8]) -> bool {
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

    /// Checks for each part whether it is activity, in pieces of several sizes.
    fn uses(parts: &[(&[u8], bool)]) {
        for piece in [1, 3, 1000] {
            let mut activity = Activity::default();
            for (part, expected) in parts {
                let used = part.chunks(piece).map(|piece| activity.passed(piece));
                // `any` stops at the first piece, but all pieces must be read.
                let used = used.fold(false, |all, one| all | one);
                assert_eq!(used, *expected, "{part:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn pings_and_settings_of_spdy_are_no_use_of_it() {
        uses(&[
            (&[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1], false),
            (&[0x80, 3, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0], false),
            (&[0x80, 3, 0, 1, 0, 0, 0, 2, 0, 1], true),
            (&[0, 0, 0, 1, 0, 0, 0, 2, b'l', b's'], true),
            // The end of a stream only.
            (&[0, 0, 0, 1, 1, 0, 0, 0], false),
            (&[0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0], false),
        ]);
    }
}
