//! The sealed word that the operator's canary sends in a review, from which the webhook learns the address of
//! an API server: no user can seal one, and only the API server forwards it.
//! See docs/adr/0039-how-api-servers-are-identified.md.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::lifecycle::seal::{self, Keys, Purpose, SealError};

const PURPOSE: Purpose = Purpose::Canary;
/// The validity of a word, and the maximum difference between the clocks of operator and webhook.
const GOOD_FOR: SignedDuration = SignedDuration::from_secs(30);
/// The maximum length of a word.
const MAX_LENGTH: usize = 1024;
/// The maximum number of used words in memory. It exceeds the number that replicas of the operator send
/// during the validity of one.
const REMEMBERED: usize = 256;

/// A word, as it is sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// The replica of the operator that sends it.
    pub replica: String,
    /// The time of issue.
    pub at: Timestamp,
}

impl Word {
    /// Seals the word.
    ///
    /// # Errors
    /// Only if it does not serialise, which its types rule out.
    pub fn seal(&self, keys: &Keys) -> Result<String, SealError> {
        seal::seal(keys, PURPOSE, self)
    }
}

/// The used words. Each is valid once in a process: a word in an audit log of the API server has no further use.
#[derive(Debug, Default)]
pub struct UsedWords(Mutex<BTreeMap<String, Timestamp>>);

impl UsedWords {
    /// Checks whether the text is a word of the operator that was sealed a moment ago and is used for the
    /// first time.
    pub fn is_new(&self, keys: &Keys, text: &str, now: Timestamp) -> bool {
        if text.len() > MAX_LENGTH {
            return false;
        }
        let Ok(word) = seal::open::<Word>(keys, PURPOSE, text) else {
            return false;
        };
        let is_good = |at: Timestamp| now.duration_since(at).abs() <= GOOD_FOR;
        if !is_good(word.at) {
            return false;
        }
        let mut used = self.0.lock();
        used.retain(|_, at| is_good(*at));
        // By its content, since one word may be written in several ways.
        let said = format!("{} {}", word.at, word.replica);
        used.len() < REMEMBERED && used.insert(said, word.at).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(byte: u8) -> Keys {
        Keys::with_every_owner([[byte; 32]])
    }

    fn timestamp(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000 + seconds)
    }

    fn word(seconds: i64) -> String {
        let word = Word {
            replica: "oz-0".to_owned(),
            at: timestamp(seconds),
        };
        word.seal(&keys(1)).unwrap()
    }

    #[test]
    fn word_is_good_once_and_for_half_a_minute() {
        let used = UsedWords::default();
        assert!(used.is_new(&keys(1), &word(0), timestamp(30)));
        assert!(!used.is_new(&keys(1), &word(0), timestamp(30)));
        let spaced = word(0).replace(':', ": ");
        assert!(!used.is_new(&keys(1), &spaced, timestamp(30)));
        assert!(!used.is_new(&keys(1), &word(1), timestamp(32)));
        assert!(!used.is_new(&keys(1), &word(100), timestamp(69)));
        assert!(used.is_new(&keys(1), &word(100), timestamp(70)));
    }

    #[test]
    fn word_of_another_key_or_purpose_is_none() {
        let used = UsedWords::default();
        assert!(!used.is_new(&keys(2), &word(0), timestamp(0)));
        let said = Word {
            replica: "oz-0".to_owned(),
            at: timestamp(0),
        };
        let other = seal::seal(&keys(1), Purpose::SessionToken, &said).unwrap();
        assert!(!used.is_new(&keys(1), &other, timestamp(0)));
        for text in ["", "{}", &"x".repeat(2_000)] {
            assert!(!used.is_new(&keys(1), text, timestamp(0)), "{text}");
        }
    }

    #[test]
    fn used_words_are_bounded() {
        let used = UsedWords::default();
        let good = (0..1_000).filter(|number| {
            let said = Word {
                replica: format!("oz-{number}"),
                at: timestamp(0),
            };
            used.is_new(&keys(1), &said.seal(&keys(1)).unwrap(), timestamp(0))
        });
        assert_eq!(good.count(), REMEMBERED);
        assert!(used.is_new(&keys(1), &word(61), timestamp(61)));
    }
}
