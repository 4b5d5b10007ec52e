//! The gate: a part of the API server's paths through which sessions are carried, and which can therefore end each
//! session at its expiry. This crate is pure. Its parts are the meaning of a path ([`path`]) and its options
//! ([`query`]), the protocol of a session ([`upgrade`]), the authentication of a user ([`front_proxy`]), the access
//! decision ([`decide`], [`settle`]) and its duration ([`lasts`]), the containers that may be added to a pod
//! ([`debug`]), the idle timeout ([`activity`], [`idle`]), the requests about open sessions ([`live`]), also between
//! replicas ([`peer`]), moderated sessions ([`moderation`]), recordings ([`recording`]), the messages of sessions
//! ([`messages`]), and the registration of the gate in the API server ([`registration`]). The fields of grants about
//! the gate are in [`oz_core::gate`].

pub mod activity;
mod channels;
pub mod debug;
mod exit;
pub mod front_proxy;
pub mod live;
pub mod messages;
pub mod moderation;
pub mod path;
pub mod peer;
pub mod query;
pub mod recording;
pub mod registration;
#[cfg(test)]
mod tests;
pub mod upgrade;

use jiff::{SignedDuration, Timestamp};
use oz_api::duration::GoDuration;
use oz_api::{Operation, Requester};
use oz_core::access::grant::Grant;
use oz_core::access::lock::Locked;
use oz_core::connect::{self, GrantState, Refusal, binds};
use serde_json::Value;

pub use exit::Exit;
pub use oz_api::names::GATE_API_SERVICE as API_SERVICE;
pub use path::recordings;
use path::{Path, Rest};

/// A request of a user to the gate.
#[derive(Clone, Copy, Debug)]
pub struct GateRequest<'a> {
    /// The current time.
    pub now: Timestamp,
    /// The user, as the API server authenticated them.
    pub user: &'a Requester,
    /// The path of the request.
    pub path: &'a Path,
}

/// Decides whether a user may pass, by the grant of the request that the path names; `standing` is `None` if there is
/// no grant, and `lock` is a lock that blocks the user. This is the function that decides on access through the gate.
///
/// # Errors
/// If the user is denied. The denial is the same for a request of another user as for one that does not exist.
pub fn decide(
    asked: GateRequest<'_>,
    standing: Option<&GrantState>,
    lock: Option<&Locked>,
) -> Result<(), Refusal> {
    let Path {
        namespace, request, ..
    } = asked.path;
    let theirs = standing.filter(|standing| {
        let grant = &standing.grant;
        grant.request.namespace == *namespace
            && grant.request.name == *request
            && binds(&grant.subjects, asked.user)
    });
    let Some(standing) = theirs else {
        return Err(Refusal::new(
            "NoGrant",
            format!(
                "{} has no grant by request {request} in namespace {namespace}; ozctl requests \
                 --mine -n {namespace} lists your requests, and ozctl create exec TEMPLATE -n \
                 {namespace} creates one",
                asked.user.user
            ),
        ));
    };
    lasts(asked.now, standing, lock)?;
    let grant = &standing.grant;
    match &asked.path.rest {
        Rest::Versions | Rest::Groups | Rest::Resources => Ok(()),
        Rest::Listed { namespace, pod, .. } | Rest::Pod { namespace, pod, .. }
            if namespace != &grant.request.namespace || pod != &grant.pod.name =>
        {
            Err(other_pod(grant, namespace, pod))
        }
        Rest::Listed { .. } => Ok(()),
        Rest::Pod {
            operation,
            container,
            ..
        } => match may(grant, *operation, container.as_deref()) {
            // A container that this grant added is found in the pod only: see [`settle`].
            Err(_) if added(grant, &asked.path.rest).is_some() => Ok(()),
            decided => decided,
        },
    }
}

/// The pod that the API server has under the name of the granted pod.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The UID of the pod; `None` if it does not exist.
    pub uid: Option<&'a str>,
    /// The complete pod, if the decision requires it: see [`sees_pod`].
    pub pod: Option<&'a Value>,
}

/// Checks whether the decision requires the complete pod: for a request that adds a container, or concerns an added
/// one.
#[must_use]
pub fn sees_pod(grant: &Grant, rest: &Rest) -> bool {
    let granted = grant.operations.contains(&Operation::Debug);
    granted && (rest.adds() || added(grant, rest).is_some())
}

