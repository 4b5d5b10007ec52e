//! Decides at the moment of connecting whether a user may open a connection to a pod, and how it will end.
//! The module is pure: the caller passes in the state of grants and pods, so that every row is a table test.
//!
//! [`matching`] finds the grants that allow a connection, or returns the reason why none does; [`policy`]
//! bounds the commands that a template's author may write; [`cut`] makes the command carry its own deadline;
//! [`script`] ends running processes.

mod connection_kind;
pub mod copied;
pub mod cut;
pub mod ephemeral;
pub mod image;
pub mod pod;
pub mod policy;
pub mod run_pod;
pub mod script;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::Subject;
use oz_api::{Operation, Phase, Requester};

use crate::access::grant::Grant;
use crate::access::lock::Locked;
use crate::gate::{self, ticket::Ticket};

pub use connection_kind::ConnectionKind;

/// A connection that a user requests to open, as the API server describes it.
#[derive(Clone, Debug)]
pub struct Attempt<'a> {
    /// The current time.
    pub now: Timestamp,
    /// The user. Under impersonation the effective user: the other is not visible here.
    pub user: &'a Requester,
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// Name of the pod.
    pub pod: &'a str,
    /// The way of connecting.
    pub way: ConnectionKind,
    /// The named container, if there is one.
    pub container: Option<&'a str>,
    /// The command, for exec.
    pub argv: &'a [String],
    /// Whether the connection has a terminal.
    pub tty: bool,
    /// Whether the connection has standard input.
    pub stdin: bool,
    /// The session token, in which the gate names the user of the connection. Present only if the user is the
    /// gate of that grant.
    pub ticket: Option<&'a Ticket>,
}

impl Attempt<'_> {
    /// Returns the person who connects: the gate opens sessions for others.
    #[must_use]
    pub fn person(&self) -> Requester {
        match self.ticket {
            Some(ticket) => ticket.person(),
            None => self.user.clone(),
        }
    }

    /// Returns the person, with all data that the grant has about its requester.
    #[must_use]
    pub fn person_of(&self, grant: &Grant) -> Requester {
        let person = self.person();
        let is_requester = self.ticket.is_some() && person.user == grant.requester.user;
        if is_requester {
            grant.requester.clone()
        } else {
            person
        }
    }
}

/// A grant, and the state of its request.
#[derive(Clone, Debug, PartialEq)]
pub struct GrantState {
    /// The sealed decision.
    pub grant: Arc<Grant>,
    /// Whether the grant has ended, according to its request.
    pub ended: bool,
}

/// An ended and deleted grant of this user on this pod, for the message only.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// Name of the request.
    pub request: String,
    /// Name of the template.
    pub template: String,
    /// The final phase of the request.
    pub phase: Phase,
}

/// The pod that has the name now, according to the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Named<'a> {
    /// The pod with this UID.
    Pod(&'a str),
    /// No pod.
    #[default]
    Nothing,
    /// The pod could not be read from the API server, for this reason.
    Unread(&'a str),
}

impl<'a> Named<'a> {
    /// Returns the UID, if there is a pod.
    #[must_use]
    pub fn uid(self) -> Option<&'a str> {
        match self {
            Self::Pod(uid) => Some(uid),
            Self::Nothing | Self::Unread(_) => None,
        }
    }
}

/// The state of pods and grants at the moment of connecting.
#[derive(Clone, Debug, Default)]
pub struct ConnectionFacts<'a> {
    /// The pod that has the name now.
    pub pod: Named<'a>,
    /// The grants in the namespace that bind this user.
    pub standings: &'a [GrantState],
    /// The newest ended grant.
    pub past: Option<Past>,
}

/// The refusal of a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Reason in CamelCase, from a bounded vocabulary.
    pub reason: &'static str,
    /// The cause, and the next step.
    pub message: String,
}

impl Refusal {
    /// Creates a refusal with a reason for programs and a message for users.
    #[must_use]
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// The degree to which a grant matches the connection: the nearest grant gives the reason.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mismatch {
    Pod,
    OtherUid,
    Over,
    Operation,
    GateRequired,
    Container,
}

