//! Bounds of an interactive run, as a template sets them and a run may override them.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{DURATION, DURATION_MESSAGE};

/// Timeouts of an interactive run that override those of its template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct InteractiveOverrides {
    /// Time without activity while a client is attached, after which the run ends. The value of the
    /// template if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub idle_timeout: Option<String>,

    /// Time without activity while no client is attached, after which the run ends. The value of the
    /// template if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub detach_idle_timeout: Option<String>,

    /// Time without an attached client, after which the run ends. The value of the template if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub detach_timeout: Option<String>,

    /// Maximum duration of the run. The value of the template if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub max_lifetime: Option<String>,
}
