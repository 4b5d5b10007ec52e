//! The gate: a part of the API server's own paths through which sessions go, and which therefore ends each at its
//! instant. Pure: what a path means ([`path`]) and the options behind it ([`query`]), which protocol a session goes
//! over to ([`upgrade`]), who somebody is ([`front_proxy`]), who may pass ([`decide`], [`settle`]) and for how long
//! they may go on ([`lasts`]), which container may be added to a pod ([`debug`]), whether they use it
//! ([`activity`], [`idle`]), what is asked about open sessions ([`live`]), also by one replica for another
//! ([`peer`]), who has to watch them ([`moderation`]), what is kept of them ([`recording`]), what is said in their
//! messages ([`messages`]), and whether the API server is to know of the gate ([`registration`]). What grants say
//! of the gate is in [`oz_core::gate`].

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
use oz_core::connect::{self, Refusal, Standing, binds};
use serde_json::Value;

pub use exit::Exit;
pub use path::recordings;
use path::{Path, Rest};

/// The APIService by which the API server knows the gate.
pub const API_SERVICE: &str = "v1alpha1.gate.oz.wizardofoz.co";

/// Who asks for what.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Now.
    pub now: Timestamp,
    /// Who, by the API server's word.
    pub user: &'a Requester,
    /// For what.
    pub path: &'a Path,
}

/// Whether somebody may pass, by the grant of the request that they name; `standing` is `None` if there is
/// none, and `lock` is one that keeps them from it. This is the line that decides who passes the gate.
///
/// # Errors
/// Why not. A request of somebody else's looks like one that does not exist.
pub fn decide(
    asked: Asked<'_>,
    standing: Option<&Standing>,
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
                "{} has no grant by request {request} in namespace {namespace}; ozctl requests --mine -n \
                 {namespace} lists what there is, and ozctl create exec TEMPLATE -n {namespace} asks for one",
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
            // Whether it is one that was added by this grant, the pod says: see [`settle`].
            Err(_) if added(grant, &asked.path.rest).is_some() => Ok(()),
            decided => decided,
        },
    }
}

/// Which pod the API server has under the name that was granted.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Its UID; `None` if there is none.
    pub uid: Option<&'a str>,
    /// All of it, where it matters what it has: see [`sees_pod`].
    pub pod: Option<&'a Value>,
}

/// Whether it takes the whole pod to decide: what is about containers that were added, or adds one.
#[must_use]
pub fn sees_pod(grant: &Grant, rest: &Rest) -> bool {
    let granted = grant.operations.contains(&Operation::Debug);
    granted && (rest.adds() || added(grant, rest).is_some())
}

/// The last word about what [`decide`] let pass, by what the API server says of the pod. Gives back the container
/// that is entered only since it came by this grant.
///
/// # Errors
/// If it is another pod, or none; if what is entered is neither granted nor came by this grant.
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

/// The container that is attached to, or whose logs are read, where it may be one that was added.
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

/// Whether what was opened by a grant may go on. Asked whenever something has changed.
///
/// # Errors
/// Why it ends.
pub fn lasts(now: Timestamp, standing: &Standing, lock: Option<&Locked>) -> Result<(), Refusal> {
    let grant = &standing.grant;
    let (request, namespace) = (&grant.request.name, &grant.request.namespace);
    if grant.sessions.gate.is_none() {
        return Err(Refusal::new(
            "NotByGate",
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
                "the access of request {request} ended at {}; ask again: {again}",
                grant.window.until
            ),
        ));
    }
    if standing.ended {
        return Err(Refusal::new(
            "Revoked",
            format!("the access of request {request} was revoked; ask again: {again}"),
        ));
    }
    match lock {
        Some(lock) => Err(connect::locked(lock)),
        None => Ok(()),
    }
}

/// Why a session ends that was not used for as long as its grant lets one be.
#[must_use]
pub fn idle(grant: &Grant, limit: SignedDuration) -> Refusal {
    Refusal::new(
        "Idle",
        format!(
            "nothing was said in this session for {}, and the access of request {} ends what is not used for \
             that long (template {}, spec.accessConfig.idleTimeout); connect again",
            GoDuration::from(limit),
            grant.request.name,
            grant.template
        ),
    )
}

/// Whether the pod that has the name now is the one that was granted.
///
/// # Errors
/// If it is another, or none.
pub fn is_granted_pod(grant: &Grant, uid: Option<&str>) -> Result<(), Refusal> {
    if uid == Some(grant.pod.uid.as_str()) {
        return Ok(());
    }
    let (pod, request) = (&grant.pod.name, &grant.request.name);
    Err(Refusal::new(
        "PodReplaced",
        format!(
            "pod {pod} of request {request} is gone, or was replaced by another of its name; see where the \
             grant stands: kubectl get ear,par {request} -n {}",
            grant.request.namespace
        ),
    ))
}

fn may(
    grant: &Grant,
    operation: Option<Operation>,
    container: Option<&str>,
) -> Result<(), Refusal> {
    // Whoever may do something with a pod may look at it.
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
        "OtherPod",
        format!(
            "request {} is for pod {} in namespace {}, not for pod {pod} in namespace {namespace}; use that \
             pod, or ask for this one: ozctl create exec {} -n {namespace} --target-pod {pod}",
            request.name, grant.pod.name, request.namespace, grant.template
        ),
    )
}