/// Returns the grants that allow this connection, the one that lasts longest first. This function decides who
/// gets access where connections are enforced.
///
/// # Errors
/// The reason why none does, from the nearest grant, and the remedy.
pub fn matching<'a>(
    attempt: &Attempt<'_>,
    known: &ConnectionFacts<'a>,
) -> Result<Vec<&'a Grant>, Box<Refusal>> {
    if attempt.way.operation().is_none() || is_direct(attempt) {
        return Err(Box::new(never_granted(attempt)));
    }
    let mut allowed = Vec::new();
    let mut nearest: Option<(Mismatch, &Grant, bool)> = None;
    for standing in known.standings {
        let grant: &Grant = &standing.grant;
        if grant.request.namespace != attempt.namespace || !is_for(attempt, grant) {
            continue;
        }
        match obstacle(attempt, known.pod.uid(), standing) {
            None => allowed.push(grant),
            Some(near) => {
                if nearest.is_none_or(|(known, ..)| near > known) {
                    nearest = Some((near, grant, standing.ended));
                }
            }
        }
    }
    allowed.sort_by_key(|grant| std::cmp::Reverse(grant.window.until));
    if allowed.is_empty() {
        return Err(Box::new(refusal(attempt, known, nearest)));
    }
    Ok(allowed)
}

/// Creates the refusal for a grant that the API server does not confirm. `found` is whether another object
/// has replaced it, or why that could not be read.
#[must_use]
pub fn unconfirmed(grant: &Grant, found: Result<bool, &str>) -> Refusal {
    let (request, namespace) = (&grant.request.name, &grant.request.namespace);
    match found {
        Ok(false) => Refusal::new(
            "Revoked",
            format!(
                "the access of request {request} has ended: its Role in {namespace} does not \
                exist any more"
            ),
        ),
        Ok(true) => Refusal::new(
            "GrantChanged",
            format!("the access of request {request} has just changed; try again in a second"),
        ),
        Err(why) => Refusal::new(
            "GrantLookupFailed",
            format!(
                "oz failed to check whether the access of request {request} is still active \
                 ({why}); try again in a moment"
            ),
        ),
    }
}

/// Checks whether one of the subjects is this user.
#[must_use]
pub fn binds(subjects: &[Subject], user: &Requester) -> bool {
    subjects.iter().any(|subject| match subject.kind.as_str() {
        "User" => subject.name == user.user,
        "Group" => user.groups.contains(&subject.name),
        "ServiceAccount" => user.service_account().is_some_and(|(namespace, name)| {
            subject.namespace.as_deref() == Some(namespace) && subject.name == name
        }),
        _ => false,
    })
}

/// Checks whether a grant applies to the connecting user: one of its subjects, or the gate with a session
/// token for its request.
fn is_for(attempt: &Attempt<'_>, grant: &Grant) -> bool {
    match (&grant.sessions.gate, attempt.ticket) {
        (Some(gate), Some(ticket)) if gate.is(attempt.user) => ticket.request == grant.request.uid,
        _ => binds(&grant.subjects, attempt.user),
    }
}

/// Checks whether a user other than the gate adds a container; the gate alone sees the requested options.
fn is_direct(attempt: &Attempt<'_>) -> bool {
    attempt.way == ConnectionKind::EphemeralContainer && attempt.ticket.is_none()
}

/// Checks whether a user attaches to a container that, according to the gate, was added with this grant.
fn is_added(attempt: &Attempt<'_>, grant: &Grant) -> bool {
    let came = attempt
        .ticket
        .and_then(|ticket| ticket.container.as_deref());
    attempt.way == ConnectionKind::Attach
        && came.is_some()
        && came == attempt.container
        && grant.sessions.gate.is_some()
        && grant.operations.contains(&Operation::Debug)
}

fn obstacle(
    attempt: &Attempt<'_>,
    pod_uid: Option<&str>,
    standing: &GrantState,
) -> Option<Mismatch> {
    let grant = &standing.grant;
    if grant.pod.name != attempt.pod {
        return Some(Mismatch::Pod);
    }
    if pod_uid != Some(grant.pod.uid.as_str()) {
        return Some(Mismatch::OtherUid);
    }
    if standing.ended || grant.window.is_over(attempt.now) {
        return Some(Mismatch::Over);
    }
    let operation = attempt.way.operation();
    let is_added = is_added(attempt, grant);
    if !is_added && !operation.is_some_and(|operation| grant.operations.contains(&operation)) {
        return Some(Mismatch::Operation);
    }
    let gate = grant.sessions.gate.as_ref();
    if attempt.way == ConnectionKind::EphemeralContainer && gate.is_none() {
        return Some(Mismatch::GateRequired);
    }
    if gate.is_some_and(|gate| !gate.is(attempt.user) || attempt.ticket.is_none()) {
        return Some(Mismatch::GateRequired);
    }
    // Ports belong to the pod, not to one of its containers.
    let enters = attempt.way.enters_a_container() && !is_added;
    let confined = enters && !grant.may_enter(attempt.container);
    confined.then_some(Mismatch::Container)
}

