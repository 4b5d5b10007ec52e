//! The header of an age file: lines of text that wrap the file key for each recipient, and a MAC.
//! See <https://c2sp.org/age>.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD as BASE64;

use super::crypto::{self, CryptoError};
use super::{AgeError, MAGIC};

/// The maximum length of a header: one with the maximum number of recipients has less than 4 KiB.
const MAX_HEADER: usize = 64 << 10;
/// The number of letters per line of base64.
const COLUMNS: usize = 64;
const STANZA: &[u8] = b"-> ";
const END: &[u8] = b"---";

/// A file key, wrapped in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stanza {
    /// The arguments: at least one; none is empty.
    pub(super) arguments: Vec<String>,
    pub(super) body: Vec<u8>,
}

/// A decoded header. Its MAC is not verified yet.
#[derive(Debug)]
pub(super) struct Header<'a> {
    pub(super) stanzas: Vec<Stanza>,
    signed: &'a [u8],
    mac: Vec<u8>,
    /// The data after the header.
    pub(super) payload: &'a [u8],
}

impl Header<'_> {
    /// Checks whether the header was written with the file key.
    pub(super) fn is_by(&self, file_key: &[u8]) -> Result<bool, CryptoError> {
        let key = crypto::derive(file_key, b"", b"header")?;
        Ok(crypto::is_signed(key.as_slice(), self.signed, &self.mac))
    }
}

pub(super) fn write(stanzas: &[Stanza], file_key: &[u8]) -> Result<Vec<u8>, CryptoError> {
    let mut header = MAGIC.to_vec();
    for stanza in stanzas {
        header.extend_from_slice(STANZA);
        header.extend_from_slice(stanza.arguments.join(" ").as_bytes());
        header.push(b'\n');
        let body = BASE64.encode(&stanza.body);
        for line in body.as_bytes().chunks(COLUMNS) {
            header.extend_from_slice(line);
            header.push(b'\n');
        }
        if body.len().is_multiple_of(COLUMNS) {
            header.push(b'\n');
        }
    }
    header.extend_from_slice(END);
    let key = crypto::derive(file_key, b"", b"header")?;
    let mac = crypto::sign(key.as_slice(), &header);
    header.push(b' ');
    header.extend_from_slice(BASE64.encode(mac.as_ref()).as_bytes());
    header.push(b'\n');
    Ok(header)
}

/// Reads the header at the start of a file.
pub(super) fn read(file: &[u8]) -> Result<Header<'_>, AgeError> {
    if !file.starts_with(MAGIC) {
        return Err(AgeError::Malformed("it does not begin as one of version 1"));
    }
    let mut lines = Reader {
        file,
        at: MAGIC.len(),
    };
    let mut stanzas = Vec::new();
    loop {
        let start = lines.at;
        let line = lines.next()?;
        if let Some(arguments) = line.strip_prefix(STANZA) {
            stanzas.push(stanza(arguments, &mut lines)?);
            continue;
        }
        let mac = line
            .strip_prefix(END)
            .and_then(|mac| mac.strip_prefix(b" "));
        let mac = mac.ok_or(AgeError::Malformed(
            "a line of the header is neither a recipient nor its end",
        ))?;
        let mac = decode(mac)?;
        if mac.len() != 32 {
            return Err(AgeError::Malformed("its MAC has another length"));
        }
        if stanzas.is_empty() {
            return Err(AgeError::Malformed("it has no recipient"));
        }
        return Ok(Header {
            stanzas,
            signed: &file[..start + END.len()],
            mac,
            payload: &file[lines.at..],
        });
    }
}

fn stanza(arguments: &[u8], lines: &mut Reader<'_>) -> Result<Stanza, AgeError> {
    let mut read = Vec::new();
    for argument in arguments.split(|byte| *byte == b' ') {
        if argument.is_empty() || !argument.iter().all(u8::is_ascii_graphic) {
            return Err(AgeError::Malformed(
                "an argument of a recipient is empty or no text",
            ));
        }
        read.push(String::from_utf8_lossy(argument).into_owned());
    }
    let mut body = Vec::new();
    loop {
        let line = lines.next()?;
        if line.len() > COLUMNS {
            return Err(AgeError::Malformed("a line of a recipient is too long"));
        }
        // All lines but the last are whole groups of four: each is valid base64.
        body.extend(decode(line)?);
        if line.len() < COLUMNS {
            break;
        }
    }
    Ok(Stanza {
        arguments: read,
        body,
    })
}

/// Decodes base64 as age defines it: no padding, and only one encoding per value.
/// See <https://www.rfc-editor.org/rfc/rfc4648#section-3.5>.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, AgeError> {
    let decoded = BASE64.decode(text);
    decoded.map_err(|_| AgeError::Malformed("its base64 is malformed"))
}

/// Encodes base64 as age does.
pub(super) fn encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

struct Reader<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Returns the next line, without its line break.
    fn next(&mut self) -> Result<&'a [u8], AgeError> {
        let within = &self.file[self.at..self.file.len().min(MAX_HEADER)];
        let length = within.iter().position(|byte| *byte == b'\n');
        let Some(length) = length else {
            let why = if self.file.len() > MAX_HEADER {
                "its header has over 64 KiB"
            } else {
                "its header is cut off"
            };
            return Err(AgeError::Malformed(why));
        };
        self.at += length + 1;
        Ok(&within[..length])
    }
}
