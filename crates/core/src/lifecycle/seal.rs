//! Statements that pass through objects users can edit: JSON with a keyed digest over it. Whoever
//! holds no key can neither make one nor change one.

use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::controller::Failure;
use crate::encode;

/// The member of the JSON object that holds the digest.
const MAC: &str = "mac";

/// Longest sealed text that is read, in bytes. Well above what we write, far below what an
/// annotation can hold.
pub const MAX_LENGTH: usize = 64 * 1024;

/// Keys for sealing, held by webhook and operator only. One seals; all of them open, so that a key
/// can be replaced without invalidating what it sealed. Clones share what they hold: whoever
/// replaces the keys replaces them for all.
#[derive(Clone)]
pub struct Keys(Arc<RwLock<Arc<Ring>>>);

struct Ring {
    keys: Vec<Vec<u8>>,
    /// Which of them seals.
    sealing: usize,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Keys({})", self.ring().keys.len())
    }
}

impl Keys {
    /// Shortest key, in bytes.
    pub const MIN_BYTES: usize = 32;

    /// Keys, the sealing one first.
    ///
    /// # Errors
    /// [`SealError::Key`] when there is none or one is shorter than [`Keys::MIN_BYTES`].
    pub fn new(keys: Vec<Vec<u8>>) -> Result<Self, SealError> {
        checked(&keys)?;
        let ring = Ring { keys, sealing: 0 };
        Ok(Self(Arc::new(RwLock::new(Arc::new(ring)))))
    }

    /// Opens with these keys from now on, and with no others. As long as the key that seals is among
    /// them it goes on sealing, until [`Keys::settle`]: by then every process has heard of the new
    /// one, and nobody meets a seal that they cannot open.
    ///
    /// # Errors
    /// As [`Keys::new`]; then nothing has changed.
    pub fn adopt(&self, keys: Vec<Vec<u8>>) -> Result<Turn, SealError> {
        checked(&keys)?;
        let old = self.ring();
        if old.keys == keys {
            return Ok(if old.sealing == 0 {
                Turn::None
            } else {
                Turn::Begun
            });
        }
        let before = old.keys.get(old.sealing);
        let goes_on = keys.iter().position(|key| Some(key) == before);
        let sealing = goes_on.unwrap_or(0);
        self.replace(Ring { keys, sealing });
        Ok(match goes_on {
            Some(0) => Turn::Over,
            Some(_) => Turn::Begun,
            None => Turn::AtOnce,
        })
    }

    /// Seals with the first of the keys from now on. Says whether that is another one than before.
    pub fn settle(&self) -> bool {
        let ring = self.ring();
        let keys = ring.keys.clone();
        self.replace(Ring { keys, sealing: 0 });
        ring.sealing != 0
    }

    /// A name for the key that seals, from which nobody learns the key.
    #[must_use]
    pub fn id(&self) -> String {
        let ring = self.ring();
        let digest = Sha256::new()
            .chain_update("oz.wizardofoz.co/key-id/v1")
            .chain_update([0])
            .chain_update(&ring.keys[ring.sealing])
            .finalize();
        encode::hex(&digest[..8])
    }

    /// Derives a secret for one purpose from each key, from the one that seals first. It reveals neither the key nor the
    /// secrets for other purposes.
    #[must_use]
    pub fn derived(&self, purpose: &str) -> Vec<[u8; 32]> {
        let ring = self.ring();
        let (before, rest) = ring.keys.split_at(ring.sealing);
        let derive = |key: &Vec<u8>| {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
            mac.update(b"oz.wizardofoz.co/derived-key/v1");
            mac.update(&[0]);
            mac.update(purpose.as_bytes());
            Some(mac.finalize().into_bytes().into())
        };
        rest.iter().chain(before).filter_map(derive).collect()
    }

    fn ring(&self) -> Arc<Ring> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, ring: Ring) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
    }
}

/// What came of taking over keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// They are those that were there.
    None,
    /// The first does not seal yet: [`Keys::settle`] is to follow.
    Begun,
    /// The key that seals stays; others came or went.
    Over,
    /// The key that sealed is gone, so the first seals at once.
    AtOnce,
}

fn checked(keys: &[Vec<u8>]) -> Result<(), SealError> {
    if keys.is_empty() || keys.iter().any(|key| key.len() < Keys::MIN_BYTES) {
        return Err(SealError::Key);
    }
    Ok(())
}

