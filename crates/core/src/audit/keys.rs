//! The key that signs the record, and whom a verifier believes. A key that a believed key vouches
//! for is believed as well, so that rotation leaves one pinned key enough; one that nobody vouches
//! for is not, whoever put it into the cluster.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::encode::hex;

/// What is signed when a key vouches for another.
const VOUCH: &str = "oz-audit-key/v1\n";

/// An Ed25519 key that signs.
#[derive(Clone)]
pub struct AuditKey {
    key: SigningKey,
    id: String,
}

/// Why a key or signature is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not 32 bytes in base64, or no point of the curve.
    #[error("failed to read a public key: it must be 32 bytes of Ed25519 in base64")]
    Unreadable,
    /// Not of the form `KEY:SIGNATURE`.
    #[error("the signature is not of the form KEY:SIGNATURE")]
    Malformed,
    /// Made by a key that is neither pinned nor vouched for by one that is.
    #[error(
        "it is signed by key {0}, which is neither pinned nor vouched for by a key that is; if you \
         know that key, pin it as well"
    )]
    Unknown(String),
    /// The signature does not belong to the content.
    #[error("the signature by key {0} does not belong to this content")]
    Wrong(String),
}

impl AuditKey {
    /// The length of a secret key.
    pub const BYTES: usize = 32;

    /// The key with this secret.
    #[must_use]
    pub fn new(secret: &[u8; Self::BYTES]) -> Self {
        let key = SigningKey::from_bytes(secret);
        let id = key_id(&key.verifying_key());
        Self { key, id }
    }

    /// The key's name: the first half of the SHA-256 of its public part, in hexadecimal.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The public part, in base64.
    #[must_use]
    pub fn public(&self) -> String {
        STANDARD.encode(self.key.verifying_key().as_bytes())
    }

    /// `KEY:SIGNATURE` of `content` for one purpose.
    #[must_use]
    pub fn sign(&self, purpose: &str, content: &[u8]) -> String {
        let signature = self.key.sign(&[purpose.as_bytes(), content].concat());
        format!("{}:{}", self.id, STANDARD.encode(signature.to_bytes()))
    }

    /// What is published of this key; `before` vouches for it.
    #[must_use]
    pub fn published(&self, before: Option<&Self>) -> Published {
        let public_key = self.public();
        Published {
            vouched: before.map(|before| before.sign(VOUCH, public_key.as_bytes())),
            public_key,
        }
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

/// A public key as it is published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// The key, in base64.
    pub public_key: String,
    /// The signature by which the key before it vouches for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vouched: Option<String>,
}

/// The public keys that a verifier believes.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    keys: BTreeMap<String, VerifyingKey>,
}

impl Trust {
    /// Believes these keys, in base64.
    ///
    /// # Errors
    /// When one of them is no key.
    pub fn pinned<'a>(keys: impl IntoIterator<Item = &'a str>) -> Result<Self, KeyError> {
        let mut trust = Self::default();
        for key in keys {
            trust.believe(key)?;
        }
        Ok(trust)
    }

    fn believe(&mut self, public: &str) -> Result<(), KeyError> {
        let bytes = STANDARD
            .decode(public.trim())
            .map_err(|_| KeyError::Unreadable)?;
        let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| KeyError::Unreadable)?;
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| KeyError::Unreadable)?;
        self.keys.insert(key_id(&key), key);
        Ok(())
    }

    /// Believes the published keys that believed keys vouch for, directly or through others, in
    /// whatever order they come.
    pub fn extend(&mut self, published: &[Published]) {
        let mut left: Vec<&Published> = published.iter().collect();
        loop {
            let before = left.len();
            left.retain(|key| {
                let vouched = key.vouched.as_deref().is_some_and(|vouched| {
                    self.check(VOUCH, key.public_key.as_bytes(), vouched)
                        .is_ok()
                });
                !(vouched && self.believe(&key.public_key).is_ok())
            });
            if left.len() == before {
                return;
            }
        }
    }

    /// The names of the keys that are believed.
    #[must_use]
    pub fn ids(&self) -> BTreeSet<&str> {
        self.keys.keys().map(String::as_str).collect()
    }

    /// Checks a signature of [`AuditKey::sign`].
    ///
    /// # Errors
    /// Why it proves nothing.
    pub fn check(&self, purpose: &str, content: &[u8], signature: &str) -> Result<(), KeyError> {
        let (id, signature) = signature.split_once(':').ok_or(KeyError::Malformed)?;
        let key = self
            .keys
            .get(id)
            .ok_or_else(|| KeyError::Unknown(id.to_owned()))?;
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
