//! Seals: signed statements in objects that users can edit, as JSON with an Ed25519 signature. Only one
//! component ([`Owner`]) holds the private key of a [`Purpose`]; a verifier has the public keys and cannot
//! create seals.
//! See docs/adr/0010-each-component-seals-with-keys-of-its-own.md.

mod keys;
mod purpose;
#[cfg(test)]
mod tests;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ed25519_dalek::Signature;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::IdentityError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::controller::Failure;

pub use keys::{Keys, Turn};
pub use purpose::{Owner, Purpose};

/// The member of the JSON object that holds the signature: the id of its key, a colon, and the signature in base64.
const SIGNATURE: &str = "sig";
/// The member with the message authentication code in seals of earlier releases, in which components shared one key.
const RETIRED: &str = "mac";

/// The maximum length of a sealed text, in bytes. An annotation can hold far more.
pub const MAX_LENGTH: usize = 64 * 1024;

/// The reason for which a text was not sealed, or a sealed text was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// There is no private key.
    #[error("a signing key of {0} is required, and there is none")]
    NoSecret(Owner),
    /// The text with public keys cannot be read.
    #[error(
        "failed to read the public keys of {0}: one in each line is required, 32 bytes of Ed25519 in base64"
    )]
    PublicKeys(Owner),
    /// This process does not hold the private key of the purpose.
    #[error("only {0} has the private key for this purpose")]
    NotHeld(Owner),
    /// No public key of the purpose is known.
    #[error("the public keys of {0} are not known yet")]
    NoKeys(Owner),
    /// Longer than [`MAX_LENGTH`].
    #[error("the sealed text is longer than {MAX_LENGTH} bytes")]
    TooLong,
    /// Not a JSON object with a signature, or not of the expected shape.
    #[error("the sealed text is malformed: {0}")]
    Malformed(String),
    /// Sealed by the one key that all components of earlier releases shared.
    #[error("it was sealed by an earlier release, whose key is no longer valid")]
    Retired,
    /// The signature is not by a key for this purpose over this text.
    #[error("the signature does not match")]
    Forged,
    /// The object that the seal would name lacks a part of its identity.
    #[error(transparent)]
    Unidentified(#[from] IdentityError),
}

impl SealError {
    /// Converts the error into a failure to seal `what`.
    #[must_use]
    pub fn into_failure(self, what: &str) -> Failure {
        Failure::invalid("SealFailed", format!("failed to seal the {what}: {self}"))
    }

    /// Checks whether the same text may be accepted later.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NoKeys(_))
    }
}

/// Seals a value for one purpose. The seal is not valid for another purpose.
///
/// # Errors
/// [`SealError::NotHeld`] when the purpose is another component's, [`SealError::Malformed`] when the value
/// does not serialise to a JSON object.
pub fn seal<T: Serialize>(keys: &Keys, purpose: Purpose, value: &T) -> Result<String, SealError> {
    let object = match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return Err(SealError::Malformed("not a JSON object".to_owned())),
        Err(error) => return Err(SealError::Malformed(error.to_string())),
    };
    let signed = keys.sign(purpose, &message(purpose, &object)?)?;
    let (key, signature) = (signed.0, BASE64_URL_SAFE_NO_PAD.encode(signed.1.to_bytes()));
    Ok(signed_text(object, &format!("{key}:{signature}")))
}

/// Seals a decision: as [`seal`], but only if [`open`] accepts the text. A decision takes effect before it is read again.
///
/// # Errors
/// As [`seal`], and [`SealError::TooLong`].
pub fn seal_decision<T: Serialize>(
    keys: &Keys,
    purpose: Purpose,
    decision: &T,
) -> Result<String, SealError> {
    let text = seal(keys, purpose, decision)?;
    match text.len() <= MAX_LENGTH {
        true => Ok(text),
        false => Err(SealError::TooLong),
    }
}

/// Opens a text that [`seal`] returned for the same purpose, with any key of its owner. A text that differs
/// in spaces, in the order of members or by a repeated member is refused: code that compares texts would take
/// it for another statement.
///
/// # Errors
/// A [`SealError`] with the reason why the text is not accepted.
pub fn open<T: DeserializeOwned>(
    keys: &Keys,
    purpose: Purpose,
    text: &str,
) -> Result<T, SealError> {
    let (object, signature) = read(text)?;
    keys.verify(purpose, text, || {
        let (key, encoded) = signature.split_once(':')?;
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(encoded).ok()?;
        let parsed = Signature::from_slice(&bytes).ok()?;
        let is_ours = signed_text(object.clone(), &signature) == text;
        is_ours.then_some((key, message(purpose, &object).ok()?, parsed))
    })?;
    serde_json::from_value(Value::Object(object))
        .map_err(|error| SealError::Malformed(error.to_string()))
}

/// Checks whether a text names the current sealing key. Does not verify the signature.
#[must_use]
pub fn is_by_newest(keys: &Keys, purpose: Purpose, text: &str) -> bool {
    let Ok((_, signature)) = read(text) else {
        return false;
    };
    let key = signature
        .split_once(':')
        .map_or(signature.as_str(), |(key, _)| key);
    keys.newest(purpose.owner()).as_deref() == Some(key)
}

/// Checks whether a text has the form of a seal of an earlier release, in which the components shared one
/// key. Any user can write such a text, so its content is not trusted.
#[must_use]
pub fn is_retired(text: &str) -> bool {
    matches!(read(text), Err(SealError::Retired))
}

/// Checks whether an annotation of an object has the form of a seal of an earlier release.
pub(crate) fn is_retired_on(metadata: &ObjectMeta, annotation: &str) -> bool {
    let annotations = metadata.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(annotation));
    text.is_some_and(|text| is_retired(text))
}

/// Parses a sealed text into the statement and the signature.
fn read(text: &str) -> Result<(Map<String, Value>, String), SealError> {
    if text.len() > MAX_LENGTH {
        return Err(SealError::TooLong);
    }
    let mut object: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| SealError::Malformed(error.to_string()))?;
    match (object.remove(SIGNATURE), object.get(RETIRED)) {
        (Some(Value::String(signature)), _) => Ok((object, signature)),
        (None, Some(Value::String(_))) => Err(SealError::Retired),
        _ => Err(SealError::Malformed(format!("no {SIGNATURE}"))),
    }
}

/// Formats a statement with its signature.
fn signed_text(mut object: Map<String, Value>, signature: &str) -> String {
    object.insert(SIGNATURE.to_owned(), Value::from(signature));
    Value::Object(object).to_string()
}

/// Returns the signed bytes.
fn message(purpose: Purpose, object: &Map<String, Value>) -> Result<Vec<u8>, SealError> {
    // `Map` is sorted by key (serde_json without `preserve_order`), so the bytes are canonical.
    let canonical =
        serde_json::to_string(object).map_err(|error| SealError::Malformed(error.to_string()))?;
    Ok([purpose.name().as_bytes(), &[0], canonical.as_bytes()].concat())
}
