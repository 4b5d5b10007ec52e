//! Renders an access pod from the pod template of a workload, or from a spec in the template. Works on JSON
//! and not on types, so that fields of a newer Kubernetes than ours are kept as they are.

mod apart;
mod cache;
mod container;
mod patch;
mod sharing;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use oz_api::{PodTemplateSpecMutationConfig, encode, labels};
use serde::Serialize;
use serde_json::{Map, Value, json};

pub use self::cache::RenderCache;
pub use self::patch::PatchError;
use crate::access::pod_state::GRACE_SECONDS;
use crate::confine::json::{is_sidecar, items, items_mut, prune, remove, texts};
use crate::confine::{CeilingError, ceilings};
use crate::validate::{AccessPod, PodSource};

/// The annotation that names the default container of `kubectl exec`.
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// The data that oz reads from a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Kind and name, for messages.
    pub title: String,
    /// Pod template of the workload.
    pub template: Value,
    /// The names of its volume claim templates, which a StatefulSet has.
    pub claims: Vec<String>,
    /// The access modes of the claims that its pods mount, as far as they could be read.
    pub access_modes: BTreeMap<String, Vec<String>>,
    /// UID and generation of the workload, which stay the same until it changes; `None` if they are unknown.
    pub version: Option<String>,
}

impl Model {
    /// Reads the model from the `spec` of a workload; `None` if it has no pod template. The pod template of a
    /// CronJob is in the template of its Jobs.
    #[must_use]
    pub fn of_workload(title: String, spec: &Value) -> Option<Self> {
        let template = spec.get("template");
        let template = template.or_else(|| spec.pointer("/jobTemplate/spec/template"));
        let template = template.filter(|value| value.is_object())?;
        let claims = items(&spec["volumeClaimTemplates"]);
        Some(Self {
            title,
            template: template.clone(),
            claims: claims
                .filter_map(|claim| claim["metadata"]["name"].as_str().map(str::to_owned))
                .collect(),
            access_modes: BTreeMap::new(),
            version: None,
        })
    }

    /// Returns the names of the claims that its pods mount, each once.
    #[must_use]
    pub fn mounted_claims(&self) -> BTreeSet<&str> {
        items(&self.template["spec"]["volumes"])
            .filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str())
            .collect()
    }
}

/// An access pod, without its user and expiry.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rendered {
    /// Labels from the template; none from the workload.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// The spec.
    pub spec: Map<String, Value>,
    /// The container to which users should connect.
    pub container: String,
    /// Unexpected differences of the pod, for users.
    pub notes: Vec<String>,
    /// Digest of labels, annotations and spec.
    #[serde(skip)]
    pub digest: String,
}

impl Rendered {
    /// Returns the approximate size as JSON.
    fn bytes(&self) -> usize {
        let spec = self.spec.iter();
        let annotations = self.annotations.iter();
        spec.map(|(key, value)| key.len() + patch::Size::measure(value).bytes)
            .chain(annotations.map(|(key, value)| key.len() + value.len()))
            .sum()
    }

    /// Returns the names of the containers, and then of the sidecars.
    pub fn containers(&self) -> impl Iterator<Item = &str> {
        let list = |name: &str| self.spec.get(name).into_iter().flat_map(items);
        let sidecars = list("initContainers").filter(|container| is_sidecar(container));
        let all = list("containers").chain(sidecars);
        all.filter_map(|container| container["name"].as_str())
    }
}

/// The reason why the pod cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MutateError {
    /// The named container does not exist.
    #[error("could not find container named {0} in PodSpec")]
    NoContainer(String),
    /// The pod template has no containers.
    #[error("the pod template has no containers")]
    Empty,
    /// The workload was not read.
    #[error("the workload's pod template is not known")]
    NoModel,
    /// An operation of the patch fails.
    #[error("patchSpecOperations[{index}] ({op} {path}): {why}")]
    Patch {
        /// Index of the operation in the list, from 0.
        index: usize,
        /// Kind of the operation.
        op: &'static str,
        /// Path of the operation.
        path: String,
        /// Cause of the failure.
        why: PatchError,
    },
    /// The result is not a pod template.
    #[error("the result is not a pod template: {0}")]
    Shape(String),
    /// The pod exceeds its maximum size.
    #[error("the pod is larger than the template allows: {}", joined(.0))]
    TooLarge(Vec<CeilingError>),
}

fn joined(errors: &[CeilingError]) -> String {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    errors.join("; ")
}

