//! The cryptographic primitives of aws-lc-rs.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::{digest as hash, hkdf, hmac, rand};
use zeroize::Zeroizing;

/// The number of bytes of a key or a point.
pub(super) const KEY: usize = 32;
/// The number of bytes of a nonce of ChaCha20-Poly1305.
pub(super) const NONCE: usize = 12;
/// The number of bytes that ChaCha20-Poly1305 adds to sealed data.
pub(super) const TAG: usize = 16;

/// A failure of the cryptographic library, which occurs when the system returns no random numbers or no
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("encryption failed: the system gave no random numbers or no memory")]
pub struct CryptoError;

impl From<Unspecified> for CryptoError {
    fn from(Unspecified: Unspecified) -> Self {
        Self
    }
}

/// Returns random bytes.
pub(crate) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, CryptoError> {
    let mut bytes = Zeroizing::new([0; N]);
    rand::fill(bytes.as_mut_slice())?;
    Ok(bytes)
}

/// Returns the SHA-256 of the bytes.
pub(crate) fn digest(bytes: &[u8]) -> hash::Digest {
    hash::digest(&hash::SHA256, bytes)
}

/// Derives a key with HKDF-SHA-256.
/// See <https://www.rfc-editor.org/rfc/rfc5869#section-2>.
pub(super) fn derive(
    secret: &[u8],
    salt: &[u8],
    info: &[u8],
) -> Result<Zeroizing<[u8; KEY]>, CryptoError> {
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    let mut key = Zeroizing::new([0; KEY]);
    let info = [info];
    let expanded = extracted.expand(&info, hkdf::HKDF_SHA256)?;
    expanded.fill(key.as_mut_slice())?;
    Ok(key)
}

/// Returns the HMAC-SHA-256 of a message.
/// See <https://www.rfc-editor.org/rfc/rfc2104#section-2>.
pub(super) fn sign(key: &[u8], message: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message)
}

/// Checks whether a tag is the HMAC-SHA-256 of the message, in a time that is independent of where
/// it differs.
pub(super) fn is_signed(key: &[u8], message: &[u8], tag: &[u8]) -> bool {
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), message, tag).is_ok()
}

/// Generates a secret of X25519.
pub(super) fn generate() -> Result<PrivateKey, CryptoError> {
    Ok(PrivateKey::generate(&X25519)?)
}

/// Returns the secret with these bytes.
pub(super) fn secret(bytes: &[u8; KEY]) -> Result<PrivateKey, CryptoError> {
    PrivateKey::from_private_key(&X25519, bytes).map_err(|_| CryptoError)
}

/// Returns the point of a secret.
pub(super) fn public(secret: &PrivateKey) -> Result<[u8; KEY], CryptoError> {
    let point = secret.compute_public_key()?;
    point.as_ref().try_into().map_err(|_| CryptoError)
}

/// Returns the shared secret; `None` if the point is one of the few that result in the same shared
/// secret for all keys.
/// See <https://www.rfc-editor.org/rfc/rfc7748#section-6.1>.
pub(super) fn agree(secret: &PrivateKey, point: &[u8; KEY]) -> Option<Zeroizing<[u8; KEY]>> {
    let point = UnparsedPublicKey::new(&X25519, point);
    let read = |shared: &[u8]| {
        <[u8; KEY]>::try_from(shared)
            .map(Zeroizing::new)
            .map_err(drop)
    };
    let shared = agreement::agree(secret, point, (), read).ok();
    shared.filter(|shared| shared.iter().any(|byte| *byte != 0))
}

/// A cipher of ChaCha20-Poly1305 with one key. No nonce may be used twice.
pub(crate) struct Cipher(LessSafeKey);

impl std::fmt::Debug for Cipher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Cipher")
    }
}

impl Cipher {
    pub(crate) fn new(key: &[u8; KEY]) -> Result<Self, CryptoError> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Appends `plain`, sealed, to `to`.
    pub(crate) fn seal(
        &self,
        nonce: [u8; NONCE],
        plain: &[u8],
        to: &mut Vec<u8>,
    ) -> Result<(), CryptoError> {
        let from = to.len();
        to.extend_from_slice(plain);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = &mut to[from..];
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce, Aad::empty(), sealed)?;
        to.extend_from_slice(tag.as_ref());
        Ok(())
    }

    /// Appends the plain text of `sealed` to `to`; returns whether the data was sealed with this
    /// key and nonce. If not, `to` is unchanged.
    pub(crate) fn open(&self, nonce: [u8; NONCE], sealed: &[u8], to: &mut Vec<u8>) -> bool {
        let from = to.len();
        to.extend_from_slice(sealed);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self.0.open_in_place(nonce, Aad::empty(), &mut to[from..]);
        let length = opened.ok().map(|plain| plain.len());
        to.truncate(length.map_or(from, |length| from + length));
        length.is_some()
    }
}
