//! What a request's status says: conditions from the facts that were established, and the events
//! for what changed. The same for every kind of request.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::grant::Grant;
use crate::api::{EndReason, Phase, RequestStatus};
use crate::conditions::{self, message, reason};
use crate::controller::{Failure, FailureClass, Transition};
use crate::lifecycle::End;

/// One condition, established.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Type, one of the constants in [`conditions`].
    pub type_: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// Reason in CamelCase.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Fact {
    /// A condition that holds.
    pub fn holds(type_: &'static str, message: impl Into<String>) -> Self {
        Self {
            type_,
            holds: true,
            reason: reason::SUCCESS,
            message: message.into(),
        }
    }

    /// A condition that does not.
    pub fn fails(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            type_,
            holds: false,
            reason,
            message: message.into(),
        }
    }
}

/// Reason of the condition `AccessStillValid` and of the record of an end.
#[must_use]
pub fn end_reason(end: &End) -> &'static str {
    match end.reason {
        EndReason::Expired | EndReason::NeverActive => reason::TIMEOUT,
        other => other.into(),
    }
}

/// One sentence for people about an end.
#[must_use]
pub fn end_message(end: &End) -> String {
    let detail = end.detail();
    match end.reason {
        EndReason::Expired | EndReason::NeverActive => message::EXPIRED.to_owned(),
        EndReason::Deleted => "Access revoked: the request was deleted".to_owned(),
        EndReason::TemplateChanged => {
            "Access revoked: its template was changed, and says that this ends its grants"
                .to_owned()
        }
        EndReason::DriftDetected | EndReason::PodReplaced => format!("Access revoked: {detail}"),
        EndReason::PodNotReady => detail.to_owned(),
    }
}

/// The obstacle by which a plan tells the status of an end that cannot be seen any more once the plan
/// is carried out.
pub(super) fn obstacle(end: &End) -> Option<Failure> {
    let says = |what: &str| Some(Failure::invalid(end_reason(end), what));
    match end.reason {
        EndReason::Expired | EndReason::NeverActive | EndReason::Deleted => None,
        EndReason::TemplateChanged => says(&end_message(end)),
        EndReason::DriftDetected | EndReason::PodNotReady | EndReason::PodReplaced => {
            says(end.detail())
        }
    }
}

/// The end that a plan told of.
pub(super) fn told(obstacle: &Failure) -> Option<End> {
    let what = || obstacle.message.clone();
    match obstacle.reason.parse().ok()? {
        EndReason::TemplateChanged => Some(End::TEMPLATE_CHANGED),
        EndReason::DriftDetected => Some(End::drift(what())),
        EndReason::PodNotReady => Some(End::not_ready(what())),
        EndReason::PodReplaced => Some(End::pod_replaced(what())),
        _ => None,
    }
}

/// The status with these facts added; conditions that no fact is about stay as they are.
#[must_use]
pub fn with_facts(
    now: Timestamp,
    metadata: &ObjectMeta,
    current: Option<&RequestStatus>,
    facts: impl IntoIterator<Item = Fact>,
) -> RequestStatus {
    let mut status = current.cloned().unwrap_or_default();
    for fact in facts {
        if fact.type_ == conditions::ACCESS_RESOURCES_CREATED {
            // Whoever says that they are in the way says so after this.
            status.foreign_bindings.clear();
        }
        conditions::set(
            &mut status.conditions,
            fact.type_,
            fact.holds,
            fact.reason,
            fact.message,
            metadata.generation,
            now,
        );
    }
    status.observed_generation = metadata.generation;
    status
}

/// Whether every condition that readiness stands on is true.
#[must_use]
pub fn is_ready(status: &RequestStatus) -> bool {
    status.phase == Phase::Active
        && conditions::all_true(&status.conditions, &conditions::OF_READY_REQUEST)
}

/// Copies what was decided into the status, for people.
pub fn describe(status: &mut RequestStatus, grant: &Grant) {
    status.requester = Some(grant.requester.user.clone());
    status.granted_at = Some(grant.granted_at);
    status.expires_at = Some(grant.window.until);
    status.pod_name = Some(grant.pod.name.clone());
    status.pod_uid = Some(grant.pod.uid.clone());
    status.template_digest = Some(grant.template_digest.clone());
    status.access_message = Some(grant.access_message.clone());
    status.pod_digest = grant.own_pod.as_ref().map(|own| own.digest.clone());
}

/// When a request in a terminal phase is to be deleted: `keep` after it ended.
#[must_use]
pub fn kept_until(
    status: Option<&RequestStatus>,
    created: Timestamp,
    keep: SignedDuration,
) -> Timestamp {
    let ended = status
        .and_then(|status| conditions::find(&status.conditions, conditions::ACCESS_STILL_VALID))
        .map_or(created, |condition| condition.last_transition_time.0);
    ended.checked_add(keep).unwrap_or(Timestamp::MAX)
}