/// Renders the pod of a template. The order of the effects is that of the original: grace period, probes,
/// topology, annotations, node selector, labels, command, arguments, resources, environment, and the patch
/// last. Settings that must hold for any patch are applied after it.
///
/// # Errors
/// A [`MutateError`] with the cause.
pub fn render(pod: &AccessPod, model: Option<&Model>) -> Result<Rendered, MutateError> {
    let mutation = &pod.mutation;
    let (mut template, claims) = source(&pod.source, model)?;
    let (chosen, note) = container::choose(&template, mutation)?;

    let labels = template["metadata"]["labels"].clone();
    let mut notes = Vec::from_iter(note);
    notes.extend(spec_fields(&mut template["spec"], mutation, &labels));
    metadata_fields(&mut template["metadata"], mutation);
    let container = &mut template["spec"][chosen.list][chosen.index];
    container::mutate(container, mutation);
    patch::apply(&mut template, &mutation.patch_spec_operations)?;
    check_shape(&template)?;

    let spec = &mut template["spec"];
    notes.extend(sharing::drop_unshareable(spec, claims));
    ceilings::enforce(spec, &pod.ceilings).map_err(MutateError::TooLarge)?;
    let access_modes = model.map(|model| &model.access_modes);
    notes.extend(sharing::warn(spec, access_modes));
    notes.extend(apart::warn(
        &template["spec"],
        &labels,
        &template["metadata"]["labels"],
    ));
    finish(template, chosen, notes)
}

/// Returns a copy of the source of the pod, and the claims that the pod itself does not have.
fn source<'a>(
    source: &PodSource,
    model: Option<&'a Model>,
) -> Result<(Value, &'a [String]), MutateError> {
    let (metadata, mut spec, claims) = match source {
        PodSource::Workload(_) => {
            let model = model.ok_or(MutateError::NoModel)?;
            let mut spec = model.template["spec"].clone();
            // A pod that must end must not be started again. A workload cannot specify this for its own pods;
            // the patch can.
            spec["restartPolicy"] = json!("Never");
            (model.template["metadata"].clone(), spec, &model.claims[..])
        }
        PodSource::Spec(spec) => {
            let spec = serde_json::to_value(spec)
                .map_err(|error| MutateError::Shape(error.to_string()))?;
            (Value::Null, spec, &[][..])
        }
    };
    if spec["restartPolicy"].is_null() {
        spec["restartPolicy"] = json!("Never");
    }
    let metadata = Some(metadata).filter(Value::is_object);
    let metadata = metadata.unwrap_or_else(|| json!({}));
    Ok((json!({"metadata": metadata, "spec": spec}), claims))
}

/// Changes the fields of the spec, and returns the notes for users about removed settings.
fn spec_fields(
    spec: &mut Value,
    mutation: &PodTemplateSpecMutationConfig,
    labels: &Value,
) -> Vec<String> {
    let mut notes = Vec::new();
    if !mutation.keep_termination_grace_period {
        spec["terminationGracePeriodSeconds"] = json!(GRACE_SECONDS);
    }
    if !mutation.keep_topology_spread_constraints {
        remove(spec, "topologySpreadConstraints");
        notes.extend(apart::drop_anti_affinity(spec, labels));
    }
    notes.extend(apart::drop_readiness_gates(spec));
    for list in ["initContainers", "containers"] {
        for one in items_mut(spec, list) {
            container::probes(one, mutation);
        }
    }
    merge(spec, "nodeSelector", &mutation.node_selector);
    notes
}

fn metadata_fields(metadata: &mut Value, mutation: &PodTemplateSpecMutationConfig) {
    if mutation.purge_annotations {
        remove(metadata, "annotations");
    }
    merge(metadata, "annotations", &mutation.pod_annotations);
    // Selectors of the workload's pods must not select this one.
    remove(metadata, "labels");
    merge(metadata, "labels", &mutation.pod_labels);
}

/// Merges entries into a map, which is absent if it is empty: a patch finds the document as Kubernetes would
/// write it.
fn merge(parent: &mut Value, name: &str, entries: &BTreeMap<String, String>) {
    for (key, value) in entries {
        parent[name][key] = json!(value);
    }
    prune(parent, name);
}

/// Checks whether every known field has the type that Kubernetes defines for it.
fn check_shape(template: &Value) -> Result<(), MutateError> {
    let shape = |error: serde_json::Error| MutateError::Shape(error.to_string());
    serde_json::from_value::<PodTemplateSpec>(template.clone()).map_err(shape)?;
    let spec: PodSpec = serde_json::from_value(template["spec"].clone()).map_err(shape)?;
    if spec.containers.is_empty() {
        return Err(MutateError::Empty);
    }
    Ok(())
}

fn finish(
    mut template: Value,
    chosen: container::ContainerPosition,
    notes: Vec<String>,
) -> Result<Rendered, MutateError> {
    let entries = |field: &str| {
        let mut entries = texts(&template["metadata"][field]);
        entries.retain(|key, _| !labels::is_of_child(key));
        entries
    };
    let (labels, mut annotations) = (entries("labels"), entries("annotations"));
    let Value::Object(spec) = template["spec"].take() else {
        return Err(MutateError::Empty);
    };
    // By its position: a patch may have renamed the container.
    let name = |position: container::ContainerPosition| {
        let container = spec.get(position.list)?.get(position.index)?;
        container["name"].as_str()
    };
    let container = name(chosen)
        .or_else(|| name(container::ContainerPosition::FIRST))
        .ok_or(MutateError::Empty)?
        .to_owned();
    annotations.insert(DEFAULT_CONTAINER.to_owned(), container.clone());
    Ok(Rendered {
        digest: encode::digest(&(&labels, &annotations, &spec)),
        labels,
        annotations,
        spec,
        container,
        notes,
    })
}

#[cfg(test)]
mod tests;
