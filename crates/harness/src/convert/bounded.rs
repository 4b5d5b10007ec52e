//! JSON values of a bounded size, for input of any size.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::cut;

/// The maximum number of items of a list.
const MAX_ITEMS: usize = 64;
/// The maximum size of a name in bytes.
const MAX_NAME: usize = 64;
/// The maximum size of a value in [`Strings`] in bytes.
const MAX_VALUE: usize = 4096;

/// The first items of a list.
#[derive(Debug, Default)]
pub(super) struct First<T>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for First<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = First<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<First<T>, A::Error> {
                let mut first = Vec::new();
                while first.len() < MAX_ITEMS {
                    match list.next_element()? {
                        Some(item) => first.push(item),
                        None => return Ok(First(first)),
                    }
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(First(first))
            }
        }
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

/// A map of strings: the first names, with the start of each value.
#[derive(Debug, Default)]
pub(super) struct Strings(pub(super) BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Strings;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strings, A::Error> {
                let mut kept = BTreeMap::new();
                while let Some(name) = map.next_key::<Start<MAX_NAME>>()? {
                    let value = map.next_value::<Start<MAX_VALUE>>()?;
                    if kept.len() < MAX_ITEMS {
                        kept.insert(name.0, value.0);
                    }
                }
                Ok(Strings(kept))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// The start of a string.
struct Start<const MOST: usize>(String);

impl<'de, const MOST: usize> Deserialize<'de> for Start<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text<const MOST: usize>;
        impl<const MOST: usize> Visitor<'_> for Text<MOST> {
            type Value = Start<MOST>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Start<MOST>, E> {
                Ok(Start(cut::cut(text, MOST)))
            }
        }
        deserializer.deserialize_str(Text)
    }
}
