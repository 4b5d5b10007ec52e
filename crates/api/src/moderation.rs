//! `spec.accessConfig.moderation`: sessions that require moderators.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Moderators that a session requires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModerationConfig {
    /// Number of moderators that must watch, from 1 to 8. The requester never counts.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 8))]
    pub viewers: i32,

    /// Groups of moderators, from 1 to 64. Moderators also need the ClusterRole
    /// oz-session-moderator in the namespace.
    #[schemars(length(min = 1, max = 64), inner(length(max = 512)))]
    pub groups: Vec<String>,
}

fn one() -> i32 {
    1
}
