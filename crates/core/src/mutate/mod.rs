//! From the pod template of a workload, or a spec of its own, to an access pod. Works on JSON and
//! not on types, so that fields of a newer Kubernetes than ours are kept as they are.

mod apart;
mod cache;
mod ceilings;
mod container;
mod patch;
mod sharing;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use oz_api::{PodTemplateSpecMutationConfig, encode};
use serde::Serialize;
use serde_json::{Map, Value, json};

pub use self::cache::RenderCache;
use crate::access::pod_state::GRACE_SECONDS;
use crate::validate::{AccessPod, PodSource};

/// The annotation that names the container which `kubectl exec` takes.
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Begins the labels and annotations by which oz finds what is its own.
const RESERVED_PREFIX: &str = "oz.wizardofoz.co/";

/// What is read of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Kind and name, for messages.
    pub title: String,
    /// Its pod template.
    pub template: Value,
    /// The names of its volume claim templates, which a StatefulSet has.
    pub claims: Vec<String>,
    /// The access modes of the claims that its pods mount, as far as they could be read.
    pub access_modes: BTreeMap<String, Vec<String>>,
    /// UID and generation of what was read, the same as long as it is; `None` if that is not known.
    pub version: Option<String>,
}

impl Model {
    /// The model that is in the `spec` of a workload; `None` if there is no pod template in it. That
    /// of a CronJob is in the template of its Jobs.
    #[must_use]
    pub fn of_workload(title: String, spec: &Value) -> Option<Self> {
        let template = spec.get("template");
        let template = template.or_else(|| spec.pointer("/jobTemplate/spec/template"));
        let template = template.filter(|value| value.is_object())?;
        let claims = spec["volumeClaimTemplates"]
            .as_array()
            .into_iter()
            .flatten();
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

    /// The names of the claims that its pods mount, each once.
    #[must_use]
    pub fn mounted_claims(&self) -> BTreeSet<&str> {
        let volumes = self.template["spec"]["volumes"].as_array();
        volumes
            .into_iter()
            .flatten()
            .filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str())
            .collect()
    }
}

/// An access pod, but for whom and until when it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rendered {
    /// Labels that the template gives it; none of the workload's.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// The spec.
    pub spec: Map<String, Value>,
    /// The container that is meant to be entered.
    pub container: String,
    /// In what the pod differs from what one might expect, for people.
    pub notes: Vec<String>,
    /// Digest of labels, annotations and spec.
    #[serde(skip)]
    pub digest: String,
}

impl Rendered {
    /// How large it is as JSON, about.
    fn bytes(&self) -> usize {
        let spec = self.spec.iter();
        let annotations = self.annotations.iter();
        spec.map(|(key, value)| key.len() + patch::Size::of(value).bytes)
            .chain(annotations.map(|(key, value)| key.len() + value.len()))
            .sum()
    }

    /// The names of its containers.
    pub fn containers(&self) -> impl Iterator<Item = &str> {
        let containers = self.spec.get("containers").and_then(Value::as_array);
        containers
            .into_iter()
            .flatten()
            .filter_map(|container| container["name"].as_str())
    }
}

/// Why no pod can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MutateError {
    /// There is no such container.
    #[error("could not find container named {0} in PodSpec")]
    NoContainer(String),
    /// There is no container at all.
    #[error("the pod template has no containers")]
    Empty,
    /// The workload was not read.
    #[error("the workload's pod template is not known")]
    NoModel,
    /// An operation of the patch fails.
    #[error("patchSpecOperations[{index}] ({op} {path}): {why}")]
    Patch {
        /// Its place in the list, from 0.
        index: usize,
        /// What it does.
        op: &'static str,
        /// Where.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// What came out is no pod template.
    #[error("the result is not a pod template: {0}")]
    Shape(String),
    /// The pod is larger than it may be.
    #[error("the pod is larger than the template allows: {0}")]
    TooLarge(String),
}

/// Makes the pod of a template. The order of the effects is that of the original: grace period,
/// probes, topology, annotations, node selector, labels, command, arguments, resources,
/// environment, and the patch last. What must hold whatever the patch says comes after it.
///
/// # Errors
/// A [`MutateError`] that says what is in the way.
pub fn render(pod: &AccessPod, model: Option<&Model>) -> Result<Rendered, MutateError> {
    let mutation = &pod.mutation;
    let (mut template, claims) = source(&pod.source, model)?;
    let chosen = container::choose(&template, mutation)?;

    let labels = template["metadata"]["labels"].clone();
    let mut notes = spec_fields(&mut template["spec"], mutation, &labels);
    metadata_fields(&mut template["metadata"], mutation);
    container::mutate(&mut template["spec"]["containers"][chosen], mutation);
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

/// A copy of what the pod is made from, and the claims of which it has none of its own.
fn source<'a>(
    source: &PodSource,
    model: Option<&'a Model>,
) -> Result<(Value, &'a [String]), MutateError> {
    let (metadata, mut spec, claims) = match source {
        PodSource::Workload(_) => {
            let model = model.ok_or(MutateError::NoModel)?;
            let mut spec = model.template["spec"].clone();
            // A pod that is to end must not be started again. A workload cannot say otherwise for
            // its own pods; the patch can.
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
    let metadata = if metadata.is_object() {
        metadata
    } else {
        json!({})
    };
    Ok((json!({"metadata": metadata, "spec": spec}), claims))
}

/// What was dropped that people should know of.
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
    // Whatever selects the workload's pods must not select this one.
    remove(metadata, "labels");
    merge(metadata, "labels", &mutation.pod_labels);
}

/// Merges entries into a map, which is not there if it is empty: a patch finds the document as
/// Kubernetes would write it.
fn merge(parent: &mut Value, name: &str, entries: &BTreeMap<String, String>) {
    for (key, value) in entries {
        parent[name][key] = json!(value);
    }
    if parent.get(name).is_none_or(is_empty) {
        remove(parent, name);
    }
}

/// The items of a list in this field, if it has one. Indexing would create the field.
fn items_mut<'a>(parent: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = parent.get_mut(field).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn remove(parent: &mut Value, name: &str) {
    if let Some(fields) = parent.as_object_mut() {
        fields.remove(name);
    }
}

/// Whether every field that we know has the type that Kubernetes gives it.
fn check_shape(template: &Value) -> Result<(), MutateError> {
    let shape = |error: serde_json::Error| MutateError::Shape(error.to_string());
    serde_json::from_value::<PodTemplateSpec>(template.clone()).map_err(shape)?;
    let spec: PodSpec = serde_json::from_value(template["spec"].clone()).map_err(shape)?;
    if spec.containers.is_empty() {
        return Err(MutateError::Empty);
    }
    Ok(())
}

fn finish(mut template: Value, chosen: usize, notes: Vec<String>) -> Result<Rendered, MutateError> {
    let entries = |value: &Value| -> BTreeMap<String, String> {
        let fields = value.as_object().into_iter().flatten();
        fields
            .filter(|(key, _)| !key.starts_with(RESERVED_PREFIX))
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect()
    };
    let labels = entries(&template["metadata"]["labels"]);
    let mut annotations = entries(&template["metadata"]["annotations"]);
    let Value::Object(spec) = template["spec"].take() else {
        return Err(MutateError::Empty);
    };
    // By its place: a patch may have given the container another name.
    let containers = spec.get("containers").and_then(Value::as_array);
    let container = containers
        .and_then(|all| all.get(chosen).or_else(|| all.first()))
        .and_then(|container| container["name"].as_str())
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
