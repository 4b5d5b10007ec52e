//! Objects of oz's group by the words of users, as the API has them.

use kube::Api;
use kube::Resource;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, TypeMeta};
use oz_api::{GROUP, VERSION};
use oz_core::kinds::{self, Entry};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// A kind of oz's group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// True if its objects are in namespaces.
    pub namespaced: bool,
}

impl From<Entry> for Kind {
    fn from(entry: Entry) -> Self {
        Self {
            resource: entry.resource,
            namespaced: entry.namespaced,
        }
    }
}

/// A selection of objects of one kind.
#[derive(Clone, Copy, Debug)]
pub enum Selection<'a> {
    /// The object with this name.
    Name(&'a str),
    /// All objects, or those with these labels.
    Labels(Option<&'a str>),
}

/// The reason why objects cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The API server refuses, or does not respond.
    #[error(transparent)]
    Cluster(#[from] Failure),
    /// An object was named, and no namespace.
    #[error("a name is in one namespace; it cannot be combined with --all-namespaces")]
    EveryNamespace,
    /// The group has no such kind.
    #[error("oz has no kind {word}")]
    UnknownKind {
        /// The word.
        word: String,
        /// The kinds of the group.
        kinds: Vec<String>,
    },
}

impl From<ObjectError> for Failure {
    fn from(error: ObjectError) -> Self {
        let failure = Self::new(error.to_string());
        match error {
            ObjectError::Cluster(failure) => failure,
            ObjectError::EveryNamespace => failure,
            ObjectError::UnknownKind { kinds, .. } => failure.next(format!(
                "name one of {}; for others there is `kubectl get`",
                kinds.join(", ")
            )),
        }
    }
}

/// Returns the kind that a word names. A kind that is known here requires no request; another kind is looked up.
///
/// # Errors
/// The group has no such kind, or the API server does not respond.
pub async fn kind(cluster: &Cluster, word: &str) -> Result<Kind, ObjectError> {
    if let Some(kind) = kinds::find(word).filter(Entry::is_of_access) {
        return Ok(kind.into());
    }
    let version = format!("{GROUP}/{VERSION}");
    let list = cluster
        .answer(cluster.client.list_api_group_resources(&version))
        .await?;
    let wanted = word.to_lowercase();
    let wanted = wanted.split_once('.').map_or(&wanted[..], |(word, _)| word);
    // Others are subresources.
    let mut found: Vec<_> = list.resources;
    found.retain(|one| !one.name.contains('/'));
    let is_it = found.iter().position(|one| {
        let mut short_names = one.short_names.iter().flatten();
        one.name == wanted
            || one.singular_name == wanted
            || one.kind.to_lowercase() == wanted
            || short_names.any(|name| name == wanted)
    });
    if let Some(at) = is_it {
        let found = found.swap_remove(at);
        return Ok(Kind {
            namespaced: found.namespaced,
            resource: ApiResource {
                group: GROUP.to_owned(),
                version: VERSION.to_owned(),
                api_version: version,
                kind: found.kind,
                plural: found.name,
            },
        });
    }
    let mut kinds: Vec<String> = found.into_iter().map(|one| one.name).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let word = word.to_owned();
    Err(ObjectError::UnknownKind { word, kinds })
}

/// Returns the API for objects of a kind, in the chosen namespace or in every namespace.
pub(crate) fn api(cluster: &Cluster, kind: &Kind, everywhere: bool) -> Api<DynamicObject> {
    let client = cluster.client.clone();
    match everywhere || !kind.namespaced {
        true => Api::all_with(client, &kind.resource),
        false => Api::namespaced_with(client, &cluster.namespace, &kind.resource),
    }
}

/// Returns objects of a kind, each with its `apiVersion` and `kind`, and without the fields that only the API server
/// needs.
///
/// # Errors
/// There is no object with the name, or the objects may not be read.
pub async fn read(
    cluster: &Cluster,
    kind: &Kind,
    selection: Selection<'_>,
    everywhere: bool,
) -> Result<Vec<DynamicObject>, ObjectError> {
    let (api, resource) = (api(cluster, kind, everywhere), &kind.resource);
    let mut found = match selection {
        Selection::Name(_) if everywhere && kind.namespaced => {
            return Err(ObjectError::EveryNamespace);
        }
        Selection::Name(name) => {
            let found = cluster.answer(api.get(name)).await;
            vec![found.map_err(|failure| match failure.is_not_found() {
                true => failure.next(format!(
                    "`ozctl get {}` lists the existing ones",
                    resource.plural
                )),
                false => failure,
            })?]
        }
        Selection::Labels(labels) => {
            let parameters = ListParams {
                label_selector: labels.map(ToOwned::to_owned),
                ..ListParams::default()
            };
            cluster.answer(api.list(&parameters)).await?.items
        }
    };
    for object in &mut found {
        // A list has them only at its top level.
        object.types.get_or_insert_with(|| TypeMeta {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
        });
        object.metadata.managed_fields = None;
    }
    Ok(found)
}

/// Returns an object with the `apiVersion` and `kind` that a typed object lacks, and without the fields that only the
/// API server needs.
///
/// # Errors
/// The object cannot be JSON.
pub fn whole<K>(object: &K) -> Result<Value>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let mut value = to_value(object)?;
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    Ok(value)
}

/// Converts any value to JSON.
///
/// # Errors
/// The value cannot be JSON.
pub fn to_value<T: Serialize>(value: &T) -> Result<Value> {
    serde_json::to_value(value)
        .map_err(|error| Failure::new(format!("failed to write it as JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_shown_with_its_kind_and_without_who_wrote_which_field() {
        let template: oz_api::ExecAccessTemplate = serde_json::from_value(json!({
            "metadata": {"name": "shell", "managedFields": [{"manager": "kubectl"}]},
            "spec": {
                "accessConfig": {"allowedGroups": ["devs"]},
                "controllerTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            },
        }))
        .unwrap();
        let shown = whole(&template).unwrap();
        assert_eq!(shown["kind"], "ExecAccessTemplate");
        assert_eq!(shown["metadata"], json!({"name": "shell"}));
    }
}
