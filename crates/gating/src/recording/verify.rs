//! The verification that a stored recording is unchanged.

use std::fmt;

use super::chain::Head;
use super::key::PartName;

/// A defect of a recording.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// The part with this number is missing.
    Missing(u32),
    /// A part was changed, with its number if the parts after it show it.
    Changed(Option<u32>),
    /// The recording has additional parts, from this number on.
    Surplus(u32),
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(part) => write!(formatter, "part {part} is missing"),
            Self::Changed(Some(part)) => write!(formatter, "part {part} was changed or replaced"),
            Self::Changed(None) => write!(formatter, "a part was changed or replaced"),
            Self::Surplus(part) => write!(
                formatter,
                "after part {part} there is more than was recorded"
            ),
        }
    }
}

/// A part as it is stored.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The name of the part.
    pub name: PartName,
    /// The stored bytes.
    pub bytes: Vec<u8>,
    /// The head before the part, as its header states it, if it can be read.
    pub previous: Option<String>,
}

/// Returns the defects of the parts of the session with this key; `recorded` is the recorded head, or `None` if there
/// is none, as for an open session.
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
            // The suspect is the last part before the first header that disagrees. The first part has no predecessor.
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
