//! Nobody floods the record: what a user does again within a minute is counted, and written as one
//! record with how often. The first is written before it takes effect; what differs in a way that tells
//! something is told apart, up to a bound for each user. Connections where a namespace enforces are not counted:
//! each has its record, and a user's quota of them bounds how many there are.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

use super::quota::{ConnectionQuota, Quota, is_recorded_each};
use super::record::{Record, Repeated, SAMPLES};
use super::{Action, Decision};

/// How long repeats are counted before they are written.
const WINDOW: SignedDuration = SignedDuration::from_secs(60);
/// How many refusals are written as they are: whoever mistypes sees each try.
const PLAIN_REFUSALS: u64 = 3;
/// How many facts are told apart at once that differ in their particulars only: of one user, in one
/// namespace, decided for one reason. More are counted together.
const DISTINCT: usize = 30;
/// How many are told apart at once of all users.
const ENTRIES: usize = 4_096;
/// How many users, namespaces and reasons are told apart at once. More refusals are counted together.
const KINDS: usize = 1_024;
/// How many particulars a summary of several lists.
const LISTED: usize = 32;

/// What becomes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// It is written.
    Write(Box<Record>),
    /// It was counted, after one that was written and is equal.
    Counted {
        /// Id of that one: what has to be on record before it happens is, when this is.
        first: String,
    },
    /// It is not recorded: this quota is used up.
    Exceeded(Quota),
}

/// What is never counted with anything else.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    user: String,
    namespace: String,
    action: Action,
    decision: Decision,
    reason: String,
    /// The address of an unproven caller: what it says is never counted with what an API server says.
    peer: Option<String>,
    /// UID of the request of a session, which its end looks for, and the way in.
    session: Option<(String, String)>,
}

/// What is counted of one kind.
#[derive(Debug, Default)]
struct Group {
    /// By a digest of the particulars.
    distinct: BTreeMap<[u8; 32], Counting>,
    /// What differs from all of these, together.
    others: Option<Counting>,
}

/// Counts what happens again and again.
#[derive(Debug, Default)]
pub struct FloodCounter {
    kinds: BTreeMap<Kind, Group>,
    entries: usize,
    quota: ConnectionQuota,
    /// Of all records of unproven callers together.
    unproven: ConnectionQuota,
}

#[derive(Debug)]
struct Counting {
    since: Timestamp,
    /// Id of the last that was written as it is.
    first: String,
    plain: u64,
    counted: Option<Record>,
    /// Of several together: what they were about.
    about: Option<BTreeSet<String>>,
}

/// Whether a record is ever counted. What follows from a decision of oz's own, such as a grant and its
/// end, is as rare as what is counted makes it, and always written.
fn is_counted(record: &Record) -> bool {
    let asked = matches!(
        record.action,
        Action::SessionOpened
            | Action::RequestCreated
            | Action::TemplateChanged
            | Action::PolicyChanged
            | Action::RunSubmitted
    );
    record.decision == Decision::Deny || asked && record.decision == Decision::Allow
}

/// What tells two of a kind apart. Of a refusal, the name is the user's to invent, as is the reason that
/// they state, and tells nothing.
fn particulars(record: &Record) -> [u8; 32] {
    let detail = |name: &str| record.details.get(name);
    let pod = record.pod.as_ref();
    let allowed = record.decision == Decision::Allow;
    let policy = record.action == Action::PolicyChanged;
    let parts = [
        Some(&record.request.kind),
        Some(&record.request.name).filter(|_| allowed),
        Some(&record.template),
        record.template_digest.as_ref(),
        pod.map(|pod| &pod.name),
        pod.map(|pod| &pod.uid),
        pod.and_then(|pod| pod.container.as_ref()),
        detail("way"),
        detail("mode"),
        detail("commandDigest"),
        detail("reason").filter(|_| allowed),
        detail("before").filter(|_| policy),
        detail("after").filter(|_| policy),
    ];
    let mut digest = Sha256::new();
    for part in parts {
        // What is absent is nothing that is there, and no two parts are another two.
        let length = part.and_then(|part| u64::try_from(part.len()).ok());
        digest.update(length.unwrap_or(u64::MAX).to_be_bytes());
        digest.update(part.map_or("", String::as_str));
    }
    digest.finalize().into()
}