/// Creates the refusal of a connection that no grant can allow, with the alternative.
fn never_granted(attempt: &Attempt<'_>) -> Refusal {
    let namespace = attempt.namespace;
    let (reason, what, instead) = match attempt.way {
        ConnectionKind::ServiceProxy => (
            "ServiceProxyNotGranted",
            "connections through a service, which reach any of its pods",
            "forward a port of one pod with a grant (kubectl port-forward)",
        ),
        ConnectionKind::Image => (
            "ImageNotGranted",
            "other images in a running pod",
            "change the workload that the pod belongs to",
        ),
        ConnectionKind::Resize => (
            "ResizeNotGranted",
            "other limits for a running pod",
            "change the workload that the pod belongs to",
        ),
        _ => (
            "EphemeralContainersNotGranted",
            "containers that are added to a running pod without the gate",
            "use kubectl debug through the gate with a grant that has Debug, or kubectl exec",
        ),
    };
    Refusal::new(
        reason,
        format!(
            "no grant of oz covers {what}, and connections in namespace {namespace} require a \
             grant; {instead}, or request a dedicated pod: ozctl create pod TEMPLATE -n \
             {namespace}"
        ),
    )
}

fn refusal(
    attempt: &Attempt<'_>,
    known: &ConnectionFacts<'_>,
    nearest: Option<(Mismatch, &Grant, bool)>,
) -> Refusal {
    let (user, pod, namespace) = (&attempt.user.user, attempt.pod, attempt.namespace);
    let again =
        |template: &str, kind: &str| format!("ozctl create {kind} {template} -n {namespace}");
    let Some((near, grant, ended)) = nearest else {
        return without_grant(attempt, known);
    };
    let kind = match grant.own_pod {
        Some(_) => "pod",
        None => "exec",
    };
    let (request, until) = (&grant.request.name, grant.window.until);
    let again = again(&grant.template, kind);
    match near {
        Mismatch::Pod if known.past.is_some() => without_grant(attempt, known),
        Mismatch::Pod => Refusal::new(
            "PodMismatch",
            format!(
                "{user} has access to pod {} by request {request}, not to pod {pod}; use that pod, \
                 or request this one: {again} --target-pod {pod}",
                grant.pod.name
            ),
        ),
        Mismatch::OtherUid => other_uid(attempt, known, grant, &again),
        Mismatch::Over if ended && !grant.window.is_over(attempt.now) => Refusal::new(
            "Revoked",
            format!("the access of request {request} was revoked; create a new request: {again}"),
        ),
        Mismatch::Over => Refusal::new(
            "Expired",
            format!(
                "the access of request {request} ended at {until}; create a new request: \
                {again}"
            ),
        ),
        Mismatch::Operation => Refusal::new(
            "OperationNotGranted",
            format!(
                "request {request} grants {}, not {}; its template {} decides that \
                 (spec.accessConfig.operations). ozctl get eat,pat -n {namespace} lists others",
                titles(&grant.operations),
                attempt.way.title(),
                grant.template
            ),
        ),
        Mismatch::GateRequired => Refusal::new(
            "GateRequired",
            format!(
                "sessions of request {request} go through oz's gate; use ozctl exec --request {request}, or \
                 kubectl --server with {} after the API server's address",
                gate::prefix(namespace, request)
            ),
        ),
        Mismatch::Container => match attempt.container.filter(|name| !name.is_empty()) {
            Some(container) => Refusal::new(
                "ContainerNotGranted",
                format!(
                    "request {request} grants access to {}, not to container {container}; name one \
                     with -c, or request this one: {again} --container {container}",
                    grant.enterable()
                ),
            ),
            None => Refusal::new(
                "ContainerNotNamed",
                format!(
                    "request {request} grants access to {}; name the container with -c",
                    grant.enterable()
                ),
            ),
        },
    }
}

fn other_uid(
    attempt: &Attempt<'_>,
    known: &ConnectionFacts<'_>,
    grant: &Grant,
    again: &str,
) -> Refusal {
    let (pod, namespace, request) = (attempt.pod, attempt.namespace, &grant.request.name);
    match known.pod {
        Named::Pod(_) => {}
        Named::Nothing => {
            return Refusal::new(
                "PodNotFound",
                format!(
                    "there is no pod {pod} in namespace {namespace}; if it was just created, try \
                        again"
                ),
            );
        }
        Named::Unread(why) => {
            return Refusal::new(
                "PodLookupFailed",
                format!(
                    "oz failed to check whether pod {pod} in namespace {namespace} is still the \
                     pod of request {request} ({why}); try again in a moment"
                ),
            );
        }
    }
    let then = match grant.following {
        Some(_) => format!(
            "oz is about to move the grant to a successor; see its name in a moment: kubectl get \
             ear {request} -n {namespace}"
        ),
        None => format!("the pod with its name now is another one; create a new request: {again}"),
    };
    Refusal::new(
        "PodReplaced",
        format!("pod {pod} was replaced since request {request} was granted, and {then}"),
    )
}

