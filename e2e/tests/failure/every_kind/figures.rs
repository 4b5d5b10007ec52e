//! The times of ends and of changes of leader, from the log of the API server.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use oz_api::names;
use oz_e2e::Scene;
use oz_testkit::{AuditEntries, AuditEntry};

use super::grants::{Grant, GrantKind};

/// A time without a leader: from the kill of the leader until the next one holds the Lease and is ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) from: Timestamp,
    /// The time at which the next leader was ready; after [`taken_over`], also holds the Lease.
    pub(super) until: Timestamp,
}

/// Returns the changes of leader, each until the Lease was renewed again: only a leader writes it.
pub(super) fn taken_over(changes: Vec<Change>, log: &AuditEntries) -> Result<Vec<Change>> {
    let renewals = log.iter().filter(|entry| {
        entry.resource == "leases"
            && entry.name == names::LEASE
            && entry.is_write()
            && entry.succeeded()
    });
    let renewals: Vec<_> = renewals.collect();
    let taken_over = changes.into_iter().map(|Change { from, until }| {
        let renewal = renewals.iter().find(|entry| entry.received >= from);
        let renewal = renewal.with_context(|| format!("no leader after {from}"))?;
        let until = until.max(renewal.stage_timestamp);
        Ok(Change { from, until })
    });
    taken_over.collect()
}

/// The grants and the times at which they ended.
pub(super) struct Ends<'a>(Vec<(&'a Grant, Timestamp)>);

/// A grant and the time by which it lasted longer than its expiry.
type Lateness<'a> = (&'a Grant, SignedDuration);

impl<'a> Ends<'a> {
    /// Finds the deletion of the object that gave access, and of the pod of each run. Grants without access are left out.
    pub(super) fn find(scene: &Scene, grants: &'a [Grant], log: &AuditEntries) -> Result<Self> {
        let mut deletions: BTreeMap<(&str, &str), Timestamp> = BTreeMap::new();
        let is_deletion = |entry: &&AuditEntry| {
            let is_here = entry.namespace.is_empty() || entry.namespace == scene.name();
            is_here && entry.verb == "delete" && entry.subresource.is_empty()
        };
        let (done, open): (Vec<_>, Vec<_>) = log
            .iter()
            .filter(is_deletion)
            // A request whose response was lost is repeated: the object is deleted then.
            .partition(|entry| [200, 202, 404].contains(&entry.code));
        // The API server may have deleted the object of a request that failed because its operator was killed.
        let open = open.into_iter().filter(|entry| entry.code >= 499);
        for entry in done.into_iter().chain(open) {
            let key = (entry.resource.as_str(), entry.name.as_str());
            deletions.entry(key).or_insert(entry.stage_timestamp);
        }
        // The pod of a Job has the name of the Job and five characters.
        let pods = deletions.iter().filter_map(|((resource, name), at)| {
            let (job, _) = name.rsplit_once('-').filter(|_| *resource == "pods")?;
            Some((job, *at))
        });
        let pods: BTreeMap<&str, Timestamp> = pods.collect();
        let writes_of = |name: &'a str| {
            let writes = log.iter().filter(|entry| entry.is_write());
            writes.filter(move |entry| entry.name.starts_with(name))
        };
        let mut ends = Vec::new();
        for grant in grants {
            let name = grant.object.as_str();
            let gone = match grant.kind {
                GrantKind::Run => pods.get(name),
                kind => deletions.get(&(kind.resource(), name)),
            };
            if let Some(gone) = gone {
                ends.push((grant, *gone));
                continue;
            }
            // Its operator was killed when it created the object, and the next one began after the expiry: no access began.
            let was_created = writes_of(name).any(|entry| {
                entry.resource == grant.kind.resource()
                    && entry.verb == "create"
                    && entry.succeeded()
            });
            ensure!(
                !was_created,
                "{grant:?} has no end in the log: {:?}",
                writes_of(name).collect::<Vec<_>>()
            );
        }
        Ok(Self(ends))
    }

    /// Returns all grants and their lateness.
    pub(super) fn all(&self) -> impl Iterator<Item = Lateness<'a>> {
        let all = self.0.iter();
        all.map(|(grant, gone)| (*grant, gone.duration_since(grant.until)))
    }

    /// Returns the grants that expired outside of changes of leader, and those that expired during one.
    pub(super) fn divided(&self, changes: &[Change]) -> (Vec<Lateness<'a>>, Vec<Lateness<'a>>) {
        self.all().partition(|(grant, _)| {
            let mut all = changes.iter();
            !all.any(|change| (change.from..=change.until).contains(&grant.until))
        })
    }

    /// Returns the figures, in lines.
    pub(super) fn figures(&self, changes: &[Change]) -> String {
        let lateness = |of: Vec<Lateness<'a>>| -> Vec<SignedDuration> {
            of.into_iter().map(|(_, late)| late).collect()
        };
        let (outside, within) = self.divided(changes);
        let (outside, within) = (lateness(outside), lateness(within));
        let durations = changes.iter();
        let durations = durations.map(|change| change.until.duration_since(change.from));
        let mut lines = vec![
            line("end after the expiry, with a leader", outside),
            line("end after the expiry, in a change of leader", within),
            line("changes of leader", durations.collect()),
        ];
        for kind in GrantKind::ALL {
            let of_kind = self.all().filter(|(grant, _)| grant.kind == kind);
            let of_kind = of_kind.map(|(_, late)| late).collect();
            lines.push(line(&format!("all ends of kind {kind:?}"), of_kind));
        }
        lines.join("\n")
    }
}

/// Returns the number of durations, their median, 99th percentile and maximum in milliseconds.
fn line(what: &str, mut durations: Vec<SignedDuration>) -> String {
    durations.sort();
    let mut text = format!("{what}: {}", durations.len());
    for (name, percent) in [("p50", 50), ("p99", 99), ("max", 100)] {
        let index = (durations.len() * percent).div_ceil(100).saturating_sub(1);
        if let Some(duration) = durations.get(index) {
            // Writing to a text does not fail.
            let _ = write!(text, ", {name} {} ms", duration.as_millis());
        }
    }
    text
}
