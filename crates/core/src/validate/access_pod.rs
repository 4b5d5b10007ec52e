//! Validation of the fields that only a PodAccessTemplate has: the source of its pods, their changes and
//! their maximum size.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use oz_api::{
    Network, PatchOp, PatchSpecOperation, PodAccessTemplateSpec, PodTemplateSpecMutationConfig,
    labels,
};
use serde_json::Value;

use super::template::{self, Target};
use super::{Amount, Found, name};
use crate::confine::Ceilings;

/// The maximum size of the value of one operation of a patch, in bytes of JSON.
pub const MAX_PATCH_VALUE: usize = 16 * 1024;
/// The maximum depth of nested objects and lists in the value of an operation of a patch: no field of a pod
/// is nested deeper.
pub const MAX_PATCH_DEPTH: usize = 32;

/// The pods that a template defines.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessPod {
    /// The source of the pod.
    pub source: PodSource,
    /// The changes to the pod; empty if the template defines none.
    pub mutation: PodTemplateSpecMutationConfig,
    /// The maximum size of the pod.
    pub ceilings: Ceilings,
    /// The permitted network connections; `None` if they are not restricted.
    pub network: Option<Network>,
}

/// The source of an access pod.
#[derive(Clone, Debug, PartialEq)]
pub enum PodSource {
    /// The pod template of a workload.
    Workload(Target),
    /// A pod spec in the template.
    Spec(Box<PodSpec>),
}

pub(super) fn check(spec: &PodAccessTemplateSpec, found: &mut Found) -> Option<AccessPod> {
    let mutation = spec
        .controller_target_mutation_config
        .clone()
        .unwrap_or_default();
    let source = match (&spec.controller_target_ref, &spec.pod_spec) {
        (Some(reference), None) => template::target(reference, found).map(PodSource::Workload),
        (None, Some(pod)) => {
            pod_spec(spec, pod, &mutation, found);
            Some(PodSource::Spec(Box::new(pod.clone())))
        }
        (Some(_), Some(_)) => {
            found.add(
                "spec.podSpec",
                "must not be set together with controllerTargetRef",
            );
            None
        }
        (None, None) => {
            found.add("spec.controllerTargetRef", "must be set, unless podSpec is");
            None
        }
    };
    check_mutation(&mutation, found);
    let ceilings = Ceilings {
        cpu: ceiling("spec.maxCpu", spec.max_cpu.as_ref(), found),
        memory: ceiling("spec.maxMemory", spec.max_memory.as_ref(), found),
        storage: ceiling("spec.maxStorage", spec.max_storage.as_ref(), found),
    };
    source.map(|source| AccessPod {
        source,
        mutation,
        ceilings,
        network: spec.network,
    })
}

/// Checks a pod spec in the template. Its containers are known, so a name that matches no container is a
/// violation.
fn pod_spec(
    spec: &PodAccessTemplateSpec,
    pod: &PodSpec,
    mutation: &PodTemplateSpecMutationConfig,
    found: &mut Found,
) {
    let mut names = BTreeSet::new();
    for (index, container) in pod.containers.iter().enumerate() {
        let field = format!("spec.podSpec.containers[{index}].name");
        found.check(&field, &container.name, name::dns_label(&container.name));
        if !names.insert(container.name.as_str()) {
            found.check(
                &field,
                &container.name,
                Err::<(), _>("must not be used twice"),
            );
        }
    }
    if names.is_empty() {
        found.add(
            "spec.podSpec.containers",
            "must have at least one container",
        );
    }
    let init = pod.init_containers.iter().flatten();
    let sidecars = init.filter(|one| one.restart_policy.as_deref() == Some("Always"));
    names.extend(sidecars.map(|one| one.name.as_str()));
    let default = mutation.default_container_name.iter().map(|name| {
        (
            "spec.controllerTargetMutationConfig.defaultContainerName".to_owned(),
            name,
        )
    });
    let enterable = spec.access_config.containers.iter().enumerate();
    let enterable =
        enterable.map(|(index, name)| (format!("spec.accessConfig.containers[{index}]"), name));
    for (field, name) in default.chain(enterable) {
        if !names.contains(name.as_str()) {
            let message = format!("could not find container named {name} in PodSpec");
            found.check(&field, name, Err::<(), _>(message));
        }
    }
}