/// Why a sealed text was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The key is unusable.
    #[error("a sealing key needs at least {} bytes", Keys::MIN_BYTES)]
    Key,
    /// Longer than [`MAX_LENGTH`].
    #[error("the sealed text is longer than {MAX_LENGTH} bytes")]
    TooLong,
    /// Not a JSON object with a digest, or not of the expected shape.
    #[error("the sealed text is malformed: {0}")]
    Malformed(String),
    /// The digest is not of a key of ours over this text for this purpose.
    #[error("the signature does not match")]
    Forged,
}

impl SealError {
    /// That a decision could not be sealed: `what` it is about.
    pub(crate) fn of(self, what: &str) -> Failure {
        Failure::invalid("SealFailed", format!("failed to seal the {what}: {self}"))
    }
}

/// Seals a value for one purpose; the same value sealed for another purpose does not open.
///
/// # Errors
/// [`SealError::Malformed`] when the value does not serialise to a JSON object.
pub fn seal<T: Serialize>(keys: &Keys, purpose: &str, value: &T) -> Result<String, SealError> {
    let mut object = match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return Err(SealError::Malformed("not a JSON object".to_owned())),
        Err(error) => return Err(SealError::Malformed(error.to_string())),
    };
    let ring = keys.ring();
    let tag = mac(&ring.keys[ring.sealing], purpose, &object)?
        .finalize()
        .into_bytes();
    object.insert(
        MAC.to_owned(),
        Value::String(BASE64_URL_SAFE_NO_PAD.encode(tag)),
    );
    Ok(Value::Object(object).to_string())
}

/// Opens what [`seal`] made with any of the keys for the same purpose.
///
/// # Errors
/// A [`SealError`] that says why the text is not believed.
pub fn open<T: DeserializeOwned>(keys: &Keys, purpose: &str, text: &str) -> Result<T, SealError> {
    if text.len() > MAX_LENGTH {
        return Err(SealError::TooLong);
    }
    let mut object: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| SealError::Malformed(error.to_string()))?;
    let Some(Value::String(tag)) = object.remove(MAC) else {
        return Err(SealError::Malformed(format!("no {MAC}")));
    };
    let tag = BASE64_URL_SAFE_NO_PAD
        .decode(tag)
        .map_err(|error| SealError::Malformed(error.to_string()))?;
    let mut genuine = false;
    for key in &keys.ring().keys {
        genuine |= mac(key, purpose, &object)?.verify_slice(&tag).is_ok();
    }
    if !genuine {
        return Err(SealError::Forged);
    }
    serde_json::from_value(Value::Object(object))
        .map_err(|error| SealError::Malformed(error.to_string()))
}

