//! Whether a record is whole: what was read back, against the chains, the signatures and what the
//! checkpoints say should be there. Finds what was changed, left out, doubled, moved or put in
//! between, and where.

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

/// Verifies what was read.
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
    // Whoever pinned the first key has what is needed to believe those that came after it.
    let mut terms = terms.clone();
    terms.trust.extend(&keys);
    shorten(&mut terms, shortened, &mut notes);
    let terms = &terms;
    // Where it was taken away as a whole.
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
    // A log belongs to a replica; those of others need not have been given.
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
            items: chains.remove(&writer).unwrap_or_default(),
            claims: claims.remove(&writer).unwrap_or_default(),
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

/// What was deleted from the cluster may be gone that a signed record says was to go. A signature that
/// does not hold is a fault of its record's own.
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

/// What the checkpoints state of each writer's chain, as far as they are signed by whom is trusted; and the
/// writers with one that is signed by a key of which nothing is known.
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
