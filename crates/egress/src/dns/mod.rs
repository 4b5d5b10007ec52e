//! The answers of the pod's name server. It knows the granted names, which have addresses that exist in the pod only,
//! and asks no other server: no question leaves the pod (R30).

mod message;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sha2::{Digest as _, Sha256};

use crate::address::{in_names_v4, in_names_v6};
use crate::grants::Granted;
use crate::name;

use message::{A, AAAA, Code, Header, IN, Question};

/// The time in seconds for which a client may keep an answer. A name that is no longer granted has an address for as
/// long, which leads to the proxy.
const TIME_TO_LIVE: u32 = 5;
/// The maximum length of the name in an [`Answer`] in bytes.
const MAX_NAME: usize = 255;
/// Domains at the end of search lists of pods and nodes. No server outside knows a name in them.
const SEARCH: [&str; 3] = ["local", "svc", "internal"];

/// The address families of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Families {
    /// Whether the pod has an IPv4 address.
    pub v4: bool,
    /// Whether the pod has an IPv6 address.
    pub v6: bool,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The message for the client.
    pub bytes: Vec<u8>,
    /// The name that the client asked for, in lower case, without the dot at its end and with `?` instead of bytes
    /// that are in no name; empty for a message without one question.
    pub name: String,
    /// Whether the question was refused: no policy grants its name, or, with an empty name, it is malformed or not a
    /// question for names. A granted name with a domain of a search list at its end is not refused in this sense:
    /// resolvers ask for it before they ask for the granted name.
    pub refused: bool,
}

/// Answers a message of a client. `None` if it is no question: too short, or itself an answer.
#[must_use]
pub fn answer(granted: &Granted, families: Families, message: &[u8]) -> Option<Answer> {
    let header = Header::read(message)?;
    // The sections of other operations have another meaning.
    let question = if header.is_query() {
        Question::read(message).ok_or(Code::FormatError)
    } else {
        Err(Code::NotImplemented)
    };
    let question = match question {
        Ok(question) => question,
        Err(code) => {
            return Some(Answer {
                bytes: message::response(header, code, None, None),
                name: String::new(),
                refused: true,
            });
        }
    };
    let (code, address, refused) = resolve(granted, families, &question);
    let address = address.map(|address| (address, TIME_TO_LIVE));
    Some(Answer {
        bytes: message::response(header, code, Some(&question), address),
        name: printed(&question.labels),
        refused,
    })
}

/// Returns the result of a question: its code, its address, and whether its name was refused.
fn resolve(
    granted: &Granted,
    families: Families,
    question: &Question<'_>,
) -> (Code, Option<IpAddr>, bool) {
    let name = text(&question.labels);
    let granted_name = name.as_deref().filter(|name| granted.has_name(name));
    let is_search = || name.as_ref().is_some_and(|name| is_search(granted, name));
    let is_refused = granted_name.is_none() && !is_search();
    // RFC 6891, section 6.1.3.
    if question.edns.is_some_and(|version| version > 0) {
        return (Code::BadVersion, None, is_refused);
    }
    if question.class != IN {
        return (Code::Refused, None, is_refused);
    }
    let Some(name) = granted_name else {
        return (Code::NoSuchName, None, is_refused);
    };
    let address = match question.kind {
        A if families.v4 => Some(IpAddr::V4(address_v4(name))),
        AAAA if families.v6 => Some(IpAddr::V6(address_v6(name))),
        _ => None,
    };
    (Code::NoError, address, false)
}

/// Returns the name as text, if it is the name of a host.
fn text(labels: &[&[u8]]) -> Option<String> {
    // A dot within a label would be read as the end of it.
    if labels.iter().any(|label| label.contains(&b'.')) {
        return None;
    }
    name::read(&labels.join(&b'.')).ok()
}

/// Returns the name for reports.
fn printed(labels: &[&[u8]]) -> String {
    if labels.is_empty() {
        return ".".to_owned();
    }
    let bytes = labels.join(&b'.');
    let printable = |byte: &u8| match byte {
        b'-' | b'_' | b'.' | b'*' => char::from(*byte),
        byte if byte.is_ascii_alphanumeric() => char::from(byte.to_ascii_lowercase()),
        _ => '?',
    };
    bytes.iter().take(MAX_NAME).map(printable).collect()
}

/// Checks whether a name is a granted one with a domain of a search list at its end: resolvers try those first.
fn is_search(granted: &Granted, name: &str) -> bool {
    let last = name.rsplit_once('.').map_or(name, |(_, last)| last);
    let mut ends = name.match_indices('.').map(|(at, _)| &name[..at]);
    SEARCH.contains(&last) && ends.any(|begin| granted.has_name(begin))
}

/// Returns the IPv4 address that a name has in the pod: the same one at each time and in each pod.
#[must_use]
pub fn address_v4(name: &str) -> Ipv4Addr {
    let digest = digest(name);
    let low: [u8; 4] = std::array::from_fn(|at| digest[at]);
    in_names_v4(u32::from_be_bytes(low))
}

/// Returns the IPv6 address that a name has in the pod: the same one at each time and in each pod.
#[must_use]
pub fn address_v6(name: &str) -> Ipv6Addr {
    let digest = digest(name);
    let low: [u8; 16] = std::array::from_fn(|at| digest[at]);
    in_names_v6(u128::from_be_bytes(low))
}

fn digest(name: &str) -> [u8; 32] {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    Sha256::digest(name.as_bytes()).into()
}
