//! The states of a Job and its pods.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::Pod;
use oz_core::lifecycle::window::after;

use super::reserved;

/// The time for which a pod may wait for its start without a condition: most obstacles of a new pod disappear within
/// it.
const START_WAIT: SignedDuration = SignedDuration::from_secs(5);

/// The maximum size of a message of a container that a status repeats, in bytes.
const MAX_SAID: usize = 1024;

/// Returns a condition of a Job, if it is True.
pub(super) fn condition<'a>(job: &'a Job, type_: &str) -> Option<&'a JobCondition> {
    let mut conditions = job.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|known| known.type_ == type_ && known.status == "True")
}

/// Checks whether a process may still run in a pod.
pub(super) fn is_active(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Checks whether the containers of a pod run or have run, without init containers.
pub(super) fn has_started(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    !matches!(phase, None | Some("Pending"))
}

/// Returns the instant from which on the status reports the late start of a pod; `None` after its start.
pub(super) fn reported_from(pod: &Pod) -> Option<Timestamp> {
    let created = pod.metadata.creation_timestamp.as_ref()?.0;
    (!has_started(pod)).then(|| after(created, START_WAIT))
}

/// The reason why a pod has not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotStarted {
    /// The scheduler finds no node.
    #[error("no node takes the pod: {}", message.as_deref().unwrap_or("no node has room"))]
    Unschedulable {
        /// The message of the scheduler.
        message: Option<String>,
    },
    /// A container cannot run.
    #[error("container {container} waits: {reason}: {}", message.as_deref().unwrap_or_default())]
    Waiting {
        /// Name of the container.
        container: String,
        /// Reason of the kubelet.
        reason: String,
        /// Message of the kubelet.
        message: Option<String>,
    },
    /// The network of the pod could not be confined.
    #[error("{0}")]
    NotIntercepted(String),
}

/// Returns the reason for which the connections of a pod cannot be intercepted, in the words of the container that was to
/// confine its network; `None` if that did not fail.
pub(super) fn interception_failure(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let mut all = status.init_container_statuses.iter().flatten();
    let init = all.find(|one| one.name == reserved::NETINIT)?;
    let ended = init.state.as_ref()?.terminated.as_ref()?;
    if ended.exit_code == 0 {
        return None;
    }
    let said = ended.message.as_deref().map_or("", str::trim);
    Some(match said {
        "" => format!(
            "the network of the pod could not be confined: container {} ended with exit code {}",
            reserved::NETINIT,
            ended.exit_code
        ),
        said => {
            let said = &said[..said.floor_char_boundary(MAX_SAID)];
            format!("the network of the pod could not be confined: {said}")
        }
    })
}

/// Returns the reason why a pod has not started; `None` without an obstacle.
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
    if let Some(why) = interception_failure(pod) {
        return Some(NotStarted::NotIntercepted(why));
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
