//! The events of a run.

use oz_api::conditions;
use oz_api::harness::{HarnessRunStatus, RunPhase};
use oz_core::controller::Transition;

use super::conditions::{CREDENTIALS_READY, EGRESS_CONFIGURED, REVOKED};
use super::existing::COMPLETED;
use super::terms;
use crate::isolation::{CONFINED, NOT_CONFINED};

/// Returns the events for the changes between two statuses of a run.
pub(super) fn transitions(
    before: Option<&HarnessRunStatus>,
    after: &HarnessRunStatus,
) -> Vec<Transition> {
    let phase = |status: &HarnessRunStatus| status.phase.unwrap_or_default();
    let (phase_before, phase) = (before.map_or(RunPhase::Pending, phase), phase(after));
    let had_job = before.is_some_and(|status| status.job_name.is_some());
    let mut events: Vec<Transition> = terms::event(before, after).into_iter().collect();
    let mut add = |warning, reason, action, note: String| {
        events.push(Transition {
            warning,
            reason,
            action,
            note,
            due: None,
        });
    };
    let new_job = after.job_name.as_ref().filter(|_| !had_job);
    if let Some(job) = new_job {
        let runs = match phase {
            RunPhase::Running => ", and the agent runs",
            _ => "",
        };
        let note = format!("Job {job} was created{runs}");
        add(false, "JobCreated", "Start", note);
    }
    let is_open = |status: &HarnessRunStatus| {
        let confined = conditions::find(&status.conditions, CONFINED);
        confined
            .filter(|confined| confined.status == "False")
            .map(|confined| confined.message.clone())
    };
    let opened = is_open(after).filter(|why| before.and_then(is_open).as_ref() != Some(why));
    if let Some(why) = opened {
        add(true, NOT_CONFINED, "Confine", why);
    }
    for type_ in [CREDENTIALS_READY, EGRESS_CONFIGURED] {
        let revoked = |status: &HarnessRunStatus| {
            let condition = conditions::find(&status.conditions, type_);
            let revoked = condition.filter(|it| it.reason == REVOKED);
            revoked.map(|it| it.message.clone())
        };
        let new = revoked(after).filter(|why| before.and_then(revoked).as_ref() != Some(why));
        if let Some(why) = new {
            add(true, REVOKED, "Revoke", why);
        }
    }
    if phase == phase_before {
        return events;
    }
    let (warning, reason) = match phase {
        // The event about the Job reports both, if one status does.
        RunPhase::Running if new_job.is_some() => return events,
        RunPhase::Running => {
            add(false, "Running", "Start", "the agent runs".to_owned());
            return events;
        }
        RunPhase::Succeeded => (false, "Succeeded"),
        RunPhase::Failed => (true, "Failed"),
        RunPhase::Cancelled => (true, "Cancelled"),
        RunPhase::Pending | RunPhase::Idle => return events,
    };
    if let Some(completed) = conditions::find(&after.conditions, COMPLETED) {
        add(warning, reason, "End", completed.message.clone());
    }
    events
}
