//! The verification of one chain, from its first record to its last, in each of its media.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use oz_api::instant::has_come;

use super::super::chain::SIGNED_RECORD;
use super::super::head::Medium;
use super::super::keys::KeyError;
use super::super::writer::Writer;
use super::evidence::Item;
use super::report::{
    ChainReport, Claim, Fault, IN_FLIGHT, Location, Problem, Terms, UNCLAIMED, UNSIGNED,
    UnknownKeys, UnprovenCallers,
};

pub(super) struct Walk<'a> {
    pub(super) terms: &'a Terms,
    pub(super) writer: Writer,
    pub(super) items: Vec<Item>,
    pub(super) claims: Vec<Claim>,
    pub(super) media: BTreeSet<Medium>,
    pub(super) no_checkpoint: bool,
    /// An unknown key signed a checkpoint of the chain.
    pub(super) unchecked: bool,
    pub(super) problems: &'a mut Vec<Problem>,
    pub(super) notes: &'a mut Vec<String>,
    pub(super) unknown: &'a mut UnknownKeys,
    pub(super) unproven: &'a mut UnprovenCallers,
}

type ItemsBySequence<'i> = BTreeMap<u64, &'i Item>;

/// Returns the last position; 0 without a record, since positions begin at 1.
fn last_of(chain: &ItemsBySequence<'_>) -> u64 {
    chain.last_key_value().map_or(0, |(seq, _)| *seq)
}

