//! The state of the trail: the chain, the records that are counted instead of written, and the records that have not
//! reached all outlets yet. No I/O and no clock.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::num::NonZeroU32;

use jiff::Timestamp;
use oz_trail::{
    Action, Admitted, AuditKey, Chain, Checkpoint, Entry, FloodCounter, Head, Medium, Quota,
    Record, Writer, is_recorded_each,
};
use tokio::sync::oneshot;

use crate::outlets::{Outlet, Written};

/// The maximum number of waiting records; a larger backlog would only hide that no record is written.
pub(crate) const BACKLOG: usize = 4_096;
/// The number of waiting records from which no connection with an individual record is accepted: the rest of the
/// backlog is for grants, their ends and refusals.
pub(crate) const CONNECTION_BACKLOG: usize = BACKLOG / 2;
/// The number of written records with ids that are kept, so that a retry does not write these records again.
const REMEMBERED: usize = 4_096;

/// The data with which a chain begins.
pub(crate) struct Origin {
    pub(crate) component: String,
    pub(crate) replica: String,
    pub(crate) nonce: u32,
    /// The chains that were known when the process started.
    pub(crate) known: Vec<Head>,
    /// The details of the first record.
    pub(crate) details: Vec<(&'static str, String)>,
    pub(crate) key: AuditKey,
}

/// The result of submitting a record.
pub(crate) enum Submitted {
    /// The record is in progress: one channel reports that it is in the log, the other that all required outlets have
    /// it.
    Under {
        log: oneshot::Receiver<()>,
        all: oneshot::Receiver<()>,
    },
    /// The caller need not wait: the record was written before, or counted.
    Done,
    /// The record was rejected: the backlog is full.
    Full,
    /// The record was rejected: it exceeds a quota, or the backlog for all connections.
    Beyond(Beyond),
}

/// The limit that a record exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beyond {
    /// A quota.
    Quota(Quota),
    /// The backlog for the connections of all users.
    Backlog,
}

/// A record that has not reached all required outlets yet.
struct Open {
    id: String,
    head: Head,
    missing: BTreeSet<Outlet>,
    /// An outlet will never have the record.
    lost: bool,
    log: Vec<oneshot::Sender<()>>,
    all: Vec<oneshot::Sender<()>>,
}

/// The state of the trail; see the module.
pub(crate) struct Ledger {
    origin: Origin,
    chain: Option<Chain>,
    gate: FloodCounter,
    required: BTreeSet<Outlet>,
    media: Vec<Medium>,
    open: BTreeMap<u64, Open>,
    by_id: HashMap<String, u64>,
    done: HashSet<String>,
    done_order: VecDeque<String>,
    /// The last record up to which all records have reached all required outlets.
    complete: Option<Head>,
    /// The position of the last published checkpoint.
    checkpointed: u64,
    closing: bool,
}

impl Ledger {
    pub(crate) fn new(origin: Origin, required: BTreeSet<Outlet>) -> Self {
        let media = [
            (Outlet::Log, Medium::Log),
            (Outlet::Objects, Medium::Objects),
        ];
        Self {
            origin,
            chain: None,
            gate: FloodCounter::default(),
            media: media
                .into_iter()
                .filter(|(outlet, _)| required.contains(outlet))
                .map(|(_, medium)| medium)
                .collect(),
            required,
            open: BTreeMap::new(),
            by_id: HashMap::new(),
            done: HashSet::new(),
            done_order: VecDeque::new(),
            complete: None,
            checkpointed: 0,
            closing: false,
        }
    }

    /// Sets the number of connections of one user that are recorded in a minute where each has an individual record; no
    /// limit if absent.
    pub(crate) fn limit_connections(&mut self, per_minute: Option<NonZeroU32>) {
        self.gate = FloodCounter::with_connections_per_minute(per_minute);
    }

