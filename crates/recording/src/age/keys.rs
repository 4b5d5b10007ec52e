//! Recipients, which are public, and identities, which are secret, in age's encoding; and the wrapping of a file key
//! for a recipient and its unwrapping with an identity.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::agreement::PrivateKey;
use bech32::primitives::decode::CheckedHrpstring;
use bech32::{Bech32, Hrp};
use zeroize::Zeroizing;

use super::crypto::{self, Cipher, CryptoError, KEY, NONCE, TAG};
use super::header::{Stanza, decode, encode};
use super::{AgeError, FILE_KEY};

/// The maximum number of recipients of a recording.
pub const MAX_RECIPIENTS: usize = 16;
/// The maximum length of a file of identities, in bytes, and the maximum number of identities in
/// it.
const MAX_IDENTITY_FILE: usize = 64 << 10;
const MAX_IDENTITIES: usize = 64;
/// The maximum length of a foreign kind in a message.
const MAX_KIND: usize = 24;

/// The first argument of a stanza for X25519.
pub(super) const STANZA: &str = "X25519";
const WRAP: &[u8] = b"age-encryption.org/v1/X25519";

const RECIPIENT: &str = "age";
const IDENTITY: &str = "AGE-SECRET-KEY-";

/// The reason why a text is not a key. No message contains data that may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is an identity where a recipient is required.
    #[error(
        "it is an age identity, which is secret: name its recipient (age1…), which `age-keygen -y \
         FILE` prints, and create a new identity, as other users may have read this one"
    )]
    Secret,
    /// The text is a recipient where an identity is required.
    #[error(
        "it is a recipient, which is public: the identity is the line that begins with AGE-SECRET-KEY-1"
    )]
    Public,
    /// The key is of another kind.
    #[error(
        "it is of the kind {0}: only X25519 is supported, which `age-keygen` makes (age1 and 58 more, AGE-SECRET-KEY-1 and 58 more)"
    )]
    Kind(String),
    /// The text is not a key.
    #[error("it does not begin with {0}")]
    Foreign(&'static str),
    /// The text is in the wrong case.
    #[error("age writes recipients in small letters alone, and identities in capitals alone")]
    Case,
    /// The text differs from the original key: it was mistyped or cut.
    #[error("it was mistyped or cut: its checksum is wrong, or its length")]
    Mistyped,
    /// All readers could decrypt data that is encrypted to this point.
    #[error("it is not a valid point of the curve")]
    Weak,
    /// The cryptographic library failed.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

/// A public key of X25519 to which files are encrypted, `age1…`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Recipient([u8; KEY]);

impl fmt::Display for Recipient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = Hrp::parse(RECIPIENT).map_err(|_| fmt::Error)?;
        bech32::encode_to_fmt::<Bech32, _>(formatter, prefix, &self.0).map_err(|_| fmt::Error)
    }
}

impl fmt::Debug for Recipient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

impl FromStr for Recipient {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let prefix = prefix(text);
        if starts_with_ignoring_case(text, IDENTITY) {
            return Err(KeyError::Secret);
        }
        if text.starts_with("ssh-") || prefix.starts_with("age1") {
            return Err(kind(if text.starts_with("ssh-") {
                text
            } else {
                prefix
            }));
        }
        if prefix != RECIPIENT {
            return Err(match prefix.eq_ignore_ascii_case(RECIPIENT) {
                true => KeyError::Case,
                false => KeyError::Foreign("age1"),
            });
        }
        let key = Self(*bytes(text)?);
        match crypto::agree(&crypto::generate()?, &key.0) {
            Some(_) => Ok(key),
            None => Err(KeyError::Weak),
        }
    }
}

/// A secret key of X25519 that decrypts files for its recipient, `AGE-SECRET-KEY-1…`.
pub struct Identity {
    secret: PrivateKey,
    recipient: Recipient,
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Identity({})", self.recipient)
    }
}

impl FromStr for Identity {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let prefix = prefix(text);
        if prefix == RECIPIENT || prefix.starts_with("age1") {
            return Err(KeyError::Public);
        }
        if prefix != IDENTITY {
            return Err(match prefix.eq_ignore_ascii_case(IDENTITY) {
                true => KeyError::Case,
                false if starts_with_ignoring_case(prefix, "AGE-") => kind(prefix),
                false => KeyError::Foreign("AGE-SECRET-KEY-1"),
            });
        }
        Ok(Self::new(&*bytes(text)?)?)
    }
}

impl Identity {
    fn new(bytes: &[u8; KEY]) -> Result<Self, CryptoError> {
        let secret = crypto::secret(bytes)?;
        let recipient = Recipient(crypto::public(&secret)?);
        Ok(Self { secret, recipient })
    }

    /// Generates an identity; also returns the line in which it is stored.
    ///
    /// # Errors
    /// When the system returns no random numbers.
    pub fn generate() -> Result<(Self, Zeroizing<String>), CryptoError> {
        let bytes = crypto::random::<KEY>()?;
        let prefix = Hrp::parse(IDENTITY).map_err(|_| CryptoError)?;
        let line = bech32::encode_upper::<Bech32>(prefix, bytes.as_slice());
        let line = line.map_err(|_| CryptoError)?;
        Ok((Self::new(&bytes)?, Zeroizing::new(line)))
    }

    /// Returns the public half of the identity.
    #[must_use]
    pub const fn recipient(&self) -> Recipient {
        self.recipient
    }

