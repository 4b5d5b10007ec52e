//! The run of a request to the broker. The API server names the pod to which a token is bound; from the pod, its Job
//! and the run are found by UID only. Labels and other data of a pod are no proof, as any user who may create pods
//! writes them. A pod without the labels by which the NetworkPolicy of the run selects it does not belong to a run
//! either.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::TokenReviewStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use oz_api::harness::{GROUP, RunPhase};
use oz_api::{Requester, labels};
use oz_core::lifecycle::seal::Keys;
use oz_trail::RequestRef;

use super::objects::{KIND, RECENT_EVENTS};
use super::voucher;
use oz_api::harness::wire::{PROXY_AUDIENCE, REPORTER_AUDIENCE};

/// The key in a TokenReview of the name of the pod to which a token is bound.
/// See <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-tokens>.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
/// The key in a TokenReview of the UID of that pod.
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// The default number of events in the status of a run, if its Job has no annotation.
const DEFAULT_RECENT_EVENTS: usize = 50;
/// The maximum number of events in the status of a run.
pub const MAX_RECENT_EVENTS: usize = 500;

/// The reason for the denial of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
pub enum Reason {
    /// The API server does not authenticate the token, or the token is not for the broker.
    Unauthenticated,
    /// The token is valid, and not bound to a pod.
    NoPod,
    /// The pod does not exist, or another pod has its name.
    PodNotFound,
    /// The pod does not belong to a Job of a run.
    NoRun,
    /// The run does not exist, or another run has its name.
    RunNotFound,
    /// The run has ended, or is ending.
    RunEnded,
    /// The token is for another container of the pod.
    AudienceMismatch,
}

/// The container of a run's pod for which a token is valid, by the audience of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Audience {
    /// The `oz` container.
    Reporter,
    /// The proxy.
    Proxy,
}

impl Audience {
    /// Returns the audience in tokens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reporter => REPORTER_AUDIENCE,
            Self::Proxy => PROXY_AUDIENCE,
        }
    }

    /// Returns the only audience of the broker for which a token is accepted. A token for both is denied: the kubelet
    /// issues no such token.
    fn from_review(review: &TokenReviewStatus) -> Option<Self> {
        let mut ours = [Self::Reporter, Self::Proxy].into_iter().filter(|ours| {
            let mut audiences = review.audiences.iter().flatten();
            audiences.any(|audience| audience == ours.name())
        });
        ours.next().filter(|_| ours.next().is_none())
    }
}

/// The denial of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, for programs.
    pub reason: Reason,
    /// The message with the cause and the next step, for users.
    pub message: String,
}

impl Refusal {
    /// Creates a denial for `reason`.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { reason, message }
    }
}

/// The pod to which a token is bound, as the API server reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The service account of the pod.
    pub user: Requester,
    /// The namespace of the pod and of its service account.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The UID of the pod.
    pub uid: String,
    /// The container for which the token is valid.
    pub audience: Audience,
}

/// The controller of an object: a Job for a pod, a run for a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The name of the controller.
    pub name: String,
    /// The UID of the controller.
    pub uid: String,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// The run has not ended.
    Live,
    /// The run has ended or was deleted; its pod may still report its end.
    Ending,
}

/// Returns the user of a token that the API server accepts for the broker.
#[must_use]
pub fn requester(review: &TokenReviewStatus) -> Option<Requester> {
    let is_ours = Audience::from_review(review).is_some();
    let user = review.user.as_ref()?;
    if !is_ours || review.authenticated != Some(true) {
        return None;
    }
    let mut requester = Requester {
        user: user.username.clone()?,
        groups: user.groups.iter().flatten().cloned().collect(),
        ..Requester::default()
    };
    if let Some(uid) = &user.uid {
        requester.uid.clone_from(uid);
    }
    Some(requester)
}

