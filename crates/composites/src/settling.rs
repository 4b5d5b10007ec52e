//! A parent that is changed pass after pass though nothing of it has changed: its function answers something else
//! each time, or somebody else changes what it names. Such a parent is changed ever more slowly, and says so.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use oz_api::encode::digest;
use oz_core::controller::{Failure, Live};
use oz_core::lifecycle::window::{after, has_come};

use super::besides::besides_status;

/// The reason that is told.
pub const UNSETTLED: &str = "Unsettled";
/// How many passes in a row may change something without a cause.
const PASSES: u32 = 5;
/// Passes that are further from each other are not in a row.
const FURTHEST: SignedDuration = SignedDuration::from_mins(1);
/// A function that asks to be asked again sooner is no cause.
const NEAREST: SignedDuration = SignedDuration::from_secs(1);
/// The shortest pause, which doubles.
const SHORTEST: SignedDuration = SignedDuration::from_secs(1);
/// How often it doubles: up to about eight minutes.
const DOUBLINGS: u32 = 9;
/// How many parents are remembered at most.
const MANY: usize = 2_000;
/// How many changes are named.
const NAMED: usize = 3;

fn short(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// What a pass over a parent would change, and what there is by which it might.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Digest of what of the parent is its users', of the policy that was asked, and of the time.
    cause: String,
    /// Hashes of the children's statuses, by those of their UIDs: short, since they are kept for many of each of many
    /// parents.
    statuses: BTreeMap<u64, u64>,
    /// When the function is asked again by its own or its composite's wish.
    resync: Option<SignedDuration>,
    /// Names of what would be changed, the first ones.
    what: Vec<String>,
    /// How many others.
    more: usize,
}

impl Change {
    /// A change of `what`, by the policy with this digest if it is one in process, and before the next instant that
    /// the parent names.
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

    /// Whether something has happened since `before` for which this one may be made. A child that is another one
    /// has been exchanged by a pass.
    fn has_cause_since(&self, before: &Self) -> bool {
        let of_children = self.statuses.iter().any(|(uid, status)| {
            let before = before.statuses.get(uid);
            before.is_some_and(|before| before != status)
        });
        self.cause != before.cause || of_children
    }

    /// Passes that are as far from each other, or further, are not in a row.
    fn furthest(&self) -> SignedDuration {
        let resync = self.resync.unwrap_or(FURTHEST);
        resync.clamp(NEAREST, FURTHEST)
    }

    /// What is told of a parent that is slowed.
    pub(super) fn failure(&self, composite: &str) -> Failure {
        let mut names = self.what.clone();
        if self.more > 0 {
            names.push(format!("{} more", self.more));
        }
        let message = format!(
            "{composite}: {PASSES} passes in a row have changed something though nothing of the parent has changed, \
             last {}: what the function answers has to depend on what it is asked alone, or somebody else changes what \
             it names; until then the parent is looked after more slowly",
            names.join(", ")
        );
        Failure::invalid(UNSETTLED, message)
    }
}

/// The passes over the parents of a composite that have changed something.
#[derive(Debug, Default)]
pub struct Passes(HashMap<String, Row>);

/// Passes in a row.
#[derive(Debug)]
struct Row {
    last: Change,
    at: Timestamp,
    count: u32,
}

impl Row {
    /// When the next pass may change something.
    fn next(&self) -> Option<Timestamp> {
        let slowed = self.count.checked_sub(PASSES)?;
        Some(after(self.at, SHORTEST * 2_i32.pow(slowed.min(DOUBLINGS))))
    }

    /// Whether a pass now is the next one in the row.
    fn continues(&self, now: Timestamp, change: &Change) -> bool {
        let since = self.next().unwrap_or(self.at);
        now.duration_since(since) < change.furthest() && !change.has_cause_since(&self.last)
    }
}

impl Passes {
    /// A pass over the parent with this UID would change something now: until when it is to wait, if it is.
    pub fn would(&mut self, now: Timestamp, parent: &str, change: Change) -> Option<Timestamp> {
        if self.0.len() >= MANY {
            self.0
                .retain(|_, row| now.duration_since(row.next().unwrap_or(row.at)) < FURTHEST);
            // All of them at once: they are counted anew, five passes each.
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
