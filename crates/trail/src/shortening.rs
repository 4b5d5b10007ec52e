//! Shortening the trail in the cluster: the record that says it, which a verifier believes by its
//! signature, and how many records are taken at a time.

use jiff::Timestamp;
use oz_api::names;
use serde::{Deserialize, Serialize};

use super::{Action, Decision, Record};

/// The detail that says up to when.
const BEFORE: &str = "before";

/// What an administrator asks for, in a ConfigMap of oz's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneOrder {
    /// All records that are older are to go.
    pub before: Timestamp,
    /// Who asks, as they say themselves; Kubernetes' own audit log knows it for certain.
    #[serde(default)]
    pub by: String,
}

impl PruneOrder {
    /// Its key in the ConfigMap [`names::AUDIT_PRUNE`].
    pub const KEY: &'static str = "order";
}

/// Why the trail is shortened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shortening {
    /// There are more events than `--audit-max-events`.
    TooMany {
        /// How many there are.
        events: u64,
        /// How many there may be.
        most: u64,
    },
    /// An administrator asks for it.
    Asked(PruneOrder),
}

impl Shortening {
    /// The record that all events older than `before` go.
    #[must_use]
    pub fn record(&self, now: Timestamp, before: Timestamp) -> Record {
        let (reason, message) = match self {
            Self::TooMany { events, most } => (
                "TooManyEvents",
                format!(
                    "AuditEvents from before {before} are deleted: there are {events}, and at most \
                     {most} are kept"
                ),
            ),
            Self::Asked(order) => (
                "Asked",
                format!(
                    "AuditEvents from before {before} are deleted, as {} asks",
                    if order.by.is_empty() {
                        "somebody"
                    } else {
                        &order.by
                    }
                ),
            ),
        };
        let subject = format!("{reason} {before}");
        let record = Record::about(
            now,
            Action::TrailShortened,
            Decision::Note,
            &subject,
            reason,
            message,
        );
        let record = record.detail(BEFORE, before.to_string());
        match self {
            Self::Asked(order) => record.detail("by", order.by.clone()),
            Self::TooMany { events, .. } => record.detail("events", events.to_string()),
        }
    }

    /// Up to when a record says that the trail is shortened, if it is one that may.
    pub(super) fn of(component: &str, record: &Record) -> Option<Timestamp> {
        if record.action != Action::TrailShortened || component != names::OPERATOR {
            return None;
        }
        let before: Timestamp = record.details.get(BEFORE)?.parse().ok()?;
        // It cannot speak of what comes after it.
        (before <= record.time).then_some(before)
    }
}

/// How many of `events` go where `most` may be: a tenth more than must, so that it is not done anew for
/// each; none if there are no more than that. 0 is any number.
#[must_use]
pub fn excess(events: u64, most: u64) -> u64 {
    if most == 0 || events <= most {
        return 0;
    }
    events - (most - most / 10)
}
