//! Whether what is stored of a recording is what was recorded.

use std::fmt;

use super::chain::Head;
use super::key::PartName;

/// What is wrong with a recording.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// This part is not there.
    Missing(u32),
    /// A part is not what it was; which one, if the parts after it say so.
    Changed(Option<u32>),
    /// There are more parts than were recorded, from this one on.
    Surplus(u32),
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(part) => write!(formatter, "part {part} is missing"),
            Self::Changed(Some(part)) => write!(formatter, "part {part} was changed or exchanged"),
            Self::Changed(None) => write!(formatter, "a part was changed or exchanged"),
            Self::Surplus(part) => write!(
                formatter,
                "from part {part} on there is more than was recorded"
            ),
        }
    }
}

/// A part as it is stored.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its name.
    pub name: PartName,
    /// What is stored.
    pub bytes: Vec<u8>,
    /// The head before it, as it says itself, if that can be read.
    pub previous: Option<String>,
}

/// What is wrong with the parts of the session with this key; `recorded` is the head that is on record, `None` if there
/// is none, as of a session that is open.
#[must_use]
pub fn check(session: &str, recorded: Option<&Head>, parts: &[Stored]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut head = Head::start(session);
    let mut suspect = None;
    for stored in parts {
        while head.parts < stored.name.number {
            findings.push(Finding::Missing(head.parts));
            head.parts += 1;
        }
        let expected = stored.previous.as_deref();
        if suspect.is_none() && expected.is_some_and(|previous| previous != head.digest) {
            // Of what came before, the last is the first that the next one disagrees with; the first part has none.
            suspect = Some(head.parts.saturating_sub(1));
        }
        if recorded.is_some_and(|recorded| recorded.parts == stored.name.number) {
            findings.push(Finding::Surplus(stored.name.number));
            break;
        }
        head = head.after(&stored.bytes);
    }
    let Some(recorded) = recorded else {
        findings.extend(
            suspect
                .filter(|_| findings.is_empty())
                .map(|part| Finding::Changed(Some(part))),
        );
        return findings;
    };
    for part in head.parts..recorded.parts {
        findings.push(Finding::Missing(part));
    }
    let complete = !findings
        .iter()
        .any(|finding| matches!(finding, Finding::Missing(_)));
    if complete && head.digest != recorded.digest {
        findings.push(Finding::Changed(suspect));
    }
    findings
}