    /// Accepts a record, unless it is known or only counted.
    pub(crate) fn submit(&mut self, record: Record, now: Timestamp) -> (Submitted, Vec<Written>) {
        if let Some(under_way) = self.find_submitted(&record.id) {
            return (under_way, Vec::new());
        }
        let mut written = Vec::new();
        for summary in self.summaries(now) {
            written.extend(self.append(summary).1);
        }
        let connects = is_recorded_each(&record) && record.action != Action::BreakGlassOpened;
        match self.gate.admit(record) {
            Admitted::Exceeded(quota) => (Submitted::Beyond(Beyond::Quota(quota)), written),
            // Checked after the quota, so that a user who is refused because of the load of others has used a share.
            Admitted::Write(_) if connects && self.open.len() >= CONNECTION_BACKLOG => {
                (Submitted::Beyond(Beyond::Backlog), written)
            }
            // An action that requires its record is allowed once the equal record that stands for it is written.
            Admitted::Counted { first } => {
                let submitted = self.find_submitted(&first).unwrap_or(Submitted::Done);
                (submitted, written)
            }
            Admitted::Write(record) => {
                let (submitted, more) = self.append(*record);
                written.extend(more);
                (submitted, written)
            }
        }
    }

    /// Appends a record to the chain.
    pub(crate) fn append(&mut self, record: Record) -> (Submitted, Vec<Written>) {
        if self.open.len() >= BACKLOG {
            return (Submitted::Full, Vec::new());
        }
        let mut written = Vec::with_capacity(2);
        let mut chain = match self.chain.take() {
            Some(chain) => chain,
            None => {
                let (chain, first) = self.begun(record.time);
                written.push(first);
                chain
            }
        };
        let entry = chain.append(record, &self.origin.key);
        self.chain = Some(chain);
        let id = entry.record.id.clone();
        written.push(self.opened(entry));
        let under_way = self.find_submitted(&id).unwrap_or(Submitted::Done);
        (under_way, written)
    }

    /// Begins the chain, before the first record.
    pub(crate) fn begin(&mut self, now: Timestamp) -> Written {
        let (chain, first) = self.begun(now);
        self.chain = Some(chain);
        first
    }

    /// Returns a chain that begins, and its first record.
    fn begun(&mut self, now: Timestamp) -> (Chain, Written) {
        let Origin {
            component,
            replica,
            nonce,
            known,
            details,
            key,
        } = &self.origin;
        let writer = Writer::new(component, replica, now, *nonce);
        let (chain, first) = Chain::begin_with(writer, now, known, details, key);
        (chain, self.opened(first))
    }

    fn opened(&mut self, entry: Entry) -> Written {
        let id = entry.record.id.clone();
        self.by_id.insert(id.clone(), entry.link.seq);
        self.open.insert(
            entry.link.seq,
            Open {
                id,
                head: entry.head(&self.media),
                missing: self.required.clone(),
                lost: false,
                log: Vec::new(),
                all: Vec::new(),
            },
        );
        let line = entry.value().to_string().into();
        Written { entry, line }
    }

    /// Returns the channels for a record that is in progress or was written.
    fn find_submitted(&mut self, id: &str) -> Option<Submitted> {
        if self.done.contains(id) {
            return Some(Submitted::Done);
        }
        let open = self.open.get_mut(self.by_id.get(id)?)?;
        let (in_log, log) = oneshot::channel();
        let (everywhere, all) = oneshot::channel();
        if self.required.contains(&Outlet::Log) {
            if open.missing.contains(&Outlet::Log) {
                open.log.push(in_log);
            } else {
                let _ = in_log.send(());
            }
        } else if open.missing.is_empty() {
            let _ = in_log.send(());
        } else {
            // Without a log, a record is durable only when all required outlets have it.
            open.all.push(in_log);
        }
        if open.missing.is_empty() {
            let _ = everywhere.send(());
        } else {
            open.all.push(everywhere);
        }
        Some(Submitted::Under { log, all })
    }

