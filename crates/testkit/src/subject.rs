//! A certificate's subject with several organisations, which is how Kubernetes reads several groups
//! from a client certificate. rcgen's distinguished name holds one value per attribute, so the
//! subject is replaced in what rcgen signed, and that is signed again. The encoding is DER
//! (ITU-T X.690), the structure [RFC 5280 section 4.1](https://www.rfc-editor.org/rfc/rfc5280#section-4.1).

use anyhow::{Context as _, Result, bail};
use rcgen::{KeyPair, SigningKey as _};

const OBJECT_IDENTIFIER: u8 = 0x06;
const BIT_STRING: u8 = 0x03;
const UTF8_STRING: u8 = 0x0c;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The tags [0] and [3] of TBSCertificate.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// The object identifiers 2.5.4.3 and 2.5.4.10.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];
/// The index of the subject in TBSCertificate: version, serialNumber, signature, issuer, validity,
/// subject.
const SUBJECT: usize = 5;

/// Returns the DER of `certificate` with the subject `CN=user, O=group…`, signed by `key`.
///
/// # Errors
///
/// Fails when `certificate` is not a version 3 certificate in DER.
pub(crate) fn with_subject(
    certificate: &[u8],
    user: &str,
    groups: &[&str],
    key: &KeyPair,
) -> Result<Vec<u8>> {
    let parts = elements(content(certificate)?)?;
    let [tbs, algorithm, _signature] = parts.as_slice() else {
        bail!("failed to read a certificate: {} elements", parts.len());
    };
    let mut fields = elements(content(tbs)?)?;
    let name = name(user, groups);
    *fields
        .get_mut(SUBJECT)
        .context("failed to read a certificate: it has no subject")? = &name;
    signed(&fields, algorithm, key)
}

/// Returns the same certificate in version 1, as a plain `openssl x509 -req` makes it: without a
/// version and without extensions, signed by `key`.
///
/// # Errors
///
/// Fails when `certificate` is not a version 3 certificate in DER.
pub(crate) fn of_version_1(certificate: &[u8], key: &KeyPair) -> Result<Vec<u8>> {
    let parts = elements(content(certificate)?)?;
    let tbs = parts
        .first()
        .context("failed to read a certificate: it is empty")?;
    let fields = elements(content(tbs)?)?;
    let is_of_1 = |field: &&[u8]| !matches!(field.first(), Some(&(VERSION | EXTENSIONS)));
    let fields: Vec<&[u8]> = fields.into_iter().filter(is_of_1).collect();
    let algorithm = parts
        .get(1)
        .context("failed to read a certificate: it is truncated")?;
    signed(&fields, algorithm, key)
}

/// Returns a certificate with these fields.
fn signed(fields: &[&[u8]], algorithm: &[u8], key: &KeyPair) -> Result<Vec<u8>> {
    let tbs = encode(SEQUENCE, &fields.concat());
    let mut signature = vec![0]; // no unused bits
    signature.extend(key.sign(&tbs).context("failed to sign a certificate")?);
    Ok(encode(
        SEQUENCE,
        &[&tbs, algorithm, &encode(BIT_STRING, &signature)].concat(),
    ))
}

fn name(user: &str, groups: &[&str]) -> Vec<u8> {
    let attribute = |kind: &[u8], value: &str| {
        let pair = [
            encode(OBJECT_IDENTIFIER, kind),
            encode(UTF8_STRING, value.as_bytes()),
        ];
        encode(SET, &encode(SEQUENCE, &pair.concat()))
    };
    let mut attributes: Vec<u8> = groups
        .iter()
        .flat_map(|group| attribute(&ORGANIZATION, group))
        .collect();
    attributes.extend(attribute(&COMMON_NAME, user));
    encode(SEQUENCE, &attributes)
}

fn encode(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut element = vec![tag];
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    match significant {
        [] => element.push(0),
        [short] if *short < 0x80 => element.push(*short),
        // The count of length bytes is at most 8.
        long => {
            element.push(0x80 | long.len().to_le_bytes()[0]);
            element.extend(long);
        }
    }
    element.extend(content);
    element
}

/// Returns the length of an element's tag and length bytes, and of its content.
fn header(element: &[u8]) -> Result<(usize, usize)> {
    let truncated = "failed to read a certificate: it is truncated";
    let first = usize::from(*element.get(1).context(truncated)?);
    if first < 0x80 {
        return Ok((2, first));
    }
    let bytes = element.get(2..2 + (first & 0x7f)).context(truncated)?;
    let length = bytes
        .iter()
        .fold(0_usize, |length, byte| (length << 8) | usize::from(*byte));
    Ok((2 + bytes.len(), length))
}

fn content(element: &[u8]) -> Result<&[u8]> {
    let (start, length) = header(element)?;
    element
        .get(start..start + length)
        .context("failed to read a certificate: it is truncated")
}

/// Returns the elements that follow one another in `content`, each with its tag and length.
fn elements(mut content: &[u8]) -> Result<Vec<&[u8]>> {
    let mut elements = Vec::new();
    while !content.is_empty() {
        let (start, length) = header(content)?;
        let (element, rest) = content
            .split_at_checked(start + length)
            .context("failed to read a certificate: it is truncated")?;
        elements.push(element);
        content = rest;
    }
    Ok(elements)
}
