//! What every verb is given: how to reach the cluster, and how to speak.

use std::io::{ErrorKind, Write};

use crate::cluster::Cluster;
use crate::connect;
use crate::connection::Connection;
use crate::failure::{Failure, Result};
use crate::output::line;
use crate::terminal;

/// The surroundings of a verb.
pub(crate) struct Context {
    /// The flags that choose cluster and user.
    pub(crate) connection: Connection,
    /// Whether standard error is a terminal on which lines may be written over.
    pub(crate) live: bool,
    colour: bool,
    /// By which name we were started.
    program: Program,
}

/// A name that we are started by.
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
    /// A command line of ours, without its `ozctl`, as it is typed under this name.
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

/// How a word looks on a terminal.
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

    /// A client for the cluster that the flags choose.
    pub(crate) async fn cluster(&self) -> Result<Cluster> {
        connect::connect(&self.connection).await
    }

    /// For standard error.
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        painted(self.colour && self.live, style, text)
    }

    /// For standard output.
    pub(crate) fn paint_output(&self, style: Style, text: &str) -> String {
        painted(
            self.colour && terminal::draws(&std::io::stdout()),
            style,
            text,
        )
    }

    /// A line of progress, on standard error.
    pub(crate) fn say(&self, text: &str) {
        let _ = writeln!(std::io::stderr(), "{}", self.typed(text));
    }

    /// A line of progress with words of others in it: no command of ours, and nothing for a terminal.
    pub(crate) fn say_plain(&self, text: &str) {
        let _ = writeln!(std::io::stderr(), "{}", line(text));
    }

    /// Commands of ours as they are to be typed here: by the name that we were started by, and for the
    /// cluster and the namespace that the flags chose.
    pub(crate) fn typed(&self, text: &str) -> String {
        let flags = self.connection.chosen();
        let mut pieces = text.split('`');
        let mut typed = pieces.next().unwrap_or_default().to_owned();
        // Each second piece stands between two.
        for (number, piece) in pieces.enumerate() {
            typed.push('`');
            match piece.strip_prefix("ozctl ").filter(|_| number % 2 == 0) {
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

    /// Part of a line of progress.
    pub(crate) fn say_on(&self, text: &str) {
        let mut stderr = std::io::stderr();
        let _ = write!(stderr, "{text}");
        let _ = stderr.flush();
    }

    /// Text on standard output. A reader who has seen enough, as `head` does, ends it in peace.
    pub(crate) fn print(&self, text: &str) -> Result<()> {
        self.pass_on(text.as_bytes()).map(drop)
    }

    /// Part of a stream on standard output; whether anybody still reads it. Who has no end of its
    /// own must ask, or would go on for nobody.
    pub(crate) fn pass_on(&self, bytes: &[u8]) -> Result<bool> {
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(unwritten(&error)),
        }
    }

    /// An error as it is shown.
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

/// The failure that standard output which takes nothing is, such as a full disk.
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
