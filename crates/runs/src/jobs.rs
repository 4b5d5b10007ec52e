//! What the status of a Job and of its pods says.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::Pod;
use oz_core::lifecycle::window::after;

/// How long a pod may take to start without a word: most that is in its way at first is over by then.
const START_WAIT: SignedDuration = SignedDuration::from_secs(5);

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

/// Whether the containers of a pod run or have run; those that come before them do not count.
pub(super) fn has_started(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    !matches!(phase, None | Some("Pending"))
}

/// From when on a pod that has not started is told to be late; `None` for one that has.
pub(super) fn told_from(pod: &Pod) -> Option<Timestamp> {
    let created = pod.metadata.creation_timestamp.as_ref()?.0;
    (!has_started(pod)).then(|| after(created, START_WAIT))
}

/// The reason why a pod has not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotStarted {
    /// The scheduler finds no node.
    #[error("no node takes the pod: {}", message.as_deref().unwrap_or("no node has room"))]
    Unschedulable {
        /// The words of the scheduler.
        message: Option<String>,
    },
    /// A container cannot run.
    #[error("container {container} waits: {reason}: {}", message.as_deref().unwrap_or_default())]
    Waiting {
        /// Name of the container.
        container: String,
        /// Reason of the kubelet.
        reason: String,
        /// Its words.
        message: Option<String>,
    },
}

/// Why a pod has not started; `None` if it merely takes its time.
pub(super) fn obstacle(pod: &Pod) -> Option<NotStarted> {
    let status = pod.status.as_ref()?;
    let unscheduled = status.conditions.iter().flatten().find(|known| {
        known.type_ == "PodScheduled"
            && known.status == "False"
            && known.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(unscheduled) = unscheduled {
        let message = unscheduled.message.clone();
        return Some(NotStarted::Unschedulable { message });
    }
    let ordinary = status.container_statuses.iter().flatten();
    let mut all = status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(ordinary);
    all.find_map(|one| {
        let waiting = one.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        if ["ContainerCreating", "PodInitializing"].contains(&reason) {
            return None;
        }
        Some(NotStarted::Waiting {
            container: one.name.clone(),
            reason: reason.to_owned(),
            message: waiting.message.clone(),
        })
    })
}
