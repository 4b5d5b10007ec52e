//! Shortening of the trail in the cluster: the record of it, which a verifier accepts by its signature, and the number
//! of records that are deleted at a time.

use jiff::Timestamp;
use oz_api::names;
use serde::{Deserialize, Serialize};

use super::{Action, Decision, Record};

/// The detail with the time before which records are deleted.
const BEFORE: &str = "before";

/// The order of an administrator, in a ConfigMap in the namespace of oz.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneOrder {
    /// The time before which all records are deleted.
    pub before: Timestamp,
    /// The requester, as stated in the order; only the audit log of Kubernetes proves it.
    #[serde(default)]
    pub by: String,
}

impl PruneOrder {
    /// The key of the order in the ConfigMap [`names::AUDIT_PRUNE`].
    pub const KEY: &'static str = "order";
}

/// The reason for shortening the trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shortening {
    /// There are more events than `audit.maxEvents`.
    TooMany {
        /// The number of events that exist.
        events: u64,
        /// The maximum number of events.
        most: u64,
    },
    /// An administrator requests it.
    Asked(PruneOrder),
}

impl Shortening {
    /// Creates the record that all events older than `before` are deleted.
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
                "Requested",
                format!(
                    "AuditEvents from before {before} are deleted, as {} requests",
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

    /// Returns the time before which the trail is shortened, if the record states one and its writer may shorten the
    /// trail.
    pub(super) fn cutoff(component: &str, record: &Record) -> Option<Timestamp> {
        if record.action != Action::TrailShortened || component != names::OPERATOR {
            return None;
        }
        let before: Timestamp = record.details.get(BEFORE)?.parse().ok()?;
        // The record cannot apply to later records.
        (before <= record.time).then_some(before)
    }
}

/// Returns the number of `events` to delete if `most` are allowed: a tenth more than necessary, so that each new event
/// does not cause a deletion; none if the limit is not exceeded. 0 is no limit.
#[must_use]
pub fn excess(events: u64, most: u64) -> u64 {
    if most == 0 || events <= most {
        return 0;
    }
    events - (most - most / 10)
}
