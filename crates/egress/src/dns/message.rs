//! Messages of DNS: as much of RFC 1035 and RFC 6891 as a server requires that has addresses only. A library would bring
//! a random number generator into a crate that decides, and its parser allocates memory for as many records as a
//! header announces. The tests compare both.
//! See <https://www.rfc-editor.org/rfc/rfc1035#section-4.1>.

use std::net::IpAddr;

/// The number of bytes of a header.
const HEADER: usize = 12;
/// The maximum size of a question in bytes, with EDNS.
const MAX_QUESTION: usize = 4_096;
/// The maximum length of a name in a message in bytes.
const MAX_NAME: usize = 255;
/// The maximum length of a label in bytes. Larger numbers are the types of other labels, such as pointers.
/// See <https://www.rfc-editor.org/rfc/rfc1035#section-4.1.4>.
const MAX_LABEL: u8 = 63;
/// The size of a message over UDP in bytes that the server announces.
const PAYLOAD: u16 = 1_232;

/// The class of the internet.
pub(super) const IN: u16 = 1;
/// The type of an IPv4 address.
pub(super) const A: u16 = 1;
/// The type of an IPv6 address.
pub(super) const AAAA: u16 = 28;
/// The type of the pseudo-record of EDNS.
/// See <https://www.rfc-editor.org/rfc/rfc6891#section-6.1.1>.
const OPT: u16 = 41;

/// The code of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    NoError = 0,
    FormatError = 1,
    NoSuchName = 3,
    NotImplemented = 4,
    Refused = 5,
    /// The version of EDNS, which has more bits than the header has.
    /// See <https://www.rfc-editor.org/rfc/rfc6891#section-6.1.3>.
    BadVersion = 16,
}

/// The parts of a header that a response repeats.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    id: [u8; 2],
    flags: [u8; 2],
}

impl Header {
    /// Reads the header of a question; `None` for an answer, and for less than a header.
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let &[first, second, high, low, ..] = message.get(..HEADER)? else {
            return None;
        };
        let is_question = high & 0x80 == 0;
        is_question.then_some(Self {
            id: [first, second],
            flags: [high, low],
        })
    }

    /// Checks whether the message is a standard query, and not another operation.
    pub(super) const fn is_query(self) -> bool {
        self.flags[0] & 0x78 == 0
    }
}

/// The one question of a message.
#[derive(Clone, Debug)]
pub(super) struct Question<'a> {
    /// The labels of the name.
    pub(super) labels: Vec<&'a [u8]>,
    pub(super) kind: u16,
    pub(super) class: u16,
    /// The version of EDNS, if the message uses it.
    pub(super) edns: Option<u8>,
    /// The question as it was sent, for the response.
    bytes: &'a [u8],
}

impl<'a> Question<'a> {
    /// Reads the question of a message; `None` if the message is malformed or does not have one question.
    pub(super) fn read(message: &'a [u8]) -> Option<Self> {
        let counts: Vec<u16> = (4..HEADER)
            .step_by(2)
            .map(|at| number(&mut message.get(at..)?))
            .collect::<Option<_>>()?;
        let &[1, answers, authorities, additionals] = counts.as_slice() else {
            return None;
        };
        if message.len() > MAX_QUESTION {
            return None;
        }
        let mut rest = &message[HEADER..];
        let labels = labels(&mut rest)?;
        let (kind, class) = (number(&mut rest)?, number(&mut rest)?);
        let bytes = &message[HEADER..message.len() - rest.len()];
        let mut edns = None;
        // The number of records is limited by the bytes that each of them has.
        let before = u32::from(answers) + u32::from(authorities);
        for at in 0..before + u32::from(additionals) {
            skip_name(&mut rest)?;
            let (kind, _) = (number(&mut rest)?, number(&mut rest)?);
            let time_to_live = rest.split_off(..4)?;
            let length = usize::from(number(&mut rest)?);
            rest.split_off(..length)?;
            // RFC 6891, section 6.1.1: one such record, in the additional section.
            if kind == OPT && (at < before || edns.replace(time_to_live[1]).is_some()) {
                return None;
            }
        }
        Some(Self {
            labels,
            kind,
            class,
            edns,
            bytes,
        })
    }
}

fn number(rest: &mut &[u8]) -> Option<u16> {
    let bytes = rest.split_off(..2)?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

/// Reads a name without pointers: there is nothing before a question to which one could point.
fn labels<'a>(rest: &mut &'a [u8]) -> Option<Vec<&'a [u8]>> {
    let (mut labels, before) = (Vec::new(), rest.len());
    loop {
        match *rest.split_off_first()? {
            0 => break,
            length if length <= MAX_LABEL => labels.push(rest.split_off(..usize::from(length))?),
            _ => return None,
        }
    }
    (before - rest.len() <= MAX_NAME).then_some(labels)
}

fn skip_name(rest: &mut &[u8]) -> Option<()> {
    loop {
        match *rest.split_off_first()? {
            0 => return Some(()),
            length if length <= MAX_LABEL => {
                rest.split_off(..usize::from(length))?;
            }
            // A pointer has one more byte, and is the end of a name.
            0xc0.. => return rest.split_off_first().map(|_| ()),
            _ => return None,
        }
    }
}

/// Returns a response. Without a question, it is the response to a message that was not read.
pub(super) fn response(
    header: Header,
    code: Code,
    question: Option<&Question<'_>>,
    address: Option<(IpAddr, u32)>,
) -> Vec<u8> {
    let [high, low] = header.flags;
    let code = code as u16;
    let edns = question.and_then(|question| question.edns);
    let count = |is_there: bool| [0, u8::from(is_there)];
    let mut bytes = Vec::with_capacity(MAX_QUESTION / 8);
    bytes.extend(header.id);
    // A response, with operation and desired recursion of the question.
    bytes.push(0x80 | (high & 0x79));
    // Recursion is available: some resolvers require it. With `checking disabled` of the question.
    bytes.push(0x80 | (low & 0x10) | (code & 0xf) as u8);
    bytes.extend(count(question.is_some()));
    bytes.extend(count(address.is_some()));
    bytes.extend(count(false));
    bytes.extend(count(edns.is_some()));
    if let Some(question) = question {
        bytes.extend(question.bytes);
    }
    if let Some((address, time_to_live)) = address {
        let (kind, data) = match address {
            IpAddr::V4(address) => (A, address.octets().to_vec()),
            IpAddr::V6(address) => (AAAA, address.octets().to_vec()),
        };
        // The name is the one of the question, after the header.
        bytes.extend([0xc0, 12]);
        bytes.extend(kind.to_be_bytes());
        bytes.extend(IN.to_be_bytes());
        bytes.extend(time_to_live.to_be_bytes());
        bytes.extend([0, if address.is_ipv4() { 4 } else { 16 }]);
        bytes.extend(data);
    }
    if edns.is_some() {
        bytes.push(0);
        bytes.extend(OPT.to_be_bytes());
        bytes.extend(PAYLOAD.to_be_bytes());
        // The high bits of the code, version 0, no flags, no options.
        bytes.extend([(code >> 4) as u8, 0, 0, 0, 0, 0]);
    }
    bytes
}
