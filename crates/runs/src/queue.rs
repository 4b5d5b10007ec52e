//! The queues of runs: on the same workspace, and within the limits of broker policies (`limits.concurrentRuns`).

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::conditions::{APPROVED, EMERGENCY, TICKET_ACCEPTED};
use oz_api::harness::{HarnessRun, Workspace};
use oz_core::access::ticket;

use super::objects::workspace_name;
use super::run::{
    BROKER_READY, CREDENTIALS_READY, JOB_CREATED, TEMPLATE_RESOLVED, TOO_MANY_RUNS,
    WORKSPACE_BOUND, WORKSPACE_FREE, has_begun,
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

/// Returns the runs of `all` that use a workspace or wait for it, in the order in which they get it: the oldest first. The
/// UID decides among those of the same second. A run that has begun uses it, even if the status of the workspace is lost.
#[must_use]
pub fn runs_on<'a>(
    workspace: &Workspace,
    all: impl IntoIterator<Item = &'a HarnessRun>,
) -> Vec<&'a HarnessRun> {
    let mut runs: Vec<&HarnessRun> = all
        .into_iter()
        .filter(|run| is_for(run, workspace) && !has_left(run))
        .collect();
    runs.sort_by(|one, other| turn_on_workspace(one).cmp(&turn_on_workspace(other)));
    runs
}

/// Returns the runs of `all` that precede a run on its workspace, in order.
#[must_use]
pub fn ahead<'a>(
    workspace: &Workspace,
    run: &HarnessRun,
    all: impl IntoIterator<Item = &'a HarnessRun>,
) -> Vec<&'a HarnessRun> {
    let mut ahead = runs_on(workspace, all);
    ahead.retain(|other| turn_on_workspace(other) < turn_on_workspace(run));
    ahead
}

/// Checks whether a run has its place in the queue of the workspace that it names, by its status: it has begun, or it
/// waits for nothing except this workspace and the query of a ticket check, which takes seconds. Any other run would
/// block the workspace for other runs until its timeout. A run without a status may require approvals, and therefore has no
/// place yet.
#[must_use]
pub fn has_place(run: &HarnessRun) -> bool {
    let waits = fails(run, |condition| condition.type_ == WORKSPACE_BOUND);
    let is_held_up = fails(run, |condition| {
        condition.type_ != WORKSPACE_BOUND && is_obstacle(condition)
    });
    has_begun(run) || (waits && !is_held_up)
}

/// Checks whether a workspace belongs to a run: the run names it and has its place in the queue, or the workspace was
/// created for the run.
fn is_for(run: &HarnessRun, workspace: &Workspace) -> bool {
    let Some(name) = &workspace.metadata.name else {
        return false;
    };
    if run.metadata.namespace != workspace.metadata.namespace {
        return false;
    }
    match (&run.spec.workspace_ref, &run.metadata.name) {
        (Some(named), _) => named == name && has_place(run),
        (None, Some(run_name)) => {
            let mut owners = workspace.metadata.owner_references.iter().flatten();
            workspace_name(run_name) == *name
                && owners.any(|owner| Some(&owner.uid) == run.metadata.uid.as_ref())
        }
        (None, None) => false,
    }
}

