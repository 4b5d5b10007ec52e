//! The order of passes: a work queue without tasks, clocks or locks, so that its rules are plain tests.
//! Each key (the UID of an object) has at most one pass at a time.
//!
//! Due objects come before objects that only changed, and have separate slots: a thousand requests that
//! cannot be satisfied do not postpone one expiry. Objects that only changed take turns by flow: the
//! requests of one person wait for each other, and one of each person begins in turn.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use oz_core::lifecycle::window::has_come;

use crate::flows::Flows;

/// The ratio of concurrent urgent passes to concurrent ordinary ones. Passes that are due together
/// all begin, so that the first step of each comes before the second of any;
/// [`super::priority::WriteSlots`] bounds the resulting number of concurrent calls.
const URGENT: usize = 8;

/// The UID of an object.
pub(crate) type Key = String;

/// The urgency of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// The object changed.
    Ordinary,
    /// The object is due, or is deleted.
    Urgent,
}

/// A pass that may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) key: Key,
    pub(crate) lane: Lane,
    /// The instant for which the pass was planned, if that is its reason.
    pub(crate) due: Option<Timestamp>,
}

/// The request of a finished pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) wake: Wake,
    /// The pause before the next attempt, unless another reason for a pass occurs before.
    pub(crate) retry: Option<Duration>,
    /// True if the pass failed, which makes the next retry wait longer.
    pub(crate) failed: bool,
}

/// The time of the next pass that no change causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// The previous time: the pass ended before it had a plan.
    AsBefore,
    /// The given instant, or never.
    At(Option<Timestamp>),
}

#[derive(Debug, Default)]
struct Entry {
    queued: Option<Lane>,
    running: Option<Lane>,
    /// True if the running pass counts among those of its lane, see [`Queue::give_up_slot`].
    has_slot: bool,
    /// The lane of the next pass, if a change occurred during the pass.
    again: Option<Lane>,
    wake: Option<Timestamp>,
    retry: Option<(Instant, Lane)>,
    due: Option<Timestamp>,
    failures: u32,
    /// True if ordinary passes wait for this one, see [`Queue::push_opening`].
    opening: bool,
    /// The flow that the key takes turns in.
    flow: String,
}

/// The work queue of one controller.
#[derive(Debug)]
pub(crate) struct Queue {
    entries: HashMap<Key, Entry>,
    urgent: VecDeque<Key>,
    ordinary: Flows<Key>,
    wakes: BTreeSet<(Timestamp, Key)>,
    retries: BTreeSet<(Instant, Key)>,
    running_urgent: usize,
    running_ordinary: usize,
    opening: usize,
    slots: usize,
    started: bool,
}

