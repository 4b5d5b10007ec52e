//! The sessions of a grant, from the view of its request: whether they end with the grant, and the step that ends them.

use jiff::{SignedDuration, Timestamp};
use oz_api::conditions::{SESSION_TERMINATION, reason};
use oz_api::{Ending, Operation};
use oz_trail::{Action, Decision, PodRef, Record};

use super::grant::Grant;
use super::request::StoredRequest;
use super::status::{self, Fact};
use crate::controller::{Failure, Step};
use crate::lifecycle::End;
use crate::lifecycle::window::{after, has_come};
use crate::sessions::{Sessions, SessionsEnded};

/// The time for which oz tries to end sessions, from the expiry or from the first attempt, whichever is later. Sessions
/// that end automatically are over by then; oz does not wait longer for a node that does not respond.
const END_SESSIONS_TIMEOUT: SignedDuration = SignedDuration::from_secs(60);

/// Returns the fact whether the sessions of a grant end automatically.
pub(super) fn cut(grant: &Grant) -> Option<Fact> {
    let terms = &grant.sessions;
    if terms.gate.is_some() && grant.operations.contains(&Operation::Debug) {
        return Some(Fact::holds(
            SESSION_TERMINATION,
            "Sessions go through the gate, which closes them at the expiry of the grant; a debug \
             container stays until its pod ends",
        ));
    }
    if terms.gate.is_some() {
        return Some(Fact::holds(
            SESSION_TERMINATION,
            "Sessions go through the gate, which closes them at the expiry of the grant",
        ));
    }
    if terms.of_pod.is_empty() {
        // The grant was decided before oz had a session probe.
        return None;
    }
    let without: Vec<&str> = terms
        .of_pod
        .iter()
        .chain(&terms.beside)
        .map(String::as_str)
        .filter(|name| grant.may_enter(Some(name)) && !terms.timeouts.contains_key(*name))
        .collect();
    let streams = [Operation::Attach, Operation::PortForward];
    if !without.is_empty() && grant.operations.contains(&Operation::Exec) {
        return Some(Fact::fails(
            SESSION_TERMINATION,
            "ProbeFailed",
            format!(
                "Sessions in {} have no timeout: no shell with timeout was found there. They end \
                 with the grant only while oz runs, if at all",
                without.join(", ")
            ),
        ));
    }
    if let Some(stream) = streams.iter().find(|one| grant.operations.contains(one)) {
        return Some(Fact::fails(
            SESSION_TERMINATION,
            "TerminationUnsupported",
            format!("A session by {stream} on a shared pod is not ended with the grant"),
        ));
    }
    Some(Fact::holds(
        SESSION_TERMINATION,
        "Sessions end with the grant",
    ))
}

/// Returns the final fact about sessions after the attempt to end them.
pub(super) fn ended(sessions: &SessionsEnded) -> Fact {
    let SessionsEnded {
        ended,
        left,
        out_of_reach,
        opened: _,
    } = sessions;
    if *left > 0 {
        let message = format!(
            "{ended} processes were ended; {left} could not be ended, or cannot be distinguished \
                from others"
        );
        return Fact::fails(SESSION_TERMINATION, "ProcessesRemaining", message);
    }
    if !out_of_reach.is_empty() {
        let message = format!(
            "{ended} processes were ended; in {} no command can be run to end any",
            out_of_reach.join(", ")
        );
        return Fact::fails(SESSION_TERMINATION, "ContainerUnreachable", message);
    }
    Fact::holds(SESSION_TERMINATION, format!("{ended} processes were ended"))
}

/// Returns the fact that sessions were not ended and that oz makes no further attempt, since this attempt failed too.
pub(super) fn given_up(failure: &Failure) -> Fact {
    Fact::fails(
        SESSION_TERMINATION,
        reason::RETRIES_EXHAUSTED,
        format!(
            "gave up after {} s: {}; inspect or delete the pod",
            END_SESSIONS_TIMEOUT.as_secs(),
            failure.message
        ),
    )
}

/// Creates the audit record that the sessions of a grant may continue: their node has not responded so far, and oz
/// makes no further attempt.
pub(super) fn not_reached(now: Timestamp, grant: &Grant, ending: &Ending) -> Option<Record> {
    ending.sessions_abandoned.then(|| {
        grant.record(
            now,
            Action::SessionTerminated,
            Decision::End,
            "PodUnreachable",
            format!(
                "Processes of {} may still run: no command could be run in the pod to end them",
                grant.requester.user
            ),
        )
    })
}

/// Returns the step that ends the processes of the grant; none if they cannot be ended.
pub(super) fn end(now: Timestamp, end: &End, grant: &Grant) -> Option<Step> {
    let with_pod = grant.own_pod.is_some();
    if !with_pod && !is_possible(grant) {
        return None;
    }
    let record = grant.record(
        now,
        Action::SessionTerminated,
        Decision::End,
        status::end_reason(end),
        format!("Processes of {} were ended", grant.requester.user),
    );
    Some(Step::from(Sessions {
        namespace: grant.request.namespace.clone(),
        pod: grant.pod.name.clone(),
        pod_uid: grant.pod.uid.clone(),
        mark: grant.request.uid.clone(),
        granted_at: grant.granted_at,
        with_pod,
        record,
    }))
}

/// Returns the same step for a grant without any sealed object left: the status, which oz alone writes, contains the
/// pod, and processes bear the request's UID.
pub(super) fn end_forgotten(
    now: Timestamp,
    end: &End,
    request: &StoredRequest<'_>,
) -> Option<Step> {
    let status = request.status?;
    let (pod, pod_uid) = (status.pod_name.clone()?, status.pod_uid.clone()?);
    let until = status.expires_at?;
    // A dedicated pod ends automatically.
    if status.pod_digest.is_some() {
        return None;
    }
    let user = status.requester.as_deref().unwrap_or("somebody");
    let mut record = request.record(
        now,
        Action::SessionTerminated,
        Decision::End,
        status::end_reason(end),
        &format!("Processes of {user} were ended"),
    );
    record.until = Some(until);
    record.pod = Some(PodRef {
        name: pod.clone(),
        uid: pod_uid.clone(),
        container: None,
    });
    Some(Step::from(Sessions {
        namespace: record.request.namespace.clone(),
        pod,
        pod_uid,
        mark: request.uid().to_owned(),
        granted_at: status.granted_at.unwrap_or_else(|| request.created()),
        with_pod: false,
        record,
    }))
}

/// Checks whether processes of the grant can be ended individually.
fn is_possible(grant: &Grant) -> bool {
    let runs = |operation| grant.operations.contains(&operation);
    grant.own_pod.is_none() && (runs(Operation::Exec) || runs(Operation::Debug))
}

/// Checks whether the timeout for ending the sessions of a grant with the expiry `until` has passed, with the first
/// attempt at `since`.
pub(super) fn is_tried_long(now: Timestamp, until: Timestamp, since: Timestamp) -> bool {
    has_come(now, after(until.max(since), END_SESSIONS_TIMEOUT))
}
