//! The detection of visible letters in the bytes of a terminal: no control characters, and no part of an escape
//! sequence.

/// The state of the detection between two letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Plain {
    /// Inside text.
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and one of `#%()*+ -./`, which one letter follows.
    One,
    /// Inside a control sequence, until its final letter.
    Control,
    /// Inside a string, such as a title, until BEL or ESC `\`.
    String,
}

impl Plain {
    /// Reads a letter and returns whether it is visible.
    pub(super) fn shows(&mut self, letter: char) -> bool {
        let (next, seen) = match (*self, letter) {
            (_, '\u{1b}') => (Self::Escape, false),
            // These letters cancel a sequence.
            (_, '\u{18}' | '\u{1a}') => (Self::Text, false),
            (Self::Text, _) => (Self::Text, !letter.is_control()),
            (Self::Escape, '[' | 'O') => (Self::Control, false),
            (Self::Escape, ']' | 'P' | 'X' | '^' | '_') => (Self::String, false),
            (Self::Escape, ' '..='/') => (Self::One, false),
            (Self::Escape | Self::One, _) => (Self::Text, false),
            (Self::Control, '\u{40}'..='\u{7e}') => (Self::Text, false),
            (Self::Control, _) => (Self::Control, false),
            (Self::String, '\u{7}') => (Self::Text, false),
            (Self::String, _) => (Self::String, false),
        };
        *self = next;
        seen
    }
}