impl Kind {
    fn of(record: &Record) -> Self {
        let detail = |name: &str| record.details.get(name).cloned().unwrap_or_default();
        let session = match record.action {
            Action::SessionOpened => Some((record.request.uid.clone(), detail("way"))),
            _ => None,
        };
        Self {
            user: record
                .user
                .as_ref()
                .map_or_else(String::new, |user| user.user.clone()),
            namespace: record.request.namespace.clone(),
            action: record.action,
            decision: record.decision,
            reason: record.reason.clone(),
            peer: record.unproven_peer().map(ToOwned::to_owned),
            session,
        }
    }

    /// Whoever it was: for refusals beyond all bounds.
    fn of_anybody(record: &Record) -> Self {
        Self {
            action: record.action,
            decision: record.decision,
            peer: record.unproven_peer().map(|_| String::new()),
            ..Self::default()
        }
    }
}

impl FloodCounter {
    /// A counter with another quota of connections that each have a record: so many of one user in a minute, or any
    /// number.
    #[must_use]
    pub fn with_connections_per_minute(per_minute: Option<NonZeroU32>) -> Self {
        Self {
            quota: ConnectionQuota::new(per_minute),
            ..Self::default()
        }
    }

    /// Lets a record through, or counts it.
    pub fn admit(&mut self, record: Record) -> Admitted {
        if record.unproven_peer().is_some() {
            // They cost the user whom they name nothing.
            if !self.unproven.admit("", record.time) {
                return Admitted::Exceeded(Quota::Unproven);
            }
            if is_recorded_each(&record) {
                return Admitted::Write(Box::new(record));
            }
        } else if is_recorded_each(&record) {
            let user = record.user.as_ref().map_or("", |user| &user.user);
            // Break-glass is never refused, so none of it goes without a record.
            let is_free = record.action == Action::BreakGlassOpened;
            return if is_free || self.quota.admit(user, record.time) {
                Admitted::Write(Box::new(record))
            } else {
                Admitted::Exceeded(Quota::Connections)
            };
        }
        if !is_counted(&record) {
            return Admitted::Write(Box::new(record));
        }
        let mut kind = Kind::of(&record);
        let known = self.kinds.contains_key(&kind);
        if !known && self.kinds.len() >= KINDS {
            if record.decision == Decision::Allow {
                // Nobody gets in on somebody else's record.
                return Admitted::Write(Box::new(record));
            }
            kind = Kind::of_anybody(&record);
        }
        let anybody = kind.reason.is_empty();
        let full = self.entries >= ENTRIES;
        let group = self.kinds.entry(kind).or_default();
        let particulars = particulars(&record);
        if let Some(counting) = group.distinct.get_mut(&particulars) {
            return counting.admit(record, anybody);
        }
        if anybody || full || group.distinct.len() >= DISTINCT {
            let others = group
                .others
                .get_or_insert_with(|| Counting::new(&record, Some(BTreeSet::new())));
            return others.admit(record, anybody);
        }
        self.entries += 1;
        let counting = group.distinct.entry(particulars);
        let counting = counting.or_insert_with(|| Counting::new(&record, None));
        counting.admit(record, anybody)
    }

    /// The record with this id was not written after all: the next that is equal is.
    pub fn lost(&mut self, id: &str) {
        for group in self.kinds.values_mut() {
            let all = group.distinct.values_mut().chain(&mut group.others);
            for counting in all.filter(|counting| counting.first == id) {
                counting.plain = 0;
            }
        }
    }

    /// The summaries that are due at `now`. With `now` at the end of time, all of them.
    pub fn due(&mut self, now: Timestamp) -> Vec<Record> {
        let mut due = Vec::new();
        let mut over = |counting: &mut Counting| {
            let over = counting.ends() <= now;
            if over {
                due.extend(counting.summary());
            }
            over
        };
        let mut entries = 0;
        self.kinds.retain(|_, group| {
            group.distinct.retain(|_, counting| !over(counting));
            if group.others.as_mut().is_some_and(&mut over) {
                group.others = None;
            }
            entries += group.distinct.len();
            group.others.is_some() || !group.distinct.is_empty()
        });
        self.entries = entries;
        due
    }

    /// When the next summary is due.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        let all = self
            .kinds
            .values()
            .flat_map(|group| group.distinct.values().chain(&group.others));
        all.map(Counting::ends).min()
    }
}

