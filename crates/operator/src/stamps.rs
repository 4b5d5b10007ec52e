//! The check whether only one request carries a stamp.
//! See docs/adr/0006-a-stamp-twice-is-no-stamp.md.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::{Resource, ResourceExt};
use oz_api::encode;
use oz_core::access::stamp::{self, MAX_DISTANCE};
use oz_runtime::Store;
use parking_lot::Mutex;

use crate::kept::By;

/// The time for which stamps are stored: after twice the distance, the age shows that a stamp is
/// not new.
const REMEMBERED: SignedDuration = SignedDuration::from_secs(3 * MAX_DISTANCE.as_secs());
/// The number of stored stamps from which old ones are removed.
const MANY: usize = 1024;

/// The recently checked stamps, since a request that carried one may be gone.
#[derive(Clone, Default)]
pub(crate) struct Stamps(Arc<Mutex<HashMap<String, StampedRequest>>>);

struct StampedRequest {
    at: Timestamp,
    uid: String,
    name: String,
}

impl Stamps {
    /// Returns the name of another request that carries or carried the same stamp: a stamp is for
    /// one request, and the order of two requests within a second is unknown.
    pub(crate) fn same<R>(&self, now: Timestamp, requests: &Store<R>, request: &R) -> Option<String>
    where
        R: Resource + Send + Sync + 'static,
    {
        let stamp = stamp::read(request.meta())?;
        let uid = request.uid()?;
        self.seen(now, stamp, &uid, request.name_any()).or_else(|| {
            requests
                .marked(By::Stamp(stamp).mark(), |other| {
                    stamp::read(other.meta()) == Some(stamp) && other.uid() != request.uid()
                })
                .first()
                .map(|other| other.name_any())
        })
    }

    /// Returns the name of the first request with the stamp, if it is another one.
    fn seen(&self, now: Timestamp, stamp: &str, uid: &str, name: String) -> Option<String> {
        let mut known = self.0.lock();
        if known.len() >= MANY {
            known.retain(|_, seen| now.duration_since(seen.at).abs() < REMEMBERED);
        }
        let seen = known
            .entry(encode::digest(&stamp))
            .or_insert_with(|| StampedRequest {
                at: now,
                uid: uid.to_owned(),
                name,
            });
        (seen.uid != uid).then(|| seen.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_its_first_requests_also_when_that_is_gone() {
        let stamps = Stamps::default();
        let start = Timestamp::UNIX_EPOCH;
        let see = |now, stamp: &str, uid| stamps.seen(now, stamp, uid, format!("name-of-{uid}"));
        assert_eq!(see(start, "a", "one"), None);
        assert_eq!(see(start, "a", "one"), None);
        assert_eq!(see(start, "b", "two"), None);
        assert_eq!(
            see(start + MAX_DISTANCE * 2, "a", "two").as_deref(),
            Some("name-of-one")
        );
        for number in 0..3 * MANY {
            let now = start + REMEMBERED + SignedDuration::from_secs(number.try_into().unwrap());
            see(now, &number.to_string(), "many");
        }
        assert!(stamps.0.lock().len() <= MANY);
    }
}
