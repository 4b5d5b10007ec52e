//! The output of a terminal without the sequences that affect a later viewer: titles, clipboards,
//! queries that a terminal answers as if the user had typed. The permitted sequences are written
//! anew, from their parsed form.

use std::fmt::Write as _;

use vte::{Params, Perform};

/// The sequence that resets a terminal after a recording was played: colours, cursor, screen,
/// letters, margins.
pub const RESET: &str = "\u{1b}[0m\u{1b}[?25h\u{1b}[?1049l\u{1b}[?7h\u{1b}(B\u{f}\u{1b}[r";
/// The permitted modes: origin, wrapping, the cursor, the other screen.
const MODES: [u16; 6] = [6, 7, 25, 47, 1047, 1049];
/// The permitted final bytes: movements, erasures, colours, margins. A terminal answers none of
/// these.
const FINALS: &str = "@ABCDEFGHIJKLMPSTXZ`abdefgmrsu";

/// A filter that permits only harmless sequences.
#[derive(Default)]
pub struct Harmless {
    parser: vte::Parser,
    kept: Kept,
}

#[derive(Default)]
struct Kept {
    text: String,
}

impl Harmless {
    /// Returns the harmless part of more output. A sequence may span several pieces.
    pub fn filter(&mut self, output: &str) -> String {
        self.parser.advance(&mut self.kept, output.as_bytes());
        std::mem::take(&mut self.kept.text)
    }
}

impl Perform for Kept {
    fn print(&mut self, letter: char) {
        if !letter.is_control() {
            self.text.push(letter);
        }
    }

    fn execute(&mut self, byte: u8) {
        // Backspace, tab, lines, return, and the two sets of letters.
        if matches!(byte, 0x08..=0x0f) {
            self.text.push(char::from(byte));
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], ignore: bool, action: char) {
        if ignore {
            return;
        }
        let mode = matches!(action, 'h' | 'l');
        let mark = match intermediates {
            [] if FINALS.contains(action) => "",
            [b'?'] if mode => "?",
            _ => return,
        };
        let mut kept = Vec::new();
        for param in params {
            if mode && !param.iter().all(|value| MODES.contains(value)) {
                continue;
            }
            let values: Vec<String> = param.iter().map(ToString::to_string).collect();
            kept.push(values.join(":"));
        }
        if !(mode && kept.is_empty()) {
            let _ = write!(self.text, "\u{1b}[{mark}{}{action}", kept.join(";"));
        }
    }

    fn esc_dispatch(&mut self, intermediates: &[u8], ignore: bool, byte: u8) {
        let fine = match intermediates {
            [] => b"78DEM".contains(&byte),
            // Which letters a set has: lines, or plain ones.
            [b'(' | b')'] => b"0B".contains(&byte),
            _ => false,
        };
        if fine && !ignore {
            self.text.push('\u{1b}');
            let letters = intermediates.iter().chain([&byte]);
            self.text.extend(letters.map(|byte| char::from(*byte)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter_text(text: &str) -> String {
        Harmless::default().filter(text)
    }

    #[test]
    fn letters_colours_and_places_are_shown_and_nothing_else() {
        for (text, expected) in [
            ("ls\r\n\tbin\u{8}", "ls\r\n\tbin\u{8}"),
            ("\u{1b}[1;31mred\u{1b}[m", "\u{1b}[1;31mred\u{1b}[0m"),
            ("\u{1b}[38:2:1:2:3mx", "\u{1b}[38:2:1:2:3mx"),
            (
                "\u{1b}[2J\u{1b}[H\u{1b}[10;20Hx",
                "\u{1b}[2J\u{1b}[0H\u{1b}[10;20Hx",
            ),
            ("\u{1b}[?1049h\u{1b}[?25l", "\u{1b}[?1049h\u{1b}[?25l"),
            ("\u{1b}(0lqk\u{1b}(B", "\u{1b}(0lqk\u{1b}(B"),
            // A title, the clipboard, a link, a bell.
            ("\u{1b}]0;owned\u{7}a", "a"),
            ("\u{1b}]52;c;cm0gLXJmIC8=\u{1b}\\a", "a"),
            ("\u{1b}]8;;http://evil\u{1b}\\a\u{1b}]8;;\u{1b}\\", "a"),
            ("\u{7}", ""),
            // Queries: the position of the cursor, the type of the terminal, its title, its keys.
            (
                "\u{1b}[6n\u{1b}[c\u{1b}[>c\u{1b}[21t\u{1b}Z\u{1b}[5n\u{1b}[?u\u{1b}[0q",
                "",
            ),
            ("\u{1b}P$qm\u{1b}\\\u{1b}P+q544e\u{1b}\\a", "a"),
            // Mouse, pasting, reset, printing, keys that are bound.
            (
                "\u{1b}[?1000h\u{1b}[?2004h\u{1b}c\u{1b}[5i\u{1b}[!p\u{1b}[?25;1000h",
                "\u{1b}[?25h",
            ),
            (
                "\u{1b}_secret\u{1b}\\\u{1b}^x\u{1b}\\\u{1b}Xx\u{1b}\\a",
                "a",
            ),
            // The same sequences, each with an introducer of one character.
            ("\u{9b}6n\u{9d}0;owned\u{9c}a", "6n0;owneda"),
        ] {
            assert_eq!(filter_text(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_sequence_may_come_in_pieces() {
        let mut harmless = Harmless::default();
        let shown: String = ["\u{1b}", "]0;ow", "ned\u{7}a\u{1b}[3", "1mb"]
            .iter()
            .map(|piece| harmless.filter(piece))
            .collect();
        assert_eq!(shown, "a\u{1b}[31mb");
    }
}
