//! The payload after the header: a nonce, and the content in chunks, each of which is bound to its position and to
//! whether it is the last.
//! See <https://c2sp.org/age>.

use super::AgeError;
use super::crypto::{self, Cipher, CryptoError, NONCE, TAG};

/// The number of bytes of content per chunk; the last one may have fewer.
const CHUNK: usize = 64 << 10;
/// The number of bytes of the nonce before the chunks.
const SALT: usize = 16;

pub(super) fn seal(file_key: &[u8], content: &[u8], to: &mut Vec<u8>) -> Result<(), CryptoError> {
    let salt = crypto::random::<SALT>()?;
    let cipher = Cipher::new(&*crypto::derive(file_key, salt.as_slice(), b"payload")?)?;
    let chunks = content.len().div_ceil(CHUNK).max(1);
    to.reserve(SALT + content.len() + chunks * TAG);
    to.extend_from_slice(salt.as_slice());
    for number in 0..chunks {
        let end = content.len().min((number + 1) * CHUNK);
        let chunk = &content[number * CHUNK..end];
        cipher.seal(nonce(number, number + 1 == chunks), chunk, to)?;
    }
    Ok(())
}

pub(super) fn open(file_key: &[u8], payload: &[u8]) -> Result<Vec<u8>, AgeError> {
    let Some((salt, sealed)) = payload.split_at_checked(SALT) else {
        return Err(AgeError::Payload("it ends within its nonce"));
    };
    let cipher = Cipher::new(&*crypto::derive(file_key, salt, b"payload")?)?;
    let mut content = Vec::with_capacity(sealed.len());
    let chunks = sealed.len().div_ceil(CHUNK + TAG).max(1);
    for number in 0..chunks {
        let end = sealed.len().min((number + 1) * (CHUNK + TAG));
        let chunk = &sealed[number * (CHUNK + TAG)..end];
        let last = number + 1 == chunks;
        if !cipher.open(nonce(number, last), chunk, &mut content) {
            return Err(AgeError::Payload("a chunk is not as encrypted"));
        }
        if last && chunk.len() == TAG && number > 0 {
            return Err(AgeError::Payload("its last chunk is empty"));
        }
    }
    Ok(content)
}

/// Returns the nonce of a chunk from its number and whether it is the last.
fn nonce(number: usize, last: bool) -> [u8; NONCE] {
    let mut nonce = [0; NONCE];
    let number = u64::try_from(number).unwrap_or(u64::MAX);
    nonce[3..11].copy_from_slice(&number.to_be_bytes());
    nonce[11] = u8::from(last);
    nonce
}
