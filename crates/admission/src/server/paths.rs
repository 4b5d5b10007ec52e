//! The key in the paths of hooks: whoever does not know it gets no answer that costs anything.
//!
//! A hook is registered under `/<segment>/<path>`. The segment is derived from a key that all
//! replicas share; it is compared in constant time, before anything else of a request is looked at.
//! The key is rotated as the authority is: the next one is good before it is registered, and
//! the previous one for as long as somebody may still call by it. Pure, but for the randomness of
//! new keys.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;

use crate::crypto::{equal, hex, hmac_sha256, provider};

/// How many bytes of a key are asked for; fewer are no key.
const KEY_SIZE: usize = 32;
/// How many bytes a segment stands for.
const SEGMENT_SIZE: usize = 16;

/// What segments are derived from.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PathKey(Vec<u8>);

/// Never prints the key.
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

    /// `None` if it is too short to keep anybody out.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= KEY_SIZE).then(|| Self(bytes.to_vec()))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// What stands in front of the paths that are registered.
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

/// The keys that are good, and which of them is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathKeys {
    pub(crate) active: PathKey,
    /// Good already, since replicas take it up one after the other.
    pub(crate) next: Option<PathKey>,
    /// Good for those that have not heard of the active one.
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

    /// Reads them by the names that they have in Secrets and directories.
    pub(crate) fn read<'a>(get: impl Fn(&str) -> Option<&'a [u8]>) -> Option<Self> {
        let key = |name: &str| get(name).and_then(PathKey::new);
        Some(Self {
            active: key(ACTIVE)?,
            next: key(NEXT),
            previous: key(PREVIOUS),
        })
    }

    /// Each with its name.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &PathKey)> {
        let others = [(NEXT, &self.next), (PREVIOUS, &self.previous)];
        let others = others
            .into_iter()
            .filter_map(|(name, key)| Some((name, key.as_ref()?)));
        std::iter::once((ACTIVE, &self.active)).chain(others)
    }

    /// Lets the next one take over, if there is one.
    pub(crate) fn promote(&mut self) {
        if let Some(next) = self.next.take() {
            self.previous = Some(std::mem::replace(&mut self.active, next));
        }
    }

    pub(crate) fn contains(&self, key: &PathKey) -> bool {
        self.named().any(|(_, it)| it == key)
    }

    /// All are tried, so that the time tells nothing of which one fits.
    fn fit(&self, said: &[u8; SEGMENT_SIZE]) -> bool {
        self.named()
            .fold(false, |fits, (_, key)| key.fits(said) | fits)
    }
}

/// The names of the keys, where they are stored.
pub(crate) const ACTIVE: &str = "path-key";
pub(crate) const NEXT: &str = "path-key-next";
pub(crate) const PREVIOUS: &str = "path-key-previous";

/// How paths are served at the moment. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Paths(Arc<ArcSwap<Served>>);

/// Under which paths hooks are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// Under none: the keys are not known yet.
    Nowhere,
    /// Under their own, for anybody.
    Plain,
    /// Behind a segment.
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

    /// What stands in front of the paths that are to be registered.
    pub(crate) fn segment(&self) -> Option<String> {
        match &**self.0.load() {
            Served::Keyed(keys) => Some(keys.active.segment()),
            Served::Nowhere | Served::Plain => None,
        }
    }

    /// The path of a hook, if whoever asks knows the key.
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

/// Lower-case letters only: one key has one form.
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
    fn nobody_finds_one_before_the_key_is_known() {
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
        let stored: Vec<_> = keys.named().collect();
        let get = |name: &str| {
            let found = stored.iter().find(|(it, _)| *it == name);
            found.map(|(_, key)| key.bytes())
        };
        assert_eq!(PathKeys::read(get), Some(keys.clone()));
        assert_eq!(PathKeys::read(|_| Some(b"short".as_slice())), None);
        assert!(!format!("{keys:?}").contains('1'), "{keys:?}");
    }
}