    /// Returns the file key, if it was wrapped for this identity.
    pub(super) fn unwrap(&self, wrapped: &Wrapped) -> Result<Option<Zeroizing<Vec<u8>>>, AgeError> {
        let shared = crypto::agree(&self.secret, &wrapped.share);
        let shared = shared.ok_or(AgeError::Malformed("the share of a recipient is weak"))?;
        let cipher = wrapping(&shared, &wrapped.share, &self.recipient)?;
        let mut file_key = Zeroizing::new(Vec::with_capacity(FILE_KEY + TAG));
        let opened = cipher.open([0; NONCE], &wrapped.body, &mut file_key);
        Ok(opened.then_some(file_key))
    }
}

/// A file key that is wrapped for a recipient.
#[derive(Debug)]
pub(super) struct Wrapped {
    share: [u8; KEY],
    body: [u8; FILE_KEY + TAG],
}

impl Wrapped {
    /// Reads a stanza of [`STANZA`].
    pub(super) fn read(stanza: &Stanza) -> Result<Self, AgeError> {
        let malformed = AgeError::Malformed("a recipient of X25519 is malformed");
        let [_, share] = stanza.arguments.as_slice() else {
            return Err(malformed);
        };
        let (share, body) = (decode(share.as_bytes())?, stanza.body.as_slice());
        match (share.try_into(), body.try_into()) {
            (Ok(share), Ok(body)) => Ok(Self { share, body }),
            _ => Err(malformed),
        }
    }
}

/// Wraps a file key for a recipient.
pub(super) fn wrap(
    recipient: &Recipient,
    file_key: &[u8; FILE_KEY],
) -> Result<Stanza, CryptoError> {
    let secret = crypto::generate()?;
    let share = crypto::public(&secret)?;
    let shared = crypto::agree(&secret, &recipient.0).ok_or(CryptoError)?;
    let mut body = Vec::with_capacity(FILE_KEY + TAG);
    wrapping(&shared, &share, recipient)?.seal([0; NONCE], file_key, &mut body)?;
    Ok(Stanza {
        arguments: vec![STANZA.to_owned(), encode(&share)],
        body,
    })
}

fn wrapping(
    shared: &[u8; KEY],
    share: &[u8; KEY],
    recipient: &Recipient,
) -> Result<Cipher, CryptoError> {
    let salt = [share.as_slice(), &recipient.0].concat();
    Cipher::new(&*crypto::derive(shared, &salt, WRAP)?)
}

/// Returns the text before the last 1, which separates it from the data.
fn prefix(text: &str) -> &str {
    text.rsplit_once('1').map_or("", |(prefix, _)| prefix)
}

fn starts_with_ignoring_case(text: &str, start: &str) -> bool {
    let begins = text.as_bytes().get(..start.len());
    begins.is_some_and(|begins| begins.eq_ignore_ascii_case(start.as_bytes()))
}

/// Returns the error for a kind of another tool, as far as it can be shown.
fn kind(text: &str) -> KeyError {
    let shown = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '-';
    KeyError::Kind(text.chars().take_while(shown).take(MAX_KIND).collect())
}

/// Returns the 32 bytes of a Bech32 text that is their only valid encoding.
/// See <https://github.com/bitcoin/bips/blob/master/bip-0173.mediawiki>.
fn bytes(text: &str) -> Result<Zeroizing<[u8; KEY]>, KeyError> {
    let checked = CheckedHrpstring::new::<Bech32>(text).map_err(|_| KeyError::Mistyped)?;
    let bytes = Zeroizing::new(checked.byte_iter().collect::<Vec<u8>>());
    let key: Zeroizing<[u8; KEY]> = match bytes.as_slice().try_into() {
        Ok(key) => Zeroizing::new(key),
        Err(_) => return Err(KeyError::Mistyped),
    };
    // The padding bits of the last letter must be 0.
    let again = bech32::encode_lower::<Bech32>(checked.hrp(), bytes.as_slice());
    let again = Zeroizing::new(again.map_err(|_| KeyError::Mistyped)?);
    if again.eq_ignore_ascii_case(text) {
        Ok(key)
    } else {
        Err(KeyError::Mistyped)
    }
}

/// The reason why a file contains no identities.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityFileError {
    /// A line is not an identity.
    #[error("line {line} is not an identity: {why}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// The reason.
        why: KeyError,
    },
    /// The file is encrypted.
    #[error(
        "the file is encrypted: decrypt it with `age --decrypt`, and give the result, as by \
            `--identity -`"
    )]
    Encrypted,
    /// The file has no identity.
    #[error("it has no line that begins with AGE-SECRET-KEY-1")]
    Empty,
    /// The file has too many identities, or is too long.
    #[error("it has over 64 KiB, or over 64 identities")]
    TooLarge,
}

/// Reads a file of identities as `age-keygen` writes it: one per line, comments after `#`, empty lines.
///
/// # Errors
/// When the file has no identity, or another line.
pub fn read_identities(text: &str) -> Result<Vec<Identity>, IdentityFileError> {
    if text.len() > MAX_IDENTITY_FILE {
        return Err(IdentityFileError::TooLarge);
    }
    if text.starts_with("age-encryption.org/") || text.starts_with("-----BEGIN AGE") {
        return Err(IdentityFileError::Encrypted);
    }
    let mut identities = Vec::new();
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let identity = line.parse();
        identities.push(identity.map_err(|why| IdentityFileError::Line { line: number, why })?);
        if identities.len() > MAX_IDENTITIES {
            return Err(IdentityFileError::TooLarge);
        }
    }
    if identities.is_empty() {
        return Err(IdentityFileError::Empty);
    }
    Ok(identities)
}
