//! The status of a request: the conditions from the facts, and the events for the changes. It is the same for all kinds
//! of request.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use oz_api::conditions::{self, message, reason};
use oz_api::{EndReason, Phase, RequestStatus};
use oz_trail::RequestRef;

pub use super::fact::Fact;

use super::grant::Grant;
use crate::controller::{Failure, FailureClass, Transition};
use crate::gate;
use crate::lifecycle::End;
use crate::lifecycle::transitions::{Change, Names, event};
use crate::lifecycle::window::after;

/// Returns the reason for the condition `AccessStillValid` and for the audit record of an end.
#[must_use]
pub fn end_reason(end: &End) -> &'static str {
    match end.reason {
        EndReason::Expired | EndReason::NeverActive => reason::TIMEOUT,
        other => other.into(),
    }
}

/// Returns one sentence about an end, for users.
#[must_use]
pub fn end_message(end: &End) -> String {
    let detail = end.detail();
    match end.reason {
        EndReason::Expired | EndReason::NeverActive => message::EXPIRED.to_owned(),
        EndReason::Deleted => "Access revoked: the request was deleted".to_owned(),
        EndReason::TemplateChanged => {
            "Access revoked: its template was changed, and requires that a change revokes its \
                grants"
                .to_owned()
        }
        EndReason::DriftDetected
        | EndReason::SealRetired
        | EndReason::PodReplaced
        | EndReason::Locked
        | EndReason::TicketClosed
        | EndReason::TicketCheckUnavailable
        | EndReason::OnCallEnded
        | EndReason::OnCallCheckUnavailable
        | EndReason::JobDeleted
        | EndReason::NotConfined => {
            format!("Access revoked: {detail}")
        }
        EndReason::PodNotReady | EndReason::ApprovalTimedOut => detail.to_owned(),
    }
}

/// Returns the status with these facts added; conditions without a fact stay as they are.
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
            // The caller adds the bindings that block the Role after this step.
            status.foreign_bindings.clear();
        }
        fact.set(&mut status.conditions, metadata.generation, now);
    }
    status.observed_generation = metadata.generation;
    status
}

/// Checks whether every condition that readiness requires is true.
#[must_use]
pub fn is_ready(status: &RequestStatus) -> bool {
    status.phase == Phase::Active
        && conditions::all_true(&status.conditions, &conditions::OF_READY_REQUEST)
}

/// Copies the decision into the status, for users.
pub fn describe(status: &mut RequestStatus, grant: &Grant) {
    status.requester = Some(grant.requester.user.clone());
    status.granted_at = Some(grant.granted_at);
    status.expires_at = Some(grant.window.until);
    status.pod_name = Some(grant.pod.name.clone());
    status.pod_uid = Some(grant.pod.uid.clone());
    status.role_name.clone_from(&grant.role);
    status.gate = grant.sessions.gate.is_some();
    status.template_digest = Some(grant.template_digest.clone());
    status.access_message = Some(how_to_enter(grant));
    status.pod_digest = grant.own_pod.as_ref().map(|own| own.digest.clone());
}

/// Returns the access message: the text of the template, and the commands for the connection if that text alone does
/// not lead to the pod.
fn how_to_enter(grant: &Grant) -> String {
    let said = &grant.access_message;
    if grant.sessions.gate.is_none() {
        return said.clone();
    }
    let RequestRef {
        name, namespace, ..
    } = &grant.request;
    let verb = match &grant.own_pod {
        Some(_) => format!("pod template/{}", grant.template),
        None => format!("exec pod/{}", grant.pod.name),
    };
    let mut message = format!(
        "{said}\nThis pod is reached through oz's gate only: ozctl {verb} -n {namespace} --request \
         {name}; or kubectl with --kubeconfig FILE, which ozctl kubeconfig {name} -n {namespace} \
         -o FILE writes"
    );
    if let Some(config) = &grant.sessions.moderation {
        message.push_str(&format!(
            "\nA session waits until {}: ozctl sessions watch {name} -n {namespace}",
            gate::watchers(config)
        ));
    }
    message
}

/// Returns the time at which a request in a terminal phase is deleted: `keep` after its end.
#[must_use]
pub fn kept_until(
    status: Option<&RequestStatus>,
    created: Timestamp,
    keep: SignedDuration,
) -> Timestamp {
    let ended = status
        .and_then(|status| conditions::find(&status.conditions, conditions::ACCESS_STILL_VALID))
        .map_or(created, |condition| condition.last_transition_time.0);
    after(ended, keep)
}

const NAMES: Names = Names {
    active: ("AccessGranted", "Grant"),
    expired: ("AccessExpired", "Expire"),
    revoked: ("AccessRevoked", "Revoke"),
    denied: ("AccessDenied", "Deny"),
    failed: ("AccessFailed", "Refuse"),
    waiting: ("AccessWaiting", "Wait"),
    loud: false,
};

/// The names of the events of an emergency.
const EMERGENCY_NAMES: Names = Names {
    active: ("EmergencyGranted", "Grant"),
    loud: true,
    ..NAMES
};

