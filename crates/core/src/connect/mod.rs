//! At the moment of connecting: may this user open this connection to this pod, and how will it end.
//! Pure: what is known of grants and pods is handed in, so that every row is a table test.
//!
//! [`matching`] finds the grants that allow a connection, or says why none does; [`policy`] bounds
//! what a template's author may write about commands; [`cut`] makes the command carry its own end;
//! [`script`] ends what runs already.

pub mod copied;
pub mod cut;
pub mod ephemeral;
pub mod image;
pub mod pod;
pub mod policy;
pub mod script;
#[cfg(test)]
pub(crate) mod tests;
mod way;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::Subject;
use oz_api::{Operation, Phase, Requester};

use crate::access::grant::Grant;
use crate::access::lock::Locked;
use crate::gate::{self, ticket::Ticket};

pub use way::Way;

/// A connection that somebody wants to open, as the API server tells of it.
#[derive(Clone, Debug)]
pub struct Attempt<'a> {
    /// Now.
    pub now: Timestamp,
    /// Who. Under impersonation the effective user: the other is not visible here.
    pub user: &'a Requester,
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// Name of the pod.
    pub pod: &'a str,
    /// How.
    pub way: Way,
    /// The container that is named, if one is.
    pub container: Option<&'a str>,
    /// The command, for exec.
    pub argv: &'a [String],
    /// Whether on a terminal.
    pub tty: bool,
    /// Whether with standard input.
    pub stdin: bool,
    /// What the gate says of whom it does this for. There only if the user is the gate of that grant.
    pub ticket: Option<&'a Ticket>,
}

impl Attempt<'_> {
    /// The person who gets in: the gate opens sessions for others.
    #[must_use]
    pub fn person(&self) -> Requester {
        match self.ticket {
            Some(ticket) => ticket.person(),
            None => self.user.clone(),
        }
    }

    /// The same, with all that the grant knows of its requester.
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

/// A grant, and how far its request is.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// What was decided, sealed.
    pub grant: Arc<Grant>,
    /// Whether it was ended, by what its request says.
    pub ended: bool,
}

/// A grant of this user's on this pod that is over and gone, for the message only.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// Name of the request.
    pub request: String,
    /// Name of the template.
    pub template: String,
    /// How it ended.
    pub phase: Phase,
}

/// Which pod has the name now, as the API server says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Named<'a> {
    /// The one with this UID.
    Pod(&'a str),
    /// None.
    #[default]
    Nothing,
    /// The API server could not be asked, for this reason.
    Unread(&'a str),
}

impl<'a> Named<'a> {
    /// The UID, if there is one.
    #[must_use]
    pub fn uid(self) -> Option<&'a str> {
        match self {
            Self::Pod(uid) => Some(uid),
            Self::Nothing | Self::Unread(_) => None,
        }
    }
}

/// What is known at the moment of connecting.
#[derive(Clone, Debug, Default)]
pub struct Known<'a> {
    /// The pod that has the name now.
    pub pod: Named<'a>,
    /// The grants in the namespace that bind this user.
    pub standings: &'a [Standing],
    /// The newest that is over.
    pub past: Option<Past>,
}

/// Why a connection is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Reason in CamelCase, from a bounded vocabulary.
    pub reason: &'static str,
    /// Why, and what to do next.
    pub message: String,
}

impl Refusal {
    /// A refusal with a reason that programs read and a message for people.
    #[must_use]
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// How near a grant came to allowing the connection: the nearest gives the reason.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mismatch {
    OtherPod,
    OtherUid,
    Over,
    Operation,
    NotByGate,
    Container,
}

/// The grants that allow this connection, the one that lasts longest first. This is the line that
/// decides who gets in where connections are enforced.
///
/// # Errors
/// Why none does, by the grant that came nearest, and what would help.
pub fn matching<'a>(
    attempt: &Attempt<'_>,
    known: &Known<'a>,
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

/// Why a grant lets nobody in that the API server does not confirm. `found` is whether there is
/// another one in its place, or why that could not be read.
#[must_use]
pub fn unconfirmed(grant: &Grant, found: Result<bool, &str>) -> Refusal {
    let (request, namespace) = (&grant.request.name, &grant.request.namespace);
    match found {
        Ok(false) => Refusal::new(
            "Revoked",
            format!("the access of request {request} is over: its Role is gone from {namespace}"),
        ),
        Ok(true) => Refusal::new(
            "GrantChanged",
            format!("the access of request {request} has just changed; try again in a second"),
        ),
        Err(why) => Refusal::new(
            "GrantNotRead",
            format!(
                "oz could not ask the API server whether the access of request {request} still \
                 stands ({why}); try again in a moment"
            ),
        ),
    }
}

