//! The identity of a pod: the only data that oz caches of a pod where there are many.

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize};

/// A pod, reduced to name, namespace, UID and version.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PodIdentity {
    metadata: ObjectMeta,
}

impl PodIdentity {
    /// Creates the identity of a pod with this name and UID.
    #[must_use]
    pub fn new(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                uid: Some(uid.to_owned()),
                ..ObjectMeta::default()
            },
        }
    }

    /// Returns the UID; `None` for a pod that is not stored.
    #[must_use]
    pub fn uid(&self) -> Option<&str> {
        self.metadata.uid.as_deref()
    }
}

impl<'de> Deserialize<'de> for PodIdentity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Whole {
            metadata: Part,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Part {
            name: Option<String>,
            namespace: Option<String>,
            uid: Option<String>,
            resource_version: Option<String>,
        }
        let Whole { metadata } = Whole::deserialize(deserializer)?;
        Ok(Self {
            metadata: ObjectMeta {
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid,
                resource_version: metadata.resource_version,
                ..ObjectMeta::default()
            },
        })
    }
}

impl Resource for PodIdentity {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(kind: &()) -> Cow<'_, str> {
        Pod::kind(kind)
    }
    fn group(kind: &()) -> Cow<'_, str> {
        Pod::group(kind)
    }
    fn version(kind: &()) -> Cow<'_, str> {
        Pod::version(kind)
    }
    fn plural(kind: &()) -> Cow<'_, str> {
        Pod::plural(kind)
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
