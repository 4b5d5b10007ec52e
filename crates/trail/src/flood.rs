//! Flood control of the audit trail: repeated events of a user within a minute are counted, and written as one record
//! with their number. The first record is written before the event takes effect. Records that differ in a relevant
//! field are counted separately, up to a limit for each user. Connections in enforcing namespaces are not counted: each
//! has a record, and the quota of the user limits their number.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

use super::quota::{ConnectionQuota, Quota, is_recorded_each};
use super::record::{Record, Repeated, SAMPLES};
use super::{Action, Decision};

/// The time for which repeated events are counted before their summary is written.
const WINDOW: SignedDuration = SignedDuration::from_secs(60);
/// The number of refusals that are written individually: a user who mistypes a name finds each attempt.
const PLAIN_REFUSALS: u64 = 3;
/// The maximum number of records that are counted separately and differ in their particulars only: of one user, in one
/// namespace, decided for one reason. Further records are counted together.
const DISTINCT: usize = 30;
/// The maximum number of records of all users that are counted separately.
const ENTRIES: usize = 4_096;
/// The maximum number of combinations of user, namespace and reason that are counted separately. Further refusals are
/// counted together.
const KINDS: usize = 1_024;
/// The maximum number of particulars that a summary of several records lists.
const LISTED: usize = 32;

/// The result of flood control for one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The record is written.
    Write(Box<Record>),
    /// The record was counted after an equal record that was written.
    Counted {
        /// Id of the written record: if the event must be recorded before it takes effect, that record is sufficient.
        first: String,
    },
    /// The record is not written: this quota is exhausted.
    Exceeded(Quota),
}

/// The fields in which records that are counted together are always equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    user: Option<String>,
    namespace: String,
    action: Action,
    decision: Decision,
    reason: String,
    /// The address of an unproven caller: its statements are never counted with those of an API server.
    peer: Option<String>,
    /// UID of the request of a session, by which the operator finds it at the end of the grant, and the way of
    /// connecting. UID of the run, if the record is about its connections or credentials.
    session: Option<(String, Option<String>)>,
}

/// The counts of one kind.
#[derive(Debug, Default)]
struct Group {
    /// The counts by the digest of the particulars.
    distinct: BTreeMap<[u8; 32], Counting>,
    /// The common count of all other records.
    others: Option<Counting>,
}

/// A counter of repeated events.
#[derive(Debug, Default)]
pub struct FloodCounter {
    kinds: BTreeMap<Kind, Group>,
    entries: usize,
    quota: ConnectionQuota,
    /// The common quota for the records of all unproven callers.
    unproven: ConnectionQuota,
}

#[derive(Debug)]
struct Counting {
    since: Timestamp,
    /// Id of the last record that was written individually.
    first: String,
    plain: u64,
    counted: Option<Record>,
    /// The subjects of the records, if several different records are counted together.
    about: Option<BTreeSet<String>>,
}

/// Checks whether a record can be counted. Records that follow from a decision of oz, such as a grant and its end, are
/// as rare as the counted events permit, and are always written.
fn is_counted(record: &Record) -> bool {
    let asked = matches!(
        record.action,
        Action::SessionOpened
            | Action::RequestCreated
            | Action::TemplateChanged
            | Action::PolicyChanged
            | Action::RunSubmitted
            | Action::EgressAllowed
    );
    record.decision == Decision::Deny || asked && record.decision == Decision::Allow
}

/// Checks whether records of the action are counted by the run that they are about: no run uses up the records of
/// another.
fn is_of_run(action: Action) -> bool {
    matches!(
        action,
        Action::EgressAllowed | Action::EgressRefused | Action::CredentialRefused
    )
}

/// Returns the number of events that the record stands for.
fn number(record: &Record) -> u64 {
    record
        .repeated
        .as_ref()
        .map_or(1, |repeated| repeated.count)
}

/// Returns a digest of the fields that separate records of one kind. The name in a refusal and the stated reason are
/// chosen by the user, and are not included.
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
        detail("destination"),
        detail("credential"),
        detail("commandDigest"),
        detail("reason").filter(|_| allowed),
        detail("before").filter(|_| policy),
        detail("after").filter(|_| policy),
    ];
    let mut digest = Sha256::new();
    for part in parts {
        // An absent part differs from every present part, and the lengths prevent two parts from being read as another
        // two.
        let length = part.and_then(|part| u64::try_from(part.len()).ok());
        digest.update(length.unwrap_or(u64::MAX).to_be_bytes());
        if let Some(part) = part {
            digest.update(part);
        }
    }
    digest.finalize().into()
}

