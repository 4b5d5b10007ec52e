//! The kinds as they were published, `example.com/v1`: flat, without a schema for most of their content. oz reads them
//! with any content; the code that interprets the kinds of oz's own group also interprets this content, see
//! `oz_core::transient::Terms`.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kind::{CustomResourceDefinition, Family, Kind, Role};
use crate::{BindingStatus, encode, names};

/// The published API group.
pub const GROUP: &str = "example.com";
/// The version of the published API group.
pub const VERSION: &str = "v1";

/// The fields of both published kinds, at top level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Flat {
    /// Beginning of the window, in RFC 3339.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub valid_from: Value,
    /// End of the window, in RFC 3339: the first instant without the binding.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub valid_until: Value,
    /// The role, as in a RoleBinding.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub role_ref: Value,
    /// The subjects, as in a RoleBinding.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub subjects: Value,
}

macro_rules! published {
    ($name:ident, $kind:literal, $plural:literal, $scope:ty, $controller:literal, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// `example.com/v1`.
            #[serde(default)]
            pub api_version: String,
            /// Kind.
            #[serde(default)]
            pub kind: String,
            /// Metadata.
            pub metadata: ObjectMeta,
            /// The fields of the binding.
            #[serde(flatten)]
            pub flat: Flat,
            /// Observed state of the binding.
            #[serde(
                default,
                deserialize_with = "status",
                skip_serializing_if = "Option::is_none"
            )]
            pub status: Option<BindingStatus>,
        }

        impl Resource for $name {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> Cow<'_, str> {
                GROUP.into()
            }
            fn version((): &()) -> Cow<'_, str> {
                VERSION.into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }

        impl Kind for $name {
            const FAMILY: Family = Family::Published;
            const ROLE: Role = Role::Binding;
            const NAME: &'static str = $controller;
            const FINALIZER: Option<&'static str> = Some(names::BINDING_FINALIZER);

            fn definition() -> Option<CustomResourceDefinition> {
                None
            }

            fn short_names() -> &'static [&'static str] {
                &[]
            }

            fn spec_digest(&self) -> String {
                encode::digest(&serde_json::json!({ "flat": self.flat }))
            }
        }
    };
}

published!(
    RoleBinding,
    "TransientRoleBinding",
    "transientrolebindings",
    NamespaceResourceScope,
    "example-com-transientrolebinding",
    "The published TransientRoleBinding."
);
published!(
    ClusterRoleBinding,
    "TransientClusterRoleBinding",
    "transientclusterrolebindings",
    ClusterResourceScope,
    "example-com-transientclusterrolebinding",
    "The published TransientClusterRoleBinding."
);

/// Reads a status; a value that is not a status counts as none, and is written anew.
fn status<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BindingStatus>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn malformed_stored_binding_is_decoded() {
        for status in [json!(null), json!("none"), json!({"phase": "Unheard"})] {
            let binding: RoleBinding = serde_json::from_value(json!({
                "apiVersion": "example.com/v1", "kind": "TransientRoleBinding",
                "metadata": {"name": "a", "namespace": "b"},
                "validFrom": 7, "roleRef": [], "subjects": "nobody", "more": {"x": 1},
                "status": status,
            }))
            .unwrap();
            assert_eq!(binding.flat.valid_from, json!(7));
            assert_eq!(binding.status, None);
        }
    }
}
