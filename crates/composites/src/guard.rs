//! The changes that are not made, because of a dry run or because a changed policy would delete too many children. Each
//! pass over a parent reports them to a port; a tally sums up the reports of all parents.
//! See docs/adr/0022-what-a-changed-policy-may-delete.md.

use std::collections::{BTreeMap, BTreeSet};

use oz_api::composite::Difference;
use oz_core::controller::{Effect, Step};
use serde::{Deserialize, Serialize};

/// The maximum value of a limit for the deletions of a changed policy.
pub(super) const MOST_DELETIONS: u32 = 100_000;
/// The name of the port that receives the reports.
pub const PORT: &str = "composite-differences";
/// Annotation: digest of the policy that may delete any number of children.
pub const ACCEPT: &str = "oz.wizardofoz.co/accept-deletions";
/// The maximum number of parents in a status.
const MOST_PARENTS: usize = 20;
/// The maximum number of children of each parent in a status.
const MOST_CHILDREN: usize = 5;

/// The changes that are not made for one parent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The UID of the CompositeController or RegoController; `None` for one that is not stored.
    pub composite: Option<String>,
    /// The parent, with its namespace if it has one.
    pub parent: String,
    /// The children that would be created.
    pub create: Vec<String>,
    /// The children that would be changed.
    pub change: Vec<String>,
    /// The children that would be deleted.
    pub delete: Vec<String>,
    /// The number of children of a parent for which the function did not respond. The function may no longer return
    /// them.
    pub doubtful: usize,
    /// The UIDs of the existing children, as far as they were known.
    #[serde(default)]
    pub seen: BTreeSet<String>,
}

impl Report {
    pub(super) fn step(&self, parent: &str) -> Step {
        Step::Effect(Effect {
            port: PORT.to_owned(),
            key: parent.to_owned(),
            payload: serde_json::to_value(self).unwrap_or_default(),
        })
    }

    fn difference(&self) -> Option<Difference> {
        let first = |names: &[String]| names.iter().take(MOST_CHILDREN).cloned().collect();
        let all = [&self.create, &self.change, &self.delete];
        let more = all
            .iter()
            .map(|names| names.len().saturating_sub(MOST_CHILDREN));
        let is_empty = all.iter().all(|names| names.is_empty());
        (!is_empty).then(|| Difference {
            parent: self.parent.clone(),
            create: first(&self.create),
            change: first(&self.change),
            delete: first(&self.delete),
            more: i64::try_from(more.sum::<usize>()).unwrap_or(i64::MAX),
        })
    }
}

/// The sum of the reports of all parents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// The digest of the policy of the reports.
    pub policy: Option<String>,
    /// The number of parents.
    pub parents: usize,
    /// True if each parent has reported.
    pub complete: bool,
    /// The number of children that would be deleted.
    pub deletions: usize,
    /// The number of children of parents for which the function did not respond.
    pub doubtful: usize,
    /// The changes that are not made, for the first parents.
    pub pending: Vec<Difference>,
}

impl Tally {
    /// Sums up the reports of parents, by their UIDs, about the policy with this digest.
    #[must_use]
    pub fn from_reports<'a>(
        policy: Option<&str>,
        parents: impl IntoIterator<Item = &'a str>,
        reports: &BTreeMap<String, Report>,
    ) -> Self {
        let mut tally = Self {
            policy: policy.map(ToOwned::to_owned),
            complete: true,
            ..Self::default()
        };
        let mut told: Vec<&Report> = Vec::new();
        for parent in parents {
            tally.parents += 1;
            match reports.get(parent) {
                Some(report) => told.push(report),
                None => tally.complete = false,
            }
        }
        told.sort_by(|one, other| one.parent.cmp(&other.parent));
        tally.deletions = told.iter().map(|report| report.delete.len()).sum();
        tally.doubtful = told.iter().map(|report| report.doubtful).sum();
        let pending = told.iter().filter_map(|report| report.difference());
        tally.pending = pending.take(MOST_PARENTS).collect();
        tally
    }

    /// Compares the reports with the children in the API server, each with its parent's UID. A watch may be late, so
    /// that a parent reports without one of its children; the tally is then incomplete.
    #[must_use]
    pub fn checked<'a>(
        mut self,
        children: impl IntoIterator<Item = (&'a str, &'a str)>,
        reports: &BTreeMap<String, Report>,
    ) -> Self {
        for (parent, child) in children {
            let report = reports.get(parent);
            self.complete &= report.is_none_or(|report| report.seen.contains(child));
        }
        self
    }

    /// Checks whether a policy with this limit for deletions may make its changes.
    #[must_use]
    pub fn is_within(&self, most: usize) -> bool {
        self.complete && self.deletions + self.doubtful <= most
    }
}
