//! The path of a recording: `NAMESPACE/REQUEST/SESSION`, with its parts below.

use std::fmt;

use jiff::Timestamp;
use oz_core::validate::dns_subdomain;

/// The form in which a part is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// Lines of asciicast, compressed by zstd.
    #[default]
    Plain,
    /// Lines of asciicast, compressed by zstd and encrypted by age.
    Encrypted,
    /// Encrypted lines in frames, from the spool of a gate that stopped abruptly: the gate that stored them could not
    /// read them.
    Frames,
}

impl Form {
    const ALL: [Self; 3] = [Self::Plain, Self::Encrypted, Self::Frames];

    /// Returns the suffix of the names of parts in this form.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Plain => ".cast.zst",
            Self::Encrypted => ".cast.zst.age",
            Self::Frames => ".cast.frames",
        }
    }
}

/// The key of one session of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The namespace of the request.
    pub namespace: String,
    /// The name of the request.
    pub request: String,
    /// The session: the time at which it was opened, the replica, and its number there. Sorts by time.
    pub session: String,
}

impl SessionKey {
    /// Creates the key of the `number`th session of `replica`, opened at `at`.
    #[must_use]
    pub fn new(namespace: &str, request: &str, at: Timestamp, replica: &str, number: u64) -> Self {
        let at = at.strftime("%Y%m%dt%H%M%S%3fz");
        let plain = |letter: char| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        };
        let replica: String = replica.to_ascii_lowercase().chars().map(plain).collect();
        Self {
            namespace: namespace.to_owned(),
            request: request.to_owned(),
            session: format!("{at}-{replica}-{number}"),
        }
    }

    /// Reads the text that [`fmt::Display`] writes; `None` for any other text.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let [namespace, request, session] = parts.as_slice() else {
            return None;
        };
        let all = [namespace, request, session];
        all.iter()
            .all(|one| dns_subdomain(one).is_ok())
            .then(|| Self {
                namespace: (*namespace).to_owned(),
                request: (*request).to_owned(),
                session: (*session).to_owned(),
            })
    }

    /// Returns the name of the part with this number, from 0.
    #[must_use]
    pub fn part(&self, number: u32, form: Form) -> String {
        format!("{self}/{number:06}{}", form.suffix())
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            request,
            session,
        } = self;
        write!(formatter, "{namespace}/{request}/{session}")
    }
}

/// The name of a part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartName {
    /// The session of the part.
    pub session: SessionKey,
    /// The number of the part, from 0.
    pub number: u32,
    /// The form in which the part is stored.
    pub form: Form,
}

impl PartName {
    /// Reads the text that [`SessionKey::part`] writes; `None` for any other text.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (session, name) = text.rsplit_once('/')?;
        let session = SessionKey::read(session)?;
        let mut forms = Form::ALL.into_iter();
        let (number, form) =
            forms.find_map(|form| Some((name.strip_suffix(form.suffix())?, form)))?;
        let part = Self {
            session,
            number: number.parse().ok()?,
            form,
        };
        (part.to_string() == text).then_some(part)
    }
}

impl fmt::Display for PartName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.session.part(self.number, self.form))
    }
}
