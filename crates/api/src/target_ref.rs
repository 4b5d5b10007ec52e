//! `controllerTargetRef`: the workload of a template.

use kube::KubeSchema;
use kube::core::{ApiResource, GroupVersionKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reference to a workload in the namespace of the template.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.apiVersion == (self.kind == 'Rollout' ? 'argoproj.io/v1alpha1' : self.kind in ['Job', 'CronJob'] ? 'batch/v1' : 'apps/v1')")
        .message("Deployment, DaemonSet and StatefulSet are of apps/v1, Job and CronJob of batch/v1, Rollout of argoproj.io/v1alpha1")
        .field_path(".kind")
)]
pub struct CrossVersionObjectReference {
    /// API version of the workload: apps/v1, batch/v1 or argoproj.io/v1alpha1.
    pub api_version: TargetApiVersion,

    /// Kind of the workload. Rollout requires argoproj.io/v1alpha1, Job and CronJob require batch/v1, the
    /// others apps/v1.
    pub kind: TargetKind,

    /// Name of the workload.
    #[schemars(length(max = 253))]
    pub name: String,
}

/// The API versions of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TargetApiVersion {
    /// Workloads of Kubernetes that run permanently.
    #[serde(rename = "apps/v1")]
    AppsV1,
    /// Workloads of Kubernetes that complete.
    #[serde(rename = "batch/v1")]
    BatchV1,
    /// Argo Rollouts.
    #[serde(rename = "argoproj.io/v1alpha1")]
    ArgoprojV1Alpha1,
}

impl TargetApiVersion {
    /// Returns the API version as written in a manifest.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AppsV1 => "apps/v1",
            Self::BatchV1 => "batch/v1",
            Self::ArgoprojV1Alpha1 => "argoproj.io/v1alpha1",
        }
    }

    /// Returns the API group.
    #[must_use]
    pub fn group(self) -> &'static str {
        match self {
            Self::AppsV1 => "apps",
            Self::BatchV1 => "batch",
            Self::ArgoprojV1Alpha1 => "argoproj.io",
        }
    }

    /// Returns the version within the group.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::AppsV1 | Self::BatchV1 => "v1",
            Self::ArgoprojV1Alpha1 => "v1alpha1",
        }
    }
}

/// The kinds of workloads.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::IntoStaticStr,
)]
pub enum TargetKind {
    /// `apps/v1` Deployment.
    Deployment,
    /// `apps/v1` DaemonSet.
    DaemonSet,
    /// `apps/v1` StatefulSet.
    StatefulSet,
    /// `batch/v1` Job.
    Job,
    /// `batch/v1` CronJob.
    CronJob,
    /// `argoproj.io/v1alpha1` Rollout.
    Rollout,
}

impl TargetKind {
    /// Returns the API version of the kind.
    #[must_use]
    pub fn api_version(self) -> TargetApiVersion {
        match self {
            Self::Deployment | Self::DaemonSet | Self::StatefulSet => TargetApiVersion::AppsV1,
            Self::Job | Self::CronJob => TargetApiVersion::BatchV1,
            Self::Rollout => TargetApiVersion::ArgoprojV1Alpha1,
        }
    }

    /// Returns the kind as the API server serves it.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        let version = self.api_version();
        let kind: &str = self.into();
        let named = GroupVersionKind::gvk(version.group(), version.version(), kind);
        ApiResource::from_gvk_with_plural(&named, self.plural())
    }

    /// Returns the plural, as in a path of the API.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::DaemonSet => "daemonsets",
            Self::StatefulSet => "statefulsets",
            Self::Job => "jobs",
            Self::CronJob => "cronjobs",
            Self::Rollout => "rollouts",
        }
    }
}
