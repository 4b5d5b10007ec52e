//! `spec.accessConfig.debug`: the containers that a user may add to a pod through the gate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Containers that users may add to a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DebugConfig {
    /// Permitted images of added containers (kubectl debug --image), from 1 to 32. Each is complete, or
    /// ends in an asterisk after a /, : or @: registry.example.com/tools/* for all images below it,
    /// registry.example.com/shell:* for every tag of one image, registry.example.com/shell@* for every
    /// digest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 32),
        inner(length(min = 1, max = 512)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub images: Vec<String>,
}
