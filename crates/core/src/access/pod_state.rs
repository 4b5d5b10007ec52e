//! The state of a pod by its status: whether the pod can be used, the cause if not, in the words of the component that
//! reports it, and whether its containers have ended.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

/// The grace period of the containers of a pod in seconds. The kubelet extends it to two.
pub const GRACE_SECONDS: i64 = 1;

/// Reasons with which a container waits during a normal start.
const IN_ORDER: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The usability of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodState {
    /// The pod can be used.
    Ready,
    /// The pod cannot be used yet, and perhaps never: the cause.
    Waiting(String),
    /// The pod has ended: the way in which it ended.
    Ended(String),
}

/// Returns the current usability of the pod.
#[must_use]
pub fn state(pod: &Pod) -> PodState {
    match phase(pod) {
        Some(phase @ ("Succeeded" | "Failed")) => PodState::Ended(how_it_ended(phase, pod)),
        _ if is_true(pod, "Ready") => PodState::Ready,
        _ => PodState::Waiting(obstacle(pod)),
    }
}

/// Checks whether the status shows that the containers of the pod have ended. A deleted pod that was never assigned to
/// a node has no containers.
#[must_use]
pub fn has_ended(pod: &Pod) -> bool {
    if statuses(pod).any(|(_, one)| is_running(one)) {
        return false;
    }
    let spec = pod.spec.as_ref();
    if spec.is_none_or(|spec| spec.node_name.is_none()) {
        return pod.metadata.deletion_timestamp.is_some();
    }
    let containers = spec.map_or(0, |spec| spec.containers.len());
    let status = pod.status.as_ref();
    let known = status.and_then(|status| status.container_statuses.as_ref());
    matches!(phase(pod), Some("Succeeded" | "Failed"))
        || (known.map_or(0, Vec::len) >= containers
            && statuses(pod).all(|(_, one)| is_terminated(one)))
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn is_running(status: &ContainerStatus) -> bool {
    let state = status.state.as_ref();
    state.is_some_and(|state| state.running.is_some())
}

fn is_terminated(status: &ContainerStatus) -> bool {
    let state = status.state.as_ref();
    state.is_some_and(|state| state.terminated.is_some())
}

fn conditions(pod: &Pod) -> impl Iterator<Item = &PodCondition> {
    let status = pod.status.iter();
    status.flat_map(|status| status.conditions.iter().flatten())
}

fn is_true(pod: &Pod, type_: &str) -> bool {
    conditions(pod).any(|one| one.type_ == type_ && one.status == "True")
}

/// Returns the statuses of all containers of a pod, including sidecars and ephemeral containers.
pub fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().flat_map(|status| {
        let main = status.container_statuses.iter().flatten();
        let init = status.init_container_statuses.iter().flatten();
        let ephemeral = status.ephemeral_container_statuses.iter().flatten();
        main.chain(init).chain(ephemeral)
    })
}

/// Returns all containers in the order in which they start, each with its description.
fn statuses(pod: &Pod) -> impl Iterator<Item = (&'static str, &ContainerStatus)> {
    pod.status.iter().flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        let main = status.container_statuses.iter().flatten();
        let ephemeral = status.ephemeral_container_statuses.iter().flatten();
        init.map(|one| ("init container", one))
            .chain(main.map(|one| ("container", one)))
            .chain(ephemeral.map(|one| ("ephemeral container", one)))
    })
}

fn how_it_ended(phase: &str, pod: &Pod) -> String {
    let status = pod.status.iter();
    let said = status.flat_map(|status| [&status.reason, &status.message]);
    let mut parts: Vec<String> = said.flatten().cloned().collect();
    parts.extend(statuses(pod).filter_map(|(what, one)| Some(failed(what, one)?.to_string())));
    if parts.is_empty() {
        return phase.to_owned();
    }
    format!("{phase}: {}", parts.join("; "))
}