/// Returns the events for the change from one status to the next.
#[must_use]
pub fn transitions(before: Option<&RequestStatus>, after: &RequestStatus) -> Vec<Transition> {
    let was = before.map_or(Phase::Pending, |status| status.phase);
    let pod_known = before.filter(|was| was.pod_uid.is_some());
    if let Some(from) = pod_known.filter(|from| from.pod_uid != after.pod_uid)
        && was == after.phase
    {
        let pods = from.pod_name.as_ref();
        let note = pods.and_then(|pod| may_use(after, &format!(" instead of pod {pod},")));
        let moved = note.map(|note| event(false, ("AccessMoved", "Move"), note));
        return moved.into_iter().collect();
    }
    let valid = conditions::find(&after.conditions, conditions::ACCESS_STILL_VALID);
    // The change of the phase reports it.
    let ends = valid.is_some_and(|valid| valid.status == "False");
    let change = Change {
        names: match conditions::is_true(&after.conditions, conditions::EMERGENCY) {
            true => &EMERGENCY_NAMES,
            false => &NAMES,
        },
        phase: (was, after.phase),
        note: match after.phase {
            Phase::Active => may_use(after, ""),
            _ => valid.map(|valid| valid.message.clone()),
        },
        due: after.expires_at.filter(|_| after.phase == Phase::Expired),
        besides: sessions_not_ended(after),
        before: before.map_or(&[], |status| &status.conditions),
        needed: after.conditions.iter().filter(|_| !ends).collect(),
    };
    change.events()
}

fn sessions_not_ended(after: &RequestStatus) -> Option<Transition> {
    let cut = conditions::find(&after.conditions, conditions::SESSION_TERMINATION)?;
    let given_up = after.phase.is_terminal() && cut.reason == reason::RETRIES_EXHAUSTED;
    let name = ("SessionsNotEnded", "EndSessions");
    given_up.then(|| event(true, name, cut.message.clone()))
}

/// Returns the sentence about the grant that a status describes; `None` if it describes none.
fn may_use(status: &RequestStatus, instead: &str) -> Option<String> {
    let user = status.requester.as_ref()?;
    let (pod, until) = (status.pod_name.as_ref()?, status.expires_at?);
    Some(format!("{user} may use pod {pod}{instead} until {until}"))
}

/// Returns the fact that the grant's objects exist, or the reason why they do not.
#[must_use]
pub fn resources_created(message: String, failure: Option<&Failure>) -> Fact {
    match failure {
        None => Fact::holds(conditions::ACCESS_RESOURCES_CREATED, message),
        Some(failure) => Fact::fails(
            conditions::ACCESS_RESOURCES_CREATED,
            // One reason for all failures, as scripts expect it, except the reason of a name conflict.
            match failure.class {
                FailureClass::Conflict => Failure::NAME_CONFLICT,
                FailureClass::Transient | FailureClass::Invalid => reason::FAILURE,
            },
            format!("ERROR: {failure}"),
        ),
    }
}

/// Reason of a grant with a recorded end and a pod that still terminates.
const ENDING: &str = "Ending";

/// Returns the fact that the end of a grant is recorded, but that its containers still run.
#[must_use]
pub fn ending() -> Fact {
    Fact::fails(
        conditions::ACCESS_RESOURCES_READY,
        ENDING,
        "Access has ended; waiting for the containers of the pod to stop",
    )
}

/// Returns the fact that the end of a grant is recorded, but that its sessions could not be ended yet.
#[must_use]
pub fn sessions_last(failure: &Failure) -> Fact {
    Fact::fails(
        conditions::ACCESS_RESOURCES_READY,
        ENDING,
        format!("Access has ended; its sessions may continue: {failure}"),
    )
}

/// Returns the facts that the objects of the grant neither exist nor are ready any more; `kubectl wait` reads them, and
/// not the phase. `waits` is the reason why an end is not yet `over`. The containers of a pod that other users share
/// keep running (`shared`); [`conditions::SESSION_TERMINATION`] reports the result for the sessions there. A condition that
/// was never true keeps its reason.
#[must_use]
pub fn unusable(
    before: &[Condition],
    end: &End,
    over: bool,
    shared: bool,
    waits: Option<Fact>,
) -> Vec<Fact> {
    let reason: &'static str = end.phase().into();
    let created = if over {
        "Access has ended; its Role and RoleBinding were removed"
    } else {
        "Access has ended; its Role and RoleBinding are being removed"
    };
    let ready = match (over, shared) {
        (false, _) => created,
        (true, true) => {
            "Access has ended; the condition SessionTermination has the result for its \
            sessions"
        }
        (true, false) => "Access has ended; the containers of the pod have stopped",
    };
    let was = |type_| conditions::find(before, type_);
    let mut facts = Vec::new();
    let stood = was(conditions::ACCESS_RESOURCES_CREATED)
        .is_some_and(|was| was.status == "True" || was.reason == reason);
    if stood {
        facts.push(Fact::fails(
            conditions::ACCESS_RESOURCES_CREATED,
            reason,
            created,
        ));
    }
    if waits.is_some() {
        facts.extend(waits);
    } else if was(conditions::ACCESS_RESOURCES_READY).is_some() {
        facts.push(Fact::fails(
            conditions::ACCESS_RESOURCES_READY,
            reason,
            ready,
        ));
    }
    facts
}
