//! Verification of the audit trail: compares the records that were read with their chains, their signatures and the
//! checkpoints. It finds records that were changed, left out, duplicated, moved or inserted, and their positions.

mod evidence;
mod report;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use oz_api::names;

pub use evidence::Evidence;
pub use report::{
    ChainReport, Fault, IN_FLIGHT, Location, PUBLISHED_WITHIN, Problem, Report, Terms, UnknownKey,
    UnprovenCaller, Verdict,
};

use super::chain::SIGNED_RECORD;
use super::checkpoint::Checkpoint;
use super::head::{Head, Medium};
use super::keys::{KeyError, Trust};
use super::writer::Writer;
use evidence::Shortened;
use report::{Claim, UnknownKeys, UnprovenCallers};
use walk::Walk;

/// Verifies the evidence.
#[must_use]
pub fn verify(evidence: Evidence, terms: &Terms) -> Report {
    let Evidence {
        items,
        checkpoints,
        media,
        mut problems,
        mut notes,
        keys,
        shortened,
    } = evidence;
    // A user who pinned the first key can trust the keys that followed it.
    let mut terms = terms.clone();
    terms.trust.extend(&keys);
    shorten(&mut terms, shortened, &mut notes);
    let terms = &terms;
    // The ConfigMap of the checkpoints was removed as a whole.
    let no_checkpoint = media.contains(&Medium::Objects) && checkpoints.is_empty();
    let (mut unknown, mut unproven) = (UnknownKeys::default(), UnprovenCallers::default());
    let (mut claims, unchecked) = claims(checkpoints, &terms.trust, &mut problems, &mut unknown);
    let mut chains: BTreeMap<Writer, Vec<evidence::Item>> = BTreeMap::new();
    for item in items {
        for (name, value) in &item.mentions {
            if let Some(head) = Head::mentioned(name, value) {
                let place = item.place.clone();
                claims.entry(head.writer.clone()).or_default().push(Claim {
                    head,
                    place,
                    mentioned: true,
                });
            }
        }
        chains
            .entry(item.link.writer.clone())
            .or_default()
            .push(item);
    }
    // A log belongs to one replica; the logs of the others may not have been provided.
    let logged: BTreeSet<(String, String)> = chains
        .iter()
        .filter(|(_, items)| items.iter().any(|item| item.medium == Medium::Log))
        .map(|(writer, _)| (writer.component.clone(), writer.replica.clone()))
        .collect();
    let writers: BTreeSet<Writer> = chains.keys().chain(claims.keys()).cloned().collect();
    let mut report = Report {
        notes,
        ..Report::default()
    };
    for writer in writers {
        let of = (writer.component.clone(), writer.replica.clone());
        let judged = media
            .iter()
            .filter(|medium| **medium == Medium::Objects || logged.contains(&of));
        let walk = Walk {
            terms,
            items: chains.remove(&writer).into_iter().flatten().collect(),
            claims: claims.remove(&writer).into_iter().flatten().collect(),
            media: judged.copied().collect(),
            no_checkpoint,
            unchecked: unchecked.contains(&writer),
            writer,
            problems: &mut problems,
            unknown: &mut unknown,
            unproven: &mut unproven,
            notes: &mut report.notes,
        };
        report.chains.extend(walk.run());
    }
    problems.sort();
    problems.dedup();
    report.problems = problems;
    report.unknown_keys = unknown.into_list();
    report.unproven_callers = unproven.into_list();
    let told = report.unproven_callers.iter().map(ToString::to_string);
    report.notes.extend(told);
    report
}

/// Allows records to be missing from the cluster that a signed record declares as deleted. A signature that is not
/// valid is reported as a fault of its record.
fn shorten(terms: &mut Terms, mut shortened: Vec<Shortened>, notes: &mut Vec<String>) {
    shortened.retain(|one| {
        let trust = &terms.trust;
        let digest = one.digest.as_bytes();
        let checked = trust.check(names::OPERATOR, SIGNED_RECORD, digest, &one.signature);
        checked.is_ok()
    });
    let last = shortened
        .into_iter()
        .max_by_key(|one| (one.before, one.time));
    let Some(last) = last else { return };
    notes.push(format!("shortened at {}: {}", last.time, last.message));
    terms.objects_kept_since = terms.objects_kept_since.max(Some(last.before));
}

/// Returns the statements of the checkpoints about the chain of each writer, as far as a trusted key signed them; and
/// the writers with a checkpoint that an unknown key signed.
fn claims(
    checkpoints: Vec<(Location, Checkpoint)>,
    trust: &Trust,
    problems: &mut Vec<Problem>,
    unknown: &mut UnknownKeys,
) -> (BTreeMap<Writer, Vec<Claim>>, BTreeSet<Writer>) {
    let mut claims: BTreeMap<Writer, Vec<Claim>> = BTreeMap::new();
    let mut unchecked = BTreeSet::new();
    for (place, checkpoint) in checkpoints {
        let head = checkpoint.head.clone();
        let (fault, error) = match checkpoint.check(trust) {
            Ok(()) => {
                claims.entry(head.writer.clone()).or_default().push(Claim {
                    head,
                    place,
                    mentioned: false,
                });
                continue;
            }
            Err(KeyError::Unknown(key)) => {
                unknown.signed(&key, head.time, true);
                unchecked.insert(head.writer.clone());
                (Fault::UnknownKey, KeyError::Unknown(key))
            }
            Err(error) => (Fault::BadSignature, error),
        };
        problems.push(Problem {
            writer: Some(head.writer),
            seq: Some(head.seq),
            fault,
            place: Some(place),
            message: format!("a checkpoint proves nothing: {error}"),
        });
    }
    (claims, unchecked)
}
