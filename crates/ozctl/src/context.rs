//! The context of every verb: access to the cluster, and output.

use std::io::{ErrorKind, Write};

use crate::cluster::Cluster;
use crate::connect;
use crate::connection::Connection;
use crate::failure::{Failure, Result};
use crate::output::line;
use crate::terminal;

/// The context of a verb.
pub(crate) struct Context {
    /// The flags that choose cluster and user.
    pub(crate) connection: Connection,
    /// Standard error is a terminal, and its lines may be overwritten.
    pub(crate) live: bool,
    colour: bool,
    /// The name that the process was started under.
    program: Program,
}

/// A name that the process may be started under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Program {
    /// `ozctl`.
    #[default]
    Ozctl,
    /// `kubectl oz`.
    KubectlOz,
    /// `kubectl paddock`.
    KubectlPaddock,
}

impl Program {
    /// Returns a command line of `ozctl`, given without the word `ozctl`, as a user types it under
    /// this name.
    pub(crate) fn typed(self, words: &str) -> String {
        let of_paddock = |words: &str| match words.split_once(' ') {
            Some(("run", ours)) => match ours.strip_prefix("template ") {
                Some(name) => format!("kubectl paddock describe template {name}"),
                None => format!("kubectl paddock {ours}"),
            },
            Some(("policy", _)) => format!("kubectl paddock {words}"),
            _ => format!("ozctl {words}"),
        };
        match self {
            Self::Ozctl => format!("ozctl {words}"),
            Self::KubectlOz => format!("kubectl oz {words}"),
            Self::KubectlPaddock => of_paddock(words),
        }
    }
}

/// The style of a word on a terminal.
#[derive(Clone, Copy)]
pub(crate) enum Style {
    Bold,
    Dim,
    Green,
    Yellow,
    Red,
}

impl Style {
    const fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Red => "31",
        }
    }
}

impl Context {
    pub(crate) fn new(connection: Connection, program: Program) -> Self {
        Self {
            connection,
            live: terminal::draws(&std::io::stderr()),
            colour: terminal::is_coloured(),
            program,
        }
    }

    /// Returns a client for the cluster that the flags choose.
    pub(crate) async fn cluster(&self) -> Result<Cluster> {
        connect::connect(&self.connection).await
    }

    /// Applies a style for standard error.
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        painted(self.colour && self.live, style, text)
    }

    /// Applies a style for standard output.
    pub(crate) fn paint_output(&self, style: Style, text: &str) -> String {
        painted(
            self.colour && terminal::draws(&std::io::stdout()),
            style,
            text,
        )
    }

    /// Prints a line of progress to standard error.
    pub(crate) fn say(&self, text: &str) {
        let _ = writeln!(std::io::stderr(), "{}", self.typed(text));
    }

    /// Prints a line of progress with text from other users: without commands of ozctl, and without
    /// control characters.
    pub(crate) fn say_plain(&self, text: &str) {
        let _ = writeln!(std::io::stderr(), "{}", line(text));
    }

    /// Returns a text with the commands of ozctl as the user types them here: under the name that
    /// the process was started under, and for the cluster and the namespace that the flags chose.
    pub(crate) fn typed(&self, text: &str) -> String {
        let flags = self.connection.chosen();
        let mut typed = String::new();
        // Each second piece is between two backticks.
        for (number, piece) in text.split('`').enumerate() {
            if number > 0 {
                typed.push('`');
            }
            match piece.strip_prefix("ozctl ").filter(|_| number % 2 == 1) {
                None => typed.push_str(piece),
                Some(words) => {
                    let (ours, others) = match words.find(" -- ") {
                        Some(at) => words.split_at(at),
                        None => (words, ""),
                    };
                    let ours = self.program.typed(ours);
                    typed.push_str(&format!("{ours}{flags}{others}"));
                }
            }
        }
        typed
    }

    /// Prints a part of a line of progress.
    pub(crate) fn say_on(&self, text: &str) {
        let mut stderr = std::io::stderr();
        let _ = write!(stderr, "{text}");
        let _ = stderr.flush();
    }

    /// Prints text to standard output. A reader that closes the pipe, such as `head`, causes no
    /// error.
    pub(crate) fn print(&self, text: &str) -> Result<()> {
        self.pass_on(text.as_bytes()).map(drop)
    }

    /// Writes a part of a stream to standard output. Returns whether the reader is still there. A
    /// caller with an endless stream must check it, or would continue without a reader.
    pub(crate) fn pass_on(&self, bytes: &[u8]) -> Result<bool> {
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(unwritten(&error)),
        }
    }

    /// Returns an error in its printed form.
    pub(crate) fn error(&self, failure: &Failure) -> String {
        let mut text = format!(
            "{} {}\n",
            self.paint(Style::Red, "Error:"),
            line(failure.message())
        );
        if let Some(next) = failure.next_step() {
            let next = line(&self.typed(next));
            text.push_str(&format!("{} {next}\n", self.paint(Style::Bold, "Next:")));
        }
        text
    }
}

/// Returns the failure for standard output that cannot be written, such as on a full disk.
pub(crate) fn unwritten(error: &std::io::Error) -> Failure {
    Failure::new(format!("failed to write to standard output: {error}"))
}

fn painted(colour: bool, style: Style, text: &str) -> String {
    if colour {
        format!("\x1b[{}m{text}\x1b[0m", style.code())
    } else {
        text.to_owned()
    }
}
