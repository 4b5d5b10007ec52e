//! What the status of a Job and of its pods says.

use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::Pod;

/// A condition of a Job, if it is True.
pub(super) fn condition<'a>(job: &'a Job, type_: &str) -> Option<&'a JobCondition> {
    let mut conditions = job.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|known| known.type_ == type_ && known.status == "True")
}

/// Whether something may run in a pod still.
pub(super) fn is_active(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}
