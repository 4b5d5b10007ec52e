//! Objects as compressed text. Objects of one kind are similar: the text of one object is the dictionary for others,
//! which reduces the size to a tenth of that of decoded objects.

use std::fmt;
use std::sync::Arc;

use lz4_flex::block::{compress_with_dict, decompress_with_dict};

use crate::keep::AsText;

/// The maximum size of a dictionary.
const MAX_DICTIONARY: usize = 8 * 1024;
/// The minimum number of objects per dictionary. Each object refers to its dictionary, which so adds at most 128
/// bytes to each of them.
const SERVES: usize = 64;

/// An object as compressed text.
#[derive(Debug)]
pub(crate) struct Compact {
    dictionary: Arc<[u8]>,
    text: Box<[u8]>,
    /// The length of the uncompressed text.
    length: usize,
}

/// The compressor of the objects of one kind.
pub(crate) struct Compactor<K> {
    as_text: AsText<K>,
    /// The texts of the last objects that differed from those before them, the newest at the end: a pending
    /// request, a granted request. If the first objects are unusual, those that follow are still similar to each
    /// other.
    dictionary: Arc<[u8]>,
    /// The number of objects that it was used for.
    served: usize,
}

impl<K> fmt::Debug for Compactor<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Compactor").finish_non_exhaustive()
    }
}

impl<K> Compactor<K> {
    pub(crate) fn new(as_text: AsText<K>) -> Self {
        Self {
            as_text,
            dictionary: Arc::default(),
            served: SERVES,
        }
    }

    /// Compresses the object; returns `None` if it has no text.
    pub(crate) fn compact(&mut self, object: &K) -> Option<Compact> {
        let text = (self.as_text.write)(object)?;
        let compact = Compact {
            dictionary: Arc::clone(&self.dictionary),
            text: compress_with_dict(&text, &self.dictionary).into(),
            length: text.len(),
        };
        self.served += 1;
        let is_odd = compact.text.len() > compact.length / 2;
        if is_odd && compact.length <= MAX_DICTIONARY && self.served >= SERVES {
            self.served = 0;
            let left = MAX_DICTIONARY - text.len();
            let known = self.dictionary.len().saturating_sub(left);
            self.dictionary = [&self.dictionary[known..], &text].concat().into();
        }
        Some(compact)
    }

    /// Restores the object.
    pub(crate) fn open(&self, compact: &Compact) -> Option<K> {
        let Compact {
            dictionary,
            text,
            length,
        } = compact;
        let text = decompress_with_dict(text, *length, dictionary).ok()?;
        (self.as_text.read)(&text)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::keep::mark;

    /// Returns an object with content similar to that of others of the same `sort`.
    fn object(sort: char, number: usize) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(format!("{sort}-{number}"));
        let value = |key: usize| format!("{sort} and {key}: {}", mixed(sort, key));
        let data = (0..20).map(|key| (format!("{sort}{key}"), value(key)));
        object.data = Some(data.collect());
        object
    }

    /// Returns letters that do not repeat.
    fn mixed(sort: char, key: usize) -> String {
        let part = |part| format!("{:016x}", mark((sort, key, part)));
        (0..4).map(part).collect()
    }

    #[test]
    fn similar_object_is_compacted_to_tenth_regardless_of_earlier_ones() {
        let mut compactor = Compactor::new(AsText::<ConfigMap>::json());
        let mut small = |sort, number| {
            let object = object(sort, number);
            let compact = compactor.compact(&object).unwrap();
            assert_eq!(compactor.open(&compact), Some(object));
            compact.text.len() * 10 < compact.length
        };
        assert!(!small('x', 0) && small('x', 1));
        for number in 0..SERVES {
            small('a', number);
        }
        assert!(small('x', 2) && small('a', SERVES));
    }

    #[test]
    fn dissimilar_objects_share_dictionaries() {
        let mut compactor = Compactor::new(AsText::<String>::json());
        let mut all: Vec<Compact> = Vec::new();
        for number in 0..10 * SERVES {
            let object = mixed('a', number);
            all.push(compactor.compact(&object).unwrap());
        }
        all.dedup_by(|one, other| Arc::ptr_eq(&one.dictionary, &other.dictionary));
        assert!((2..=11).contains(&all.len()), "{}", all.len());
    }

    #[test]
    fn texts_of_any_length_come_out_as_they_went_in() {
        let as_text = AsText::<Vec<u8>> {
            write: |object| Some(object.clone()),
            read: |text| Some(text.to_vec()),
        };
        let mut compactor = Compactor::new(as_text);
        for length in [0, 1, 12, 13, 100, 70_000, 3, 2_000_000, 500] {
            for object in [
                vec![7; length],
                (0..length).map(|at| ((at * at) >> 3) as u8).collect(),
            ] {
                let compact = compactor.compact(&object).unwrap();
                assert_eq!(compactor.open(&compact), Some(object));
            }
        }
        assert!(compactor.dictionary.len() <= MAX_DICTIONARY);
    }
}
