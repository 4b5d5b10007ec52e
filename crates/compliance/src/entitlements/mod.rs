//! Entitlements: the users who could get access to pods, regardless of use. They come from the objects of oz
//! ([`sources`]) and from RBAC rights that exist without oz ([`standing`]), and a reviewer decides about each line
//! ([`attest`]). The audit trail, in contrast, records the access that took place.

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

/// The purpose of the digest of a list.
const PURPOSE: &str = "oz-entitlements/v1";

/// A way of getting access.
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
pub enum EntitlementKind {
    /// A template allows the subject to request access, or RBAC allows it to start harness runs.
    Request,
    /// A rule of a template or of an access policy allows the subject to approve the requests of others.
    Approve,
    /// A template or an access policy grants the subject access without approvals if the subject declares an emergency.
    Emergency,
    /// The subject may request a transient binding of a role, if it also holds the verb `bind` on the role.
    TransientBinding,
    /// A transient binding grants the subject access when its window opens.
    Waiting,
    /// The subject has access to every pod, also while oz is down.
    BreakGlass,
    /// A grant or a transient binding grants the subject access now, until its expiry.
    Granted,
    /// RBAC grants the subject access, without oz and without an expiry.
    Standing,
}

/// The kind of a subject.
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
    /// All members of a group. Kubernetes does not know the members.
    Group,
    /// A service account, as NAMESPACE/NAME.
    ServiceAccount,
}

/// The namespace of an entitlement in all namespaces.
const EVERYWHERE: &str = "";

/// A way of access of one subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entitlement {
    /// The way of access.
    pub way: EntitlementKind,
    /// The namespace; empty for all namespaces.
    pub namespace: String,
    /// The kind of the subject.
    pub kind: SubjectKind,
    /// Name of the subject.
    pub subject: String,
    /// The permissions, such as `create pods/exec`.
    pub permits: Vec<String>,
    /// The names of the objects that it applies to; none for all objects.
    pub objects: Vec<String>,
    /// The object that defines it.
    pub source: String,
    /// Further limits.
    pub limits: String,
}

/// All entitlements, sorted, and the data that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entitlements {
    /// Digest of the other fields, in canonical form.
    pub digest: String,
    /// The entitlements, each once.
    pub entitlements: BTreeSet<Entitlement>,
    /// The data that could not be read, so that entitlements may be missing.
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
    /// Creates a list.
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

    /// Returns the digest that the list must have. Equal lists have the same digest, regardless of the time and the
    /// user.
    #[must_use]
    pub fn computed(&self) -> String {
        let value = json!({ "entitlements": self.entitlements, "gaps": self.gaps });
        digest_without(PURPOSE, &value, &[])
    }

    /// Returns only the entitlements in this namespace, including those in all namespaces.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        let mut entitlements = self.entitlements;
        entitlements.retain(|one| one.namespace.is_empty() || one.namespace == namespace);
        Self::new(entitlements, self.gaps)
    }

    /// Returns the list as CSV. The data that could not be read is listed at the end, so that no reader takes a part
    /// for the whole; the last line is the digest.
    #[must_use]
    pub fn csv(&self) -> String {
        self.rows(&[], &[])
    }

    /// Returns the list as CSV with two more columns for the decisions of a reviewer.
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
    /// Returns the columns of a table.
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
