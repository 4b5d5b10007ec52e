//! Nobody floods the record by failing: the first refusals of a user for one reason are written as
//! they are, later ones within a minute are counted and written as one.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::record::{Record, Repeated};
use super::{Action, Decision};

/// How long repeats are counted before they are written.
const WINDOW: SignedDuration = SignedDuration::from_secs(60);
/// How many are written as they are.
const PLAIN: u64 = 3;
/// How many are named in a summary.
pub(super) const SAMPLES: usize = 3;
/// How many kinds of refusal are told apart at once. More are counted together.
const KINDS: usize = 1_024;

/// What becomes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// It is written.
    Write(Box<Record>),
    /// It was counted.
    Counted,
}

type Kind = (String, Action, String);

/// Counts refusals.
#[derive(Debug, Default)]
pub struct Floodgate {
    kinds: BTreeMap<Kind, Counting>,
}

#[derive(Debug)]
struct Counting {
    since: Timestamp,
    plain: u64,
    counted: Option<Record>,
}

impl Floodgate {
    /// Lets a record through, or counts it. Only refusals are ever counted.
    pub fn admit(&mut self, record: Record) -> Admitted {
        if record.decision != Decision::Deny {
            return Admitted::Write(Box::new(record));
        }
        let user = record.user.as_ref().map(|user| user.user.clone());
        let mut kind = (
            user.unwrap_or_default(),
            record.action,
            record.reason.clone(),
        );
        let others = self.kinds.len() >= KINDS && !self.kinds.contains_key(&kind);
        if others {
            kind = (String::new(), record.action, String::new());
        }
        let counting = self.kinds.entry(kind).or_insert_with(|| Counting {
            since: record.time,
            plain: 0,
            counted: None,
        });
        if counting.plain < PLAIN {
            counting.plain += 1;
            return Admitted::Write(Box::new(record));
        }
        counting.count(record, others);
        Admitted::Counted
    }

    /// The summaries that are due at `now`. With `now` at the end of time, all of them.
    pub fn due(&mut self, now: Timestamp) -> Vec<Record> {
        let mut due = Vec::new();
        self.kinds.retain(|_, counting| {
            if counting.ends() > now {
                return true;
            }
            due.extend(counting.counted.take());
            false
        });
        due
    }

    /// When the next summary is due.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        self.kinds.values().map(Counting::ends).min()
    }
}

impl Counting {
    fn ends(&self) -> Timestamp {
        self.since.checked_add(WINDOW).unwrap_or(Timestamp::MAX)
    }

    /// `others`: along with those of other users, or of other reasons.
    fn count(&mut self, mut record: Record, others: bool) {
        let mut sample = format!("{}: {}", record.request.name, record.message);
        let time = record.time;
        if others {
            let user = record.user.as_ref().map_or("", |user| &user.user);
            sample = format!("{user}: {}: {sample}", record.reason);
        }
        let summary = self.counted.get_or_insert_with(|| {
            if others {
                // Whose it was first says nothing of the rest.
                record = Record::about(
                    time,
                    record.action,
                    record.decision,
                    &record.id,
                    "Several",
                    "Many users were refused, for several reasons",
                );
            }
            record.repeated = Some(Repeated {
                count: 0,
                first: time,
                last: time,
                samples: Vec::new(),
            });
            record.id = format!("{}-repeated", record.id);
            record
        });
        summary.time = summary.time.max(time);
        if let Some(repeated) = &mut summary.repeated {
            repeated.count += 1;
            repeated.first = repeated.first.min(time);
            repeated.last = repeated.last.max(time);
            if repeated.samples.len() < SAMPLES {
                let end = sample.floor_char_boundary(256);
                repeated.samples.push(sample[..end].to_owned());
            }
        }
    }
}
