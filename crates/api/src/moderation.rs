//! `spec.accessConfig.moderation`: sessions that require moderators.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who has to watch a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModerationConfig {
    /// How many people have to watch, none of them the requester.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 8))]
    pub viewers: i32,

    /// The groups whose members count. To watch takes the right to besides: ClusterRole oz-session-moderator.
    #[schemars(length(min = 1, max = 64), inner(length(max = 512)))]
    pub groups: Vec<String>,
}

fn one() -> i32 {
    1
}
