//! `ozctl sessions transcript`.

use std::path::PathBuf;

use avt::Terminal;
use avt::observer::Transcript;
use clap::Args;
use oz_gating::recording::{Code, Header};

use super::identity::IdentityArgs;
use super::play::namespace;
use super::source::{Source, unpacked};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::lines;

/// The maximum size of the terminal: the writer of the stored recording chose its size.
const MOST: (usize, usize) = (1_000, 500);

/// Show what was seen in a session, as text
#[derive(Args)]
#[command(after_help = "\
Each line is as it was when it left the screen, or at the end. What a program drew on the terminal's other screen, as
editors do, is not in it.")]
pub(super) struct ShowTranscript {
    /// REQUEST, or REQUEST/SESSION
    session: String,
    /// Read the recording there, not through the gate: a directory with what the gate stored
    #[arg(long, value_name = "DIRECTORY")]
    from: Option<PathBuf>,
    #[command(flatten)]
    identity: IdentityArgs,
}

impl ShowTranscript {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let identities = self.identity.read(context)?;
        let source = Source::new(context, self.from.as_deref()).await?;
        let namespace = namespace(context, &source);
        let key = source.session(&namespace, &self.session).await?;
        let mut screen = None;
        for stored in source.parts(&key, &identities).await? {
            let part = unpacked(&stored.name, &stored.bytes, &identities)?;
            let screen = match &mut screen {
                Some(screen) => screen,
                none => none.insert(Screen::new(&part.header)?),
            };
            for event in &part.events {
                let text = match event.1 {
                    Code::Output => screen.shown(&event.2),
                    Code::Resize => screen.resized(&event.2),
                    Code::Input | Code::Mark | Code::Bytes => continue,
                };
                context.print(&text)?;
            }
        }
        match screen {
            Some(screen) => context.print(&screen.rest())?,
            None => {
                return Err(
                    Failure::new(format!("nothing is recorded of session {key}"))
                        .next("`ozctl sessions list` shows which sessions there were"),
                );
            }
        }
        Ok(Exit::SUCCESS)
    }
}

struct Screen {
    terminal: Terminal,
    transcript: Transcript,
    tty: bool,
}

impl Screen {
    fn new(header: &Header) -> Result<Self> {
        let (columns, rows) = bounded(header.width.into(), header.height.into());
        let terminal = Terminal::new(columns, rows);
        Ok(Self {
            terminal: terminal.map_err(|error| Failure::new(error.to_string()))?,
            transcript: Transcript::new(),
            tty: header.oz.tty,
        })
    }

    /// Returns the lines that leave the screen because of this output.
    fn shown(&mut self, output: &str) -> String {
        let output = if self.tty {
            output.to_owned()
        } else {
            output.replace('\n', "\r\n")
        };
        text(
            &self
                .terminal
                .feed_with(output.as_str(), &mut self.transcript),
        )
    }

    fn resized(&mut self, size: &str) -> String {
        let size = size
            .split_once('x')
            .and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
        let Some((columns, rows)) = size else {
            return String::new();
        };
        let (columns, rows) = bounded(columns, rows);
        text(
            &self
                .terminal
                .resize_with(columns, rows, &mut self.transcript),
        )
    }

    /// Returns the content of the screen at the end.
    fn rest(self) -> String {
        text(&self.transcript.finish(&self.terminal))
    }
}

fn bounded(columns: usize, rows: usize) -> (usize, usize) {
    (columns.clamp(1, MOST.0), rows.clamp(1, MOST.1))
}

fn text(all: &[String]) -> String {
    all.iter()
        .map(|line| format!("{}\n", lines(line)))
        .collect()
}