impl Walk<'_> {
    /// Returns `None` if no record of the chain was read and none is required.
    pub(super) fn run(mut self) -> Option<ChainReport> {
        let items = std::mem::take(&mut self.items);
        let signed = self.signatures(&items);
        let mut all: ItemsBySequence<'_> = BTreeMap::new();
        for item in &items {
            let seq = item.link.seq;
            match all.get(&seq) {
                Some(known) if known.link.digest != item.link.digest => {
                    let message = format!("{} has another record for this place", known.place);
                    self.fault(Fault::Forked, seq, Some(&item.place), message);
                }
                Some(_) => {}
                None => {
                    all.insert(seq, item);
                }
            }
        }
        for item in all.values() {
            if let Some((peer, many)) = &item.unproven {
                self.unproven.said(peer, *many, item.time);
            }
        }
        let mut complete = 0;
        for medium in self.media.clone() {
            complete = complete.max(self.medium(medium, &items));
        }
        let vouched = complete.max(signed);
        let unsigned = all.range(vouched + 1..).count();
        Some(ChainReport {
            writer: self.writer.clone(),
            records: u64::try_from(all.len()).unwrap_or(u64::MAX),
            first: *all.first_key_value()?.0,
            last: last_of(&all),
            complete_through: complete,
            unsigned: u64::try_from(unsigned).unwrap_or(u64::MAX),
        })
    }

    /// Checks the signatures on records, and returns the last position with a valid signature.
    fn signatures(&mut self, items: &[Item]) -> u64 {
        let mut last = 0;
        let mut unknown = BTreeSet::new();
        for item in items {
            let (seq, place) = (item.link.seq, Some(&item.place));
            match &item.link.signature {
                Some(signature) => {
                    let digest = item.link.digest.as_bytes();
                    let writer = &self.writer.component;
                    let trust = &self.terms.trust;
                    match trust.check(writer, SIGNED_RECORD, digest, signature) {
                        Ok(()) => last = last.max(seq),
                        Err(KeyError::Unknown(key)) => {
                            self.unknown.signed(&key, item.time, false);
                            // One fault suffices to find the others: a lost key signed all of a chain.
                            if unknown.insert(key.clone()) {
                                let message = KeyError::Unknown(key).to_string();
                                self.fault(Fault::UnknownKey, seq, place, message);
                            }
                        }
                        Err(error) => {
                            self.fault(Fault::BadSignature, seq, place, error.to_string());
                        }
                    }
                }
                None if seq == 1 => {
                    let message = "the first record of a chain is signed, and this one is not: no \
                                   process of oz began this chain";
                    self.fault(Fault::ChainStartUnsigned, seq, place, message.to_owned());
                }
                None => {}
            }
        }
        last
    }

    /// Verifies the chain in one medium; returns the position up to which it is proven complete there.
    fn medium(&mut self, medium: Medium, items: &[Item]) -> u64 {
        let mut chain: ItemsBySequence<'_> = BTreeMap::new();
        let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
        for item in items.iter().filter(|item| item.medium == medium) {
            let seq = item.link.seq;
            if let Some(known) = chain.get(&seq) {
                let message = format!("{} has it as well", known.place);
                self.fault(Fault::Duplicate, seq, Some(&item.place), message);
                continue;
            }
            if medium == Medium::Log {
                let end = ends.entry(&item.place.source).or_default();
                if seq < *end {
                    let message = format!("it comes after the record at {end}");
                    self.fault(Fault::Moved, seq, Some(&item.place), message);
                }
                *end = (*end).max(seq);
            }
            chain.insert(seq, item);
        }
        let promised = self.promised(medium, &chain);
        self.links(medium, &chain, promised);
        self.unsigned(medium, &chain);
        if medium == Medium::Objects && !self.unchecked {
            self.unclaimed(&chain, promised);
        }
        promised.min(last_of(&chain))
    }

    /// Compares the records with the checkpoints, and returns the last position that these cover.
    fn promised(&mut self, medium: Medium, chain: &ItemsBySequence<'_>) -> u64 {
        let kept_since = self.terms.kept_since(medium);
        let last = last_of(chain);
        let goes_on = self.ends_late(medium, chain);
        let mut promised = 0;
        let mut faults = Vec::new();
        for Claim { head, place, .. } in &self.claims {
            if let Some(item) = chain.get(&head.seq)
                && item.link.digest != head.digest
            {
                let message = format!("{place} has the digest {}", head.digest);
                faults.push((
                    Fault::SignedDigestMismatch,
                    head.seq,
                    item.place.clone(),
                    message,
                ));
            }
            if !head.media.contains(&medium) {
                continue;
            }
            promised = promised.max(head.seq);
            let may_be_gone = kept_since.is_some_and(|since| head.time < since);
            if last < head.seq && !may_be_gone && !goes_on {
                let (has, say) = match medium {
                    Medium::Log => ("the log has", "it"),
                    Medium::Objects => ("the objects have", "they"),
                };
                let records = match last {
                    0 => "no record of it".to_owned(),
                    last => format!("no record of it after {last}"),
                };
                let message = format!(
                    "{has} {records}, and {place} says that {say} came to {}",
                    head.seq
                );
                faults.push((Fault::Truncated, last + 1, place.clone(), message));
            }
        }
        for (fault, seq, place, message) in faults {
            self.fault(fault, seq, Some(&place), message);
        }
        promised
    }

    /// Checks whether the records of the chain end as late as required, with a record that its writer signed.
    fn ends_late(&self, medium: Medium, chain: &ItemsBySequence<'_>) -> bool {
        let Some(until) = self
            .terms
            .objects_until
            .filter(|_| medium == Medium::Objects)
        else {
            return false;
        };
        let late = chain.values().filter(|item| has_come(item.time, until));
        let trust = &self.terms.trust;
        let mut signed = late.filter_map(|item| Some((item, item.link.signature.as_ref()?)));
        signed.any(|(item, signature)| {
            let digest = item.link.digest.as_bytes();
            let writer = &self.writer.component;
            trust
                .check(writer, SIGNED_RECORD, digest, signature)
                .is_ok()
        })
    }

    fn links(&mut self, medium: Medium, chain: &ItemsBySequence<'_>, promised: u64) {
        let kept_since = self.terms.kept_since(medium);
        let last = last_of(chain);
        let mut before: Option<&Item> = None;
        for (&seq, item) in chain {
            let expected = before.map_or(1, |before| before.link.seq + 1);
            if seq == expected {
                let follows = match before {
                    Some(before) => item.link.prev == before.link.digest,
                    None => item.link.prev.is_empty(),
                };
                if !follows {
                    let message = "it does not follow the record before it".to_owned();
                    self.fault(Fault::Unlinked, seq, Some(&item.place), message);
                }
            } else if seq > expected {
                let (from, to) = (expected, seq - 1);
                let old = kept_since
                    .zip(item.link.prev_time)
                    .is_some_and(|(since, time)| time < since);
                // The first record of a chain is written alone: a chain without it was forged.
                let under_way =
                    medium == Medium::Objects && from > promised.max(1) && from + IN_FLIGHT > last;
                let until = self
                    .terms
                    .objects_until
                    .filter(|_| medium == Medium::Objects);
                let beyond = until
                    .zip(before)
                    .is_some_and(|(until, item)| has_come(item.time, until));
                if beyond {
                    // The missing records were written after the verified time.
                } else if under_way && !old {
                    self.notes.push(format!(
                        "{}: {} to {} never arrived: the writer was stopped, or is writing them now",
                        self.writer, from, to
                    ));
                } else if !old {
                    let many = if from == to {
                        format!("{from} is")
                    } else {
                        format!("{from} to {to} are")
                    };
                    let message = format!("{many} not among the {medium}");
                    self.fault(Fault::Missing, from, Some(&item.place), message);
                }
            }
            before = Some(item);
        }
    }

    /// Checks that unsigned records closely follow signed records. A writer signs at this interval, and no record
    /// arrives before the signed record that it follows. An attacker without a key can therefore append to a chain only
    /// records that claim to be as old as its end.
    fn unsigned(&mut self, medium: Medium, chain: &ItemsBySequence<'_>) {
        let kept_since = self.terms.kept_since(medium);
        let mut signed: Option<Timestamp> = None;
        let mut told = false;
        for (&seq, item) in chain {
            let close = |to: Timestamp| item.time.duration_since(to).abs() <= UNSIGNED;
            // The signed record before it may have been deleted because of its age.
            let old = kept_since.is_some_and(|since| item.time < since || close(since));
            // A wrong signature, or a missing signature on a first record, is reported as a separate fault.
            if item.link.signature.is_some() || seq == 1 {
                (signed, told) = (Some(item.time), false);
            } else if !(told || old || signed.is_some_and(close)) {
                told = true;
                let message = "it is not signed, nor is any record shortly before it: its writer \
                               would have signed it";
                self.fault(Fault::Unsigned, seq, Some(&item.place), message.to_owned());
            }
        }
    }

    /// Checks for missing checkpoints. The records after the last checkpoint span only a short time: their writer was
    /// killed, or is about to write the next checkpoint.
    fn unclaimed(&mut self, chain: &ItemsBySequence<'_>, promised: u64) {
        let mut after = chain.range(promised + 1..);
        if let Some((&seq, first)) = after.next() {
            let last = after.map(|(_, item)| item.time).max();
            if last.is_some_and(|last| last.duration_since(first.time) > UNCLAIMED) {
                let message = "no checkpoint covers it or the audit records of more than a minute \
                               after it: checkpoints were removed, or replaced by older ones";
                self.fault(
                    Fault::CheckpointMissing,
                    seq,
                    Some(&first.place),
                    message.to_owned(),
                );
            }
        }
        let gone = |claim: &&Claim| {
            let kept_since = self.terms.kept_since(Medium::Objects);
            claim.mentioned && kept_since.is_none_or(|since| claim.head.time >= since)
        };
        let found = self.claims.iter().find(gone).filter(|_| self.no_checkpoint);
        if let Some((seq, place)) = found.map(|claim| (claim.head.seq, claim.place.clone())) {
            let message = "a later process found a checkpoint of it in the cluster, and now no \
                           process has one there: they were removed";
            self.fault(
                Fault::CheckpointMissing,
                seq,
                Some(&place),
                message.to_owned(),
            );
        }
    }

    fn fault(&mut self, fault: Fault, seq: u64, place: Option<&Location>, message: String) {
        self.problems.push(Problem {
            writer: Some(self.writer.clone()),
            seq: Some(seq),
            fault,
            place: place.cloned(),
            message,
        });
    }
}
