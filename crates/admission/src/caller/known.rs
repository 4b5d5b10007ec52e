//! The addresses for which handlers vouched. Replicas share them in the Secret of their authority, since an
//! API server keeps its connections, and the proof may reach only one replica.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::Caller;

/// The instant since which each address is vouched for.
pub(crate) type Vouched = BTreeMap<IpAddr, Timestamp>;

/// The time for which an address is known after a handler vouched for it.
const LIFE: SignedDuration = SignedDuration::from_mins(30);
/// The minimum interval between two shared instants of one address: each sharing is a write.
const SHARED_EVERY: SignedDuration = SignedDuration::from_mins(5);
/// The limit of known addresses; further ones become known after others expire.
const MOST: usize = 64;
/// The maximum length of the shared text.
const MAX_LENGTH: usize = 16 << 10;

/// The known addresses. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownCallers(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    vouched: Mutex<Vouched>,
    /// The signal that there is a change to share.
    changed: Notify,
}

impl KnownCallers {
    /// Returns the caller of a connection.
    pub(crate) fn identify(&self, address: IpAddr, now: Timestamp) -> Caller {
        let address = address.to_canonical();
        match self.vouched().get(&address) {
            Some(since) if is_known(*since, now) => Caller::Vouched(address),
            _ => Caller::Unproven(address),
        }
    }

    /// Records that a handler vouched for an address.
    pub(crate) fn vouch(&self, address: IpAddr, now: Timestamp) {
        let address = address.to_canonical();
        let mut vouched = self.vouched();
        vouched.retain(|_, since| is_known(*since, now));
        if vouched.len() >= MOST && !vouched.contains_key(&address) {
            tracing::warn!(%address, "too many addresses are verified: another one is not known");
            return;
        }
        let before = vouched.insert(address, now);
        if before.is_none_or(|before| is_stale(before, now)) {
            self.0.changed.notify_one();
        }
    }

    /// Adds the addresses that other replicas shared.
    pub(crate) fn merge(&self, shared: &Vouched, now: Timestamp) {
        let mut vouched = self.vouched();
        add(&mut vouched, shared, now);
        vouched.retain(|_, since| is_known(*since, now));
    }

    /// Returns the addresses that replace `shared`, if `shared` lacks one.
    pub(crate) fn to_share(&self, shared: &Vouched, now: Timestamp) -> Option<Vouched> {
        let vouched = self.vouched();
        let mut known = vouched.iter().filter(|(_, since)| is_known(**since, now));
        let lacks = known.any(|(address, since)| {
            let before = shared.get(address);
            before.is_none_or(|before| is_stale(*before, *since))
        });
        lacks.then(|| {
            let mut all = vouched.clone();
            add(&mut all, shared, now);
            all.retain(|_, since| is_known(*since, now));
            all
        })
    }

    /// Returns the number of known addresses.
    pub(crate) fn count(&self, now: Timestamp) -> usize {
        let vouched = self.vouched();
        vouched
            .values()
            .filter(|since| is_known(**since, now))
            .count()
    }

    /// Waits until there is a change to share.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn vouched(&self) -> MutexGuard<'_, Vouched> {
        self.0.vouched.lock()
    }
}

/// Adds the addresses of `more` that are known at `now`, each with the latest instant.
fn add(vouched: &mut Vouched, more: &Vouched, now: Timestamp) {
    for (address, since) in more.iter().filter(|(_, since)| is_known(**since, now)) {
        let known = vouched.entry(*address).or_insert(*since);
        *known = (*known).max(*since);
    }
}

/// Checks that an instant is neither long past nor far in the future.
fn is_known(since: Timestamp, now: Timestamp) -> bool {
    now.duration_since(since).abs() < LIFE
}

fn is_stale(before: Timestamp, since: Timestamp) -> bool {
    since.duration_since(before) >= SHARED_EVERY
}

/// Reads the shared addresses; unreadable text counts as no addresses.
pub(crate) fn read(text: &str) -> Vouched {
    if text.len() > MAX_LENGTH {
        return Vouched::new();
    }
    serde_json::from_str(text).unwrap_or_default()
}

/// Serialises the addresses to share.
pub(crate) fn write(vouched: &Vouched) -> String {
    // Addresses and instants always serialise.
    serde_json::to_string(vouched).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timestamp(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(1_000_000 + minutes)
    }

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn address_is_known_once_vouched_for_and_until_its_life_is_over() {
        let known = KnownCallers::default();
        let one = address(1);
        assert_eq!(known.identify(one, timestamp(0)), Caller::Unproven(one));
        known.vouch(one, timestamp(0));
        assert_eq!(known.identify(one, timestamp(29)), Caller::Vouched(one));
        assert_eq!(
            known.identify(address(2), timestamp(0)),
            Caller::Unproven(address(2))
        );
        assert_eq!(known.identify(one, timestamp(30)), Caller::Unproven(one));
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(known.identify(mapped, timestamp(1)), Caller::Vouched(one));
    }

    #[test]
    fn address_that_one_replica_vouched_for_is_known_to_the_other() {
        let (one, other) = (KnownCallers::default(), KnownCallers::default());
        one.vouch(address(1), timestamp(0));
        let shared = one.to_share(&Vouched::new(), timestamp(0)).unwrap();
        let shared = read(&write(&shared));
        other.merge(&shared, timestamp(1));
        assert_eq!(
            other.identify(address(1), timestamp(1)),
            Caller::Vouched(address(1))
        );
        assert_eq!(
            other.to_share(&shared, timestamp(1)),
            None,
            "nothing is lacking"
        );
        // An address is shared again only some time after it was shared.
        one.vouch(address(1), timestamp(4));
        assert_eq!(one.to_share(&shared, timestamp(4)), None);
        one.vouch(address(1), timestamp(5));
        let again = one.to_share(&shared, timestamp(5)).unwrap();
        assert_eq!(again[&address(1)], timestamp(5));
    }

    #[test]
    fn unknown_or_outdated_shared_text_proves_no_caller() {
        let known = KnownCallers::default();
        for text in ["", "[]", r#"{"somewhere": "2026-01-01T00:00:00Z"}"#] {
            assert!(read(text).is_empty(), "{text}");
        }
        let long_ago = BTreeMap::from([(address(1), timestamp(-31)), (address(2), timestamp(31))]);
        known.merge(&long_ago, timestamp(0));
        for last in [1, 2] {
            assert!(!known.identify(address(last), timestamp(0)).is_proven());
        }
    }

    #[test]
    fn addresses_beyond_the_bound_are_not_known() {
        let known = KnownCallers::default();
        for last in 0..=u8::try_from(MOST).unwrap() {
            known.vouch(address(last), timestamp(0));
        }
        let beyond = address(u8::try_from(MOST).unwrap());
        assert!(!known.identify(beyond, timestamp(0)).is_proven());
        assert!(known.identify(address(0), timestamp(0)).is_proven());
        known.vouch(beyond, timestamp(30));
        assert!(known.identify(beyond, timestamp(30)).is_proven());
    }
}
