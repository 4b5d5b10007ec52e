//! The first bytes of a connection: a TLS handshake with the name of a host, an HTTP request, or neither.
//!
//! **Encrypted names.** A handshake with the extension `encrypted_client_hello` (RFC 9849) or its predecessor
//! `encrypted_server_name` is refused, whether or not the extension has a real name in it: some clients send random
//! bytes in it (GREASE), and only the owner of the key knows the difference. Such bytes would do no harm, since the
//! proxy terminates TLS under the outer name. The refusal names the cause to the user and in the report, where a real
//! name would lead to a handshake that the client aborts without a reason, and it keeps one rule: the name that the
//! proxy reads is the name that the client means. The clients that send such bytes, browsers, do not read the variables
//! that name the proxy's authority, and require separate settings in any case. No name leads a client to encrypt
//! names, since the pod's DNS has no `HTTPS` records.
//!
//! See <https://www.rfc-editor.org/rfc/rfc9849>.

use oz_api::harness::wire::EgressReason;

use crate::name::{self, NameError};

/// The maximum size of a handshake's first message in bytes, with the headers of its records.
pub const MAX_HELLO: usize = 16 * 1024;
/// The maximum length of the method of a request in bytes.
const MAX_METHOD: usize = 24;

/// The type of a record with a handshake.
const HANDSHAKE: u8 = 22;
/// The type of the handshake's first message.
const CLIENT_HELLO: u8 = 1;
/// The maximum length of a record in bytes.
const MAX_RECORD: usize = 1 << 14;
/// The number of bytes of the header of a record.
const RECORD_HEADER: usize = 5;

const SERVER_NAME: u16 = 0;
const APPLICATION_PROTOCOLS: u16 = 16;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
const ENCRYPTED_SERVER_NAME: u16 = 0xffce;

/// The first bytes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// More bytes are required.
    Incomplete,
    /// A TLS handshake.
    Tls {
        /// The name of the host, in lower case and without the dot at its end.
        name: String,
        /// The protocols that the client offers in the handshake; empty if it offers none.
        alpn: Vec<Vec<u8>>,
    },
    /// An HTTP request, which is to be parsed.
    Http,
    /// Bytes that the proxy does not serve, with the reason.
    Refused(EgressReason, &'static str),
}