/// Whether one of the subjects is this user.
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

/// Whether a grant is about whoever connects: one of its subjects, or the gate with a ticket for its request.
fn is_for(attempt: &Attempt<'_>, grant: &Grant) -> bool {
    match (&grant.sessions.gate, attempt.ticket) {
        (Some(gate), Some(ticket)) if gate.is(attempt.user) => ticket.request == grant.request.uid,
        _ => binds(&grant.subjects, attempt.user),
    }
}

/// Whether a container is added by somebody else than the gate, which alone sees what is asked for.
fn is_direct(attempt: &Attempt<'_>) -> bool {
    attempt.way == Way::EphemeralContainer && attempt.ticket.is_none()
}

/// Whether somebody attaches to a container of which the gate says that it came by this grant.
fn is_added(attempt: &Attempt<'_>, grant: &Grant) -> bool {
    let came = attempt
        .ticket
        .and_then(|ticket| ticket.container.as_deref());
    attempt.way == Way::Attach
        && came.is_some()
        && came == attempt.container
        && grant.sessions.gate.is_some()
        && grant.operations.contains(&Operation::Debug)
}

fn obstacle(attempt: &Attempt<'_>, pod_uid: Option<&str>, standing: &Standing) -> Option<Mismatch> {
    let grant = &standing.grant;
    if grant.pod.name != attempt.pod {
        return Some(Mismatch::OtherPod);
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
    if attempt.way == Way::EphemeralContainer && gate.is_none() {
        return Some(Mismatch::NotByGate);
    }
    if gate.is_some_and(|gate| !gate.is(attempt.user) || attempt.ticket.is_none()) {
        return Some(Mismatch::NotByGate);
    }
    // Ports belong to the pod, not to one of its containers.
    let enters = attempt.way.enters_a_container() && !is_added;
    let confined = enters && !grant.may_enter(attempt.container);
    confined.then_some(Mismatch::Container)
}

/// What no grant can allow, and what to do in its place.
fn never_granted(attempt: &Attempt<'_>) -> Refusal {
    let namespace = attempt.namespace;
    let (reason, what, instead) = match attempt.way {
        Way::ServiceProxy => (
            "ServiceProxyNotGranted",
            "connections through a service, which lead to any of its pods",
            "forward a port of one pod with a grant (kubectl port-forward)",
        ),
        Way::Image => (
            "ImageNotGranted",
            "other images in a running pod",
            "change the workload that the pod belongs to",
        ),
        Way::Resize => (
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
            "no grant of oz covers {what}, and namespace {namespace} lets nobody in without one; \
             {instead}, or ask for a pod of your own: ozctl create pod TEMPLATE -n {namespace}"
        ),
    )
}

fn refusal(
    attempt: &Attempt<'_>,
    known: &Known<'_>,
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
        Mismatch::OtherPod if known.past.is_some() => without_grant(attempt, known),
        Mismatch::OtherPod => Refusal::new(
            "OtherPod",
            format!(
                "{user} has access to pod {} by request {request}, not to pod {pod}; use that pod, \
                 or ask for this one: {again} --target-pod {pod}",
                grant.pod.name
            ),
        ),
        Mismatch::OtherUid => other_uid(attempt, known, grant, &again),
        Mismatch::Over if ended && !grant.window.is_over(attempt.now) => Refusal::new(
            "Revoked",
            format!("the access of request {request} was revoked; ask again: {again}"),
        ),
        Mismatch::Over => Refusal::new(
            "Expired",
            format!("the access of request {request} ended at {until}; ask again: {again}"),
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
        Mismatch::NotByGate => Refusal::new(
            "NotByGate",
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
                    "request {request} grants access to {}, not to container {container}; name \
                     one with -c, or ask for this one: {again} --container {container}",
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

fn other_uid(attempt: &Attempt<'_>, known: &Known<'_>, grant: &Grant, again: &str) -> Refusal {
    let (pod, namespace, request) = (attempt.pod, attempt.namespace, &grant.request.name);
    match known.pod {
        Named::Pod(_) => {}
        Named::Nothing => {
            return Refusal::new(
                "PodUnknown",
                format!(
                    "there is no pod {pod} in namespace {namespace}; if it is there now, try again"
                ),
            );
        }
        Named::Unread(why) => {
            return Refusal::new(
                "PodNotRead",
                format!(
                    "oz could not ask the API server whether pod {pod} in namespace {namespace} is \
                     still the one that request {request} is for ({why}); try again in a moment"
                ),
            );
        }
    }
    let then = match grant.following {
        Some(_) => format!(
            "oz is about to move the grant to a successor; see which in a moment: kubectl get ear \
             {request} -n {namespace}"
        ),
        None => format!("the one that has its name now is another pod; ask again: {again}"),
    };
    Refusal::new(
        "PodReplaced",
        format!("pod {pod} was replaced since request {request} was granted, and {then}"),
    )
}

fn without_grant(attempt: &Attempt<'_>, known: &Known<'_>) -> Refusal {
    let (user, pod, namespace) = (&attempt.user.user, attempt.pod, attempt.namespace);
    if let Some(past) = &known.past {
        let (reason, what) = match past.phase {
            Phase::Expired => ("Expired", "has ended"),
            _ => ("Revoked", "was revoked"),
        };
        return Refusal::new(
            reason,
            format!(
                "the access of request {} {what}; ask again: ozctl create exec {} -n {namespace} \
                 --target-pod {pod}",
                past.request, past.template
            ),
        );
    }
    if attempt.user.service_account().is_some() {
        return Refusal::new(
            "NoGrant",
            format!(
                "{user} has no grant for pod {pod}, and namespace {namespace} lets nobody in \
                 without one; service accounts get one only by a template that sets \
                 allowServiceAccounts (ozctl get eat,pat -n {namespace} lists what there is)"
            ),
        );
    }
    Refusal::new(
        "NoGrant",
        format!(
            "{user} has no grant for pod {pod}, and namespace {namespace} lets nobody in without \
             one; ask for it: ozctl create exec TEMPLATE -n {namespace} --target-pod {pod} (ozctl \
             get eat,pat -n {namespace} lists what there is)"
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

/// What a command policy says of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policed {
    /// The command is allowed.
    Allowed,
    /// It is not.
    Refused,
    /// The policy could not be evaluated: this is why. That is a refusal too.
    Failed(String),
}

/// What follows from what a template's command policy says.
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
                "template {template} does not allow this command (spec.accessConfig.commandPolicy); \
                 use one that it allows: ozctl get eat {template} -n {} -o yaml",
                grant.request.namespace
            ),
        ))),
        Policed::Failed(why) => Err(Box::new(Refusal::new(
            "CommandPolicyFailed",
            format!(
                "the commandPolicy of template {template} cannot be evaluated for this command: \
                 {why}; ask the template's owners to mend it"
            ),
        ))),
    }
}

