//! The conditions of templates and requests: their types, reasons and fixed messages, which users and scripts wait for,
//! and the only function that sets one.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Template: the workload that it points to exists.
pub const TARGET_REF_EXISTS: &str = "TargetRefExists";
/// Template: its durations are valid, and the default does not exceed the maximum.
pub const TEMPLATE_DURATIONS_VALID: &str = "TemplateDurationsValid";
/// Template: the rest of its configuration is valid, and at least one user can use it.
pub const ACCESS_CONFIG_VALID: &str = "AccessConfigValid";

/// Request: its template exists.
pub const TARGET_TEMPLATE_EXISTS: &str = "TargetTemplateExists";
/// Request: the duration of the access is known.
pub const ACCESS_DURATIONS_VALID: &str = "AccessDurationsValid";
/// Request: the requester is proven, and may have access.
pub const REQUESTER_VERIFIED: &str = "RequesterVerified";
/// Request: the required approvals exist, if the template or an access policy requires any.
pub const APPROVED: &str = "Approved";
/// Request: it was granted without approvals, since it was an emergency. Only on emergencies.
pub const EMERGENCY: &str = "Emergency";
/// Request: the ticket check accepts its change ticket. Only on requests that name one.
pub const TICKET_ACCEPTED: &str = "TicketAccepted";
/// Review: it was not written in time.
pub const OVERDUE: &str = "Overdue";
/// Request: its time is not over, and it was not revoked.
pub const ACCESS_STILL_VALID: &str = "AccessStillValid";
/// Request: the objects of the grant exist.
pub const ACCESS_RESOURCES_CREATED: &str = "AccessResourcesCreated";
/// Request: the objects of the grant can be used.
pub const ACCESS_RESOURCES_READY: &str = "AccessResourcesReady";
/// Request: its pod differs from the pod that a user might expect of the workload. Informs only.
pub const POD_ADJUSTED: &str = "PodAdjusted";
/// Request: no NetworkPolicy opens what its template closes. Informs only.
pub const NETWORK_ISOLATED: &str = "NetworkIsolated";
/// Request: whether its sessions end with it. Informs only; `ready` does not depend on it.
pub const SESSION_TERMINATION: &str = "SessionTermination";

/// The conditions that make a template ready.
pub const OF_READY_TEMPLATE: [&str; 3] = [
    TARGET_REF_EXISTS,
    TEMPLATE_DURATIONS_VALID,
    ACCESS_CONFIG_VALID,
];
/// The conditions that make a request ready.
pub const OF_READY_REQUEST: [&str; 6] = [
    TARGET_TEMPLATE_EXISTS,
    ACCESS_DURATIONS_VALID,
    REQUESTER_VERIFIED,
    ACCESS_STILL_VALID,
    ACCESS_RESOURCES_CREATED,
    ACCESS_RESOURCES_READY,
];

/// Reasons of conditions.
pub mod reason {
    /// The condition holds.
    pub const SUCCESS: &str = "Success";
    /// The referenced object does not exist, or cannot be read.
    pub const NOT_FOUND: &str = "NotFound";
    /// The template is invalid.
    pub const NOT_ACCEPTABLE: &str = "NotAcceptable";
    /// The request is invalid.
    pub const BAD_REQUEST: &str = "BadRequest";
    /// The timeout has passed.
    pub const TIMEOUT: &str = "Timeout";
    /// An operation failed.
    pub const FAILURE: &str = "Failure";
    /// The condition does not hold yet, but is expected to.
    pub const NOT_YET_READY: &str = "NotYetReady";
    /// The operation failed, and is not retried any more.
    pub const RETRIES_EXHAUSTED: &str = "RetriesExhausted";
    /// The condition held before, and does not hold now.
    pub const NO_LONGER_READY: &str = "NoLongerReady";
}