/// The reason why a handshake is refused.
type Refusal = (EgressReason, &'static str);

const MALFORMED: Refusal = (EgressReason::Protocol, "the TLS handshake is malformed");
const NO_NAME: Refusal = (
    EgressReason::NoHost,
    "the TLS handshake names no host (SNI)",
);
const ENCRYPTED: Refusal = (
    EgressReason::NoHost,
    "the TLS handshake encrypts the name of the host (ECH): switch it off in the client",
);
const ADDRESS: Refusal = (
    EgressReason::NoHost,
    "the TLS handshake names an address: policies grant names only",
);
const NO_HOST_NAME: Refusal = (
    EgressReason::NoHost,
    "the name in the TLS handshake is not the name of a host",
);
const OTHER_PROTOCOL: Refusal = (
    EgressReason::Protocol,
    "the connection is neither TLS nor HTTP/1.1",
);

/// Returns what the first bytes of a connection are. The caller calls it again with more bytes while it is
/// [`First::Incomplete`], which it is for fewer than [`MAX_HELLO`] bytes only.
#[must_use]
pub fn first(bytes: &[u8]) -> First {
    match bytes.first() {
        None => First::Incomplete,
        Some(&HANDSHAKE) => match hello(bytes) {
            Ok(Some((name, alpn))) => First::Tls { name, alpn },
            Ok(None) if bytes.len() < MAX_HELLO => First::Incomplete,
            Ok(None) => First::Refused(EgressReason::Protocol, "the TLS handshake is too long"),
            Err((reason, why)) => First::Refused(reason, why),
        },
        Some(_) => http(bytes),
    }
}

/// Checks for the begin of a request: a method in capitals and the first byte of a target.
fn http(bytes: &[u8]) -> First {
    let refused = First::Refused(OTHER_PROTOCOL.0, OTHER_PROTOCOL.1);
    let is_method = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'-';
    let method = bytes.iter().take_while(|byte| is_method(byte)).count();
    // The preface of HTTP/2: RFC 9113, section 3.4.
    if !(1..=MAX_METHOD).contains(&method) || bytes.starts_with(b"PRI ") {
        return refused;
    }
    match (bytes.get(method), bytes.get(method + 1)) {
        (None, _) | (Some(b' '), None) => First::Incomplete,
        (Some(b' '), Some(target)) if target.is_ascii_alphanumeric() || b"/*[".contains(target) => {
            First::Http
        }
        _ => refused,
    }
}

/// A part of a message that is read from its beginning.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Refusal> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(MALFORMED)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads a number of as many bytes.
    fn number(&mut self, bytes: usize) -> Result<usize, Refusal> {
        let bytes = self.take(bytes)?.iter();
        Ok(bytes.fold(0, |number, &byte| number << 8 | usize::from(byte)))
    }

    /// Reads a part with its length in as many bytes before it.
    fn part(&mut self, bytes: usize) -> Result<Self, Refusal> {
        let length = self.number(bytes)?;
        Ok(Self(self.take(length)?))
    }

    fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

type Hello = (String, Vec<Vec<u8>>);

/// Reads a `ClientHello`; `None` while it is incomplete. RFC 8446, sections 4.1.2 and 5.1.
/// See <https://www.rfc-editor.org/rfc/rfc8446#section-4.1.2>.
fn hello(bytes: &[u8]) -> Result<Option<Hello>, Refusal> {
    let Some(message) = message(bytes)? else {
        return Ok(None);
    };
    let mut message = Reader(&message);
    message.take(2 + 32)?;
    message.part(1)?;
    let suites = message.part(2)?;
    let compressions = message.part(1)?;
    if suites.is_empty() || suites.0.len() % 2 == 1 || compressions.is_empty() {
        return Err(MALFORMED);
    }
    if message.is_empty() {
        return Err(NO_NAME);
    }
    let extensions = message.part(2)?;
    if !message.is_empty() {
        return Err(MALFORMED);
    }
    parse_extensions(extensions).map(Some)
}

/// Returns the first message of the handshake, without its header, from as many records as it has.
fn message(bytes: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
    let (mut rest, mut message) = (bytes, Vec::new());
    loop {
        if let [kind, length @ ..] = message.get(..4).unwrap_or_default() {
            if *kind != CLIENT_HELLO {
                return Err(MALFORMED);
            }
            let length = Reader(length).number(3)?;
            if length > MAX_HELLO {
                return Err((EgressReason::Protocol, "the TLS handshake is too long"));
            }
            if let Some(whole) = message.get(4..4 + length) {
                return Ok(Some(whole.to_vec()));
            }
        }
        if rest.is_empty() {
            return Ok(None);
        }
        // What is there of the header of the next record is checked at once: no byte of another protocol is waited for.
        if rest[0] != HANDSHAKE || rest.get(1).is_some_and(|&major| major != 3) {
            return Err(MALFORMED);
        }
        let Some((header, after)) = rest.split_at_checked(RECORD_HEADER) else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if !(1..=MAX_RECORD).contains(&length) {
            return Err(MALFORMED);
        }
        let here = length.min(after.len());
        message.extend_from_slice(&after[..here]);
        rest = &after[here..];
    }
}

fn parse_extensions(mut extensions: Reader<'_>) -> Result<Hello, Refusal> {
    let (mut name, mut alpn, mut is_encrypted) = (None, Vec::new(), false);
    let mut seen = std::collections::BTreeSet::new();
    while !extensions.is_empty() {
        let kind = extensions.number(2)?;
        let kind = u16::try_from(kind).map_err(|_| MALFORMED)?;
        let content = extensions.part(2)?;
        // RFC 8446, section 4.2. A server could use the other of two names.
        if !seen.insert(kind) {
            return Err((
                EgressReason::Protocol,
                "the TLS handshake has an extension twice",
            ));
        }
        match kind {
            SERVER_NAME => name = Some(server_name(content)?),
            APPLICATION_PROTOCOLS => alpn = protocols(content)?,
            ENCRYPTED_CLIENT_HELLO | ENCRYPTED_SERVER_NAME => is_encrypted = true,
            _ => {}
        }
    }
    if is_encrypted {
        return Err(ENCRYPTED);
    }
    Ok((name.ok_or(NO_NAME)?, alpn))
}

/// Reads the one name of the extension: [RFC 6066, section 3](https://www.rfc-editor.org/rfc/rfc6066#section-3).
fn server_name(mut extension: Reader<'_>) -> Result<String, Refusal> {
    let mut list = extension.part(2)?;
    if list.is_empty() {
        return Err(NO_NAME);
    }
    let kind = list.number(1)?;
    let text = list.part(2)?;
    if kind != 0 || !list.is_empty() || !extension.is_empty() {
        return Err((
            EgressReason::Protocol,
            "the TLS handshake names more than one host",
        ));
    }
    if text.is_empty() {
        return Err(NO_NAME);
    }
    name::read(text.0).map_err(|error| match error {
        NameError::Address => ADDRESS,
        NameError::Malformed => NO_HOST_NAME,
    })
}

/// Reads the protocols of the extension: [RFC 7301, section 3.1](https://www.rfc-editor.org/rfc/rfc7301#section-3.1).
fn protocols(mut extension: Reader<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    let mut list = extension.part(2)?;
    let mut protocols = Vec::new();
    while !list.is_empty() {
        let protocol = list.part(1)?;
        if protocol.is_empty() {
            return Err(MALFORMED);
        }
        protocols.push(protocol.0.to_vec());
    }
    if protocols.is_empty() || !extension.is_empty() {
        return Err(MALFORMED);
    }
    Ok(protocols)
}
