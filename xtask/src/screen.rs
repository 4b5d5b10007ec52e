//! The screen output of demo, test runner and benches: colours only on a terminal and not with NO_COLOR, a
//! line that is overwritten during a long operation, text that fits.

use std::io::{IsTerminal as _, Write as _, stdout};

use anyhow::{Context as _, Result};

/// The maximum width of printed text.
pub const WIDTH: usize = 100;

/// The emphasis of a piece of text.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    /// Bold.
    Bold,
    /// Grey.
    Dim,
    /// Green, for a success.
    Good,
    /// Red, for a failure.
    Bad,
}

/// Standard output.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    terminal: bool,
    colour: bool,
}

impl Screen {
    /// Returns the standard output of this process.
    #[must_use]
    pub fn stdout() -> Self {
        let terminal = stdout().is_terminal();
        // https://no-color.org: any value that is not empty.
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            terminal,
            colour: terminal && !plain,
        }
    }

    /// Checks whether it is a terminal.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        self.terminal
    }

    /// Returns the text with an emphasis, where the screen has colours.
    #[must_use]
    pub fn paint(self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Bad => "31",
        };
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Prints one or more lines.
    pub fn line(self, text: &str) -> Result<()> {
        self.write(&format!("{}{text}\n", self.wipe()))
    }

    /// Prints a line that the next one overwrites. Prints nothing where that is not possible.
    pub fn passing(self, text: &str) -> Result<()> {
        if !self.terminal {
            return Ok(());
        }
        let short: String = text.chars().take(WIDTH - 1).collect();
        self.write(&format!("{}{short}", self.wipe()))
    }

    const fn wipe(self) -> &'static str {
        if self.terminal { "\r\x1b[2K" } else { "" }
    }

    fn write(self, text: &str) -> Result<()> {
        let mut out = stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .context("failed to write to standard output")
    }
}

/// Wraps the text into lines that fit next to an indent of `indent`; a longer word gets a separate line.
pub fn wrap(text: &str, indent: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        if let Some(last) = lines.last_mut() {
            if last.is_empty() {
                last.push_str(word);
                continue;
            }
            if indent + last.chars().count() + 1 + word.chars().count() <= WIDTH {
                last.push(' ');
                last.push_str(word);
                continue;
            }
        }
        lines.push(word.to_owned());
    }
    lines
}

/// Formats rows in columns of minimum width, two spaces apart. The first row is the head. The caller pads
/// numbers that must align.
pub fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(column) {
                Some(widest) => *widest = width.max(*widest),
                None => widths.push(width),
            }
        }
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let padded: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}", width = *width))
            .collect();
        padded.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words_and_loses_none() {
        let text = "word ".repeat(50) + &"x".repeat(120) + " end";

        let lines = wrap(&text, 3);

        assert!(
            lines
                .iter()
                .all(|line| line.len() <= 97 || !line.contains(' '))
        );
        assert_eq!(lines.join(" "), text);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(ToOwned::to_owned).to_vec();

        let lines = columns(&[row(["WHO", "WHAT"]), row(["mallory", "asked"])]);

        assert_eq!(lines, ["WHO      WHAT", "mallory  asked"]);
    }
}
