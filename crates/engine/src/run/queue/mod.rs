//! Which object is looked at next: a work queue without tasks, clocks or locks of its own, so that
//! its rules are plain tests. Each key (the UID of an object) has at most one pass at a time.
//!
//! What is due goes before what merely changed, and has slots of its own: a thousand requests that
//! cannot be satisfied do not postpone one expiry. What merely changed takes turns by flow: the requests
//! of one person wait for each other, and one of each person begins in turn.

mod flows;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use oz_core::lifecycle::window::has_come;

use flows::Flows;

/// So many times as many urgent passes as ordinary ones may run at once. Those that are due
/// together all begin, so that the first step of each comes before the second of any; how many
/// calls that makes at once is bounded elsewhere, see [`super::priority::WriteSlots`].
const URGENT: usize = 8;

/// The UID of an object.
pub(crate) type Key = String;

/// How urgent a pass is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// Something changed.
    Ordinary,
    /// Time is up, or the object is gone.
    Urgent,
}

/// A pass that may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) key: Key,
    pub(crate) lane: Lane,
    /// The instant for which it was planned, if that is why it runs.
    pub(crate) due: Option<Timestamp>,
}

/// What a finished pass asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) wake: Wake,
    /// Try again after this long, if nothing else happens before.
    pub(crate) retry: Option<Duration>,
    /// Whether it failed, which makes the next retry wait longer.
    pub(crate) failed: bool,
}

/// When to look again because of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// As known before: the pass did not get as far as a plan.
    AsBefore,
    /// At this instant, or never.
    At(Option<Timestamp>),
}

#[derive(Debug, Default)]
struct Entry {
    queued: Option<Lane>,
    running: Option<Lane>,
    /// Whether the pass under way counts among those of its lane, see [`Queue::give_up_slot`].
    has_slot: bool,
    /// Something happened during the pass.
    again: Option<Lane>,
    wake: Option<Timestamp>,
    retry: Option<(Instant, Lane)>,
    due: Option<Timestamp>,
    failures: u32,
    /// Whether ordinary passes wait for this one, see [`Queue::push_opening`].
    opening: bool,
    /// With which others it takes turns.
    flow: String,
}

/// The work queue of one controller.
#[derive(Debug)]
pub(crate) struct Queue {
    entries: HashMap<Key, Entry>,
    urgent: VecDeque<Key>,
    ordinary: Flows,
    wakes: BTreeSet<(Timestamp, Key)>,
    retries: BTreeSet<(Instant, Key)>,
    running_urgent: usize,
    running_ordinary: usize,
    opening: usize,
    slots: usize,
    started: bool,
}

impl Queue {
    /// A queue that lets `slots` ordinary passes run at once, and more urgent ones.
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

    /// Takes pushes from now on; what is pushed before is not wanted, since a start looks at
    /// everything.
    pub(crate) fn start(&mut self) {
        self.started = true;
    }

    /// Queues a key whose first pass all ordinary ones wait for.
    pub(crate) fn push_opening(&mut self, key: &str) {
        let entry = self.entries.entry(key.to_owned()).or_default();
        if !entry.opening {
            entry.opening = true;
            self.opening += 1;
        }
        self.push(key, Lane::Urgent);
    }

    /// Queues a key because something changed, behind what waits of its flow.
    pub(crate) fn push_of(&mut self, key: &str, flow: String) {
        if self.started {
            self.entries.entry(key.to_owned()).or_default().flow = flow;
        }
        self.push(key, Lane::Ordinary);
    }

    /// Queues a key, once however often it is pushed before its pass begins.
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

    /// Queues what has come due.
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

    /// The next pass that may begin now.
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

    /// `None` if the key has meanwhile moved to the other lane.
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

    /// The pass of a key goes on, and another may begin in its place: what it still waits for must
    /// not hold up what others begin with.
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

    /// How often in a row the passes of a key have failed.
    pub(crate) fn failures(&self, key: &str) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    /// A pass has ended.
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

    /// The instant of the next wake, by the clock of the API server.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// The instant of the next retry.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        self.retries.first().map(|(at, _)| *at)
    }

    /// How many keys wait for their pass.
    pub(crate) fn depth(&self) -> usize {
        self.urgent.len() + self.ordinary.len()
    }
}

#[cfg(test)]
mod tests;
