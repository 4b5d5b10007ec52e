//! Workspace: a claim of storage that one run at a time works on.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Family, Kind, Role};
use crate::names;
use crate::optional::not_empty;
use crate::schema::{quantity, timestamp};

const SPEC_IS_GIVEN: &str = "has(self.spec)";
const SPEC_IS_GIVEN_MESSAGE: &str = "spec must be set";
const STORAGE: &str = "self == oldSelf";
const STORAGE_MESSAGE: &str = "storage is immutable: create a new workspace instead";
const SEED: &str = "!has(self.spec) || !has(oldSelf.spec) || (has(self.spec.seed) == has(oldSelf.spec.seed) \
    && (!has(self.spec.seed) || self.spec.seed == oldSelf.spec.seed))";
const SEED_MESSAGE: &str = "seed is immutable: create a new workspace instead";
const SOURCE: &str = "!has(self.spec) || !has(oldSelf.spec) || (has(self.spec.source) == has(oldSelf.spec.source) \
    && (!has(self.spec.source) || self.spec.source == oldSelf.spec.source))";
const SOURCE_MESSAGE: &str = "source is immutable: create a new workspace instead";
const ONE_CONTENT: &str = "!has(self.seed) || !has(self.source)";
const ONE_CONTENT_MESSAGE: &str = "at most one of seed and source may be set";
const ONE_SOURCE: &str = "has(self.workspaceRef) != has(self.volumeSnapshotName)";
const ONE_SOURCE_MESSAGE: &str = "exactly one of workspaceRef and volumeSnapshotName must be set";
const ONE_CREDENTIAL: &str = "!has(self.brokerCredentialRef) || !has(self.credentialsSecretRef)";
const ONE_CREDENTIAL_MESSAGE: &str =
    "at most one of brokerCredentialRef and credentialsSecretRef may be set";

/// Volume of the workspace and its initial content.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "paddock.dev",
    version = "v1alpha1",
    kind = "Workspace",
    plural = "workspaces",
    namespaced,
    status = "WorkspaceStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "ws",
    annotation("api-approved.kubernetes.io", "unapproved: published by Paddock"),
    doc = "A volume for harness runs, for one run at a time, initialized from repositories.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec"),
    validation = Rule::new(SEED).message(SEED_MESSAGE).field_path(".spec"),
    validation = Rule::new(SOURCE).message(SOURCE_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"Phase", "type":"string", "jsonPath":".status.phase", "description":"Phase of the workspace"}"#,
    printcolumn = r#"{"name":"Active-Run", "type":"string", "jsonPath":".status.activeRunRef", "description":"Run that uses the workspace"}"#,
    printcolumn = r#"{"name":"Runs", "type":"integer", "jsonPath":".status.totalRuns", "description":"Number of runs that used the workspace"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since it was created"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_CONTENT).message(ONE_CONTENT_MESSAGE).field_path(".seed"))]
pub struct WorkspaceSpec {
    /// The PersistentVolumeClaim of the workspace. Cannot be changed.
    #[x_kube(validation = Rule::new(STORAGE).message(STORAGE_MESSAGE))]
    pub storage: Storage,

    /// Repositories that are cloned into the workspace once. At most one of seed and source may be set.
    /// Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<Seed>,

    /// Source of which the volume is a copy; the storage class must support it. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<WorkspaceSource>,

    /// True for a workspace that oz created for a run and deletes with it. Informational.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ephemeral: bool,

    /// Names of templates whose runs may use the workspace, at most 64, with the wildcards *, ? and []. All
    /// templates if empty: a run can read everything that earlier runs left in the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub templates: Vec<String>,
}

impl Kind for Workspace {
    const FAMILY: Family = Family::Harness;
    const ROLE: Role = Role::Workspace;
    const NAME: &'static str = "workspace";
    const FINALIZER: Option<&'static str> = Some(names::WORKSPACE_FINALIZER);

    crate::defined!();
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Requested size, such as 10Gi.
    #[schemars(schema_with = "quantity")]
    pub size: Quantity,

    /// Name of the StorageClass. The default of the cluster if unset.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 253))]
    pub storage_class: Option<String>,

    /// Access mode: ReadWriteOnce for one node, ReadWriteMany for several nodes.
    #[serde(default)]
    pub access_mode: AccessMode,
}

/// The access mode of a PersistentVolumeClaim.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
)]
pub enum AccessMode {
    /// One node.
    #[default]
    ReadWriteOnce,
    /// Several nodes.
    ReadWriteMany,
}

/// Initial content of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Seed {
    /// Git repositories, at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub repos: Vec<Repository>,
}

/// A Git repository that is cloned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_CREDENTIAL).message(ONE_CREDENTIAL_MESSAGE))]
pub struct Repository {
    /// URL of the repository, with https or ssh. An https URL must not contain a user or password.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,

    /// Directory in the workspace. Required for several repositories. For a single repository, the top of
    /// the workspace if unset.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,

    /// Branch. The default branch of the repository if unset.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 255))]
    pub branch: Option<String>,

    /// Number of commits to fetch. All if unset or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2147483647))]
    pub depth: Option<i32>,

    /// Credential that a broker issues. Excludes credentialsSecretRef. Not served yet: the workspace fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_credential_ref: Option<RepositoryCredential>,

    /// Secret with credentials: username and password for https, ssh-privatekey for ssh. Excludes
    /// brokerCredentialRef. The author of the workspace must be allowed to read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretName>,
}

/// Reference to a credential that a broker issues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryCredential {
    /// Name of the credential.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Key of the value.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Reference to a Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretName {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Source of a copied volume. Exactly one of workspaceRef and volumeSnapshotName must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_SOURCE).message(ONE_SOURCE_MESSAGE))]
pub struct WorkspaceSource {
    /// Name of another Workspace of the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub workspace_ref: Option<String>,

    /// Name of a VolumeSnapshot of the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub volume_snapshot_name: Option<String>,
}

/// Observed state of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Phase of the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<WorkspacePhase>,

    /// Name of the PersistentVolumeClaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc_name: Option<String>,

    /// Name of the Job that clones the repositories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed_job_name: Option<String>,

    /// Name of the run that uses the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_run_ref: Option<String>,

    /// UID of the run that uses the workspace.
    #[serde(
        default,
        rename = "activeRunUID",
        skip_serializing_if = "Option::is_none"
    )]
    pub active_run_uid: Option<String>,

    /// Number of runs that used the workspace.
    #[serde(default)]
    pub total_runs: i32,

    /// Name of the last run that totalRuns includes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_counted_run: Option<String>,

    /// Time at which a run last acquired or released the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub last_activity: Option<Timestamp>,

    /// Conditions: PVCBound, Seeded, Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Phase of the workspace. Seeding: the volume is created and filled. Active: runs can use it. Failed: it
/// could not be filled. Terminating: it is being deleted.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::IntoStaticStr,
)]
pub enum WorkspacePhase {
    /// The volume is created and filled.
    #[default]
    Seeding,
    /// Runs can use the workspace.
    Active,
    /// The workspace could not be filled.
    Failed,
    /// The workspace is being deleted.
    Terminating,
}