/// Returns the expiry in the claims of a token (<https://www.rfc-editor.org/rfc/rfc7519#section-4.1.4>). The signature
/// is not verified: the API server must have accepted the token.
#[must_use]
pub fn ends(token: &str) -> Option<Timestamp> {
    #[derive(serde::Deserialize)]
    struct Claims {
        exp: i64,
    }
    let claims = token.split('.').nth(1)?;
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims.exp).ok()
}

/// Returns the pod to which a token is bound.
///
/// # Errors
/// The token is not valid for the broker, or not bound to a pod.
pub fn caller(review: &TokenReviewStatus) -> Result<Caller, Refusal> {
    let (Some(requester), Some(audience)) = (requester(review), Audience::from_review(review))
    else {
        return Err(Refusal::new(
            Reason::Unauthenticated,
            format!(
                "the API server does not accept the token for {REPORTER_AUDIENCE} or \
                 {PROXY_AUDIENCE}: read it again from its file, which the kubelet renews"
            ),
        ));
    };
    let extra = review.user.as_ref().and_then(|user| user.extra.as_ref());
    let extra = |key: &str| match extra?.get(key)?.as_slice() {
        [one] if !one.is_empty() => Some(one.clone()),
        _ => None,
    };
    let namespace = requester.service_account().map(|(it, _)| it.to_owned());
    match (namespace, extra(POD_NAME), extra(POD_UID)) {
        (Some(namespace), Some(pod), Some(uid)) => Ok(Caller {
            user: requester,
            namespace,
            pod,
            uid,
            audience,
        }),
        _ => Err(Refusal::new(
            Reason::NoPod,
            format!(
                "the token of {} is bound to no pod: the broker serves pods of harness runs only, \
                 with the token that is mounted in them",
                requester.user
            ),
        )),
    }
}

fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let owners = metadata.owner_references.as_ref()?;
    owners.iter().find(|owner| owner.controller == Some(true))
}

fn is_same(metadata: &ObjectMeta, uid: &str) -> bool {
    !uid.is_empty() && metadata.uid.as_deref() == Some(uid)
}

fn to_owner(owner: &OwnerReference) -> Owner {
    Owner {
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    }
}

/// Returns the Job of the caller; `pod` is the pod with its name, if that exists.
///
/// # Errors
/// The pod does not exist, or no Job controls it.
pub fn job_of(caller: &Caller, pod: Option<&ObjectMeta>) -> Result<Owner, Refusal> {
    let Some(pod) = pod.filter(|pod| is_same(pod, &caller.uid)) else {
        return Err(Refusal::new(
            Reason::PodNotFound,
            format!(
                "pod {}/{} with UID {} does not exist any more, so it gets no response",
                caller.namespace, caller.pod, caller.uid
            ),
        ));
    };
    controller(pod)
        .filter(|owner| owner.kind == "Job" && owner.api_version.starts_with("batch/"))
        .map(to_owner)
        .ok_or_else(|| no_run(caller, "no Job controls it"))
}

/// Returns the run of a Job; `job` is the Job with its name, if that exists. A run has one Job with its own name, and
/// while it exists no other can be created. The signature of the operator proves that it belongs to the run: a user who
/// may create Jobs can name any run as the owner of one.
///
/// # Errors
/// The Job does not exist, does not belong to a run, or has no valid signature of the operator.
pub fn run_of(
    caller: &Caller,
    owner: &Owner,
    job: Option<&ObjectMeta>,
    keys: &Keys,
) -> Result<Owner, Refusal> {
    let Some(job) = job.filter(|job| is_same(job, &owner.uid)) else {
        let why = format!("there is no Job {} with UID {}", owner.name, owner.uid);
        return Err(no_run(caller, &why));
    };
    let group = |owner: &OwnerReference| owner.api_version.split_once('/').map(|it| it.0 == GROUP);
    let run = controller(job)
        .filter(|run| run.kind == KIND && group(run) == Some(true) && run.name == owner.name)
        .map(to_owner)
        .ok_or_else(|| {
            let why = format!("Job {} is not that of a HarnessRun of its name", owner.name);
            no_run(caller, &why)
        })?;
    let signed = RequestRef {
        kind: KIND.to_owned(),
        namespace: caller.namespace.clone(),
        name: run.name.clone(),
        uid: run.uid.clone(),
    };
    let voucher = job
        .annotations
        .as_ref()
        .and_then(|all| all.get(labels::VOUCHER));
    let voucher = voucher.map_or("", String::as_str);
    match voucher::check(keys, &signed, voucher) {
        Ok(()) => Ok(run),
        Err(error) => {
            let why = format!(
                "Job {} has no valid seal of oz's operator (annotation {}): {error}",
                owner.name,
                labels::VOUCHER
            );
            Err(no_run(caller, &why))
        }
    }
}