/// Messages of conditions that are always the same.
pub mod message {
    /// [`TARGET_REF_EXISTS`](super::TARGET_REF_EXISTS) is True.
    pub const SUCCESS: &str = "Success";
    /// [`TEMPLATE_DURATIONS_VALID`](super::TEMPLATE_DURATIONS_VALID) is True.
    pub const TEMPLATE_DURATIONS_VALID: &str = "spec.defaultDuration and spec.maxDuration valid";
    /// [`TARGET_TEMPLATE_EXISTS`](super::TARGET_TEMPLATE_EXISTS) is True.
    pub const TEMPLATE_FOUND: &str = "Found Target Template";
    /// [`TARGET_TEMPLATE_EXISTS`](super::TARGET_TEMPLATE_EXISTS) is False: the template does not exist.
    pub const TEMPLATE_MISSING: &str = "Error: template does not exist";
    /// [`ACCESS_STILL_VALID`](super::ACCESS_STILL_VALID) is True.
    pub const STILL_VALID: &str = "Access still valid";
    /// [`ACCESS_STILL_VALID`](super::ACCESS_STILL_VALID) is False: the access has expired.
    pub const EXPIRED: &str = "Access expired";
    /// [`ACCESS_RESOURCES_READY`](super::ACCESS_RESOURCES_READY) is True.
    pub const READY: &str = "Ready";
    /// [`ACCESS_RESOURCES_READY`](super::ACCESS_RESOURCES_READY) is True for a pod that is not, after the pod's name.
    pub const POD_NOT_READY: &str = "was Running, but not Ready, when it was chosen";
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::IntoStaticStr)]
pub enum Status {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The status cannot be determined now.
    Unknown,
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Sets the condition of one type. `lastTransitionTime` changes only with the status; an existing type keeps its
/// position, and a new one is last.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: impl Into<Status>,
    reason: &str,
    message: impl Into<String>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let mut condition = Condition {
        type_: type_.to_owned(),
        status: status.into().to_string(),
        reason: reason.to_owned(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: Time(whole_second(now)),
    };
    match conditions.iter_mut().find(|known| known.type_ == type_) {
        Some(known) => {
            if known.status == condition.status {
                condition.last_transition_time = known.last_transition_time.clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}

/// Truncates an instant to the precision of the API, so that a status equals itself when it is read back.
fn whole_second(instant: Timestamp) -> Timestamp {
    Timestamp::from_second(instant.as_second()).unwrap_or(instant)
}

/// Returns the condition of one type.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|known| known.type_ == type_)
}

/// Checks whether a condition differs from the one before: with the same spec, a condition that does not hold is the
/// same as long as its reason is the same, regardless of its message.
#[must_use]
pub fn is_news(before: &[Condition], now: &Condition) -> bool {
    let then = find(before, &now.type_).filter(|then| then.status == now.status);
    let Some(then) = then else {
        return true;
    };
    let same = (&then.reason, then.observed_generation) == (&now.reason, now.observed_generation);
    now.status != "True" && !same
}

/// Checks whether the condition of one type exists and is True.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|known| known.status == "True")
}

/// Checks whether the conditions of all these types exist and are True.
#[must_use]
pub fn all_true(conditions: &[Condition], types: &[&str]) -> bool {
    types.iter().all(|type_| is_true(conditions, type_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timestamp(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn transition(conditions: &[Condition], type_: &str) -> Timestamp {
        find(conditions, type_).unwrap().last_transition_time.0
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let mut conditions = Vec::new();
        let (first, second, third) = (
            timestamp("2026-01-01T00:00:00.25Z"),
            timestamp("2026-01-01T00:01:00Z"),
            timestamp("2026-01-01T00:02:00Z"),
        );
        set(
            &mut conditions,
            "A",
            false,
            "NotFound",
            "no",
            Some(1),
            first,
        );
        assert_eq!(
            transition(&conditions, "A"),
            timestamp("2026-01-01T00:00:00Z")
        );

        // Another reason, message and generation, the same status.
        set(
            &mut conditions,
            "A",
            false,
            "Failure",
            "still no",
            Some(2),
            second,
        );
        assert_eq!(
            transition(&conditions, "A"),
            timestamp("2026-01-01T00:00:00Z")
        );
        let known = find(&conditions, "A").unwrap();
        assert_eq!(
            (
                known.reason.as_str(),
                known.message.as_str(),
                known.observed_generation
            ),
            ("Failure", "still no", Some(2))
        );

        set(&mut conditions, "A", true, "Success", "yes", Some(2), third);
        assert_eq!(transition(&conditions, "A"), third);
    }

    #[test]
    fn each_type_is_there_once_and_keeps_its_place() {
        let mut conditions = Vec::new();
        let now = timestamp("2026-01-01T00:00:00Z");
        for type_ in ["A", "B", "C", "B", "A"] {
            set(&mut conditions, type_, true, "Success", "", None, now);
        }
        let types: Vec<&str> = conditions
            .iter()
            .map(|known| known.type_.as_str())
            .collect();
        assert_eq!(types, ["A", "B", "C"]);
    }

    #[test]
    fn only_true_is_true() {
        let mut conditions = Vec::new();
        let now = timestamp("2026-01-01T00:00:00Z");
        set(&mut conditions, "Yes", true, "Success", "", None, now);
        set(&mut conditions, "No", false, "Failure", "", None, now);
        set(
            &mut conditions,
            "Perhaps",
            Status::Unknown,
            "NotYetReady",
            "",
            None,
            now,
        );
        assert!(is_true(&conditions, "Yes"));
        assert!(!is_true(&conditions, "No"));
        assert!(!is_true(&conditions, "Perhaps"));
        assert!(!is_true(&conditions, "Absent"));
        assert!(all_true(&conditions, &["Yes"]));
        assert!(!all_true(&conditions, &["Yes", "Perhaps"]));
        assert!(!all_true(&conditions, &["Yes", "Absent"]));
    }

    #[test]
    fn a_condition_equals_itself_when_read_back() {
        let mut conditions = Vec::new();
        set(
            &mut conditions,
            "A",
            true,
            "Success",
            "",
            None,
            timestamp("2026-01-01T00:00:00.123456789Z"),
        );
        let read: Vec<Condition> =
            serde_json::from_value(serde_json::to_value(&conditions).unwrap()).unwrap();
        assert_eq!(read, conditions);
    }
}
