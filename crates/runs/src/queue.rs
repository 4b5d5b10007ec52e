//! The queues of runs: on the same workspace, and within the limits of broker policies (`limits.concurrentRuns`).

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::conditions::{APPROVED, EMERGENCY, TICKET_ACCEPTED};
use oz_api::harness::HarnessRun;
use oz_core::access::ticket;

use super::objects::workspace_name;
use super::run::{
    BROKER_READY, CREDENTIALS_READY, JOB_CREATED, TEMPLATE_RESOLVED, TOO_MANY_RUNS,
    WORKSPACE_BOUND, has_begun,
};

/// The conditions that are False while a run waits for something other than other runs of the limits.
const OBSTACLES: [&str; 7] = [
    TEMPLATE_RESOLVED,
    APPROVED,
    TICKET_ACCEPTED,
    EMERGENCY,
    WORKSPACE_BOUND,
    BROKER_READY,
    CREDENTIALS_READY,
];

/// Checks whether a run has ended or is being deleted.
#[must_use]
pub fn has_left(run: &HarnessRun) -> bool {
    run.metadata.deletion_timestamp.is_some() || super::run::is_over(run)
}

/// Returns the workspace of a run: the one that it names, or the one that oz creates for it; `None` for a run without
/// both names.
#[must_use]
pub fn workspace_of(run: &HarnessRun) -> Option<String> {
    let given = run.status.as_ref();
    let given = given.and_then(|status| status.workspace_ref.clone());
    given
        .or_else(|| run.spec.workspace_ref.clone())
        .or_else(|| run.metadata.name.as_deref().map(workspace_name))
}

/// Returns the runs of `all` that precede a run on the workspace that it names, in order: those that have not ended and
/// were created earlier. The UID decides among those of the same second.
#[must_use]
pub fn ahead<'a>(
    run: &HarnessRun,
    all: impl IntoIterator<Item = &'a HarnessRun>,
) -> Vec<&'a HarnessRun> {
    let Some(workspace) = &run.spec.workspace_ref else {
        return Vec::new();
    };
    let mut ahead: Vec<&HarnessRun> = all
        .into_iter()
        .filter(|other| other.metadata.namespace == run.metadata.namespace)
        .filter(|other| other.spec.workspace_ref.as_ref() == Some(workspace) && !has_left(other))
        .filter(|other| place(other) < place(run))
        .collect();
    ahead.sort_by(|one, other| place(one).cmp(&place(other)));
    ahead
}

/// Returns the sort key of runs: the creation time, and the UID for runs of the same second.
pub fn place(run: &HarnessRun) -> (Option<Timestamp>, Option<&str>) {
    let created = run.metadata.creation_timestamp.as_ref();
    (created.map(|time| time.0), run.metadata.uid.as_deref())
}

/// Checks whether a run is before another one in the queue of the limits, of two that have not ended. Both are compared by
/// their statuses, so that every run of the queue has the same order.
#[must_use]
pub fn is_before(other: &HarnessRun, run: &HarnessRun) -> bool {
    has_begun(other) || turn(other) < turn(run)
}

/// Checks whether a run could not begin now, by its status, for example because it waits for approvals. Such a run holds no
/// place in the queue of the limits, where it would block other runs until its timeout. The query of a ticket check takes
/// seconds, and the run keeps its place.
#[must_use]
pub fn is_held_up(run: &HarnessRun) -> bool {
    let obstacles = fails(run, |condition| {
        OBSTACLES.contains(&condition.type_.as_str()) && condition.reason != ticket::WAITING
    });
    !has_begun(run) && obstacles
}

/// Checks whether a run waits only for other runs of the limits, by its status.
#[must_use]
pub fn is_queued(run: &HarnessRun) -> bool {
    fails(run, |condition| {
        condition.type_ == JOB_CREATED && condition.reason == TOO_MANY_RUNS
    })
}

