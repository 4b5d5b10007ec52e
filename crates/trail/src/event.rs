//! An entry as an AuditEvent: its name, by which events are sorted by time, and its labels, by which events are
//! selected. Both are derived from the entry, so a verifier detects that they were changed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::labels;

use super::chain::Entry;
use crate::{AuditEvent, AuditEventSpec};

const TIME: &str = "%Y%m%dt%H%M%S";
/// The length of a time in the format [`TIME`].
const TIME_LENGTH: usize = "20060102t150405".len();
/// The length of the microseconds after the time.
const MICROS_LENGTH: usize = 6;

/// Returns the name of the event of an entry: its time to the microsecond, and a part of its digest that makes the name
/// unique.
#[must_use]
pub fn name_of(entry: &Entry) -> String {
    let time = entry.record.time;
    let micros = time.subsec_nanosecond() / 1_000;
    let digest = entry.link.digest.trim_start_matches("sha256:");
    let short = digest.get(..12).unwrap_or(digest);
    format!("{}{micros:06}z-{short}", time.strftime(TIME))
}

/// Returns the time that a name contains; `None` if oz did not create the name.
#[must_use]
pub fn time_in_name(name: &str) -> Option<Timestamp> {
    let (time, rest) = name.split_at_checked(TIME_LENGTH)?;
    let (micros, rest) = rest.split_at_checked(MICROS_LENGTH)?;
    if !rest.starts_with("z-") {
        return None;
    }
    let micros: i32 = micros.parse().ok()?;
    let civil = DateTime::strptime(TIME, time).ok()?;
    let time = Offset::UTC.to_timestamp(civil).ok()?;
    Timestamp::new(time.as_second(), micros * 1_000).ok()
}

/// Returns the labels of the event of an entry.
#[must_use]
pub(super) fn labels_of(entry: &Entry) -> BTreeMap<String, String> {
    let record = &entry.record;
    let mut found = BTreeMap::from([
        (labels::AUDIT_KIND.to_owned(), record.action.to_string()),
        (
            labels::AUDIT_DECISION.to_owned(),
            record.decision.to_string(),
        ),
        (
            labels::AUDIT_WRITER.to_owned(),
            labels::value(&entry.link.writer.component),
        ),
    ]);
    if let Some(user) = &record.user {
        found.insert(labels::AUDIT_USER.to_owned(), labels::value(&user.user));
    }
    if !record.request.uid.is_empty() {
        found.insert(
            labels::AUDIT_GRANT.to_owned(),
            labels::value(&record.request.uid),
        );
    }
    found
}

impl From<Entry> for AuditEvent {
    fn from(entry: Entry) -> Self {
        Self {
            metadata: ObjectMeta {
                name: Some(name_of(&entry)),
                labels: Some(labels_of(&entry)),
                ..ObjectMeta::default()
            },
            spec: AuditEventSpec {
                link: entry.link,
                record: entry.record,
            },
        }
    }
}

impl From<AuditEventSpec> for Entry {
    fn from(spec: AuditEventSpec) -> Self {
        Self {
            link: spec.link,
            record: spec.record,
        }
    }
}
