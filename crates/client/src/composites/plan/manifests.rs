//! The manifests of composites and policies in files.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use oz_composites::Declaration;
use serde_json::Value;

use super::place;
use crate::composites::declared;
use crate::failure::{Failure, Result};
use crate::lint;
use crate::rego;

/// The composites and policies in files.
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    /// The composites.
    pub composites: Vec<Declaration>,
    /// The ConfigMaps, each with a namespace.
    pub config_maps: Vec<ConfigMap>,
}

impl Manifests {
    /// Adds the composites and ConfigMaps in a text of YAML or JSON; other objects are left out.
    ///
    /// # Errors
    /// A document cannot be read.
    pub fn add(&mut self, file: &str, text: &str, namespace: &str) -> Result<()> {
        for document in documents(file, text)? {
            let failed = |error: serde_json::Error| Failure::new(format!("{file}: {error}"));
            match (document["apiVersion"].as_str(), document["kind"].as_str()) {
                (Some("v1"), Some("ConfigMap")) => {
                    let mut map: ConfigMap = serde_json::from_value(document).map_err(failed)?;
                    map.metadata
                        .namespace
                        .get_or_insert_with(|| namespace.to_owned());
                    self.config_maps.push(map);
                }
                (Some("metacontroller.k8s.io/v1alpha1"), Some("CompositeController")) => {
                    let composite = serde_json::from_value(document).map_err(failed)?;
                    let composite = Declaration::CompositeController(Box::new(composite));
                    self.composites.push(composite);
                }
                (Some("crds.wizardofoz.co/v1alpha1"), Some("RegoController")) => {
                    let composite = serde_json::from_value(document).map_err(failed)?;
                    let composite = Declaration::RegoController(Box::new(composite));
                    self.composites.push(composite);
                }
                (Some(_), Some(_)) => {}
                _ => {
                    return Err(Failure::new(format!(
                        "{file}: a document is not a manifest: it has no apiVersion or no kind"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Returns the namespaces of the ConfigMaps.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = String> {
        let maps = self.config_maps.iter();
        maps.filter_map(|map| map.metadata.namespace.clone())
    }

    /// Checks whether a composite runs a policy from one of the ConfigMaps.
    pub(super) fn has_policy_of(&self, composite: &Declaration, namespaces: &[String]) -> bool {
        let Ok(declared) = declared(composite, namespaces) else {
            return false;
        };
        let mut places = declared.policies().filter_map(place);
        places.any(|(namespace, name)| {
            self.config_maps.iter().any(|map| {
                let metadata = &map.metadata;
                metadata.namespace.as_deref() == Some(namespace)
                    && name.is_none_or(|name| metadata.name.as_deref() == Some(name))
            })
        })
    }
}

/// Reads objects in a text of YAML or JSON. Lists are taken apart.
///
/// # Errors
/// A document is no object of Kubernetes.
pub fn objects(file: &str, text: &str) -> Result<Vec<DynamicObject>> {
    let documents = documents(file, text)?.into_iter();
    let objects = documents.map(|document| {
        serde_json::from_value(document).map_err(|error| Failure::new(format!("{file}: {error}")))
    });
    objects.collect()
}

fn documents(file: &str, text: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for text in lint::texts(text) {
        let document = rego::document(text);
        let document = document.map_err(|error| Failure::new(format!("{file}: {error}")))?;
        match (document["kind"].as_str(), document["items"].as_array()) {
            (Some(kind), Some(items)) if kind.ends_with("List") => {
                all.extend(items.iter().cloned())
            }
            _ => all.push(document),
        }
    }
    Ok(all)
}
