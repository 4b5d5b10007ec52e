//! The keys of one process: the private keys of its component, and the public keys of other components.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use oz_api::encode;
use parking_lot::{Mutex, MutexGuard, RwLock};
use sha2::{Digest, Sha256};
use strum::IntoEnumIterator as _;

use super::{Owner, Purpose, SealError};

/// The size of each of the two generations of the cache of accepted texts.
const REMEMBERED: usize = 32 * 1024;

/// The keys of one process. A component holds only the private keys of its [`Owner`]. One of them seals, and
/// seals of all of them are accepted, so that a rotation does not invalidate earlier seals. Clones share the
/// keys: a replacement is visible in all of them.
#[derive(Clone, Default)]
pub struct Keys(Arc<RwLock<Arc<Ring>>>);

#[derive(Default)]
struct Ring {
    signers: BTreeMap<Owner, Signer>,
    verifiers: BTreeMap<Owner, Vec<PublicKey>>,
    accepted: Mutex<Accepted>,
}

/// The private keys of one owner, the newest first.
#[derive(Clone)]
struct Signer {
    keys: Vec<SigningKey>,
    public: Vec<PublicKey>,
    /// The index of the sealing key.
    sealing: usize,
}

#[derive(Clone, PartialEq)]
struct PublicKey {
    id: String,
    key: VerifyingKey,
}

impl PublicKey {
    fn new(key: VerifyingKey) -> Self {
        let id = encode::hex(&Sha256::digest(key.as_bytes())[..8]);
        Self { id, key }
    }

    fn parse(line: &str) -> Option<Self> {
        let bytes = STANDARD.decode(line.trim()).ok()?;
        let key = VerifyingKey::from_bytes(&bytes.try_into().ok()?).ok()?;
        // Under a weak key, a signature belongs to more than one text.
        (!key.is_weak()).then(|| Self::new(key))
    }
}

impl Signer {
    fn new(owner: Owner, secrets: &[[u8; Keys::BYTES]]) -> Result<Self, SealError> {
        if secrets.is_empty() {
            return Err(SealError::NoSecret(owner));
        }
        let keys: Vec<SigningKey> = secrets.iter().map(SigningKey::from_bytes).collect();
        let public = keys.iter().map(|key| PublicKey::new(key.verifying_key()));
        Ok(Self {
            public: public.collect(),
            keys,
            sealing: 0,
        })
    }

    fn id(&self) -> Option<&str> {
        self.public.get(self.sealing).map(|key| key.id.as_str())
    }
}

/// The texts that were accepted with these keys: each is verified once.
#[derive(Default)]
struct Accepted {
    recent: HashSet<[u8; 32]>,
    before: HashSet<[u8; 32]>,
}

impl Accepted {
    fn has(&self, text: &[u8; 32]) -> bool {
        self.recent.contains(text) || self.before.contains(text)
    }

    fn insert(&mut self, text: [u8; 32]) {
        if self.recent.len() >= REMEMBERED {
            self.before = std::mem::take(&mut self.recent);
        }
        self.recent.insert(text);
    }
}

/// The result of [`Keys::adopt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The keys have not changed.
    None,
    /// The first key does not seal yet: [`Keys::settle`] must follow.
    Begun,
    /// The sealing key stays; others were added or removed.
    Over,
    /// The sealing key was removed, so the first key seals at once.
    AtOnce,
}

impl Keys {
    /// The length of a private key.
    pub const BYTES: usize = 32;

    /// Creates the keys of a component from its private keys, the sealing one first.
    ///
    /// # Errors
    /// [`SealError::NoSecret`] when there is none.
    pub fn new(owner: Owner, secrets: &[[u8; Self::BYTES]]) -> Result<Self, SealError> {
        let signer = Signer::new(owner, secrets)?;
        let keys = Self::default();
        keys.replace(|ring| {
            ring.signers.insert(owner, signer);
        });
        Ok(keys)
    }

    /// Derives keys of all components from these secrets, the sealing one first: for a program that simulates
    /// all of them. No component accepts its seals.
    #[must_use]
    pub fn with_every_owner<const N: usize>(secrets: [[u8; Self::BYTES]; N]) -> Self {
        let keys = Self::default();
        for owner in Owner::iter() {
            let secrets = secrets.map(|secret| Self::of_owner(owner, secret));
            // An owner without secrets cannot seal.
            if let Ok(signer) = Signer::new(owner, &secrets) {
                keys.replace(|ring| {
                    ring.signers.insert(owner, signer);
                });
            }
        }
        keys
    }

    /// Returns the private key of one owner in [`Keys::with_every_owner`].
    #[must_use]
    pub fn of_owner(owner: Owner, secret: [u8; Self::BYTES]) -> [u8; Self::BYTES] {
        Sha256::new()
            .chain_update(owner.to_string())
            .chain_update([0])
            .chain_update(secret)
            .finalize()
            .into()
    }

