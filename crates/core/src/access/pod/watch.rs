//! The observation of the pod of a grant: whether it is the created pod, whether it became ready in time, and its
//! conditions until then.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use oz_api::conditions::{self, message, reason};
use oz_api::duration::GoDuration;

use super::PodAccess;
use super::isolation::Isolation;
use crate::access::grant::Grant;
use crate::access::kind::PodMade;
use crate::access::objects::Objects;
use crate::access::pod_state::{self, PodState};
use crate::access::request::StoredRequest;
use crate::access::status::Fact;
use crate::build;
use crate::controller::Live;
use crate::lifecycle::End;
use crate::lifecycle::drift::Drift;
use crate::lifecycle::window::has_come;

/// Checks whether `live` is this pod.
pub(super) fn is(live: &Live, pod: &Pod) -> bool {
    live.resource.kind == "Pod" && live.object.metadata.uid == pod.metadata.uid
}

/// Checks whether a pod was exchanged. Until the Role exists, the decision is valid for any pod that carries it: when the
/// Role is created, it must be the pod that oz created. After a restart the process does not know its UID, and compares
/// the content only.
pub(super) fn is_exchanged(
    objects: &Objects,
    grant: &Grant,
    live: &[Live],
    made: Option<&PodMade>,
) -> bool {
    if objects.role.is_some() || objects.binding.is_some() {
        return false;
    }
    let Some((pod, own)) = objects.pod.as_ref().zip(grant.own_pod.as_ref()) else {
        return false;
    };
    let found = live.iter().find(|live| is(live, pod));
    found.is_some_and(|found| {
        let is_it = PodMade::from_live(found).is_some_and(|now| match (made, &own.content) {
            (Some(made), _) => *made == now,
            (None, Some(content)) => now.runs(content),
            // The grant is of a release that did not store the digest.
            (None, None) => true,
        });
        !is_it
    })
}

/// Returns the drift of the pod or its NetworkPolicy.
pub(super) fn drift(objects: &Objects, grant: &Grant, live: &[Live]) -> Option<Drift> {
    let name = &grant.pod.name;
    let named = || format!("Pod {name}");
    let Some(pod) = &objects.pod else {
        return Some(Drift::Deleted(named()));
    };
    if pod.metadata.uid.as_deref() != Some(grant.pod.uid.as_str()) {
        return Some(Drift::Replaced(named()));
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Some(Drift::Leaving(named()));
    }
    let created = grant.own_pod.as_ref().and_then(|own| own.created.as_ref());
    let content = live.iter().find(|live| is(live, pod));
    let now = content.map(|live| build::changeable(&live.object.data["spec"]));
    if created.is_some() && created != now.as_ref() {
        return Some(Drift::Containers(named()));
    }
    match (build::network_policy(grant), &objects.network_policy) {
        (Some(_), None) => Some(Drift::Deleted(format!("NetworkPolicy {name}"))),
        (Some(wanted), Some(policy)) if wanted.spec != policy.spec => {
            Some(Drift::Changed(format!("NetworkPolicy {name}")))
        }
        _ => None,
    }
}

/// Checks whether the pod is ready or has been before.
pub(super) fn was_ready(request: &StoredRequest<'_>, pod: Option<&Pod>) -> bool {
    let known = request.status.and_then(|status| {
        conditions::find(&status.conditions, conditions::ACCESS_RESOURCES_READY)
    });
    known.is_some_and(|known| known.status == "True" || known.reason == reason::NO_LONGER_READY)
        || pod.is_some_and(|pod| pod_state::state(pod) == PodState::Ready)
}

/// Returns the end of a grant if its pod has never been ready, and has ended or exceeded its deadline.
pub(super) fn never_ready(
    access: &PodAccess,
    now: Timestamp,
    request: &StoredRequest<'_>,
    objects: &Objects,
    grant: &Grant,
) -> Option<End> {
    let pod = objects.pod.as_ref()?;
    if was_ready(request, Some(pod)) {
        return None;
    }
    let name = &grant.pod.name;
    match pod_state::state(pod) {
        PodState::Ended(how) => Some(format!("Pod {name} ended before it was ready: {how}")),
        PodState::Waiting(why) if has_come(now, access.ready_by(grant)) => {
            let limit = GoDuration::from_nanos(
                i64::try_from(access.ready_timeout.as_nanos()).unwrap_or(i64::MAX),
            );
            Some(format!("Pod {name} was not ready within {limit}: {why}"))
        }
        PodState::Waiting(_) | PodState::Ready => None,
    }
    .map(End::not_ready)
}

/// Returns the facts about the readiness of the pod, and about its differences from the pod that a user might expect.
pub(super) fn facts(request: &StoredRequest<'_>, grant: &Grant, live: &[Live]) -> Vec<Fact> {
    let pod = Objects::from_live(request, live).pod;
    let state = pod.as_ref().map(pod_state::state);
    let not = match state {
        Some(PodState::Ready) => None,
        Some(PodState::Waiting(why)) => Some(why),
        Some(PodState::Ended(how)) => Some(format!("the pod has ended: {how}")),
        None => Some("the pod is not known yet".to_owned()),
    };
    let type_ = conditions::ACCESS_RESOURCES_READY;
    let ready = match not {
        None => Fact::holds(type_, message::READY),
        Some(why) if was_ready(request, None) => Fact::fails(type_, reason::NO_LONGER_READY, why),
        Some(why) => Fact::fails(
            type_,
            reason::NOT_YET_READY,
            format!("resources not yet available: {why}"),
        ),
    };
    let notes = grant.own_pod.as_ref().map(|own| own.notes.as_slice());
    let adjusted = notes.filter(|notes| !notes.is_empty()).map(|notes| Fact {
        type_: conditions::POD_ADJUSTED,
        holds: true,
        reason: "Adjusted",
        message: notes.join("; "),
    });
    let isolation = grant
        .own_pod
        .as_ref()
        .and_then(|own| own.isolation.as_ref());
    let isolated = isolation.map(Isolation::fact);
    [ready]
        .into_iter()
        .chain(adjusted)
        .chain(isolated)
        .collect()
}
