//! The container to which users connect: its choice, and its differences from the workload's container.

use oz_api::PodTemplateSpecMutationConfig;
use serde_json::{Value, json};

use super::{DEFAULT_CONTAINER, MutateError};
use crate::confine::json::{is_empty, is_sidecar, items, remove};

/// The position of a container in a pod spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContainerPosition {
    /// The field of the spec with the list that contains it.
    pub(super) list: &'static str,
    /// The index in the list.
    pub(super) index: usize,
}

impl ContainerPosition {
    /// The first container, which every pod has.
    pub(super) const FIRST: Self = Self {
        list: "containers",
        index: 0,
    };
}

/// Returns the position of the container: the one that the template names, or else the one that the workload
/// names in an annotation, or else the first. As for kubectl, the annotation is a hint: it may name a container
/// that only admission adds to the workload's pods. Then the first is chosen, with a note for users.
pub(super) fn choose(
    template: &Value,
    mutation: &PodTemplateSpecMutationConfig,
) -> Result<(ContainerPosition, Option<String>), MutateError> {
    let spec = &template["spec"];
    let first = &spec["containers"][0];
    if first.is_null() {
        return Err(MutateError::Empty);
    }
    if let Some(name) = &mutation.default_container_name {
        let found = find(spec, name).ok_or_else(|| MutateError::NoContainer(name.clone()))?;
        return Ok((found, None));
    }
    let annotated = template["metadata"]["annotations"][DEFAULT_CONTAINER].as_str();
    let Some(name) = annotated.filter(|name| !name.is_empty()) else {
        return Ok((ContainerPosition::FIRST, None));
    };
    if let Some(found) = find(spec, name) {
        return Ok((found, None));
    }
    let note = format!(
        "container {name}, which the annotation {DEFAULT_CONTAINER} of the workload names, is neither a \
         container nor a sidecar of its pod template: the default container is {}",
        first["name"].as_str().unwrap_or("the first")
    );
    Ok((ContainerPosition::FIRST, Some(note)))
}

/// Returns the position of the container or sidecar of this name. Other init containers have ended when a user
/// connects.
fn find(spec: &Value, name: &str) -> Option<ContainerPosition> {
    ["containers", "initContainers"]
        .into_iter()
        .find_map(|list| {
            let mut containers = spec[list].as_array()?.iter();
            let index = containers.position(|container| {
                container["name"] == name && (list == "containers" || is_sidecar(container))
            })?;
            Some(ContainerPosition { list, index })
        })
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
        let mut env: Vec<Value> = items(&container["env"]).cloned().collect();
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{access_pod, model};
    use super::super::{DEFAULT_CONTAINER, MutateError, Rendered, render};

    /// Renders the pod of a workload with two containers, an init container and a sidecar.
    fn rendered(annotated: Option<&str>, mutation: Value) -> Result<Rendered, MutateError> {
        let annotations = annotated.map(|name| json!({DEFAULT_CONTAINER: name}));
        let template = json!({
            "metadata": {"annotations": annotations},
            "spec": {
                "initContainers": [
                    {"name": "migrate", "image": "app:1"},
                    {"name": "mesh", "image": "mesh:1", "restartPolicy": "Always"},
                ],
                "containers": [
                    {"name": "app", "image": "app:1"},
                    {"name": "proxy", "image": "proxy:1"},
                ],
            },
        });
        render(&access_pod(mutation), Some(&model(template)))
    }

    #[test]
    fn annotation_that_names_no_container_is_noted_and_the_first_is_the_default() {
        for (annotated, expected, is_noted) in [
            (None, "app", false),
            (Some(""), "app", false),
            (Some("app"), "app", false),
            (Some("proxy"), "proxy", false),
            (Some("mesh"), "mesh", false),
            // It has ended when a user connects.
            (Some("migrate"), "app", true),
            // Admission adds it to the workload's pods.
            (Some("istio-proxy"), "app", true),
        ] {
            let pod = rendered(annotated, json!({})).unwrap();
            assert_eq!(pod.container, expected, "{annotated:?}");
            assert_eq!(pod.annotations[DEFAULT_CONTAINER], expected);
            let notes = pod.notes.join("; ");
            assert_eq!(!notes.is_empty(), is_noted, "{annotated:?}: {notes}");
            let named = annotated.unwrap_or("app");
            assert!(!is_noted || notes.starts_with(&format!("container {named}, ")));
            assert!(!is_noted || notes.ends_with("the default container is app"));
        }
    }

    #[test]
    fn sidecar_is_mutated_if_it_is_the_default_container() {
        let pod = rendered(Some("mesh"), json!({"command": ["sleep"]})).unwrap();
        assert_eq!(
            pod.spec["initContainers"][1]["command"],
            json!(["sleep"]),
            "{:?}",
            pod.spec
        );
        assert!(!json!(pod.spec["containers"]).to_string().contains("sleep"));
        assert_eq!(
            pod.containers().collect::<Vec<_>>(),
            ["app", "proxy", "mesh"]
        );
    }

    #[test]
    fn default_container_of_the_template_is_required() {
        for (name, exists) in [
            ("app", true),
            ("mesh", true),
            ("migrate", false),
            ("istio-proxy", false),
        ] {
            let mutation = json!({"defaultContainerName": name});
            let result = rendered(Some("proxy"), mutation).map(|pod| pod.container);
            let missing = MutateError::NoContainer(name.to_owned());
            let expected = exists.then(|| name.to_owned()).ok_or(missing);
            assert_eq!(result, expected);
        }
    }
}
