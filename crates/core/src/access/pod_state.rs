//! The state of a pod by its status: whether the pod can be used, the cause if not, in the words of the component that
//! reports it, and whether its containers have ended.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

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
    let status = pod.status.clone().unwrap_or_default();
    match status.phase.as_deref() {
        Some(phase @ ("Succeeded" | "Failed")) => PodState::Ended(how_it_ended(phase, &status)),
        _ if is_true(&status, "Ready") => PodState::Ready,
        _ => PodState::Waiting(obstacle(pod, &status)),
    }
}

/// Checks whether the status shows that the containers of the pod have ended. A deleted pod that was never assigned to
/// a node has no containers.
#[must_use]
pub fn has_ended(pod: &Pod) -> bool {
    let status = pod.status.clone().unwrap_or_default();
    if statuses(&status).any(|(_, one)| is_running(one)) {
        return false;
    }
    let spec = pod.spec.as_ref();
    if spec.is_none_or(|spec| spec.node_name.is_none()) {
        return pod.metadata.deletion_timestamp.is_some();
    }
    let containers = spec.map_or(0, |spec| spec.containers.len());
    let known = status.container_statuses.as_deref().unwrap_or_default();
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
        || (known.len() >= containers && statuses(&status).all(|(_, one)| is_terminated(one)))
}

fn is_running(status: &ContainerStatus) -> bool {
    let state = status.state.as_ref();
    state.is_some_and(|state| state.running.is_some())
}

fn is_terminated(status: &ContainerStatus) -> bool {
    let state = status.state.as_ref();
    state.is_some_and(|state| state.terminated.is_some())
}

fn is_true(status: &PodStatus, type_: &str) -> bool {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    conditions
        .iter()
        .any(|one| one.type_ == type_ && one.status == "True")
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
fn statuses(status: &PodStatus) -> impl Iterator<Item = (&'static str, &ContainerStatus)> {
    let init = status.init_container_statuses.iter().flatten();
    let main = status.container_statuses.iter().flatten();
    let ephemeral = status.ephemeral_container_statuses.iter().flatten();
    init.map(|one| ("init container", one))
        .chain(main.map(|one| ("container", one)))
        .chain(ephemeral.map(|one| ("ephemeral container", one)))
}

fn how_it_ended(phase: &str, status: &PodStatus) -> String {
    let said = [status.reason.as_deref(), status.message.as_deref()];
    let mut parts: Vec<String> = said.into_iter().flatten().map(str::to_owned).collect();
    parts.extend(statuses(status).filter_map(|(what, one)| failed(what, one)));
    if parts.is_empty() {
        return phase.to_owned();
    }
    format!("{phase}: {}", parts.join("; "))
}

/// Describes the failure of a container; `None` if it did not fail.
fn failed(what: &str, status: &ContainerStatus) -> Option<String> {
    let terminated = status.state.as_ref()?.terminated.as_ref()?;
    (terminated.exit_code != 0).then(|| {
        let reason = terminated.reason.as_deref().unwrap_or("Error");
        let code = terminated.exit_code;
        let name = &status.name;
        match terminated
            .message
            .as_deref()
            .filter(|text| !text.is_empty())
        {
            Some(text) => format!("{what} {name}: {reason} (exit code {code}): {text}"),
            None => format!("{what} {name}: {reason} (exit code {code})"),
        }
    })
}

/// Returns the cause for which the pod is not ready. The text is constant during a normal start, so that it is not
/// written repeatedly.
fn obstacle(pod: &Pod, status: &PodStatus) -> String {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let unscheduled = conditions
        .iter()
        .find(|one| one.type_ == "PodScheduled" && one.status == "False");
    if let Some(unscheduled) = unscheduled {
        let reason = unscheduled.reason.as_deref().unwrap_or("Unschedulable");
        let message = unscheduled.message.as_deref().unwrap_or_default();
        return format!("{reason}: {message}");
    }
    if let Some(stuck) = statuses(status).find_map(|(what, one)| stuck(what, one)) {
        return stuck;
    }
    let gates = pod.spec.iter().flat_map(|spec| &spec.readiness_gates);
    let missing = gates
        .flatten()
        .find(|gate| !is_true(status, &gate.condition_type));
    if let Some(gate) = missing.filter(|_| is_true(status, "ContainersReady")) {
        return format!("readiness gate {} is not open", gate.condition_type);
    }
    let waits = conditions.iter().all(|one| one.type_ != "PodScheduled");
    claims(pod)
        .filter(|_| waits)
        .unwrap_or_else(|| "the pod is starting".to_owned())
}

/// Lists the resource claims that a pod needs before it is assigned to a node: Kubernetes does not report which of them
/// is missing.
fn claims(pod: &Pod) -> Option<String> {
    let claims = pod.spec.as_ref()?.resource_claims.as_ref()?;
    let known = pod.status.as_ref();
    let known = known.and_then(|status| status.resource_claim_statuses.as_deref());
    let made = |name: &str| {
        let mut known = known.unwrap_or_default().iter();
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

fn stuck(what: &str, status: &ContainerStatus) -> Option<String> {
    let waiting = status
        .state
        .as_ref()
        .and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
    match (waiting, reason) {
        (Some(waiting), Some(reason)) if !IN_ORDER.contains(&reason) => {
            let name = &status.name;
            Some(match waiting.message.as_deref() {
                Some(message) => format!("{what} {name}: {reason}: {message}"),
                None => format!("{what} {name}: {reason}"),
            })
        }
        _ => failed(what, status),
    }
}
