//! The signing keys of the audit trail, and the keys that a verifier trusts. Each writer has a separate key. Auditors
//! pin the operator's key. It vouches for the operator's next key, so that one pinned key suffices after a rotation,
//! and for the keys of the other writers, each for one name. A verifier trusts no other key, and each key only for the
//! name of its writer.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use oz_api::encode::hex;
use oz_api::names::{OPERATOR, OTHER_WRITERS};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The purpose of a signature by which the operator's key vouches for the operator's next key.
const VOUCH: &str = "oz-audit-key/v1\n";
/// The purpose of a signature by which the operator's key vouches for the key of another writer.
const VOUCH_WRITER: &str = "oz-audit-writer-key/v1\n";

/// An Ed25519 key that signs.
/// See <https://www.rfc-editor.org/rfc/rfc8032#section-5.1>.
#[derive(Clone)]
pub struct AuditKey {
    key: SigningKey,
    id: String,
}

/// The reason for which a key or a signature is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key is not 32 bytes in base64, or not a point on the curve.
    #[error(
        "failed to read a public key: it must be 32 bytes of Ed25519 in base64, after the name of its writer if that is not \
         the operator"
    )]
    Unreadable,
    /// The signature is not of the form `KEY:SIGNATURE`.
    #[error("the signature is not of the form KEY:SIGNATURE")]
    Malformed,
    /// The signing key is neither pinned nor vouched for by a pinned key.
    #[error(
        "it is signed by key {0}, which is neither pinned nor vouched for by a key that is; if you \
         know that key, pin it as well"
    )]
    Unknown(String),
    /// The signing key belongs to another writer.
    #[error(
        "it is signed by key {key}, which is not a key of {writer}: another writer signed in its name"
    )]
    OtherWriter {
        /// The key's name.
        key: String,
        /// The writer that the signed content names.
        writer: String,
    },
    /// The signature does not belong to the content.
    #[error("the signature by key {0} does not belong to this content")]
    Wrong(String),
}

impl AuditKey {
    /// The length of a secret key.
    pub const BYTES: usize = 32;

    /// Creates the key with this secret.
    #[must_use]
    pub fn new(secret: &[u8; Self::BYTES]) -> Self {
        let key = SigningKey::from_bytes(secret);
        let id = key_id(&key.verifying_key());
        Self { key, id }
    }

    /// Returns the name of the key: the first half of the SHA-256 of its public part, in hexadecimal.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the public part, in base64.
    #[must_use]
    pub fn public(&self) -> String {
        STANDARD.encode(self.key.verifying_key().as_bytes())
    }

    /// Signs `content` for one purpose. Returns `KEY:SIGNATURE`.
    #[must_use]
    pub fn sign(&self, purpose: &str, content: &[u8]) -> String {
        let signature = self.key.sign(&[purpose.as_bytes(), content].concat());
        format!("{}:{}", self.id, STANDARD.encode(signature.to_bytes()))
    }

    /// Returns the published form of this key, which must be the operator's; `before` vouches for it.
    #[must_use]
    pub fn published(&self, before: Option<&Self>) -> Published {
        let public_key = self.public();
        Published {
            vouched: before.map(|before| before.sign(VOUCH, public_key.as_bytes())),
            public_key,
            writer: None,
        }
    }

    /// Returns the published form of another writer's key, signed by this key, which must be the operator's. `None` if
    /// `public` is not a key, or the name is the operator's.
    #[must_use]
    pub fn vouch(&self, writer: &str, public: &str) -> Option<(String, Published)> {
        let key = parse(public).ok().filter(|_| is_other(writer))?;
        let public_key = STANDARD.encode(key.as_bytes());
        let vouched = self.sign(VOUCH_WRITER, &vouched_for(writer, &public_key));
        let published = Published {
            vouched: Some(vouched),
            public_key,
            writer: Some(writer.to_owned()),
        };
        Some((key_id(&key), published))
    }
}

impl std::fmt::Debug for AuditKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("AuditKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A published public key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// The key, in base64.
    pub public_key: String,
    /// The signature by which a key of the operator vouches for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vouched: Option<String>,
    /// The writer of the key; absent for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<String>,
}

impl Published {
    /// Returns the pinned form: the key, after the name of its writer unless that is the operator.
    #[must_use]
    pub fn pin(&self) -> String {
        match &self.writer {
            Some(writer) => format!("{writer} {}", self.public_key),
            None => self.public_key.clone(),
        }
    }
}

fn is_other(writer: &str) -> bool {
    writer != OPERATOR && !writer.is_empty() && !writer.contains(char::is_whitespace)
}

/// Returns the content that the operator signs. A name has no line feed.
fn vouched_for(writer: &str, public: &str) -> Vec<u8> {
    format!("{writer}\n{public}").into_bytes()
}

