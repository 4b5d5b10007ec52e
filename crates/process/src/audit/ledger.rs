//! What is on its way: the chain, what was counted instead of written, and which records have not
//! arrived everywhere yet. No I/O and no clock.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use oz_core::audit::{
    Admitted, AuditKey, Chain, Checkpoint, Entry, Floodgate, Head, Medium, Record, Writer,
};
use tokio::sync::oneshot;

/// Records that wait at most; more would only hide that nothing is written.
pub(super) const BACKLOG: usize = 4_096;
/// How many facts that were written are remembered, so that a retry does not write them again.
const REMEMBERED: usize = 4_096;

/// Some of the places to which records go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u8);

impl Place {
    pub(super) const NOWHERE: Self = Self(0);
    pub(super) const LOG: Self = Self(1);
    pub(super) const OBJECTS: Self = Self(2);
    pub(super) const COLLECTOR: Self = Self(4);

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    const fn has_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How a chain will begin.
pub(super) struct Origin {
    pub(super) component: String,
    pub(super) replica: String,
    pub(super) nonce: u32,
    /// The chains that were known when the process started.
    pub(super) known: Vec<Head>,
    pub(super) key: AuditKey,
}

/// What became of a record that was submitted.
pub(super) enum Submitted {
    /// On its way: told when it is in the log, and when it is everywhere.
    Under {
        log: oneshot::Receiver<()>,
        all: oneshot::Receiver<()>,
    },
    /// Nothing to wait for: written before, or counted.
    Done,
    /// Not taken.
    Full,
}

/// A new entry, to be written.
pub(super) struct Written {
    pub(super) entry: Entry,
    pub(super) line: Arc<str>,
}

/// A record that is not everywhere yet.
struct Open {
    id: String,
    head: Head,
    missing: Place,
    /// There is a place that it will never be in.
    lost: bool,
    log: Vec<oneshot::Sender<()>>,
    all: Vec<oneshot::Sender<()>>,
}

/// See the module.
pub(super) struct Ledger {
    origin: Origin,
    chain: Option<Chain>,
    gate: Floodgate,
    required: Place,
    media: Vec<Medium>,
    open: BTreeMap<u64, Open>,
    by_id: HashMap<String, u64>,
    done: HashSet<String>,
    done_order: VecDeque<String>,
    /// The last record before which none is missing anywhere.
    complete: Option<Head>,
    /// How far the last checkpoint came.
    checkpointed: u64,
    closing: bool,
}

impl Ledger {
    pub(super) fn new(origin: Origin, required: Place) -> Self {
        let media = [(Place::LOG, Medium::Log), (Place::OBJECTS, Medium::Objects)];
        Self {
            origin,
            chain: None,
            gate: Floodgate::default(),
            required,
            media: media
                .into_iter()
                .filter(|(place, _)| required.has(*place))
                .map(|(_, medium)| medium)
                .collect(),
            open: BTreeMap::new(),
            by_id: HashMap::new(),
            done: HashSet::new(),
            done_order: VecDeque::new(),
            complete: None,
            checkpointed: 0,
            closing: false,
        }
    }

    /// Takes in a record, unless it is known or only counted.
    pub(super) fn submit(&mut self, record: Record, now: Timestamp) -> (Submitted, Vec<Written>) {
        if let Some(under_way) = self.known(&record.id) {
            return (under_way, Vec::new());
        }
        let mut written = Vec::new();
        for summary in self.summaries(now) {
            written.extend(self.append(summary).1);
        }
        match self.gate.admit(record) {
            // What may only happen once it is on record may, once the one that it equals is.
            Admitted::Counted { first } => {
                let submitted = self.known(&first).unwrap_or(Submitted::Done);
                (submitted, written)
            }
            Admitted::Write(record) => {
                let (submitted, more) = self.append(*record);
                written.extend(more);
                (submitted, written)
            }
        }
    }

    /// Puts a record into the chain.
    pub(super) fn append(&mut self, record: Record) -> (Submitted, Vec<Written>) {
        if self.open.len() >= BACKLOG {
            return (Submitted::Full, Vec::new());
        }
        let mut written = Vec::with_capacity(2);
        let mut chain = match self.chain.take() {
            Some(chain) => chain,
            None => {
                let Origin {
                    component,
                    replica,
                    nonce,
                    known,
                    key,
                } = &self.origin;
                let writer = Writer::new(component, replica, record.time, *nonce);
                let (chain, first) = Chain::begin(writer, record.time, known, key);
                written.push(self.opened(first));
                chain
            }
        };
        let entry = chain.append(record, &self.origin.key);
        self.chain = Some(chain);
        let id = entry.record.id.clone();
        written.push(self.opened(entry));
        let under_way = self.known(&id).unwrap_or(Submitted::Done);
        (under_way, written)
    }

