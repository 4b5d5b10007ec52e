//! The user's terminal: in raw mode during a session, and restored at any end of the session.

use std::io::{IsTerminal, Write};

use kube::api::TerminalSize;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::failure::{Failure, Result};

/// Checks whether a session can use the terminal, for its input and its output.
pub(crate) fn is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Checks whether the stream accepts escape sequences: a terminal that is not `dumb`.
pub(crate) fn draws(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Checks whether the user wants colours: an empty $NO_COLOR has no meaning
/// (<https://no-color.org>).
pub(crate) fn is_coloured() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns the width of the terminal on standard error.
pub(crate) fn columns() -> Option<usize> {
    let size = tcgetwinsize(std::io::stderr()).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}

/// Returns the size of the session's terminal.
pub(crate) fn size() -> Option<TerminalSize> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    Some(TerminalSize {
        width: size.ws_col,
        height: size.ws_row,
    })
}

/// A terminal in raw mode, which passes on every key. Dropping it restores the earlier mode.
pub(crate) struct Raw {
    before: Termios,
    titled: bool,
}

impl Raw {
    pub(crate) fn enter() -> Result<Self> {
        let failed = |error| Failure::new(format!("failed to use the terminal: {error}"));
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw).map_err(failed)?;
        let named = std::env::var_os("TERM").is_some_and(|term| !term.is_empty());
        let titled = named && draws(&std::io::stdout());
        let terminal = Self { before, titled };
        // Save the current title.
        terminal.control("\x1b[22;2t");
        Ok(terminal)
    }

    /// Sets the title of the window.
    pub(crate) fn title(&self, text: &str) {
        self.control(&format!("\x1b]2;{text}\x07"));
    }

    /// Prints a line of ozctl within the output of the session, bold, with a bell.
    pub(crate) fn notice(&self, text: &str) {
        let mut stderr = std::io::stderr();
        let (on, off) = if draws(&stderr) && is_coloured() {
            ("\x1b[1;33m", "\x1b[0m")
        } else {
            ("", "")
        };
        let _ = write!(stderr, "\r\n\x07{on}oz: {text}{off}\r\n");
        let _ = stderr.flush();
    }

    fn control(&self, sequence: &str) {
        if self.titled {
            let mut stdout = std::io::stdout();
            let _ = stdout.write_all(sequence.as_bytes());
            let _ = stdout.flush();
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.control("\x1b[23;2t");
        // Typed-ahead input is for the shell that continues after the session.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}