fn without_grant(attempt: &Attempt<'_>, known: &ConnectionFacts<'_>) -> Refusal {
    let (user, pod, namespace) = (&attempt.user.user, attempt.pod, attempt.namespace);
    if let Some(past) = &known.past {
        let (reason, what) = match past.phase {
            Phase::Expired => ("Expired", "has ended"),
            _ => ("Revoked", "was revoked"),
        };
        return Refusal::new(
            reason,
            format!(
                "the access of request {} {what}; create a new request: ozctl create exec {} -n \
                 {namespace} --target-pod {pod}",
                past.request, past.template
            ),
        );
    }
    if attempt.user.service_account().is_some() {
        return Refusal::new(
            "NoGrant",
            format!(
                "{user} has no grant for pod {pod}, and connections in namespace {namespace} \
                 require a grant; service accounts get one only by a template that sets \
                 allowServiceAccounts (ozctl get eat,pat -n {namespace} lists the templates)"
            ),
        );
    }
    Refusal::new(
        "NoGrant",
        format!(
            "{user} has no grant for pod {pod}, and connections in namespace {namespace} require a \
             grant; request it: ozctl create exec TEMPLATE -n {namespace} --target-pod {pod} \
             (ozctl get eat,pat -n {namespace} lists the templates)"
        ),
    )
}

fn titles(operations: &[Operation]) -> String {
    let titles: Vec<String> = operations
        .iter()
        .map(|operation| operation.to_string().to_lowercase())
        .collect();
    titles.join(", ")
}

/// The result of a command policy for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policed {
    /// The command is allowed.
    Allowed,
    /// The command is not allowed.
    Refused,
    /// The policy could not be evaluated, for this reason. That is a refusal too.
    Failed(String),
}

/// Converts the result of a template's command policy.
///
/// # Errors
/// A refusal that names the template.
pub fn policed(grant: &Grant, answer: Policed) -> Result<(), Box<Refusal>> {
    let template = &grant.template;
    match answer {
        Policed::Allowed => Ok(()),
        Policed::Refused => Err(Box::new(Refusal::new(
            "CommandNotAllowed",
            format!(
                "template {template} does not allow this command \
                 (spec.accessConfig.commandPolicy); use an allowed one: ozctl get eat {template} \
                 -n {} -o yaml",
                grant.request.namespace
            ),
        ))),
        Policed::Failed(why) => Err(Box::new(Refusal::new(
            "CommandPolicyFailed",
            format!(
                "failed to evaluate failed to evaluate the commandPolicy of template {template} \
                 for this command: {why}; have the template's owners correct it"
            ),
        ))),
    }
}

/// Creates the refusal because of a lock that prevents the use of a grant, until the operator has ended it.
#[must_use]
pub fn locked(lock: &Locked) -> Refusal {
    let denial = lock.denial();
    Refusal::new(denial.reason, denial.message)
}

/// Refuses options with a meaning that oz cannot judge, such as variables of the environment that a newer
/// Kubernetes lets a client set.
///
/// # Errors
/// A refusal that names the option.
pub fn understood(way: ConnectionKind, options: &serde_json::Value) -> Result<(), Box<Refusal>> {
    match way.unknown_option(options) {
        None => Ok(()),
        Some(option) => Err(Box::new(Refusal::new(
            "OptionUnknown",
            format!(
                "this release of oz does not support the option {option:?} of {}, so its effect is \
                 unknown; connect without it",
                way.title()
            ),
        ))),
    }
}

/// Refuses arguments that differ from those that the user typed: the API server replaces bytes that are not
/// UTF-8 by U+FFFD, and the original bytes are unknown.
///
/// # Errors
/// A refusal that names the argument.
pub fn unmangled(argv: &[String]) -> Result<(), Box<Refusal>> {
    match argv.iter().position(|one| one.contains('\u{FFFD}')) {
        None => Ok(()),
        Some(index) => Err(Box::new(Refusal::new(
            "ArgumentsNotUtf8",
            format!(
                "argument {index} of the command contains bytes that are not UTF-8, which the API \
                 server replaces; pass them through standard input or a file instead"
            ),
        ))),
    }
}
