//! The part of age (<https://c2sp.org/age>, version 1) that recordings take: files that are encrypted to X25519
//! recipients, in memory, without armour. The primitives are aws-lc-rs'; why not the crate `age`, docs/adr/0035 says.

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

/// What begins an age file.
pub const MAGIC: &[u8] = b"age-encryption.org/v1\n";
/// A stanza that names a recipient, for whoever lacks the identity: others do not read it.
const NAMED: &str = "oz.wizardofoz.co/recipient";
/// How many bytes a file key has.
const FILE_KEY: usize = 16;

/// Why a file is not decrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgeError {
    /// It is no age file, or a damaged one.
    #[error("it is no age file: {0}")]
    Malformed(&'static str),
    /// None of the identities is one that it was encrypted to.
    #[error("none of the identities opens it")]
    NoMatch,
    /// Its header is not the one that was written with it.
    #[error("its header was changed: the MAC is wrong")]
    Header,
    /// What follows the header is not what was written.
    #[error("its content was changed or cut: {0}")]
    Payload(&'static str),
    /// The cryptographic library failed.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

/// Encrypts `content` to all of `recipients`, who are named in the header. Each time another file comes of it.
///
/// # Errors
/// When there are no recipients, or the system gives no random numbers.
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

/// The content of a file that was encrypted to one of `identities`; it is shorter than the file.
///
/// # Errors
/// When it was not, or any of it was changed, or cut off.
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

/// The file key, if it was wrapped for one of the identities.
fn unwrap(
    header: &Header<'_>,
    identities: &[Identity],
) -> Result<Option<zeroize::Zeroizing<Vec<u8>>>, AgeError> {
    let kind = |stanza: &Stanza| stanza.arguments.first().cloned().unwrap_or_default();
    if header.stanzas.len() > 1 && header.stanzas.iter().any(|one| kind(one) == "scrypt") {
        return Err(AgeError::Malformed(
            "a passphrase stands beside other recipients",
        ));
    }
    let mut found = None;
    for stanza in header
        .stanzas
        .iter()
        .filter(|one| kind(one) == keys::STANZA)
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

/// To whom a file says that it is encrypted. Nothing proves it until it is decrypted; what is no recipient is left
/// out.
///
/// # Errors
/// When it is no age file.
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
