//! The text that was seen in a session, line by line.

use avt::Terminal;
use avt::observer;
use oz_gating::recording::{Code, Event, Header, SessionKey, Stored};

use super::error::SessionError;
use super::identities::Identities;
use super::source::{Source, unpacked};

/// The maximum size of the terminal: the writer of the stored recording chose its size.
const MOST: (usize, usize) = (1_000, 500);

/// The lines of a recording, in the order in which they left the screen.
pub struct Transcript<'a> {
    key: SessionKey,
    identities: &'a Identities,
    parts: std::vec::IntoIter<Stored>,
    events: std::vec::IntoIter<Event>,
    screen: State,
}

enum State {
    /// No part was read.
    Unknown,
    Open(Box<Screen>),
    /// The last screen was returned.
    Over,
}

impl<'a> Transcript<'a> {
    /// Begins with the first part.
    ///
    /// # Errors
    /// The source cannot be read.
    pub async fn begin(
        source: &Source,
        key: SessionKey,
        identities: &'a Identities,
    ) -> Result<Self, SessionError> {
        let parts = source.parts(&key, identities).await?;
        Ok(Self {
            key,
            identities,
            parts: parts.into_iter(),
            events: Vec::new().into_iter(),
            screen: State::Unknown,
        })
    }

    /// Returns the next lines; `None` at the end.
    ///
    /// # Errors
    /// Nothing is recorded of the session, or a part cannot be read.
    pub fn next_lines(&mut self) -> Result<Option<Vec<String>>, SessionError> {
        loop {
            if let State::Open(screen) = &mut self.screen
                && let Some(event) = self.events.next()
            {
                match event.1 {
                    Code::Output => return Ok(Some(screen.feed(&event.2))),
                    Code::Resize => return Ok(Some(screen.resized(&event.2))),
                    Code::Input | Code::Mark | Code::Bytes => continue,
                }
            }
            let Some(stored) = self.parts.next() else {
                return match std::mem::replace(&mut self.screen, State::Over) {
                    State::Unknown => Err(SessionError::NotRecorded(self.key.clone())),
                    State::Open(screen) => Ok(Some(screen.rest())),
                    State::Over => Ok(None),
                };
            };
            let part = unpacked(&stored.name, &stored.bytes, self.identities)?;
            if matches!(self.screen, State::Unknown) {
                self.screen = State::Open(Box::new(Screen::new(&part.header)?));
            }
            self.events = part.events.into_iter();
        }
    }
}

struct Screen {
    terminal: Terminal,
    transcript: observer::Transcript,
    tty: bool,
}

impl Screen {
    fn new(header: &Header) -> Result<Self, SessionError> {
        let (columns, rows) = bounded(header.width.into(), header.height.into());
        let terminal = Terminal::new(columns, rows);
        Ok(Self {
            terminal: terminal.map_err(SessionError::Screen)?,
            transcript: observer::Transcript::new(),
            tty: header.oz.tty,
        })
    }

    /// Returns the lines that leave the screen because of this output.
    fn feed(&mut self, output: &str) -> Vec<String> {
        let output = if self.tty {
            output.to_owned()
        } else {
            output.replace('\n', "\r\n")
        };
        self.terminal
            .feed_with(output.as_str(), &mut self.transcript)
    }

    fn resized(&mut self, size: &str) -> Vec<String> {
        let size = size
            .split_once('x')
            .and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
        let Some((columns, rows)) = size else {
            return Vec::new();
        };
        let (columns, rows) = bounded(columns, rows);
        self.terminal
            .resize_with(columns, rows, &mut self.transcript)
    }

    /// Returns the content of the screen at the end.
    fn rest(self) -> Vec<String> {
        self.transcript.finish(&self.terminal)
    }
}

fn bounded(columns: usize, rows: usize) -> (usize, usize) {
    (columns.clamp(1, MOST.0), rows.clamp(1, MOST.1))
}