/// The events for the change from one status to the next: a change of phase, or a new obstacle.
#[must_use]
pub fn transitions(before: Option<&RequestStatus>, after: &RequestStatus) -> Vec<Transition> {
    let was = before.map(|status| status.phase).unwrap_or_default();
    if was != after.phase {
        let change = phase_change(after).into_iter();
        return change.chain(sessions_not_ended(after)).collect();
    }
    if let Some(was) = before.filter(|was| was.pod_uid.is_some() && was.pod_uid != after.pod_uid) {
        return vec![moved(was, after)];
    }
    let ending = conditions::find(&after.conditions, conditions::ACCESS_STILL_VALID);
    if ending.is_some_and(|valid| valid.status == "False") {
        // The change of phase tells.
        return Vec::new();
    }
    after
        .conditions
        .iter()
        .filter(|now| now.status == "False")
        .filter(|now| {
            before
                .and_then(|status| conditions::find(&status.conditions, &now.type_))
                .is_none_or(|then| then.status != "False" || then.reason != now.reason)
        })
        .map(|now| Transition {
            warning: true,
            reason: "AccessWaiting",
            action: "Wait",
            note: format!("{}: {}", now.reason, now.message),
            due: None,
        })
        .collect()
}

/// For those who look at what happened and not at how it stands.
fn sessions_not_ended(after: &RequestStatus) -> Option<Transition> {
    let cut = conditions::find(&after.conditions, conditions::SESSIONS_CUT)?;
    (after.phase.is_terminal() && cut.reason == reason::GIVEN_UP).then(|| Transition {
        warning: true,
        reason: "SessionsNotEnded",
        action: "EndSessions",
        note: cut.message.clone(),
        due: None,
    })
}

fn moved(before: &RequestStatus, after: &RequestStatus) -> Transition {
    let name = |status: &RequestStatus| status.pod_name.clone().unwrap_or_default();
    Transition {
        warning: false,
        reason: "AccessMoved",
        action: "Move",
        note: format!(
            "{} may use pod {} in the place of pod {}, until {}",
            after.requester.as_deref().unwrap_or_default(),
            name(after),
            name(before),
            after.expires_at.unwrap_or_default()
        ),
        due: None,
    }
}

fn phase_change(after: &RequestStatus) -> Option<Transition> {
    let valid = || {
        conditions::find(&after.conditions, conditions::ACCESS_STILL_VALID)
            .map(|condition| condition.message.clone())
            .unwrap_or_default()
    };
    let (warning, reason, action, note) = match after.phase {
        Phase::Pending => return None,
        Phase::Active => (
            false,
            "AccessGranted",
            "Grant",
            format!(
                "{} may use pod {} until {}",
                after.requester.as_deref().unwrap_or_default(),
                after.pod_name.as_deref().unwrap_or_default(),
                after.expires_at.unwrap_or_default()
            ),
        ),
        Phase::Expired => (false, "AccessExpired", "Expire", valid()),
        Phase::Revoked => (true, "AccessRevoked", "Revoke", valid()),
        Phase::Denied => (true, "AccessDenied", "Deny", valid()),
        Phase::Failed => (true, "AccessFailed", "Refuse", valid()),
    };
    Some(Transition {
        warning,
        reason,
        action,
        note,
        due: after.expires_at.filter(|_| after.phase == Phase::Expired),
    })
}

/// The fact that the grant's objects exist, or why they do not.
#[must_use]
pub fn resources_created(message: String, failure: Option<&Failure>) -> Fact {
    match failure {
        None => Fact::holds(conditions::ACCESS_RESOURCES_CREATED, message),
        Some(failure) => Fact::fails(
            conditions::ACCESS_RESOURCES_CREATED,
            // One reason for all, as scripts know it, but for the one that names an intruder.
            match failure.class {
                FailureClass::Conflict => Failure::NAME_CONFLICT,
                FailureClass::Transient | FailureClass::Invalid => reason::FAILURE,
            },
            format!("ERROR: {failure}"),
        ),
    }
}

/// Reason of a grant that is on record as ended, while its pod is on its way out.
const ENDING: &str = "Ending";

/// The fact that a grant is on record as ended, but that its containers still run.
#[must_use]
pub fn ending() -> Fact {
    Fact::fails(
        conditions::ACCESS_RESOURCES_READY,
        ENDING,
        "Access has ended; waiting for the containers of the pod to stop",
    )
}

/// The fact that a grant is on record as ended, but that its sessions could not be ended yet.
#[must_use]
pub fn sessions_last(failure: &Failure) -> Fact {
    Fact::fails(
        conditions::ACCESS_RESOURCES_READY,
        ENDING,
        format!("Access has ended; its sessions may go on: {failure}"),
    )
}

/// The fact that a grant is over that took more than one pass. The containers of a pod that others
/// use too go on; what became of sessions there says [`conditions::SESSIONS_CUT`].
#[must_use]
pub fn ended(shared: bool) -> Fact {
    let message = if shared {
        "Access has ended; SessionsCut says what came of its sessions"
    } else {
        "Access has ended; the containers of the pod have stopped"
    };
    Fact::fails(conditions::ACCESS_RESOURCES_READY, "Ended", message)
}
