//! Where a recording is: `NAMESPACE/REQUEST/SESSION`, and below it its parts.

use std::fmt;

use jiff::Timestamp;
use oz_core::validate::dns_subdomain;

/// In which form a part is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// Lines of asciicast, compressed by zstd.
    #[default]
    Plain,
    /// The same, encrypted by age.
    Encrypted,
    /// Encrypted lines in frames, as they were in the spool of a gate that broke off: who took them up could not read
    /// them.
    Frames,
}

impl Form {
    const ALL: [Self; 3] = [Self::Plain, Self::Encrypted, Self::Frames];

    /// How the names of such parts end.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Plain => ".cast.zst",
            Self::Encrypted => ".cast.zst.age",
            Self::Frames => ".cast.frames",
        }
    }
}

/// One session of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The namespace of the request.
    pub namespace: String,
    /// The name of the request.
    pub request: String,
    /// The session: when it was opened, by which replica, and its number there. Sorts by time.
    pub session: String,
}

impl SessionKey {
    /// The session that `replica` opened at `at` as its `number`th.
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

    /// Reads what [`fmt::Display`] writes; `None` for anything else.
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

    /// The name of its part with this number, from 0.
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

/// A part, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartName {
    /// Its session.
    pub session: SessionKey,
    /// Its number, from 0.
    pub number: u32,
    /// In which form it is stored.
    pub form: Form,
}

impl PartName {
    /// Reads what [`SessionKey::part`] writes; `None` for anything else.
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