/// Returns the sort key in the queue of the limits: runs that could begin, by their creation, and then all others. A run
/// that no longer waits for its approvals has its place again once its status shows that.
fn turn(run: &HarnessRun) -> (bool, (Option<Timestamp>, Option<&str>)) {
    (is_held_up(run), place(run))
}

/// Checks whether a condition of a run is False, and is one of these.
fn fails(run: &HarnessRun, is_one: impl Fn(&Condition) -> bool) -> bool {
    let conditions = run.status.iter().flat_map(|status| &status.conditions);
    let mut false_ones = conditions.filter(|condition| condition.status == "False");
    false_ones.any(is_one)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns a run that was created at this second, with a condition that is False.
    fn run(second: u8, obstacle: Option<(&str, &str)>) -> HarnessRun {
        let conditions: Vec<Value> = obstacle
            .iter()
            .map(|(type_, reason)| {
                json!({
                    "type": type_, "status": "False", "reason": reason, "message": "",
                    "lastTransitionTime": "2026-01-31T09:00:00Z",
                })
            })
            .collect();
        let run = json!({
            "apiVersion": "paddock.dev/v1alpha1", "kind": "HarnessRun",
            "metadata": {
                "name": "squawk", "uid": format!("u-{second}"),
                "creationTimestamp": format!("2026-01-31T09:00:{second:02}Z"),
            },
            "spec": {"templateRef": {"name": "parrot"}},
            "status": {"conditions": conditions},
        });
        serde_json::from_value(run).unwrap()
    }

    #[test]
    fn run_that_could_not_begin_holds_no_place() {
        for (type_, reason, holds) in [
            ("Approved", "Waiting", false),
            ("TicketAccepted", "TicketCheckUnavailable", false),
            ("TicketAccepted", "TicketCheckUnknown", false),
            ("TicketAccepted", "TooManyTickets", false),
            ("TicketAccepted", "TicketCheckPending", true),
            ("Emergency", "ReviewsUnavailable", false),
            ("TemplateResolved", "PolicyMissing", false),
            ("WorkspaceBound", "WorkspaceBusy", false),
            ("BrokerReady", "BrokerUnavailable", false),
            ("BrokerCredentialsReady", "SecretsNotReadable", false),
            ("JobCreated", "TooManyRuns", true),
            ("JobCreated", "Unreachable", true),
            ("Confined", "OtherPolicies", true),
        ] {
            let older = run(0, Some((type_, reason)));
            for younger in [None, Some(("JobCreated", "TooManyRuns"))] {
                let younger = run(1, younger);
                assert_eq!(is_before(&older, &younger), holds, "{type_} {reason}");
                assert_eq!(is_before(&younger, &older), !holds, "{type_} {reason}");
            }
            assert_eq!(
                is_queued(&older),
                reason == "TooManyRuns",
                "{type_} {reason}"
            );
            // A run that has begun counts for the limits, whatever its conditions are.
            let mut begun = older.clone();
            begun.status.as_mut().unwrap().job_name = Some("squawk".to_owned());
            assert!(is_before(&begun, &run(1, None)), "{type_} {reason}");
        }
    }

    /// Otherwise more runs than the limit could begin after several waited for the same broker.
    #[test]
    fn runs_that_wait_for_the_same_have_an_order() {
        let obstacles = [
            None,
            Some(("Approved", "Waiting")),
            Some(("BrokerReady", "BrokerUnavailable")),
            Some(("JobCreated", "TooManyRuns")),
        ];
        let all: Vec<HarnessRun> = (0..16)
            .map(|second| run(second, obstacles[usize::from(second % 4)]))
            .collect();
        let before = |run: &HarnessRun| all.iter().filter(|other| is_before(other, run)).count();
        let mut places: Vec<usize> = all.iter().map(before).collect();
        places.sort_unstable();
        assert_eq!(places, (0..all.len()).collect::<Vec<_>>());
    }
}
