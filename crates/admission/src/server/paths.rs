//! The key in the paths of hooks: a client without it gets no response that costs resources.
//!
//! A hook is registered under `/<segment>/<path>`. The segment is derived from a key that all replicas
//! share; it is compared in constant time, before any other part of a request is read. The key is rotated
//! like the authority: the next one is valid before it is registered, and the previous one for as long as a
//! caller may still use it. Pure, except for the randomness of new keys.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;

use crate::crypto::{equal, hex, hmac_sha256, provider};

/// The required number of bytes of a key; a shorter one is not a key.
const KEY_SIZE: usize = 32;
/// The number of bytes that a segment encodes.
const SEGMENT_SIZE: usize = 16;

/// The key from which segments are derived.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PathKey(Vec<u8>);

/// The output omits the key.
impl fmt::Debug for PathKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PathKey")
    }
}

impl PathKey {
    pub(crate) fn generate() -> Result<Self, rustls::Error> {
        let mut bytes = vec![0; KEY_SIZE];
        let random = provider::default_provider().secure_random;
        random
            .fill(&mut bytes)
            .map_err(|_| rustls::Error::FailedToGetRandomBytes)?;
        Ok(Self(bytes))
    }

    /// Creates a key; `None` if it is too short to protect the paths.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= KEY_SIZE).then(|| Self(bytes.to_vec()))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the segment that precedes the registered paths.
    pub(crate) fn segment(&self) -> String {
        hex(&self.derived())
    }

    fn fits(&self, said: &[u8; SEGMENT_SIZE]) -> bool {
        equal(&self.derived(), said)
    }

    fn derived(&self) -> [u8; SEGMENT_SIZE] {
        let digest = hmac_sha256(&self.0, "oz-admission/path", b"");
        std::array::from_fn(|at| digest[at])
    }
}

/// The valid keys, of which the active one is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathKeys {
    pub(crate) active: PathKey,
    /// The next key. It is already valid, since replicas apply it one after the other.
    pub(crate) next: Option<PathKey>,
    /// The previous key, valid for callers that do not know the active one yet.
    pub(crate) previous: Option<PathKey>,
}

impl PathKeys {
    pub(crate) fn new(active: PathKey) -> Self {
        Self {
            active,
            next: None,
            previous: None,
        }
    }

    /// Reads the keys by their names in Secrets and directories.
    pub(crate) fn read<'a>(get: impl Fn(&str) -> Option<&'a [u8]>) -> Option<Self> {
        let key = |name: &str| get(name).and_then(PathKey::new);
        Some(Self {
            active: key(ACTIVE)?,
            next: key(NEXT),
            previous: key(PREVIOUS),
        })
    }

    /// Returns each key with its name.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'static str, &PathKey)> {
        let others = [(NEXT, &self.next), (PREVIOUS, &self.previous)];
        let others = others
            .into_iter()
            .filter_map(|(name, key)| Some((name, key.as_ref()?)));
        std::iter::once((ACTIVE, &self.active)).chain(others)
    }

    /// Makes the next key active, if there is one.
    pub(crate) fn promote(&mut self) {
        if let Some(next) = self.next.take() {
            self.previous = Some(std::mem::replace(&mut self.active, next));
        }
    }

    pub(crate) fn contains(&self, key: &PathKey) -> bool {
        self.entries().any(|(_, it)| it == key)
    }

    /// Checks a segment against all keys, so that the duration does not reveal which one fits.
    fn fit(&self, said: &[u8; SEGMENT_SIZE]) -> bool {
        self.entries()
            .fold(false, |fits, (_, key)| key.fits(said) | fits)
    }
}

/// The names of the keys in their storage.
pub(crate) const ACTIVE: &str = "path-key";
pub(crate) const NEXT: &str = "path-key-next";
pub(crate) const PREVIOUS: &str = "path-key-previous";

/// The current serving of paths. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Paths(Arc<ArcSwap<Served>>);

/// The paths under which hooks are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// No paths: the keys are not known yet.
    Nowhere,
    /// Their own paths, for every client.
    Plain,
    /// Their paths behind a segment.
    Keyed(PathKeys),
}