/// Checks whether the pod of the caller has the labels by which the NetworkPolicy of the run selects it. A user who may
/// create pods can name the Job of a run as their owner, but only the Job controller may set these labels
/// (deploy/policies/harness).
///
/// # Errors
/// The labels are missing.
pub fn confined(caller: &Caller, pod: Option<&ObjectMeta>, run: &Owner) -> Result<(), Refusal> {
    let is_marked = pod.is_some_and(|pod| {
        labels::owner_uid(pod) == Some(run.uid.as_str()) && labels::owner_kind(pod) == Some(KIND)
    });
    match is_marked {
        true => Ok(()),
        false => {
            let why = format!(
                "it does not have the labels by which HarnessRun {} confines its pods",
                run.name
            );
            Err(no_run(caller, &why))
        }
    }
}

fn no_run(caller: &Caller, why: &str) -> Refusal {
    let Caller { namespace, pod, .. } = caller;
    Refusal::new(
        Reason::NoRun,
        format!(
            "pod {namespace}/{pod} belongs to no harness run: {why}; submit a HarnessRun instead \
             of a pod"
        ),
    )
}

/// Returns the state of the run of the caller; `run` is the run with its name, if that exists, and its phase.
///
/// # Errors
/// The run does not exist.
pub fn standing(
    caller: &Caller,
    owner: &Owner,
    run: Option<(&ObjectMeta, Option<RunPhase>)>,
) -> Result<RunState, Refusal> {
    let Some((run, phase)) = run.filter(|(run, _)| is_same(run, &owner.uid)) else {
        return Err(Refusal::new(
            Reason::RunNotFound,
            format!(
                "harness run {}/{} with UID {} does not exist any more: its pod ends, too",
                caller.namespace, owner.name, owner.uid
            ),
        ));
    };
    let over = phase.is_some_and(RunPhase::is_terminal) || run.deletion_timestamp.is_some();
    Ok(match over {
        true => RunState::Ending,
        false => RunState::Live,
    })
}

/// Creates the denial for a run that has ended.
#[must_use]
pub fn run_over(caller: &Caller, run: &str) -> Refusal {
    Refusal::new(
        Reason::RunEnded,
        format!(
            "harness run {}/{run} has ended: submit a new one",
            caller.namespace
        ),
    )
}

/// Checks that the token of the caller is for this container.
///
/// # Errors
/// The token is for another container.
pub fn meant_for(caller: &Caller, audience: Audience) -> Result<(), Refusal> {
    if caller.audience == audience {
        return Ok(());
    }
    Err(Refusal::new(
        Reason::AudienceMismatch,
        format!(
            "the token of pod {}/{} is for {}, and this request requires one for {}",
            caller.namespace,
            caller.pod,
            caller.audience.name(),
            audience.name()
        ),
    ))
}

/// Returns the maximum number of events in the status of the run of this Job.
#[must_use]
pub fn recent_events(job: &ObjectMeta) -> usize {
    let said = job
        .annotations
        .as_ref()
        .and_then(|all| all.get(RECENT_EVENTS));
    let said = said.and_then(|text| text.parse().ok());
    said.unwrap_or(DEFAULT_RECENT_EVENTS).min(MAX_RECENT_EVENTS)
}

#[cfg(test)]
mod tests;