fn check_mutation(mutation: &PodTemplateSpecMutationConfig, found: &mut Found) {
    let config = "spec.controllerTargetMutationConfig";
    if let Some(container) = &mutation.default_container_name {
        let field = format!("{config}.defaultContainerName");
        found.check(&field, container, name::dns_label(container));
    }
    for (field, entries, values_are_labels) in [
        ("podAnnotations", &mutation.pod_annotations, false),
        ("nodeSelector", &mutation.node_selector, true),
        ("podLabels", &mutation.pod_labels, true),
    ] {
        keyed(
            &format!("{config}.{field}"),
            entries,
            values_are_labels,
            found,
        );
    }
    if let Some(resources) = &mutation.resources {
        check_resources(&format!("{config}.resources"), resources, found);
    }
    for (index, variable) in mutation.env.iter().enumerate() {
        if variable.name.is_empty() || variable.name.contains('=') {
            let field = format!("{config}.env[{index}].name");
            found.check(
                &field,
                &variable.name,
                Err::<(), _>("must not be empty or contain '='"),
            );
        }
    }
    for (index, operation) in mutation.patch_spec_operations.iter().enumerate() {
        patch(
            &format!("{config}.patchSpecOperations[{index}]"),
            operation,
            found,
        );
    }
}

fn keyed(
    field: &str,
    entries: &BTreeMap<String, String>,
    values_are_labels: bool,
    found: &mut Found,
) {
    for (key, value) in entries {
        let field = format!("{field}[{key}]");
        found.check(&field, key, name::qualified_name(key));
        if labels::is_of_child(key) {
            found.check(&field, key, Err::<(), _>("is reserved for oz"));
        }
        if values_are_labels {
            found.check(&field, value, name::label_value(value));
        }
    }
}

fn check_resources(field: &str, resources: &ResourceRequirements, found: &mut Found) {
    for (part, quantities) in [
        ("limits", &resources.limits),
        ("requests", &resources.requests),
    ] {
        for (resource, quantity) in quantities.iter().flatten() {
            amount(&format!("{field}.{part}[{resource}]"), quantity, found);
        }
    }
}

/// Checks whether the operation has the fields that its kind requires. The patch itself is tried on the pod.
fn patch(field: &str, operation: &PatchSpecOperation, found: &mut Found) {
    pointer(&format!("{field}.path"), &operation.path, found);
    if let Some(from) = &operation.from {
        pointer(&format!("{field}.from"), from, found);
    }
    if let Some(value) = &operation.value {
        patch_value(&format!("{field}.value"), value, found);
    }
    match operation.op {
        PatchOp::Add | PatchOp::Replace | PatchOp::Test if operation.value.is_none() => {
            found.add(
                &format!("{field}.value"),
                format!("must be set to {}", operation.op),
            );
        }
        PatchOp::Move | PatchOp::Copy if operation.from.is_none() => {
            found.add(
                &format!("{field}.from"),
                format!("must be set to {}", operation.op),
            );
        }
        _ => {}
    }
}

fn patch_value(field: &str, value: &Value, found: &mut Found) {
    let size = template::size(value);
    if size > MAX_PATCH_VALUE {
        found.add(
            field,
            format!("takes {size} bytes as JSON: the maximum is {MAX_PATCH_VALUE}"),
        );
    }
    if is_deeper(value, MAX_PATCH_DEPTH) {
        let message = format!("must not nest more than {MAX_PATCH_DEPTH} objects and lists");
        found.add(field, message);
    }
}

/// Checks whether the value nests more than `most` objects and lists.
fn is_deeper(value: &Value, most: usize) -> bool {
    let Some(left) = most.checked_sub(1) else {
        return value.is_array() || value.is_object();
    };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper(item, left)),
        Value::Object(fields) => fields.values().any(|field| is_deeper(field, left)),
        _ => false,
    }
}

/// Checks a JSON Pointer (RFC 6901) into a pod template.
/// See <https://www.rfc-editor.org/rfc/rfc6901#section-3>.
fn pointer(field: &str, pointer: &str, found: &mut Found) {
    let inside = ["/metadata", "/spec"].iter().any(|root| {
        pointer
            .strip_prefix(root)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    if !inside {
        let message = "must begin with /metadata or /spec: the patched document is a pod template";
        found.check(field, pointer, Err::<(), _>(message));
    }
    if pointer
        .split('~')
        .skip(1)
        .any(|after| !after.starts_with(['0', '1']))
    {
        let message = "must write '~' as ~0 and '/' within a name as ~1";
        found.check(field, pointer, Err::<(), _>(message));
    }
}

fn ceiling(field: &str, quantity: Option<&Quantity>, found: &mut Found) -> Option<Amount> {
    let quantity = quantity?;
    let amount = amount(field, quantity, found)?;
    let result = if amount > Amount::ZERO {
        Ok(amount)
    } else {
        Err("must be greater than zero")
    };
    found.check(field, &quantity.0, result)
}

fn amount(field: &str, quantity: &Quantity, found: &mut Found) -> Option<Amount> {
    found.check(field, &quantity.0, quantity.0.parse())
}