impl Paths {
    pub(crate) fn new(served: Served) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(served)))
    }

    pub(crate) fn serve(&self, served: Served) {
        if **self.0.load() != served {
            self.0.store(Arc::new(served));
        }
    }

    /// Returns the segment that precedes the paths to register.
    pub(crate) fn segment(&self) -> Option<String> {
        match &**self.0.load() {
            Served::Keyed(keys) => Some(keys.active.segment()),
            Served::Nowhere | Served::Plain => None,
        }
    }

    /// Returns the path of a hook, if the request contains the key.
    pub(crate) fn open<'a>(&self, path: &'a str) -> Option<&'a str> {
        match &**self.0.load() {
            Served::Nowhere => None,
            Served::Plain => Some(path),
            Served::Keyed(keys) => {
                let (said, _) = path.strip_prefix('/')?.split_once('/')?;
                keys.fit(&unhex(said)?).then(|| &path[1 + said.len()..])
            }
        }
    }
}

/// Decodes lower-case letters only: one key has one form.
fn unhex(text: &str) -> Option<[u8; SEGMENT_SIZE]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; SEGMENT_SIZE];
    if text.len() != 2 * SEGMENT_SIZE {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> PathKey {
        PathKey::new(&[byte; KEY_SIZE]).unwrap()
    }

    fn keyed(keys: PathKeys) -> Paths {
        Paths::new(Served::Keyed(keys))
    }

    #[test]
    fn only_those_who_know_the_key_find_a_path() {
        let paths = keyed(PathKeys::new(key(1)));
        let segment = key(1).segment();
        assert_eq!(paths.segment().as_ref(), Some(&segment));
        assert_eq!(paths.open(&format!("/{segment}/a/b")), Some("/a/b"));
        let other = key(2).segment();
        for path in [
            "/a/b".to_owned(),
            format!("/{other}/a/b"),
            format!("/{segment}"),
            format!("//{segment}/a/b"),
            format!("/{}/a/b", &segment[1..]),
            format!("/{segment}0/a/b"),
            format!("/{}/a/b", segment.to_uppercase()),
            "/".to_owned(),
            String::new(),
            format!("/{}/a/b", "ä".repeat(16)),
        ] {
            assert_eq!(paths.open(&path), None, "{path}");
        }
    }

    #[test]
    fn path_is_not_found_before_key_is_known() {
        let paths = Paths::new(Served::Nowhere);
        assert_eq!(paths.open("/a"), None);
        paths.serve(Served::Plain);
        assert_eq!(paths.open("/a"), Some("/a"));
    }

    #[test]
    fn the_next_and_the_previous_key_are_good_and_the_active_one_is_registered() {
        let mut keys = PathKeys::new(key(1));
        keys.next = Some(key(2));
        let opens = |keys: &PathKeys, number: u8| {
            let path = format!("/{}/a", key(number).segment());
            keyed(keys.clone()).open(&path).is_some()
        };
        assert!(opens(&keys, 1) && opens(&keys, 2) && !opens(&keys, 3));
        keys.promote();
        assert_eq!(keys.active, key(2));
        assert!(opens(&keys, 1) && opens(&keys, 2));
        keys.promote();
        assert_eq!(keys.active, key(2), "there was no next one");
        keys.previous = None;
        assert!(!opens(&keys, 1));
    }

    #[test]
    fn keys_are_read_back_by_name_and_a_short_one_is_none() {
        let mut keys = PathKeys::new(key(1));
        keys.previous = Some(key(2));
        let stored: Vec<_> = keys.entries().collect();
        let get = |name: &str| {
            let found = stored.iter().find(|(it, _)| *it == name);
            found.map(|(_, key)| key.bytes())
        };
        assert_eq!(PathKeys::read(get), Some(keys.clone()));
        assert_eq!(PathKeys::read(|_| Some(b"short".as_slice())), None);
        assert!(!format!("{keys:?}").contains('1'), "{keys:?}");
    }
}