impl Kind {
    fn from_record(record: &Record) -> Self {
        let session = match record.action {
            Action::SessionOpened => {
                let way = record.details.get("way").cloned();
                Some((record.request.uid.clone(), way))
            }
            action if is_of_run(action) => Some((record.request.uid.clone(), None)),
            _ => None,
        };
        Self {
            user: record.user.as_ref().map(|user| user.user.clone()),
            namespace: record.request.namespace.clone(),
            action: record.action,
            decision: record.decision,
            reason: record.reason.clone(),
            peer: record.unproven_peer().map(ToOwned::to_owned),
            session,
        }
    }

    /// Returns the kind for all users: for refusals beyond all limits.
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
    /// Creates a counter with another quota of connections with individual records: the number for one user in a
    /// minute; no limit if absent.
    #[must_use]
    pub fn with_connections_per_minute(per_minute: Option<NonZeroU32>) -> Self {
        Self {
            quota: ConnectionQuota::new(per_minute),
            ..Self::default()
        }
    }

    /// Admits a record for writing, or counts it.
    pub fn admit(&mut self, record: Record) -> Admitted {
        if record.unproven_peer().is_some() {
            // Records of unproven callers do not use the quota of the user that they name.
            if !self.unproven.admit("", record.time) {
                return Admitted::Exceeded(Quota::Unproven);
            }
            if is_recorded_each(&record) {
                return Admitted::Write(Box::new(record));
            }
        } else if is_recorded_each(&record) {
            let user = record.user.as_ref().map_or("", |user| &user.user);
            // Break-glass is never refused, so each use has a record.
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
        let mut kind = Kind::from_record(&record);
        let known = self.kinds.contains_key(&kind);
        if !known && self.kinds.len() >= KINDS {
            if record.decision == Decision::Allow {
                // No user gets access on the record of another user.
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

    /// Marks the record with this id as not written: the next equal record is written.
    pub fn lost(&mut self, id: &str) {
        for group in self.kinds.values_mut() {
            let all = group.distinct.values_mut().chain(&mut group.others);
            for counting in all.filter(|counting| counting.first == id) {
                counting.plain = 0;
            }
        }
    }

    /// Returns the summaries that are due at `now`. If `now` is the end of time, returns all of them.
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

    /// Returns the time at which the next summary is due.
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
            Decision::Deny if record.action != Action::EgressRefused => PLAIN_REFUSALS,
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

    /// Counts a record. `anybody`: together with the records of other users and other reasons.
    fn count(&mut self, record: Record, anybody: bool) {
        let (time, number) = (record.time, number(&record));
        let mut sample = format!("{}: {}", record.request.name, record.message);
        if anybody {
            let user = record.user.iter().map(|user| user.user.as_str());
            sample = user.chain([": ", &record.reason, ": ", &sample]).collect();
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
            repeated.count += number;
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

/// Turns the first of the counted records into the summary of all of them. If several different records are counted,
/// the subject of the first is left out, since it does not apply to the rest.
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
            "Many users were denied, for several reasons",
        ),
        (false, false) => record,
        (false, true) => {
            let mut of = Record::about(
                record.time,
                record.action,
                record.decision,
                &record.id,
                &record.reason,
                "More kinds of event than can be distinguished; each is counted",
            );
            of.user = record.user;
            of.request.namespace = record.request.namespace;
            if record.action == Action::SessionOpened || is_of_run(record.action) {
                // All are sessions of one grant, or of one run: the operator finds them by it at its end.
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

/// Returns the subject of one of several records, in a word: for records of all users, the reason.
fn subject(record: &Record, anybody: bool) -> String {
    if anybody {
        return record.reason.clone();
    }
    let pod = record.pod.as_ref().map(|pod| &pod.name);
    let named = [pod, Some(&record.template), Some(&record.request.name)];
    let named = named.into_iter().flatten().find(|name| !name.is_empty());
    let mut subject = named.unwrap_or(&record.request.name).clone();
    subject.truncate(subject.floor_char_boundary(253));
    subject
}