impl Queue {
    /// Creates a queue for `slots` concurrent ordinary passes, and more urgent ones.
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            entries: HashMap::new(),
            urgent: VecDeque::new(),
            ordinary: Flows::default(),
            wakes: BTreeSet::new(),
            retries: BTreeSet::new(),
            running_urgent: 0,
            running_ordinary: 0,
            opening: 0,
            slots: slots.max(1),
            started: false,
        }
    }

    /// Accepts pushes from now on; earlier pushes are ignored, since a start reconciles all
    /// objects.
    pub(crate) fn start(&mut self) {
        self.started = true;
    }

    /// Queues a key with a first pass that all ordinary passes wait for.
    pub(crate) fn push_opening(&mut self, key: &str) {
        let entry = self.entries.entry(key.to_owned()).or_default();
        if !entry.opening {
            entry.opening = true;
            self.opening += 1;
        }
        self.push(key, Lane::Urgent);
    }

    /// Queues a key because of a change, behind the waiting keys of its flow.
    pub(crate) fn push_of(&mut self, key: &str, flow: String) {
        if self.started {
            self.entries.entry(key.to_owned()).or_default().flow = flow;
        }
        self.push(key, Lane::Ordinary);
    }

    /// Queues a key, once regardless of the number of pushes before its pass begins.
    pub(crate) fn push(&mut self, key: &str, lane: Lane) {
        if !self.started {
            return;
        }
        let entry = self.entries.entry(key.to_owned()).or_default();
        if entry.running.is_some() {
            entry.again = entry.again.max(Some(lane));
        } else if entry.queued < Some(lane) {
            entry.queued = Some(lane);
            match lane {
                Lane::Urgent => self.urgent.push_back(key.to_owned()),
                Lane::Ordinary => self.ordinary.push(&entry.flow, key.to_owned()),
            }
        }
    }

    /// Queues the keys that have become due.
    pub(crate) fn promote(&mut self, now: Timestamp, instant: Instant) {
        while let Some((at, _)) = self.wakes.first()
            && has_come(now, *at)
            && let Some((at, key)) = self.wakes.pop_first()
        {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.wake = None;
                entry.due = entry.due.or(Some(at));
            }
            self.push(&key, Lane::Urgent);
        }
        while let Some((at, _)) = self.retries.first()
            && *at <= instant
            && let Some((_, key)) = self.retries.pop_first()
        {
            let retry = self
                .entries
                .get_mut(&key)
                .and_then(|entry| entry.retry.take());
            if let Some((_, lane)) = retry {
                self.push(&key, lane);
            }
        }
    }

    /// Returns the next pass that may begin now.
    pub(crate) fn pop(&mut self) -> Option<Turn> {
        if self.running_urgent < self.slots * URGENT {
            while let Some(key) = self.urgent.pop_front() {
                if let Some(turn) = self.begin(key, Lane::Urgent) {
                    self.running_urgent += 1;
                    return Some(turn);
                }
            }
        }
        if self.running_ordinary < self.slots && self.opening == 0 {
            while let Some(key) = self.ordinary.pop() {
                if let Some(turn) = self.begin(key, Lane::Ordinary) {
                    self.running_ordinary += 1;
                    return Some(turn);
                }
            }
        }
        None
    }

    /// Begins the pass of a key; returns `None` if the key has moved to the other lane in the
    /// meantime.
    fn begin(&mut self, key: Key, lane: Lane) -> Option<Turn> {
        let entry = self.entries.get_mut(&key)?;
        if entry.queued != Some(lane) || entry.running.is_some() {
            return None;
        }
        entry.queued = None;
        entry.running = Some(lane);
        entry.has_slot = true;
        if let Some((at, _)) = entry.retry.take() {
            self.retries.remove(&(at, key.clone()));
        }
        Some(Turn {
            due: entry.due.take(),
            key,
            lane,
        })
    }

    /// Gives up the slot of a running pass, so that another may begin: the remaining wait of the
    /// pass must not delay the first steps of others.
    pub(crate) fn give_up_slot(&mut self, key: &str) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if !std::mem::take(&mut entry.has_slot) {
            return;
        }
        match entry.running {
            Some(Lane::Urgent) => self.running_urgent = self.running_urgent.saturating_sub(1),
            Some(Lane::Ordinary) => self.running_ordinary = self.running_ordinary.saturating_sub(1),
            None => {}
        }
        if std::mem::take(&mut entry.opening) {
            self.opening = self.opening.saturating_sub(1);
        }
    }

    /// Returns the number of failures in a row of the passes of a key.
    pub(crate) fn failures(&self, key: &str) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    /// Records the end of a pass.
    pub(crate) fn done(&mut self, key: &str, next: Next, instant: Instant) {
        self.give_up_slot(key);
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let lane = entry.running.take().unwrap_or(Lane::Ordinary);
        entry.failures = if next.failed {
            entry.failures.saturating_add(1)
        } else {
            0
        };
        if let Wake::At(wake) = next.wake {
            if let Some(before) = std::mem::replace(&mut entry.wake, wake) {
                self.wakes.remove(&(before, key.to_owned()));
            }
            if let Some(wake) = wake {
                self.wakes.insert((wake, key.to_owned()));
            }
        }
        if let Some(pause) = next.retry {
            let at = instant + pause;
            entry.retry = Some((at, lane));
            self.retries.insert((at, key.to_owned()));
        }
        if let Some(lane) = entry.again.take() {
            self.push(key, lane);
        } else if entry.wake.is_none() && entry.retry.is_none() && entry.failures == 0 {
            self.entries.remove(key);
        }
    }

    /// Returns the instant of the next wake, by the clock of the API server.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// Returns the instant of the next retry.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        self.retries.first().map(|(at, _)| *at)
    }

    /// Returns the number of keys that wait for their pass.
    pub(crate) fn depth(&self) -> usize {
        self.urgent.len() + self.ordinary.len()
    }
}

#[cfg(test)]
mod tests;
