//! The part of age (<https://c2sp.org/age>, version 1) that recordings use: files that are encrypted to X25519
//! recipients, in memory, without armour. The primitives are those of aws-lc-rs; docs/adr/0035 states why not the
//! crate `age`.

mod crypto;
mod header;
mod keys;
mod payload;
#[cfg(test)]
mod tests;

pub use crypto::CryptoError;
pub use keys::{Identity, IdentityFileError, KeyError, MAX_RECIPIENTS, Recipient, read_identities};

pub(crate) use crypto::{Cipher, digest, random};
use header::{Header, Stanza};

/// The first bytes of an age file.
pub const MAGIC: &[u8] = b"age-encryption.org/v1\n";
/// The type of a stanza that names a recipient, for readers without the identity: other readers
/// ignore it.
const NAMED: &str = "oz.wizardofoz.co/recipient";
/// The number of bytes of a file key.
const FILE_KEY: usize = 16;

/// The reason why a file cannot be decrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgeError {
    /// The data is not an age file, or is damaged.
    #[error("it is not an age file: {0}")]
    Malformed(&'static str),
    /// The file was not encrypted to any of the identities.
    #[error("none of the identities can decrypt it")]
    NoMatch,
    /// The header was changed after the file was written.
    #[error("its header was changed: the MAC is wrong")]
    Header,
    /// The data after the header was changed or cut.
    #[error("its content was changed or truncated: {0}")]
    Payload(&'static str),
    /// The cryptographic library failed.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

/// Encrypts `content` to all of `recipients`, which the header names. Each call results in a different file.
///
/// # Errors
/// When there are no recipients, or the system returns no random numbers.
pub fn encrypt(recipients: &[Recipient], content: &[u8]) -> Result<Vec<u8>, CryptoError> {
    if recipients.is_empty() {
        return Err(CryptoError);
    }
    let file_key = random::<FILE_KEY>()?;
    let mut stanzas = Vec::new();
    for recipient in recipients {
        stanzas.push(keys::wrap(recipient, &file_key)?);
    }
    for recipient in recipients {
        stanzas.push(Stanza {
            arguments: vec![NAMED.to_owned(), recipient.to_string()],
            body: Vec::new(),
        });
    }
    let mut file = header::write(&stanzas, file_key.as_slice())?;
    payload::seal(file_key.as_slice(), content, &mut file)?;
    Ok(file)
}

/// Returns the content of a file that was encrypted to one of `identities`; it is shorter than the
/// file.
///
/// # Errors
/// When the file was not encrypted to one of them, or was changed or cut.
pub fn decrypt(file: &[u8], identities: &[Identity]) -> Result<Vec<u8>, AgeError> {
    let header = header::read(file)?;
    let Some(file_key) = unwrap(&header, identities)? else {
        return Err(AgeError::NoMatch);
    };
    if !header.is_by(file_key.as_slice())? {
        return Err(AgeError::Header);
    }
    payload::open(file_key.as_slice(), header.payload)
}

/// Returns the file key, if it was wrapped for one of the identities.
fn unwrap(
    header: &Header<'_>,
    identities: &[Identity],
) -> Result<Option<zeroize::Zeroizing<Vec<u8>>>, AgeError> {
    let is_kind =
        |stanza: &Stanza, kind: &str| stanza.arguments.first().is_some_and(|one| one == kind);
    if header.stanzas.len() > 1 && header.stanzas.iter().any(|one| is_kind(one, "scrypt")) {
        return Err(AgeError::Malformed(
            "a passphrase is used together with other recipients",
        ));
    }
    let mut found = None;
    for stanza in header
        .stanzas
        .iter()
        .filter(|one| is_kind(one, keys::STANZA))
    {
        let wrapped = keys::Wrapped::read(stanza)?;
        for identity in identities {
            if found.is_none() {
                found = identity.unwrap(&wrapped)?;
            }
        }
    }
    Ok(found)
}

/// Returns the recipients that a file names. The names are not verified until the file is decrypted; names that
/// are not recipients are omitted.
///
/// # Errors
/// When the data is not an age file.
pub fn named_recipients(file: &[u8]) -> Result<Vec<Recipient>, AgeError> {
    let header = header::read(file)?;
    let named = header.stanzas.iter().filter_map(|stanza| {
        let [kind, recipient] = stanza.arguments.as_slice() else {
            return None;
        };
        (kind == NAMED).then(|| recipient.parse().ok()).flatten()
    });
    Ok(named.take(MAX_RECIPIENTS).collect())
}
