//! Which object is looked at next: a work queue without tasks, clocks or locks of its own, so that
//! its rules are plain tests. Each key (the UID of an object) has at most one pass at a time.
//!
//! What is due goes before what merely changed, and has slots of its own: a thousand requests that
//! cannot be satisfied do not postpone one expiry.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use jiff::Timestamp;

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
    /// Something happened during the pass.
    again: Option<Lane>,
    wake: Option<Timestamp>,
    retry: Option<(Instant, Lane)>,
    due: Option<Timestamp>,
    failures: u32,
    /// Whether ordinary passes wait for this one, see [`Queue::push_opening`].
    opening: bool,
}

/// The work queue of one controller.
#[derive(Debug)]
pub(crate) struct Queue {
    entries: HashMap<Key, Entry>,
    urgent: VecDeque<Key>,
    ordinary: VecDeque<Key>,
    wakes: BTreeSet<(Timestamp, Key)>,
    retries: BTreeSet<(Instant, Key)>,
    running_urgent: usize,
    running_ordinary: usize,
    opening: usize,
    slots: usize,
    started: bool,
}

impl Queue {
    /// A queue that lets `slots` passes of each lane run at once, once it is started.
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            entries: HashMap::new(),
            urgent: VecDeque::new(),
            ordinary: VecDeque::new(),
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
                Lane::Ordinary => self.ordinary.push_back(key.to_owned()),
            }
        }
    }

    /// Queues what has come due.
    pub(crate) fn promote(&mut self, now: Timestamp, instant: Instant) {
        while let Some((at, _)) = self.wakes.first()
            && *at <= now
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
        if self.running_urgent < self.slots {
            while let Some(key) = self.urgent.pop_front() {
                if let Some(turn) = self.begin(key, Lane::Urgent) {
                    self.running_urgent += 1;
                    return Some(turn);
                }
            }
        }
        if self.running_ordinary < self.slots && self.opening == 0 {
            while let Some(key) = self.ordinary.pop_front() {
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
        if let Some((at, _)) = entry.retry.take() {
            self.retries.remove(&(at, key.clone()));
        }
        Some(Turn {
            due: entry.due.take(),
            key,
            lane,
        })
    }

    /// How often in a row the passes of a key have failed.
    pub(crate) fn failures(&self, key: &str) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    /// A pass has ended.
    pub(crate) fn done(&mut self, key: &str, next: Next, instant: Instant) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let lane = entry.running.take().unwrap_or(Lane::Ordinary);
        match lane {
            Lane::Urgent => self.running_urgent = self.running_urgent.saturating_sub(1),
            Lane::Ordinary => self.running_ordinary = self.running_ordinary.saturating_sub(1),
        }
        if std::mem::take(&mut entry.opening) {
            self.opening = self.opening.saturating_sub(1);
        }
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
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::constant(seconds, 0)
    }

    fn started(slots: usize) -> Queue {
        let mut queue = Queue::new(slots);
        queue.start();
        queue
    }

    fn keys(queue: &mut Queue) -> Vec<Key> {
        std::iter::from_fn(|| queue.pop())
            .map(|turn| turn.key)
            .collect()
    }

    fn rest() -> Next {
        Next {
            wake: Wake::At(None),
            retry: None,
            failed: false,
        }
    }

    fn wake(seconds: i64) -> Next {
        Next {
            wake: Wake::At(Some(at(seconds))),
            ..rest()
        }
    }

    #[test]
    fn nothing_runs_before_the_start() {
        let mut queue = Queue::new(1);
        queue.push("a", Lane::Urgent);
        queue.start();
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn a_key_pushed_twice_runs_once() {
        let mut queue = started(8);
        queue.push("a", Lane::Ordinary);
        queue.push("a", Lane::Ordinary);
        queue.push("a", Lane::Urgent);
        assert_eq!(keys(&mut queue), ["a"]);
    }

    #[test]
    fn a_key_pushed_during_its_pass_runs_once_more_and_not_beside_it() {
        let mut queue = started(8);
        queue.push("a", Lane::Ordinary);
        assert_eq!(keys(&mut queue), ["a"]);
        queue.push("a", Lane::Ordinary);
        queue.push("a", Lane::Urgent);
        assert_eq!(queue.pop(), None);
        queue.done("a", rest(), Instant::now());
        assert_eq!(queue.pop().map(|turn| turn.lane), Some(Lane::Urgent));
        queue.done("a", rest(), Instant::now());
        assert_eq!(queue.pop(), None);
        assert!(queue.entries.is_empty(), "finished keys are forgotten");
    }

    #[test]
    fn what_is_due_has_slots_of_its_own_and_goes_first() {
        let mut queue = started(2);
        for key in ["a", "b", "c"] {
            queue.push(key, Lane::Ordinary);
        }
        assert_eq!(keys(&mut queue), ["a", "b"]);
        queue.push("due", Lane::Urgent);
        assert_eq!(keys(&mut queue), ["due"]);
        queue.done("a", rest(), Instant::now());
        queue.push("due-too", Lane::Urgent);
        assert_eq!(keys(&mut queue), ["due-too", "c"]);
    }

    #[test]
    fn ordinary_passes_begin_once_every_opening_one_has_ended() {
        let mut queue = started(1);
        queue.push_opening("o1");
        queue.push_opening("o2");
        queue.push("a", Lane::Ordinary);
        assert_eq!(keys(&mut queue), ["o1"]);
        queue.done("o1", rest(), Instant::now());
        assert_eq!(keys(&mut queue), ["o2"]);
        let failed = Next {
            failed: true,
            ..rest()
        };
        queue.done("o2", failed, Instant::now());
        assert_eq!(keys(&mut queue), ["a"]);
    }

    #[test]
    fn a_wake_comes_at_its_instant_and_says_for_when_it_was_due() {
        let mut queue = started(1);
        queue.push("a", Lane::Ordinary);
        keys(&mut queue);
        queue.done("a", wake(10), Instant::now());
        assert_eq!(queue.next_wake(), Some(at(10)));
        queue.promote(Timestamp::constant(9, 999_999_999), Instant::now());
        assert_eq!(queue.pop(), None);
        queue.promote(at(12), Instant::now());
        let turn = queue.pop();
        assert_eq!(turn.as_ref().and_then(|turn| turn.due), Some(at(10)));
        assert_eq!(turn.map(|turn| turn.lane), Some(Lane::Urgent));
    }

    #[test]
    fn a_retry_never_postpones_a_wake() {
        let mut queue = started(1);
        let begin = Instant::now();
        queue.push("a", Lane::Ordinary);
        keys(&mut queue);
        let next = Next {
            retry: Some(Duration::from_secs(30)),
            failed: true,
            ..wake(10)
        };
        queue.done("a", next, begin);
        queue.promote(at(10), begin);
        assert_eq!(keys(&mut queue), ["a"]);
        // The pass that began took the place of the retry.
        assert_eq!(queue.next_retry(), None);
    }

    #[test]
    fn a_pass_that_made_no_plan_keeps_the_wake_of_the_one_before() {
        let mut queue = started(1);
        queue.push("a", Lane::Ordinary);
        keys(&mut queue);
        queue.done("a", wake(10), Instant::now());
        queue.push("a", Lane::Ordinary);
        keys(&mut queue);
        let failed = Next {
            wake: Wake::AsBefore,
            retry: None,
            failed: true,
        };
        queue.done("a", failed, Instant::now());
        assert_eq!(queue.next_wake(), Some(at(10)));
    }

    #[test]
    fn a_new_plan_replaces_the_wake_of_the_one_before() {
        let mut queue = started(1);
        for next in [wake(10), wake(20), rest()] {
            queue.push("a", Lane::Ordinary);
            keys(&mut queue);
            queue.done("a", next, Instant::now());
            assert_eq!(Wake::At(queue.next_wake()), next.wake);
        }
        assert!(queue.wakes.is_empty() && queue.entries.is_empty());
    }

    #[test]
    fn a_wake_that_comes_due_during_the_pass_is_not_lost() {
        let mut queue = started(1);
        queue.push("a", Lane::Ordinary);
        keys(&mut queue);
        queue.done("a", wake(10), Instant::now());
        queue.push("a", Lane::Ordinary);
        keys(&mut queue);
        queue.promote(at(11), Instant::now());
        let broke_off = Next {
            wake: Wake::AsBefore,
            retry: None,
            failed: true,
        };
        queue.done("a", broke_off, Instant::now());
        assert_eq!(queue.pop().map(|turn| turn.lane), Some(Lane::Urgent));
    }

    #[test]
    fn failures_count_up_and_a_success_forgets_them() {
        let mut queue = started(1);
        for (failed, count) in [(true, 1), (true, 2), (false, 0)] {
            queue.push("a", Lane::Ordinary);
            keys(&mut queue);
            queue.done("a", Next { failed, ..wake(10) }, Instant::now());
            assert_eq!(queue.failures("a"), count);
        }
    }

    #[test]
    fn a_clock_that_is_set_back_only_delays_and_one_set_forward_is_noticed() {
        let mut queue = started(1);
        queue.push("a", Lane::Ordinary);
        keys(&mut queue);
        queue.done("a", wake(3_600), Instant::now());
        queue.promote(NOW, Instant::now());
        assert_eq!(queue.pop(), None);
        queue.promote(at(7_200), Instant::now());
        assert_eq!(keys(&mut queue), ["a"]);
    }
}
