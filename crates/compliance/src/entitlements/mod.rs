//! Who could get into pods, whether anybody did or not: by what oz's own objects say ([`sources`]) and by rights that
//! RBAC hands out without oz ([`standing`]), and what somebody decided about each line ([`attest`]). Apart from the audit trail, which says who did.

pub mod attest;
pub mod sources;
pub mod standing;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use oz_trail::digest_without;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::csv;

/// What the digest of a list is made for.
const PURPOSE: &str = "oz-entitlements/v1";

/// How somebody could get in.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumIter,
    strum::EnumString,
    strum::IntoStaticStr,
)]
pub enum Way {
    /// A template lets them ask.
    Request,
    /// A rule of a template lets them approve what others ask for.
    Approve,
    /// A template lets them in without approvals, if they say that it is an emergency.
    Emergency,
    /// They may ask for a transient binding of a role, if they also hold the verb `bind` on it.
    TransientBinding,
    /// A transient binding lets them in once its window opens.
    Waiting,
    /// They get into every pod, also while oz is down.
    BreakGlass,
    /// A grant or a transient binding lets them in now, until it ends.
    Granted,
    /// RBAC lets them in, without oz and without an end.
    Standing,
}

/// Which kind of subject it is.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
)]
pub enum SubjectKind {
    /// A user, by name.
    User,
    /// Everybody in a group. Kubernetes does not know who is in it.
    Group,
    /// A service account, as NAMESPACE/NAME.
    ServiceAccount,
}

/// One way in, of one subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entitlement {
    /// How.
    pub way: Way,
    /// In which namespace; empty: in all.
    pub namespace: String,
    /// Whose.
    pub kind: SubjectKind,
    /// Name of the subject.
    pub subject: String,
    /// What it permits, such as `create pods/exec`.
    pub permits: Vec<String>,
    /// The objects that it is for, by name; none: all.
    pub objects: Vec<String>,
    /// Which object says so.
    pub source: String,
    /// What else limits it.
    pub limits: String,
}

/// All of them, sorted, and what could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entitlements {
    /// Digest over the rest, in its canonical form.
    pub digest: String,
    /// Each once.
    pub entitlements: BTreeSet<Entitlement>,
    /// What could not be read, so that entitlements may be missing.
    pub gaps: BTreeSet<String>,
}

/// The first line of the list as CSV.
pub const COLUMNS: [&str; 8] = [
    "way",
    "namespace",
    "kind",
    "subject",
    "permits",
    "objects",
    "source",
    "limits",
];

impl Entitlements {
    /// A list.
    #[must_use]
    pub fn new(entitlements: BTreeSet<Entitlement>, gaps: BTreeSet<String>) -> Self {
        let mut all = Self {
            digest: String::new(),
            entitlements,
            gaps,
        };
        all.digest = all.computed();
        all
    }

    /// The digest that the list must have. The same list has the same digest, whenever and by whomever it is made.
    #[must_use]
    pub fn computed(&self) -> String {
        let value = json!({ "entitlements": self.entitlements, "gaps": self.gaps });
        digest_without(PURPOSE, &value, &[])
    }

    /// Only what holds in this namespace: also what holds in all.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        let mut entitlements = self.entitlements;
        entitlements.retain(|one| one.namespace.is_empty() || one.namespace == namespace);
        Self::new(entitlements, self.gaps)
    }

    /// The list as CSV. What could not be read is at its end, so that nobody takes a part for the whole, and last of
    /// all the digest.
    #[must_use]
    pub fn csv(&self) -> String {
        self.rows(&[], &[])
    }

    /// The same with two more columns, in which somebody writes what they decide.
    #[must_use]
    pub fn csv_to_attest(&self) -> String {
        self.rows(&[attest::DECISION, attest::RATIONALE], &["", ""])
    }

    fn rows(&self, head: &[&str], more: &[&str]) -> String {
        let mut text = csv::row(COLUMNS.iter().chain(head));
        let mut add = |cells: &[&str]| text.push_str(&csv::row(cells.iter().chain(more)));
        for one in &self.entitlements {
            add(&one.cells().each_ref().map(String::as_str));
        }
        for gap in &self.gaps {
            add(&[attest::GAP, "", "", "", "", "", "", gap]);
        }
        add(&[attest::DIGEST, "", "", "", "", "", "", &self.digest]);
        text
    }
}

impl Entitlement {
    /// The columns of a table.
    #[must_use]
    pub fn cells(&self) -> [String; 8] {
        [
            self.way.to_string(),
            self.namespace.clone(),
            self.kind.to_string(),
            self.subject.clone(),
            self.permits.join(" + "),
            self.objects.join(" "),
            self.source.clone(),
            self.limits.clone(),
        ]
    }
}
