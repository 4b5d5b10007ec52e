//! `spec.accessConfig.debug`: the containers that a user may add to a pod through the gate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which containers may be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DebugConfig {
    /// The images that such a container may run, as kubectl debug --image names them. Each is whole, or ends in an
    /// asterisk after a /, : or @: registry.example.com/tools/* for all below it, registry.example.com/shell:* for
    /// each tag of one, registry.example.com/shell@* for each digest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 32),
        inner(length(min = 1, max = 512)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub images: Vec<String>,
}