/// Completes the decision of [`decide`] by the pod from the API server. Returns the container that may be entered only
/// because this grant added it.
///
/// # Errors
/// If the pod is another one or does not exist; if the container is neither granted nor added by this grant.
pub fn settle<'a>(
    grant: &Grant,
    rest: &'a Rest,
    found: Found<'_>,
) -> Result<Option<&'a str>, Refusal> {
    is_granted_pod(grant, found.uid)?;
    let Rest::Pod {
        operation,
        container,
        ..
    } = rest
    else {
        return Ok(None);
    };
    let Err(refusal) = may(grant, *operation, container.as_deref()) else {
        return Ok(None);
    };
    let pod = found.pod.unwrap_or(&Value::Null);
    match added(grant, rest) {
        Some(name) if debug::came_by(pod, grant, name) => Ok(Some(name)),
        _ => Err(refusal),
    }
}

/// Returns the container to attach to, or to read logs of, if it may be an added container.
fn added<'a>(grant: &Grant, rest: &'a Rest) -> Option<&'a str> {
    match rest {
        Rest::Pod {
            operation: Some(Operation::Attach | Operation::Log),
            container: Some(container),
            ..
        } => Some(container.as_str()).filter(|_| grant.operations.contains(&Operation::Debug)),
        _ => None,
    }
}

/// Checks whether access that was opened by a grant may continue. The gate calls it at each change.
///
/// # Errors
/// If the access ends. The error states the reason.
pub fn lasts(now: Timestamp, standing: &GrantState, lock: Option<&Locked>) -> Result<(), Refusal> {
    let grant = &standing.grant;
    let (request, namespace) = (&grant.request.name, &grant.request.namespace);
    if grant.sessions.gate.is_none() {
        return Err(Refusal::new(
            "GateNotUsed",
            format!(
                "request {request} does not go through the gate; use kubectl without --server, or ozctl \
                 exec -n {namespace}"
            ),
        ));
    }
    let again = format!("ozctl create exec {} -n {namespace}", grant.template);
    if grant.window.is_over(now) {
        return Err(Refusal::new(
            "Expired",
            format!(
                "the access of request {request} ended at {}; create a new request: {again}",
                grant.window.until
            ),
        ));
    }
    if standing.ended {
        return Err(Refusal::new(
            "Revoked",
            format!("the access of request {request} was revoked; create a new request: {again}"),
        ));
    }
    match lock {
        Some(lock) => Err(connect::locked(lock)),
        None => Ok(()),
    }
}

/// Returns the denial for a session that was idle for the limit of its grant.
#[must_use]
pub fn idle(grant: &Grant, limit: SignedDuration) -> Refusal {
    Refusal::new(
        "Idle",
        format!(
            "this session had no input and no output for {}, the idle timeout of request {} \
             (template {}, spec.accessConfig.idleTimeout); connect again",
            GoDuration::from(limit),
            grant.request.name,
            grant.template
        ),
    )
}

/// Checks whether the pod that now has the name is the granted pod.
///
/// # Errors
/// If the pod is another one or does not exist.
pub fn is_granted_pod(grant: &Grant, uid: Option<&str>) -> Result<(), Refusal> {
    if uid == Some(grant.pod.uid.as_str()) {
        return Ok(());
    }
    let (pod, request) = (&grant.pod.name, &grant.request.name);
    Err(Refusal::new(
        "PodReplaced",
        format!(
            "pod {pod} of request {request} was deleted, or replaced by another of its name; check \
             the grant: kubectl get ear,par {request} -n {}",
            grant.request.namespace
        ),
    ))
}

fn may(
    grant: &Grant,
    operation: Option<Operation>,
    container: Option<&str>,
) -> Result<(), Refusal> {
    // Every operation on a pod includes reading the pod.
    let Some(operation) = operation else {
        return Ok(());
    };
    let request = &grant.request.name;
    if !grant.operations.contains(&operation) {
        let granted: Vec<String> = grant.operations.iter().map(ToString::to_string).collect();
        return Err(Refusal::new(
            "OperationNotGranted",
            format!(
                "request {request} grants {}, not {operation}; its template {} decides that \
                 (spec.accessConfig.operations)",
                granted.join(", "),
                grant.template
            ),
        ));
    }
    let enters = matches!(operation, Operation::Exec | Operation::Attach);
    if enters && !grant.may_enter(container) {
        return Err(Refusal::new(
            "ContainerNotGranted",
            format!(
                "request {request} grants access to {}; name one of these with -c",
                grant.enterable()
            ),
        ));
    }
    Ok(())
}

fn other_pod(grant: &Grant, namespace: &str, pod: &str) -> Refusal {
    let request = &grant.request;
    Refusal::new(
        "PodMismatch",
        format!(
            "request {} is for pod {} in namespace {}, not for pod {pod} in namespace {namespace}; \
             use that pod, or request this one: ozctl create exec {} -n {namespace} --target-pod \
             {pod}",
            request.name, grant.pod.name, request.namespace, grant.template
        ),
    )
}
