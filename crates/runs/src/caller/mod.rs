//! Whose a request to the broker is. The API server says which pod a token is bound to; from there it goes by
//! UIDs alone, pod to Job to run. What a pod says of itself, in labels or anywhere else, makes it no run's: whoever
//! may create pods may write it. One without the labels that confine it is none either.

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
use super::pod::BROKER_AUDIENCE;
use super::voucher;

/// What the API server says of the pod that a token is bound to.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
/// The same.
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// How many events are kept of a run whose Job does not say.
const DEFAULT_RECENT_EVENTS: usize = 50;
/// The most that a status has room for.
pub const MAX_RECENT_EVENTS: usize = 500;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
pub enum Reason {
    /// The API server does not know the token, or it is for somebody else than the broker.
    Unauthenticated,
    /// The token is good, and not bound to a pod.
    NoPod,
    /// The pod is gone, or another one has its name.
    PodGone,
    /// The pod belongs to no Job of a run.
    NoRun,
    /// The run is gone, or another one has its name.
    RunGone,
    /// The run is over, or is ending.
    RunOver,
}

/// Why a request is refused, for programs and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// In one word.
    pub reason: Reason,
    /// What failed, and what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal for `reason`.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { reason, message }
    }
}

/// A pod that its token is bound to, by the API server's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its service account.
    pub user: Requester,
    /// Its namespace, which is its service account's.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its UID.
    pub uid: String,
}

/// Somebody's controller: a Job for a pod, a run for a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// Whether a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Live,
    /// It is over or was deleted; its pod may still tell how it ended.
    Ending,
}

/// Whose a token is that the API server accepts for the broker.
#[must_use]
pub fn requester(review: &TokenReviewStatus) -> Option<Requester> {
    let mut audiences = review.audiences.iter().flatten();
    let is_ours = audiences.any(|audience| audience == BROKER_AUDIENCE);
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

/// When a token ends, as it says itself; only of one that the API server has accepted, which signed that.
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

/// The pod that a token is bound to.
///
/// # Errors
/// When the token is not good for the broker, or no pod's.
pub fn caller(review: &TokenReviewStatus) -> Result<Caller, Refusal> {
    let Some(requester) = requester(review) else {
        return Err(Refusal::new(
            Reason::Unauthenticated,
            format!(
                "the API server does not accept the token for {BROKER_AUDIENCE}: read it again from its file, \
                 which the kubelet renews"
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
        }),
        _ => Err(Refusal::new(
            Reason::NoPod,
            format!(
                "the token of {} is bound to no pod: only pods of harness runs are answered, by the token that \
                 is mounted in them",
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

fn of(owner: &OwnerReference) -> Owner {
    Owner {
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    }
}

/// The Job of the caller, by the pod of its name if there is one.
///
/// # Errors
/// When the pod is gone, or no Job's.
pub fn job_of(caller: &Caller, pod: Option<&ObjectMeta>) -> Result<Owner, Refusal> {
    let Some(pod) = pod.filter(|pod| is_same(pod, &caller.uid)) else {
        return Err(Refusal::new(
            Reason::PodGone,
            format!(
                "pod {}/{} with UID {} is gone: there is nobody left to answer",
                caller.namespace, caller.pod, caller.uid
            ),
        ));
    };
    controller(pod)
        .filter(|owner| owner.kind == "Job" && owner.api_version.starts_with("batch/"))
        .map(of)
        .ok_or_else(|| no_run(caller, "no Job controls it"))
}

/// The run whose Job this is, by the Job of its name if there is one. A run has one Job, of its own name: as
/// long as that is there, nobody can make another. The operator has signed that it is the
/// run's: a user who may create Jobs can name any run as the owner of one.
///
/// # Errors
/// When there is no such Job, it is no run's, or the operator has not signed it.
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
        .map(of)
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
                "oz's operator does not vouch for Job {} (annotation {}): {error}",
                owner.name,
                labels::VOUCHER
            );
            Err(no_run(caller, &why))
        }
    }
}

/// Whether the caller's pod bears the labels by which the NetworkPolicy of the run confines it. Whoever may create pods
/// may name the Job of a run as the owner of one; these labels none but a Job gets on a pod (deploy/policies/harness).
///
/// # Errors
/// When it does not.
pub fn confined(caller: &Caller, pod: Option<&ObjectMeta>, run: &Owner) -> Result<(), Refusal> {
    let is_marked = pod.is_some_and(|pod| {
        labels::owner_uid(pod) == Some(run.uid.as_str()) && labels::owner_kind(pod) == Some(KIND)
    });
    match is_marked {
        true => Ok(()),
        false => {
            let why = format!(
                "it does not bear the labels by which HarnessRun {} confines its pods",
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
            "pod {namespace}/{pod} belongs to no harness run: {why}; submit a HarnessRun in place of a pod of \
             your own"
        ),
    )
}

/// Whether the caller's run goes on, by the run of its name if there is one, and its phase.
///
/// # Errors
/// When it is gone.
pub fn standing(
    caller: &Caller,
    owner: &Owner,
    run: Option<(&ObjectMeta, Option<RunPhase>)>,
) -> Result<Standing, Refusal> {
    let Some((run, phase)) = run.filter(|(run, _)| is_same(run, &owner.uid)) else {
        return Err(Refusal::new(
            Reason::RunGone,
            format!(
                "harness run {}/{} with UID {} is gone: its pod ends, too",
                caller.namespace, owner.name, owner.uid
            ),
        ));
    };
    let over = phase.is_some_and(RunPhase::is_terminal) || run.deletion_timestamp.is_some();
    Ok(match over {
        true => Standing::Ending,
        false => Standing::Live,
    })
}

/// What somebody is told whose run is over.
#[must_use]
pub fn run_over(caller: &Caller, run: &str) -> Refusal {
    Refusal::new(
        Reason::RunOver,
        format!(
            "harness run {}/{run} is over: submit a new one",
            caller.namespace
        ),
    )
}

/// How many events are kept of the run whose Job this is.
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
