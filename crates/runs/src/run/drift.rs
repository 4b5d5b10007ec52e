//! What somebody else changed of a run's NetworkPolicy or Job, in fields that are ours; others may label and
//! annotate. Most of it is put back; what cannot be put back ends the run.

use k8s_openapi::api::batch::v1::Job;
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

/// The NetworkPolicy as it should be; its `uid` is that of the one that is there.
pub(super) fn policy(
    decided: &Decided,
    run: &StoredObject<'_, HarnessRun>,
    sealed: &str,
    there: Option<&Live>,
) -> Option<Child> {
    let object = objects::network_policy(run, &decided.broker, sealed);
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

/// Whether a NetworkPolicy is not what was decided.
pub(super) fn has_drifted(live: &Live, desired: &Child) -> bool {
    !has_metadata(&live.object.metadata, &desired.object.metadata) || !is_same(live, desired)
}

/// What was changed of a NetworkPolicy that writing our fields again would leave as it is.
pub(super) fn lasting(
    decided: &Decided,
    run: &StoredObject<'_, HarnessRun>,
    live: &Live,
) -> Option<&'static str> {
    if is_held(&live.object.metadata) {
        return Some("a finalizer was put on its NetworkPolicy");
    }
    let desired = policy(decided, run, "", None)?;
    let is_complete = contains(&live.object.data["spec"], &desired.object.data["spec"]);
    (is_complete && !is_same(live, &desired))
        .then_some("its NetworkPolicy was changed in a way that cannot be put back")
}

/// Whether both let the same through.
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

/// The Job with what was changed of it put back; `None` if nothing was. Its pod template cannot be changed: the API
/// server lets nobody.
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
    let mut metadata = child::<Job>(objects::job_metadata(run, seen.sealed, &decided.voucher))?
        .object
        .metadata;
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