/// The failure of a container. `what` is the kind of container.
#[derive(Debug, thiserror::Error)]
enum ContainerFailure<'a> {
    #[error("{what} {name}: {reason} (exit code {code})")]
    Ended {
        what: &'static str,
        name: &'a str,
        reason: &'a str,
        code: i32,
    },
    #[error("{ended}: {message}")]
    EndedWithMessage { ended: Box<Self>, message: &'a str },
    #[error("{what} {name}: {reason}")]
    Waits {
        what: &'static str,
        name: &'a str,
        reason: &'a str,
    },
    #[error("{what} {name}: {reason}: {message}")]
    WaitsWithMessage {
        what: &'static str,
        name: &'a str,
        reason: &'a str,
        message: &'a str,
    },
}

/// Returns the failure of a container; `None` if it did not fail.
fn failed<'a>(what: &'static str, status: &'a ContainerStatus) -> Option<ContainerFailure<'a>> {
    let terminated = status.state.as_ref()?.terminated.as_ref()?;
    (terminated.exit_code != 0).then(|| {
        let ended = ContainerFailure::Ended {
            what,
            name: &status.name,
            reason: terminated.reason.as_deref().unwrap_or("Error"),
            code: terminated.exit_code,
        };
        let message = terminated.message.as_deref();
        match message.filter(|text| !text.is_empty()) {
            Some(message) => ContainerFailure::EndedWithMessage {
                ended: Box::new(ended),
                message,
            },
            None => ended,
        }
    })
}

/// Returns the cause for which the pod is not ready. The text is constant during a normal start, so that it is not
/// written repeatedly.
fn obstacle(pod: &Pod) -> String {
    let unscheduled =
        conditions(pod).find(|one| one.type_ == "PodScheduled" && one.status == "False");
    if let Some(unscheduled) = unscheduled {
        let reason = unscheduled.reason.as_deref().unwrap_or("Unschedulable");
        let message = unscheduled.message.as_deref().unwrap_or_default();
        return format!("{reason}: {message}");
    }
    if let Some(stuck) = statuses(pod).find_map(|(what, one)| stuck(what, one)) {
        return stuck.to_string();
    }
    let gates = pod.spec.iter().flat_map(|spec| &spec.readiness_gates);
    let missing = gates
        .flatten()
        .find(|gate| !is_true(pod, &gate.condition_type));
    if let Some(gate) = missing.filter(|_| is_true(pod, "ContainersReady")) {
        return format!("readiness gate {} is not open", gate.condition_type);
    }
    let waits = conditions(pod).all(|one| one.type_ != "PodScheduled");
    claims(pod)
        .filter(|_| waits)
        .unwrap_or_else(|| "the pod is starting".to_owned())
}

/// Lists the resource claims that a pod needs before it is assigned to a node: Kubernetes does not report which of them
/// is missing.
fn claims(pod: &Pod) -> Option<String> {
    let claims = pod.spec.as_ref()?.resource_claims.as_ref()?;
    let status = pod.status.as_ref();
    let made = |name: &str| {
        let mut known = status?.resource_claim_statuses.iter().flatten();
        let made = known.find(|one| one.name == name);
        made.and_then(|one| one.resource_claim_name.clone())
    };
    let names = claims.iter().map(|claim| {
        let template = claim.resource_claim_template_name.as_ref();
        match (
            claim.resource_claim_name.as_ref(),
            made(&claim.name).as_ref(),
            template,
        ) {
            (Some(name), ..) | (None, Some(name), _) => format!("resource claim {name}"),
            (None, None, Some(name)) => format!("a claim by resource claim template {name}"),
            (None, None, None) => format!("resource claim {}", claim.name),
        }
    });
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| format!("it waits for {}", names.join(", ")))
}

fn stuck<'a>(what: &'static str, status: &'a ContainerStatus) -> Option<ContainerFailure<'a>> {
    let waiting = status
        .state
        .as_ref()
        .and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
    match (waiting, reason) {
        (Some(waiting), Some(reason)) if !IN_ORDER.contains(&reason) => {
            let name = status.name.as_str();
            Some(match waiting.message.as_deref() {
                Some(message) => ContainerFailure::WaitsWithMessage {
                    what,
                    name,
                    reason,
                    message,
                },
                None => ContainerFailure::Waits { what, name, reason },
            })
        }
        _ => failed(what, status),
    }
}
