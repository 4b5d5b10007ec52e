//! What is not done: by a dry run, or because a policy that has changed would delete too much. Each pass
//! over a parent tells it to a port; what all parents tell is summed up.

use std::collections::{BTreeMap, BTreeSet};

use oz_api::composite::Difference;
use oz_core::controller::{Effect, Step};
use serde::{Deserialize, Serialize};

/// The most deletions that a limit may allow a policy that has changed.
pub(super) const MOST_DELETIONS: u32 = 100_000;
/// Name of the port that is told.
pub const PORT: &str = "composite-differences";
/// Annotation: digest of the policy that may delete as many children as it likes.
pub const ACCEPT: &str = "oz.wizardofoz.co/accept-deletions";
/// How many parents a status names.
const MOST_PARENTS: usize = 20;
/// How many children it names of each.
const MOST_CHILDREN: usize = 5;

/// What is not done for one parent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// UID of the CompositeController or RegoController.
    pub composite: String,
    /// The parent, with its namespace if it has one.
    pub parent: String,
    /// Children that would be created.
    pub create: Vec<String>,
    /// Children that would be changed.
    pub change: Vec<String>,
    /// Children that would be deleted.
    pub delete: Vec<String>,
    /// Children of a parent about which the function did not answer: it may not want them any more.
    pub doubtful: usize,
    /// UIDs of the children that there were, as far as was known.
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

/// What all parents told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Digest of the policy of which they told.
    pub policy: Option<String>,
    /// How many there are.
    pub parents: usize,
    /// Whether each of them has told.
    pub complete: bool,
    /// How many children would be deleted.
    pub deletions: usize,
    /// How many children have parents about which the function did not answer.
    pub doubtful: usize,
    /// What is not done, of the first parents.
    pub pending: Vec<Difference>,
}

impl Tally {
    /// Of parents, by their UIDs, and what they told of the policy with this digest.
    #[must_use]
    pub fn of<'a>(
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

    /// The same, after a look at the children that the API server has, each with its parent's UID. A watch may be late,
    /// so that a parent has told without one of them: it has not told yet.
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

    /// Whether a policy that may delete so many may do what it says.
    #[must_use]
    pub fn is_within(&self, most: usize) -> bool {
        self.complete && self.deletions + self.doubtful <= most
    }
}
