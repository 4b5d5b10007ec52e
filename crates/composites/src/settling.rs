//! The detection of parents that do not converge: each pass changes them though they have not changed. Their function
//! returns a different response each time, or another client changes their children. The passes over such a parent are
//! delayed more and more, and its status reports it.
//! See docs/adr/0024-a-parent-that-does-not-settle.md.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use oz_api::encode::digest;
use oz_core::controller::{Failure, Live};
use oz_core::lifecycle::window::{after, has_come};

use super::besides::besides_status;

/// The reason of the condition.
pub const NOT_CONVERGING: &str = "NotConverging";
/// The maximum number of consecutive passes that change something without a cause.
const PASSES: u32 = 5;
/// The maximum interval between consecutive passes.
const FURTHEST: SignedDuration = SignedDuration::from_mins(1);
/// The minimum requested resync that counts as a cause.
const NEAREST: SignedDuration = SignedDuration::from_secs(1);
/// The minimum delay; each pass doubles it.
const SHORTEST: SignedDuration = SignedDuration::from_secs(1);
/// The maximum number of doublings: up to about eight minutes.
const DOUBLINGS: u32 = 9;
/// The maximum number of parents in memory.
const MANY: usize = 2_000;
/// The maximum number of changes in a message.
const NAMED: usize = 3;

fn short(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The change that a pass over a parent would make, and its possible causes.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The digest of the parent's content from users, of the policy that responded, and of the time.
    cause: String,
    /// Hashes of the children's statuses, by the hashes of their UIDs. They are short, since many are kept for each of
    /// many parents.
    statuses: BTreeMap<u64, u64>,
    /// The interval until the next call of the function, as requested by the function or its composite.
    resync: Option<SignedDuration>,
    /// The names of the first objects that would be changed.
    what: Vec<String>,
    /// The number of further objects.
    more: usize,
}

impl Change {
    /// Creates a change of `what`, by the policy with this digest if it runs in process, and before the next instant
    /// that the parent names.
    pub(super) fn new(
        parent: &DynamicObject,
        of: (Option<&str>, Option<Timestamp>),
        children: &[Live],
        resync: Option<SignedDuration>,
        mut what: Vec<String>,
    ) -> Self {
        let more = what.len().saturating_sub(NAMED);
        what.truncate(NAMED);
        let statuses = children.iter().filter_map(|live| {
            let (uid, status) = (&live.object.metadata.uid, live.object.data.get("status")?);
            Some((short(uid), short(status)))
        });
        Self {
            cause: digest(&(besides_status(parent), of)),
            statuses: statuses.collect(),
            resync,
            what,
            more,
        }
    }

    /// Checks whether an event since `before` may have caused this change. A child with another UID does not count: a
    /// pass replaced it.
    fn has_cause_since(&self, before: &Self) -> bool {
        let of_children = self.statuses.iter().any(|(uid, status)| {
            let before = before.statuses.get(uid);
            before.is_some_and(|before| before != status)
        });
        self.cause != before.cause || of_children
    }

    /// Returns the interval from which passes are not consecutive.
    fn furthest(&self) -> SignedDuration {
        let resync = self.resync.unwrap_or(FURTHEST);
        resync.clamp(NEAREST, FURTHEST)
    }

    /// Returns the failure for a parent whose passes are delayed.
    pub(super) fn failure(&self, composite: &str) -> Failure {
        let mut names = self.what.clone();
        if self.more > 0 {
            names.push(format!("{} more", self.more));
        }
        let message = format!(
            "{composite} does not converge: {PASSES} passes in a row changed objects although the \
             parent is unchanged, the last {}: the function must return the same children for the \
             same request, or another client changes them; until the parent changes, its passes \
             are delayed",
            names.join(", ")
        );
        Failure::invalid(NOT_CONVERGING, message)
    }
}

/// The passes that have changed something, by the parents of a composite.
#[derive(Debug, Default)]
pub struct Passes(HashMap<String, Row>);

/// Consecutive passes over one parent.
#[derive(Debug)]
struct Row {
    last: Change,
    at: Timestamp,
    count: u32,
}

impl Row {
    /// Returns the instant from which the next pass may change something.
    fn next(&self) -> Option<Timestamp> {
        let slowed = self.count.checked_sub(PASSES)?;
        Some(after(self.at, SHORTEST * 2_i32.pow(slowed.min(DOUBLINGS))))
    }

    /// Checks whether a pass at this time is the next in the row.
    fn continues(&self, now: Timestamp, change: &Change) -> bool {
        let since = self.next().unwrap_or(self.at);
        now.duration_since(since) < change.furthest() && !change.has_cause_since(&self.last)
    }
}

impl Passes {
    /// Records that a pass over the parent with this UID would change something now. Returns the instant until which
    /// the pass must wait, if it must wait.
    pub fn would(&mut self, now: Timestamp, parent: &str, change: Change) -> Option<Timestamp> {
        if self.0.len() >= MANY {
            self.0
                .retain(|_, row| now.duration_since(row.next().unwrap_or(row.at)) < FURTHEST);
            // All rows are removed at once: their parents are counted again, with five passes each.
            if self.0.len() >= MANY {
                self.0.clear();
            }
        }
        let row = self.0.get_mut(parent);
        let Some(row) = row.filter(|row| row.continues(now, &change)) else {
            let row = Row {
                last: change,
                at: now,
                count: 1,
            };
            self.0.insert(parent.to_owned(), row);
            return None;
        };
        if let Some(next) = row.next().filter(|next| !has_come(now, *next)) {
            return Some(next);
        }
        row.last = change;
        row.at = now;
        row.count = row.count.saturating_add(1);
        None
    }
}