impl Counting {
    fn new(record: &Record, about: Option<BTreeSet<String>>) -> Self {
        Self {
            since: record.time,
            first: String::new(),
            plain: 0,
            counted: None,
            about,
        }
    }

    fn ends(&self) -> Timestamp {
        self.since.checked_add(WINDOW).unwrap_or(Timestamp::MAX)
    }

    fn admit(&mut self, record: Record, anybody: bool) -> Admitted {
        let plain = match record.decision {
            Decision::Deny => PLAIN_REFUSALS,
            _ => 1,
        };
        if self.plain < plain {
            self.plain += 1;
            self.first.clone_from(&record.id);
            return Admitted::Write(Box::new(record));
        }
        self.count(record, anybody);
        Admitted::Counted {
            first: self.first.clone(),
        }
    }

    /// `anybody`: along with those of other users, and of other reasons.
    fn count(&mut self, record: Record, anybody: bool) {
        let time = record.time;
        let mut sample = format!("{}: {}", record.request.name, record.message);
        if anybody {
            let user = record.user.as_ref().map_or("", |user| &user.user);
            sample = format!("{user}: {}: {sample}", record.reason);
        }
        let mut news = true;
        if let Some(about) = &mut self.about {
            let subject = subject(&record, anybody);
            news = !about.contains(&subject) && about.len() < LISTED;
            if news {
                about.insert(subject);
            }
        }
        let several = self.about.is_some();
        let summary = self
            .counted
            .get_or_insert_with(|| summary_of(record, several, anybody));
        summary.time = summary.time.max(time);
        if let Some(repeated) = &mut summary.repeated {
            repeated.count += 1;
            repeated.first = repeated.first.min(time);
            repeated.last = repeated.last.max(time);
            if repeated.samples.len() < SAMPLES && news {
                sample.truncate(sample.floor_char_boundary(256));
                repeated.samples.push(sample);
            }
        }
    }

    fn summary(&mut self) -> Option<Record> {
        let record = self.counted.take()?;
        let Some(about) = &self.about else {
            return Some(record);
        };
        let about: Vec<&str> = about.iter().map(String::as_str).collect();
        Some(record.detail("about", about.join(", ")))
    }
}

/// The first of those that are counted becomes the record of all of them. Of several that differ, what
/// it was about says nothing of the rest.
fn summary_of(record: Record, several: bool, anybody: bool) -> Record {
    let repeated = Repeated {
        count: 0,
        first: record.time,
        last: record.time,
        samples: Vec::new(),
    };
    let id = format!("{}-repeated", record.id);
    let peer = record.unproven_peer();
    let peer = peer.map(|peer| if anybody { "several" } else { peer }.to_owned());
    let record = match (anybody, several) {
        (true, _) => Record::about(
            record.time,
            record.action,
            record.decision,
            &record.id,
            "Several",
            "Many users were refused, for several reasons",
        ),
        (false, false) => record,
        (false, true) => {
            let mut of = Record::about(
                record.time,
                record.action,
                record.decision,
                &record.id,
                &record.reason,
                "More that differ than are told apart; each is counted",
            );
            of.user = record.user;
            of.request.namespace = record.request.namespace;
            if record.action == Action::SessionOpened {
                // All of one grant, which its end looks for.
                of.request.kind = record.request.kind;
                of.request.name = record.request.name;
                of.request.uid = record.request.uid;
                of.until = record.until;
                let way = record.details.get("way").cloned();
                of.details.extend(way.map(|way| ("way".to_owned(), way)));
            }
            of
        }
    };
    let record = match peer {
        Some(peer) => record.of_unproven(&peer),
        None => record,
    };
    Record {
        id,
        repeated: Some(repeated),
        ..record
    }
}

/// What a record among several was about, in a word: of anybody's, the reason.
fn subject(record: &Record, anybody: bool) -> String {
    if anybody {
        return record.reason.clone();
    }
    let pod = record.pod.as_ref().map(|pod| &pod.name);
    let named = [pod, Some(&record.template), Some(&record.request.name)];
    let mut named = named.into_iter().flatten().filter(|name| !name.is_empty());
    let mut subject = named.next().cloned().unwrap_or_default();
    subject.truncate(subject.floor_char_boundary(253));
    subject
}
