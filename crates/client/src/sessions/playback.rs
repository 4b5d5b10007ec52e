//! A recording in the order in which it was seen.

use oz_gating::recording::{About, Code, Event, PartName, SessionKey};

use super::error::SessionError;
use super::harmless::Harmless;
use super::identities::Identities;
use super::source::{Source, unpacked};

/// A piece of a recording.
pub enum Played {
    /// The part with this number is missing.
    Missing(u32),
    /// The description of the session.
    Begin(Box<About>),
    /// A message of oz about the session.
    Mark(String),
    /// Output.
    Output {
        /// The time since the session was opened, in seconds, as the recording states it: any value.
        at: f64,
        /// The recorded output.
        recorded: String,
        /// The part of it that is harmless for a terminal.
        shown: String,
    },
}

/// A recording that is read part by part: it may be long.
pub struct Playback<'a> {
    source: &'a Source,
    identities: &'a Identities,
    names: std::vec::IntoIter<PartName>,
    /// The part that was read, but has not begun.
    next: Option<PartName>,
    /// The number of the next part.
    wanted: u32,
    events: std::vec::IntoIter<Event>,
    tty: bool,
    harmless: Harmless,
}

impl<'a> Playback<'a> {
    /// Begins with the first part.
    ///
    /// # Errors
    /// Nothing is recorded of the session, or the source cannot be read.
    pub async fn begin(
        source: &'a Source,
        key: &SessionKey,
        identities: &'a Identities,
    ) -> Result<Self, SessionError> {
        let names = source.names(key).await?;
        if names.is_empty() {
            return Err(SessionError::NotRecorded(key.clone()));
        }
        let names: Vec<_> = names
            .iter()
            .filter_map(|name| PartName::read(name))
            .collect();
        Ok(Self {
            source,
            identities,
            names: names.into_iter(),
            next: None,
            wanted: 0,
            events: Vec::new().into_iter(),
            tty: true,
            harmless: Harmless::default(),
        })
    }

    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// A part cannot be read.
    pub async fn next(&mut self) -> Result<Option<Played>, SessionError> {
        loop {
            if let Some(played) = self.events.next().map(|event| self.event(event)) {
                match played {
                    Some(played) => return Ok(Some(played)),
                    None => continue,
                }
            }
            let name = match self.next.take() {
                Some(name) => name,
                None => {
                    let Some(name) = self.names.next() else {
                        return Ok(None);
                    };
                    let wanted = std::mem::replace(&mut self.wanted, name.number + 1);
                    if name.number != wanted {
                        self.next = Some(name);
                        return Ok(Some(Played::Missing(wanted)));
                    }
                    name
                }
            };
            let part = unpacked(&name, &self.source.part(&name).await?, self.identities)?;
            self.events = part.events.into_iter();
            if name.number == 0 {
                let about = part.header.oz;
                self.tty = about.tty;
                return Ok(Some(Played::Begin(Box::new(about))));
            }
        }
    }

    fn event(&mut self, Event(at, code, data): Event) -> Option<Played> {
        match code {
            Code::Mark => Some(Played::Mark(data)),
            Code::Output => {
                // Without a terminal, a line begins where the preceding line ended.
                let shown = match self.tty {
                    true => self.harmless.filter(&data),
                    false => self.harmless.filter(&data.replace('\n', "\r\n")),
                };
                Some(Played::Output {
                    at,
                    recorded: data,
                    shown,
                })
            }
            Code::Input | Code::Resize | Code::Bytes => None,
        }
    }
}
