//! Bounds of an interactive run, as a template sets them and a run may override them.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{DURATION, DURATION_MESSAGE};

/// Bounds of an interactive run that differ from its template's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct InteractiveOverrides {
    /// How long nothing may happen while somebody is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub idle_timeout: Option<String>,

    /// How long nothing may happen while nobody is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub detach_idle_timeout: Option<String>,

    /// How long nobody may be attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub detach_timeout: Option<String>,

    /// How long the run may last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub max_lifetime: Option<String>,
}
