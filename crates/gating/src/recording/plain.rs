//! What of a terminal's bytes is letters that somebody sees: no control characters, and nothing of an escape
//! sequence.

/// Goes from letter to letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Plain {
    /// In text.
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and one of `#%()*+ -./`, which one letter follows.
    One,
    /// In a control sequence, until its final letter.
    Control,
    /// In a string, such as a title, until BEL or ESC `\`.
    String,
}

impl Plain {
    /// Whether this letter is seen.
    pub(super) fn shows(&mut self, letter: char) -> bool {
        let (next, seen) = match (*self, letter) {
            (_, '\u{1b}') => (Self::Escape, false),
            // What cancels a sequence.
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