fn parse(public: &str) -> Result<VerifyingKey, KeyError> {
    let bytes = STANDARD
        .decode(public.trim())
        .map_err(|_| KeyError::Unreadable)?;
    let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| KeyError::Unreadable)?;
    let key = VerifyingKey::from_bytes(&bytes).map_err(|_| KeyError::Unreadable)?;
    match key.is_weak() {
        true => Err(KeyError::Unreadable),
        false => Ok(key),
    }
}

/// The public keys that a verifier trusts, each for the names of its writers.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    keys: BTreeMap<String, Believed>,
}

#[derive(Clone, Debug)]
struct Believed {
    key: VerifyingKey,
    writers: BTreeSet<String>,
}

impl Trust {
    /// Trusts these keys, in base64, each for the writer named before it, or for the operator.
    ///
    /// # Errors
    /// If one of them is not a key.
    pub fn pinned<'a>(keys: impl IntoIterator<Item = &'a str>) -> Result<Self, KeyError> {
        let mut trust = Self::default();
        for key in keys {
            let (writer, key) = match key.trim().split_once(char::is_whitespace) {
                Some((writer, key)) if is_other(writer) => (writer, key),
                Some(_) => return Err(KeyError::Unreadable),
                None => (OPERATOR, key),
            };
            trust.believe(writer, key)?;
        }
        Ok(trust)
    }

    /// Trusts all published keys, also those without a signature. If none of them names a writer, they are of an
    /// earlier release, in which all components shared the operator's key: they are trusted for every writer.
    ///
    /// # Errors
    /// If one of them is not a key.
    pub fn published(published: &[Published]) -> Result<Self, KeyError> {
        let pins: Vec<String> = published.iter().map(Published::pin).collect();
        let mut trust = Self::pinned(pins.iter().map(String::as_str))?;
        if published.iter().all(|key| key.writer.is_none()) {
            for key in published {
                for writer in OTHER_WRITERS {
                    trust.believe(writer, &key.public_key)?;
                }
            }
        }
        Ok(trust)
    }

    fn believe(&mut self, writer: &str, public: &str) -> Result<(), KeyError> {
        let key = parse(public)?;
        let writers = BTreeSet::new();
        let believed = self.keys.entry(key_id(&key));
        let believed = believed.or_insert(Believed { key, writers });
        believed.writers.insert(writer.to_owned());
        Ok(())
    }

    /// Trusts the published keys that trusted keys of the operator vouch for, directly or through others, in any
    /// order.
    pub fn extend(&mut self, published: &[Published]) {
        let mut left: Vec<&Published> = published.iter().collect();
        loop {
            let before = left.len();
            left.retain(|key| {
                let (writer, purpose, content) = match &key.writer {
                    None => (OPERATOR, VOUCH, key.public_key.clone().into_bytes()),
                    Some(writer) if is_other(writer) => (
                        writer.as_str(),
                        VOUCH_WRITER,
                        vouched_for(writer, &key.public_key),
                    ),
                    Some(_) => return true,
                };
                let vouched = key.vouched.as_deref().is_some_and(|vouched| {
                    self.check(OPERATOR, purpose, &content, vouched).is_ok()
                });
                !(vouched && self.believe(writer, &key.public_key).is_ok())
            });
            if left.len() == before {
                return;
            }
        }
    }

    /// Returns the names of the trusted keys.
    #[must_use]
    pub fn ids(&self) -> BTreeSet<&str> {
        self.keys.keys().map(String::as_str).collect()
    }

    /// Checks a signature of [`AuditKey::sign`] in the name of this writer.
    ///
    /// # Errors
    /// The reason for which the signature is not accepted.
    pub fn check(
        &self,
        writer: &str,
        purpose: &str,
        content: &[u8],
        signature: &str,
    ) -> Result<(), KeyError> {
        let (id, signature) = signature.split_once(':').ok_or(KeyError::Malformed)?;
        let Believed { key, writers } = self
            .keys
            .get(id)
            .ok_or_else(|| KeyError::Unknown(id.to_owned()))?;
        if !writers.contains(writer) {
            return Err(KeyError::OtherWriter {
                key: id.to_owned(),
                writer: writer.to_owned(),
            });
        }
        let bytes = STANDARD
            .decode(signature)
            .map_err(|_| KeyError::Malformed)?;
        let signature = Signature::from_slice(&bytes).map_err(|_| KeyError::Malformed)?;
        key.verify_strict(&[purpose.as_bytes(), content].concat(), &signature)
            .map_err(|_| KeyError::Wrong(id.to_owned()))
    }
}

fn key_id(key: &VerifyingKey) -> String {
    hex(&Sha256::digest(key.as_bytes())[..16])
}
