//! Drift of the NetworkPolicy and the Job of a run, in fields that oz manages; labels and annotations of other clients
//! are ignored. Most drift is repaired; other drift ends the run.

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use kube::core::DynamicObject;
use oz_api::harness::{HarnessRun, RunMode};
use oz_core::controller::{Child, Live, contains, has_metadata};
use oz_core::lifecycle::drift::is_held;
use serde_json::{Value, json};

use super::decided::Decided;
use super::existing::Seen;
use crate::child::child;
use crate::objects;
use crate::stored::StoredObject;

/// Creates the desired NetworkPolicy; `uid` is that of the existing one.
pub(super) fn policy(
    decided: &Decided,
    run: &StoredObject<'_, HarnessRun>,
    sealed: &str,
    there: Option<&Live>,
) -> Option<Child> {
    let object = objects::network_policy(run, &decided.broker, decided.reach.as_ref(), sealed);
    let mut child = child::<NetworkPolicy>(object)?;
    if let Some(there) = there {
        child
            .object
            .metadata
            .uid
            .clone_from(&there.object.metadata.uid);
    }
    Some(child)
}

/// Checks whether a NetworkPolicy differs from the decision.
pub(super) fn has_drifted(live: &Live, desired: &Child) -> bool {
    !has_metadata(&live.object.metadata, &desired.object.metadata) || !is_same(live, desired)
}

/// Returns the drift of a NetworkPolicy that an apply of the managed fields would not repair.
pub(super) fn lasting(
    decided: &Decided,
    run: &StoredObject<'_, HarnessRun>,
    live: &Live,
) -> Option<&'static str> {
    if is_held(&live.object.metadata) {
        return Some("a finalizer was added to its NetworkPolicy");
    }
    let desired = policy(decided, run, "", None)?;
    let is_complete = contains(&live.object.data["spec"], &desired.object.data["spec"]);
    (is_complete && !is_same(live, &desired))
        .then_some("its NetworkPolicy was changed and cannot be restored")
}

/// Checks whether both permit the same connections.
fn is_same(live: &Live, desired: &Child) -> bool {
    let read = |data: &Value| -> Option<NetworkPolicySpec> {
        let mut spec: NetworkPolicySpec = serde_json::from_value(data.get("spec")?.clone()).ok()?;
        // Nothing, said or not said, is the same.
        spec.ingress = spec.ingress.filter(|rules| !rules.is_empty());
        let selector = spec.pod_selector.get_or_insert_default();
        let expressions = selector.match_expressions.take();
        selector.match_expressions = expressions.filter(|all| !all.is_empty());
        Some(spec)
    };
    let (live, desired) = (read(&live.object.data), read(&desired.object.data));
    live.is_some() && live == desired
}

/// Returns the Job with its drift repaired; `None` without drift. Its pod template cannot drift: it is immutable
/// (<https://kubernetes.io/docs/concepts/workloads/controllers/job/#mutable-scheduling-directives>).
pub(super) fn job(
    decided: &Decided,
    run: &StoredObject<'_, HarnessRun>,
    seen: &Seen<'_>,
) -> Option<Child> {
    let (live, _) = seen.job.as_ref()?;
    let mut spec = live.object.data.get("spec")?.clone();
    let mut ours = json!({
        "parallelism": 1,
        "backoffLimit": run.spec.retries,
    });
    if run.spec.mode != RunMode::Interactive
        && let Some(seconds) = decided.timeout_seconds
    {
        ours["activeDeadlineSeconds"] = json!(seconds);
    }
    let is_suspended = spec.get("suspend") == Some(&Value::Bool(true));
    if is_suspended && !objects::is_queued(run) {
        ours["suspend"] = json!(false);
    }
    let mut metadata = objects::job_metadata(run, seen.sealed, &decided.voucher);
    if contains(&spec, &ours) && has_metadata(&live.object.metadata, &metadata) {
        return None;
    }
    for (field, value) in ours.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    metadata.uid.clone_from(&live.object.metadata.uid);
    let mut object = DynamicObject::new(metadata.name.as_deref()?, &live.resource);
    object.metadata = metadata;
    object.data = json!({ "spec": spec });
    Some(Child {
        resource: live.resource.clone(),
        object,
    })
}
