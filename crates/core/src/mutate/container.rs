//! The container to which users connect: its choice, and its differences from the workload's container.

use oz_api::PodTemplateSpecMutationConfig;
use serde_json::{Value, json};

use super::{DEFAULT_CONTAINER, MutateError, is_empty, remove};

/// Returns the index of the container: the one that the template names, or else the one that the workload
/// names in an annotation, or else the first.
pub(super) fn choose(
    template: &Value,
    mutation: &PodTemplateSpecMutationConfig,
) -> Result<usize, MutateError> {
    let containers = template["spec"]["containers"].as_array();
    let containers = containers.filter(|containers| !containers.is_empty());
    let containers = containers.ok_or(MutateError::Empty)?;
    let annotated = template["metadata"]["annotations"][DEFAULT_CONTAINER].as_str();
    let Some(name) = mutation.default_container_name.as_deref().or(annotated) else {
        return Ok(0);
    };
    containers
        .iter()
        .position(|container| container["name"] == name)
        .ok_or_else(|| MutateError::NoContainer(name.to_owned()))
}

/// Removes the probes that the template does not keep, of any container: a container that is never ready
/// prevents the pod from becoming ready.
pub(super) fn probes(container: &mut Value, mutation: &PodTemplateSpecMutationConfig) {
    for (keep, probe) in [
        (mutation.keep_liveness_probe, "livenessProbe"),
        (mutation.keep_readiness_probe, "readinessProbe"),
        (mutation.keep_startup_probe, "startupProbe"),
    ] {
        if !keep {
            remove(container, probe);
        }
    }
}

/// Applies the template's changes to the container, in the documented order.
pub(super) fn mutate(container: &mut Value, mutation: &PodTemplateSpecMutationConfig) {
    if let Some(command) = &mutation.command {
        remove(container, "args");
        set(container, "command", json!(command));
    }
    if let Some(args) = &mutation.args {
        set(container, "args", json!(args));
    }
    // A value that does not serialise is treated as absent; these types always serialise.
    let resources = serde_json::to_value(&mutation.resources).unwrap_or_default();
    if !is_empty(&resources) {
        container["resources"] = resources;
    }
    if !mutation.env.is_empty() {
        let known = container["env"].as_array().into_iter().flatten();
        let mut env: Vec<Value> = known.cloned().collect();
        let added = mutation.env.iter();
        env.extend(added.map(|variable| serde_json::to_value(variable).unwrap_or_default()));
        container["env"] = json!(env);
    }
}

/// Sets a field; an empty list counts as absent.
fn set(container: &mut Value, field: &str, value: Value) {
    if is_empty(&value) {
        remove(container, field);
    } else {
        container[field] = value;
    }
}