    fn opened(&mut self, entry: Entry) -> Written {
        let id = entry.record.id.clone();
        self.by_id.insert(id.clone(), entry.link.seq);
        self.open.insert(
            entry.link.seq,
            Open {
                id,
                head: Head::of(&entry, &self.media),
                missing: self.required,
                lost: false,
                log: Vec::new(),
                all: Vec::new(),
            },
        );
        let line = entry.value().to_string().into();
        Written { entry, line }
    }

    /// What there is to wait for of a fact that is on its way or was written.
    fn known(&mut self, id: &str) -> Option<Submitted> {
        if self.done.contains(id) {
            return Some(Submitted::Done);
        }
        let open = self.open.get_mut(self.by_id.get(id)?)?;
        let (in_log, log) = oneshot::channel();
        let (everywhere, all) = oneshot::channel();
        // Without a log, nothing less than everywhere is durable.
        let durable = if self.required.has(Place::LOG) {
            Place::LOG
        } else {
            self.required
        };
        if !open.missing.has_any(durable) {
            let _ = in_log.send(());
        } else if durable == Place::LOG {
            open.log.push(in_log);
        } else {
            open.all.push(in_log);
        }
        if open.missing == Place::NOWHERE {
            let _ = everywhere.send(());
        } else {
            open.all.push(everywhere);
        }
        Some(Submitted::Under { log, all })
    }

    /// A record has arrived somewhere.
    pub(super) fn arrived(&mut self, seq: u64, place: Place) {
        let Some(open) = self.open.get_mut(&seq) else {
            return;
        };
        open.missing = open.missing.without(place);
        let tell = |waiting: &mut Vec<oneshot::Sender<()>>| {
            for waiting in waiting.drain(..) {
                // Whoever asked may have given up.
                let _ = waiting.send(());
            }
        };
        if place == Place::LOG {
            tell(&mut open.log);
        }
        if open.missing == Place::NOWHERE && !open.lost {
            tell(&mut open.all);
        }
        while let Some(first) = self.open.first_entry()
            && first.get().missing == Place::NOWHERE
        {
            let open = first.remove();
            if !open.lost {
                self.by_id.remove(&open.id);
                self.remember(open.id);
            }
            self.complete = Some(open.head);
        }
    }

    /// A record will never arrive somewhere. Nobody is told that it is durable, and it is forgotten:
    /// whoever needs it asks again. The chain goes on, and that this one is missing from it is what
    /// verifying says.
    pub(super) fn lost(&mut self, seq: u64, place: Place) {
        let Some(open) = self.open.get_mut(&seq) else {
            return;
        };
        if open.missing.has(place) && !std::mem::replace(&mut open.lost, true) {
            open.all.clear();
            self.by_id.remove(&open.id);
            self.gate.lost(&open.id);
        }
        self.arrived(seq, place);
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

    /// The summaries of what was counted, if they are due and there is room for them.
    pub(super) fn summaries(&mut self, now: Timestamp) -> Vec<Record> {
        if self.open.len() >= BACKLOG {
            return Vec::new();
        }
        self.gate.due(now)
    }

    /// When a summary is due next.
    pub(super) fn next_summary(&self) -> Option<Timestamp> {
        self.gate.next()
    }

    /// A checkpoint of what is complete, if it would say something new.
    pub(super) fn checkpoint(&self) -> Option<Checkpoint> {
        let head = self.complete.as_ref()?;
        (head.seq > self.checkpointed).then(|| Checkpoint::sign(head.clone(), &self.origin.key))
    }

    /// A checkpoint was published.
    pub(super) fn published(&mut self, seq: u64) {
        self.checkpointed = self.checkpointed.max(seq);
    }

    /// How many complete records no checkpoint covers.
    pub(super) fn unsigned(&self) -> u64 {
        let complete = self.complete.as_ref().map_or(0, |head| head.seq);
        complete.saturating_sub(self.checkpointed)
    }

    pub(super) fn waiting(&self) -> usize {
        self.open.len()
    }

    pub(super) fn is_settled(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    pub(super) fn swap_key(&mut self, key: AuditKey) {
        self.origin.key = key;
    }

    /// What the oldest record that is not everywhere waits for, for people.
    pub(super) fn waits_for(&self, everywhere: bool) -> &'static str {
        let missing = self
            .open
            .values()
            .next()
            .map_or(Place::NOWHERE, |open| open.missing);
        if missing.has(Place::LOG) {
            "nobody reads or stores the log (--audit-log)"
        } else if everywhere && missing.has(Place::OBJECTS) {
            "the API server does not take AuditEvents"
        } else if everywhere && missing.has(Place::COLLECTOR) {
            "the collector (--audit-http) does not take it"
        } else {
            "it took too long"
        }
    }
}

#[cfg(test)]
mod tests;