    /// Returns the published form of the public keys of these private keys: one in each line, in base64.
    #[must_use]
    pub fn published(secrets: &[[u8; Self::BYTES]]) -> String {
        let public = secrets
            .iter()
            .map(|secret| SigningKey::from_bytes(secret).verifying_key());
        let lines = public.map(|key| STANDARD.encode(key.as_bytes()));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Replaces the private keys of `owner`. If the sealing key is among the new ones, it seals until
    /// [`Keys::settle`]: by then every process has received the new public key.
    ///
    /// # Errors
    /// As [`Keys::new`]; the keys stay unchanged.
    pub fn adopt(&self, owner: Owner, secrets: &[[u8; Self::BYTES]]) -> Result<Turn, SealError> {
        let mut signer = Signer::new(owner, secrets)?;
        let ring = self.ring();
        let old = ring.signers.get(&owner);
        if let Some(old) = old.filter(|old| old.public == signer.public) {
            return Ok(match old.sealing {
                0 => Turn::None,
                _ => Turn::Begun,
            });
        }
        let before = old.and_then(Signer::id);
        let is_before = |key: &PublicKey| Some(key.id.as_str()) == before;
        let remains = signer.public.iter().position(is_before);
        signer.sealing = remains.unwrap_or(0);
        self.replace(|ring| {
            ring.signers.insert(owner, signer);
        });
        Ok(match remains {
            Some(0) => Turn::Over,
            Some(_) => Turn::Begun,
            None => Turn::AtOnce,
        })
    }

    /// Starts to seal with the first private key of `owner`. Returns whether the sealing key changed.
    pub fn settle(&self, owner: Owner) -> bool {
        let mut changed = false;
        self.replace(|ring| {
            if let Some(signer) = ring.signers.get_mut(&owner) {
                changed = signer.sealing != 0;
                signer.sealing = 0;
            }
        });
        changed
    }

    /// Replaces the public keys of `owner`. Returns whether they changed. Has no effect for an owner of which
    /// this process holds the private keys.
    ///
    /// # Errors
    /// [`SealError::PublicKeys`] if there is no key, or a line is not a key; the keys stay unchanged.
    pub fn trust(&self, owner: Owner, published: &str) -> Result<bool, SealError> {
        let lines = published.lines().filter(|line| !line.trim().is_empty());
        let public: Option<Vec<PublicKey>> = lines.map(PublicKey::parse).collect();
        let public = public
            .filter(|public| !public.is_empty())
            .ok_or(SealError::PublicKeys(owner))?;
        let ring = self.ring();
        if ring.signers.contains_key(&owner) || ring.verifiers.get(&owner) == Some(&public) {
            return Ok(false);
        }
        self.replace(|ring| {
            ring.verifiers.insert(owner, public);
        });
        Ok(true)
    }

    /// Returns the id of the sealing key of `owner`, if it is known. The id does not reveal the private key.
    #[must_use]
    pub fn newest(&self, owner: Owner) -> Option<String> {
        let ring = self.ring();
        let known = || Some(ring.verifiers.get(&owner)?.first()?.id.as_str());
        let id = match ring.signers.get(&owner) {
            Some(signer) => signer.id(),
            None => known(),
        };
        id.map(ToOwned::to_owned)
    }

    /// Signs a message. Returns the id of the key and the signature.
    pub(super) fn sign(
        &self,
        purpose: Purpose,
        message: &[u8],
    ) -> Result<(String, Signature), SealError> {
        let ring = self.ring();
        let owner = purpose.owner();
        let signer = ring.signers.get(&owner).ok_or(SealError::NotHeld(owner))?;
        let (Some(id), Some(key)) = (signer.id(), signer.keys.get(signer.sealing)) else {
            return Err(SealError::NoSecret(owner));
        };
        Ok((id.to_owned(), key.sign(message)))
    }

    /// Checks a sealed text; `parts` gives the id of the key, the message and the signature, unless it is malformed.
    pub(super) fn verify<'a>(
        &self,
        purpose: Purpose,
        text: &str,
        parts: impl FnOnce() -> Option<(&'a str, Vec<u8>, Signature)>,
    ) -> Result<(), SealError> {
        let ring = self.ring();
        let owner = purpose.owner();
        let public = match ring.signers.get(&owner) {
            Some(signer) => Some(&signer.public),
            None => ring.verifiers.get(&owner),
        };
        let malformed = || {
            SealError::Malformed(
                "the content was changed since it was sealed, or it has no \
                signature"
                    .to_owned(),
            )
        };
        let Some(public) = public else {
            let error = parts().map(|_| SealError::NoKeys(owner));
            return Err(error.unwrap_or_else(malformed));
        };
        let digest: [u8; 32] = Sha256::new()
            .chain_update(purpose.name())
            .chain_update([0])
            .chain_update(text)
            .finalize()
            .into();
        if ring.accepted().has(&digest) {
            return Ok(());
        }
        let (id, message, signature) = parts().ok_or_else(malformed)?;
        let mut named = public.iter().filter(|known| known.id == id);
        let genuine = |known: &PublicKey| known.key.verify_strict(&message, &signature).is_ok();
        if !named.any(genuine) {
            return Err(SealError::Forged);
        }
        ring.accepted().insert(digest);
        Ok(())
    }

    fn ring(&self) -> Arc<Ring> {
        Arc::clone(&self.0.read())
    }

    /// Changes the keys, and clears the cache of accepted texts.
    fn replace(&self, change: impl FnOnce(&mut Ring)) {
        let mut held = self.0.write();
        let mut ring = Ring {
            signers: held.signers.clone(),
            verifiers: held.verifiers.clone(),
            accepted: Mutex::default(),
        };
        change(&mut ring);
        *held = Arc::new(ring);
    }
}

impl Ring {
    fn accepted(&self) -> MutexGuard<'_, Accepted> {
        self.accepted.lock()
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ring = self.ring();
        let signers: Vec<Owner> = ring.signers.keys().copied().collect();
        let verifiers: Vec<Owner> = ring.verifiers.keys().copied().collect();
        formatter
            .debug_struct("Keys")
            .field("signers", &signers)
            .field("verifiers", &verifiers)
            .finish()
    }
}