    /// Notes that an outlet has written a record.
    pub(crate) fn arrived(&mut self, seq: u64, outlet: Outlet) {
        let Some(open) = self.open.get_mut(&seq) else {
            return;
        };
        open.missing.remove(&outlet);
        let tell = |waiting: &mut Vec<oneshot::Sender<()>>| {
            for waiting in waiting.drain(..) {
                // The caller may have given up.
                let _ = waiting.send(());
            }
        };
        if outlet == Outlet::Log {
            tell(&mut open.log);
        }
        if open.missing.is_empty() && !open.lost {
            tell(&mut open.all);
        }
        while let Some(first) = self.open.first_entry()
            && first.get().missing.is_empty()
        {
            let open = first.remove();
            if !open.lost {
                self.by_id.remove(&open.id);
                self.remember(open.id);
            }
            self.complete = Some(open.head);
        }
    }

    /// Notes that an outlet will never write a record. The record is not reported as durable, and its id is discarded:
    /// a caller that requires it submits it again. The chain continues, and verification reports that this record is
    /// missing.
    pub(crate) fn lost(&mut self, seq: u64, outlet: Outlet) {
        let Some(open) = self.open.get_mut(&seq) else {
            return;
        };
        if open.missing.contains(&outlet) && !std::mem::replace(&mut open.lost, true) {
            open.all.clear();
            self.by_id.remove(&open.id);
            self.gate.lost(&open.id);
        }
        self.arrived(seq, outlet);
    }

    fn remember(&mut self, id: String) {
        if self.done.insert(id.clone()) {
            self.done_order.push_back(id);
        }
        if self.done_order.len() > REMEMBERED
            && let Some(oldest) = self.done_order.pop_front()
        {
            self.done.remove(&oldest);
        }
    }

    /// Returns the summaries of counted records, if they are due and the backlog has room for them.
    pub(crate) fn summaries(&mut self, now: Timestamp) -> Vec<Record> {
        if self.open.len() >= BACKLOG {
            return Vec::new();
        }
        self.gate.due(now)
    }

    /// Returns the time at which the next summary is due.
    pub(crate) fn next_summary(&self) -> Option<Timestamp> {
        self.gate.next()
    }

    /// Returns a checkpoint of the complete records, if it covers new records.
    pub(crate) fn checkpoint(&self) -> Option<Checkpoint> {
        let head = self.complete.as_ref()?;
        (head.seq > self.checkpointed).then(|| Checkpoint::sign(head.clone(), &self.origin.key))
    }

    /// Notes that a checkpoint was published.
    pub(crate) fn published(&mut self, seq: u64) {
        self.checkpointed = self.checkpointed.max(seq);
    }

    /// Returns the number of complete records that no checkpoint covers.
    pub(crate) fn unsigned(&self) -> u64 {
        let complete = self.complete.as_ref().map_or(0, |head| head.seq);
        complete.saturating_sub(self.checkpointed)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Returns the signing key.
    pub(crate) fn key(&self) -> &AuditKey {
        &self.origin.key
    }

    pub(crate) fn swap_key(&mut self, key: AuditKey) {
        self.origin.key = key;
    }

    /// Returns a description, for users, of the outlet that the oldest incomplete record waits for.
    pub(crate) fn waits_for(&self, everywhere: bool) -> &'static str {
        let missing = self.open.values().next().map(|open| &open.missing);
        let misses = |outlet| missing.is_some_and(|missing| missing.contains(&outlet));
        if misses(Outlet::Log) {
            "no process reads or stores the log (audit.log)"
        } else if everywhere && misses(Outlet::Objects) {
            "the API server does not accept AuditEvents"
        } else if everywhere && misses(Outlet::Collector) {
            "the collector (audit.http) does not accept it"
        } else {
            "it timed out"
        }
    }
}

#[cfg(test)]
mod tests;