/// Returns the sort key in the queue of a workspace: runs that have begun, and then all others by their creation.
fn turn_on_workspace(run: &HarnessRun) -> (bool, (Option<Timestamp>, Option<&str>)) {
    (!has_begun(run), place(run))
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
/// place in the queue of the limits, where it would block other runs until its timeout. The query of a ticket check and the
/// assignment of a free workspace take seconds, and the run keeps its place.
#[must_use]
pub fn is_held_up(run: &HarnessRun) -> bool {
    !has_begun(run) && fails(run, is_obstacle)
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

/// Checks whether a run with this condition, which is False, could not begin for longer than some seconds.
fn is_obstacle(condition: &Condition) -> bool {
    let is_brief = [ticket::WAITING, WORKSPACE_FREE].contains(&condition.reason.as_str());
    OBSTACLES.contains(&condition.type_.as_str()) && !is_brief
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
        run_with(second, obstacle.as_slice())
    }

    /// Returns a run that was created at this second, with conditions that are False.
    fn run_with(second: u8, obstacles: &[(&str, &str)]) -> HarnessRun {
        let conditions: Vec<Value> = obstacles
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
            ("WorkspaceBound", "WorkspaceFree", true),
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

    /// A run that waits for something else would block its workspace for other runs.
    #[test]
    fn run_has_place_on_named_workspace_while_it_waits_only_for_this() {
        const BUSY: (&str, &str) = ("WorkspaceBound", "WorkspaceBusy");
        const PENDING: (&str, &str) = ("TicketAccepted", "TicketCheckPending");
        for (obstacles, has) in [
            (&[BUSY][..], true),
            (&[], false),
            (&[("WorkspaceBound", "WorkspaceFree")], true),
            (&[("WorkspaceBound", "WorkspaceSeeding")], true),
            (&[("WorkspaceBound", "WorkspaceNotFound")], true),
            (&[BUSY, PENDING], true),
            (&[BUSY, ("EgressConfigured", "PolicyRevoked")], true),
            (&[BUSY, ("Approved", "Waiting")], false),
            (&[BUSY, ("TicketAccepted", "TicketCheckUnavailable")], false),
            (&[PENDING], false),
            (&[("Approved", "Waiting")], false),
            (&[("Emergency", "ReviewsUnavailable")], false),
            (&[("TemplateResolved", "PolicyMissing")], false),
            (&[("BrokerReady", "BrokerUnavailable")], false),
            (&[("BrokerCredentialsReady", "SecretsNotReadable")], false),
            (&[("JobCreated", "TooManyRuns")], false),
            (&[("JobCreated", "Unreachable")], false),
        ] {
            let mut run = run_with(0, obstacles);
            assert_eq!(has_place(&run), has, "{obstacles:?}");
            run.status.as_mut().unwrap().job_name = Some("squawk".to_owned());
            assert!(has_place(&run), "{obstacles:?}");
        }
        let mut new = run(0, None);
        new.status = None;
        assert!(!has_place(&new));
    }

    /// Returns the UIDs of runs.
    fn uids<'a>(runs: &[&'a HarnessRun]) -> Vec<&'a str> {
        let uids = runs.iter().filter_map(|run| run.metadata.uid.as_deref());
        uids.collect()
    }

    fn workspace(metadata: &Value) -> Workspace {
        let spec = json!({"storage": {"size": "1Gi"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn runs_precede_others_on_named_workspace_in_order_of_creation_once_they_have_place() {
        let workspace = workspace(&json!({"name": "cage"}));
        let named = |second, obstacle| {
            let mut run = run(second, obstacle);
            run.spec.workspace_ref = Some("cage".to_owned());
            run
        };
        let busy = Some(("WorkspaceBound", "WorkspaceBusy"));
        let mut new = named(1, None);
        new.status = None;
        let mut begun = named(6, None);
        begun.status.as_mut().unwrap().job_name = Some("squawk".to_owned());
        let all = [
            named(5, busy),
            named(0, Some(("Approved", "Waiting"))),
            new,
            named(4, busy),
            named(2, Some(("JobCreated", "TooManyRuns"))),
            begun,
        ];
        assert_eq!(uids(&runs_on(&workspace, &all)), ["u-6", "u-4", "u-5"]);
        for (run, expected) in [
            (&all[0], &["u-6", "u-4"][..]),
            (&all[1], &["u-6"]),
            (&all[3], &["u-6"]),
            (&all[5], &[]),
        ] {
            assert_eq!(uids(&ahead(&workspace, run, &all)), expected);
        }
    }

    /// Only its run waits for it.
    #[test]
    fn run_has_place_on_its_dedicated_workspace_whatever_it_waits_for() {
        let owner = |uid: &str| {
            json!({
                "apiVersion": "paddock.dev/v1alpha1", "kind": "HarnessRun", "name": "squawk", "uid": uid,
            })
        };
        let mut new = run(0, None);
        new.status = None;
        for run in [new, run(0, Some(("Approved", "Waiting")))] {
            for (uid, expected) in [("u-0", &["u-0"][..]), ("u-1", &[])] {
                let metadata = json!({"name": "squawk-ws", "ownerReferences": [owner(uid)]});
                let runs = runs_on(&workspace(&metadata), [&run]);
                assert_eq!(uids(&runs), expected);
            }
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