fn mac(key: &[u8], purpose: &str, object: &Map<String, Value>) -> Result<Hmac<Sha256>, SealError> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(|_| SealError::Key)?;
    mac.update(purpose.as_bytes());
    mac.update(&[0]);
    // `Map` is sorted by key (serde_json without `preserve_order`), so the bytes are canonical.
    let canonical =
        serde_json::to_string(object).map_err(|error| SealError::Malformed(error.to_string()))?;
    mac.update(canonical.as_bytes());
    Ok(mac)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Statement {
        zebra: u8,
        ant: String,
    }

    fn keys(seed: u8) -> Keys {
        Keys::new(vec![vec![seed; 32]]).unwrap()
    }

    fn sealed() -> String {
        seal(
            &keys(1),
            "test",
            &Statement {
                zebra: 7,
                ant: "x".into(),
            },
        )
        .unwrap()
    }

    #[test]
    fn what_was_sealed_opens_with_the_same_key_and_purpose() {
        let opened: Statement = open(&keys(1), "test", &sealed()).unwrap();
        assert_eq!(
            opened,
            Statement {
                zebra: 7,
                ant: "x".into()
            }
        );
    }

    #[test]
    fn another_key_or_purpose_does_not_open() {
        assert_eq!(
            open::<Statement>(&keys(2), "test", &sealed()),
            Err(SealError::Forged)
        );
        assert_eq!(
            open::<Statement>(&keys(1), "other", &sealed()),
            Err(SealError::Forged)
        );
    }

    #[test]
    fn every_changed_member_is_noticed() {
        for (from, to) in [("7", "8"), ("\"x\"", "\"y\""), ("zebra", "zebrb")] {
            let changed = sealed().replacen(from, to, 1);
            assert_ne!(changed, sealed());
            assert_eq!(
                open::<Statement>(&keys(1), "test", &changed),
                Err(SealError::Forged)
            );
        }
        let added = sealed().replacen('{', "{\"extra\":1,", 1);
        assert_eq!(
            open::<Statement>(&keys(1), "test", &added),
            Err(SealError::Forged)
        );
    }

    #[test]
    fn derived_secret_is_of_one_purpose_and_one_key_and_that_which_seals_comes_first() {
        let (one, both) = (keys(1), Keys::new(vec![vec![2; 32], vec![1; 32]]).unwrap());
        assert_eq!(one.derived("a"), keys(1).derived("a"));
        assert_ne!(one.derived("a"), one.derived("b"));
        assert_ne!(one.derived("a"), keys(2).derived("a"));
        let [second, first] = both.derived("a").try_into().unwrap();
        assert_eq!(
            (vec![first], vec![second]),
            (one.derived("a"), keys(2).derived("a"))
        );
        // One that has just come opens only.
        let turning = keys(1);
        turning.adopt(vec![vec![2; 32], vec![1; 32]]).unwrap();
        assert_eq!(turning.derived("a"), [first, second]);
    }

    #[test]
    fn a_replaced_key_still_opens_what_it_sealed() {
        let both = Keys::new(vec![vec![2; 32], vec![1; 32]]).unwrap();
        assert!(open::<Statement>(&both, "test", &sealed()).is_ok());
    }

    #[test]
    fn a_new_key_opens_at_once_and_seals_when_everybody_knows_it() {
        let (old, new, other) = (vec![1; 32], vec![2; 32], vec![3; 32]);
        let ours = keys(1);
        let theirs = ours.clone();
        let sealed_by = |keys: &Keys| {
            let text = seal(
                keys,
                "test",
                &Statement {
                    zebra: 1,
                    ant: String::new(),
                },
            )
            .unwrap();
            [1, 2, 3]
                .map(|seed| open::<Statement>(&super::tests::keys(seed), "test", &text).is_ok())
        };
        let id = ours.id();
        assert_eq!(ours.adopt(vec![old.clone()]), Ok(Turn::None));
        assert_eq!(ours.adopt(vec![new.clone(), old.clone()]), Ok(Turn::Begun));
        assert_eq!(sealed_by(&theirs), [true, false, false]);
        assert_eq!(ours.adopt(vec![new.clone(), old]), Ok(Turn::Begun));
        assert!(
            open::<Statement>(
                &theirs,
                "test",
                &seal(
                    &keys(2),
                    "test",
                    &Statement {
                        zebra: 1,
                        ant: String::new()
                    }
                )
                .unwrap()
            )
            .is_ok()
        );
        assert!(theirs.settle() && !ours.settle());
        assert_eq!(sealed_by(&ours), [false, true, false]);
        assert_ne!(ours.id(), id);
        // After the overlap what the old one sealed is worth nothing.
        assert!(open::<Statement>(&ours, "test", &sealed()).is_ok());
        assert_eq!(ours.adopt(vec![new]), Ok(Turn::Over));
        assert_eq!(
            open::<Statement>(&ours, "test", &sealed()),
            Err(SealError::Forged)
        );
        // A key that is replaced without an overlap counts at once.
        assert_eq!(ours.adopt(vec![other]), Ok(Turn::AtOnce));
        assert_eq!(sealed_by(&theirs), [false, false, true]);
        assert_eq!(ours.adopt(vec![vec![0; 31]]), Err(SealError::Key));
        assert_eq!(sealed_by(&theirs), [false, false, true]);
    }

    #[test]
    fn nonsense_is_malformed_and_a_short_key_is_refused() {
        for text in ["", "null", "[]", "{}", "{\"mac\":1}", "{\"mac\":\"!\"}"] {
            let result = open::<Statement>(&keys(1), "test", text);
            assert!(
                matches!(result, Err(SealError::Malformed(_))),
                "{text}: {result:?}"
            );
        }
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_LENGTH));
        assert_eq!(
            open::<Statement>(&keys(1), "test", &long),
            Err(SealError::TooLong)
        );
        assert!(Keys::new(vec![vec![0; 31]]).is_err());
        assert!(Keys::new(vec![]).is_err());
    }

    #[test]
    fn keys_are_sorted_so_that_the_sealed_bytes_are_canonical() {
        assert!(sealed().starts_with("{\"ant\":\"x\",\"mac\":"));
    }
}