/// That a lock keeps somebody from using a grant, until the operator has ended it.
#[must_use]
pub fn locked(lock: &Locked) -> Refusal {
    let denial = lock.denial();
    Refusal::new(denial.reason, denial.message)
}

/// Refuses options that mean something which nobody here can judge, such as variables of the
/// environment that a newer Kubernetes lets a client set.
///
/// # Errors
/// A refusal that names the option.
pub fn understood(way: Way, options: &serde_json::Value) -> Result<(), Box<Refusal>> {
    match way.unknown_option(options) {
        None => Ok(()),
        Some(option) => Err(Box::new(Refusal::new(
            "OptionUnknown",
            format!(
                "this release of oz does not know the option {option:?} of {}, and cannot tell what \
                 it lets somebody do; connect without it",
                way.title()
            ),
        ))),
    }
}

/// Refuses arguments that are not what the user typed: the API server puts U+FFFD in the place of
/// bytes that are not UTF-8, and nobody can tell what they were.
///
/// # Errors
/// A refusal that says which argument.
pub fn unmangled(argv: &[String]) -> Result<(), Box<Refusal>> {
    match argv.iter().position(|one| one.contains('\u{FFFD}')) {
        None => Ok(()),
        Some(index) => Err(Box::new(Refusal::new(
            "ArgumentsNotUtf8",
            format!(
                "argument {index} of the command holds bytes that are not UTF-8, which the API \
                 server replaces; pass them through standard input or a file instead"
            ),
        ))),
    }
}
