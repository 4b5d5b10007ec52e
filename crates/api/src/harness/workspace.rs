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

/// Storage for runs, one at a time.
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
    doc = "Storage that harness runs work on, one at a time, filled once from repositories.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec"),
    validation = Rule::new(SEED).message(SEED_MESSAGE).field_path(".spec"),
    validation = Rule::new(SOURCE).message(SOURCE_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"Phase", "type":"string", "jsonPath":".status.phase", "description":"How far it came"}"#,
    printcolumn = r#"{"name":"Active-Run", "type":"string", "jsonPath":".status.activeRunRef", "description":"The run that holds it"}"#,
    printcolumn = r#"{"name":"Runs", "type":"integer", "jsonPath":".status.totalRuns", "description":"How many runs held it"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since it was created"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_CONTENT).message(ONE_CONTENT_MESSAGE).field_path(".seed"))]
pub struct WorkspaceSpec {
    /// The claim.
    #[x_kube(validation = Rule::new(STORAGE).message(STORAGE_MESSAGE))]
    pub storage: Storage,

    /// The repositories that it is filled from, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<Seed>,

    /// What it is a copy of, by the storage class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<WorkspaceSource>,

    /// Whether it ends with its run. Set for those that a run makes; tells, and changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ephemeral: bool,

    /// Names of templates, with *, ? and [], whose runs may use it. Absent means any: what one run left in its
    /// home, the next one reads.
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

/// A claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// How much, such as 10Gi.
    #[schemars(schema_with = "quantity")]
    pub size: Quantity,

    /// The storage class. Absent means the cluster's default.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 253))]
    pub storage_class: Option<String>,

    /// How it can be mounted.
    #[serde(default)]
    pub access_mode: AccessMode,
}

/// How a claim can be mounted.
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
    /// On one node.
    #[default]
    ReadWriteOnce,
    /// On any number of nodes.
    ReadWriteMany,
}

/// What a workspace is filled from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Seed {
    /// Repositories.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub repos: Vec<Repository>,
}

/// A repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ONE_CREDENTIAL).message(ONE_CREDENTIAL_MESSAGE))]
pub struct Repository {
    /// Its URL, https or ssh, without user and password for https.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,

    /// Where it goes, below the workspace. Needed where there is more than one.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,

    /// Its branch. Absent means its default.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 255))]
    pub branch: Option<String>,

    /// How many commits; 0 or absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2147483647))]
    pub depth: Option<i32>,

    /// A credential that a broker issues. Either this or credentialsSecretRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_credential_ref: Option<RepositoryCredential>,

    /// A Secret with credentials. Either this or brokerCredentialRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretName>,
}

/// A credential that a broker issues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryCredential {
    /// Name of the credential.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Key in it.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A Secret of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretName {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// What a workspace is a copy of.
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

/// What became of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceStatus {
    /// The generation that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// How far it came: Seeding, Active or Failed, then Terminating.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<WorkspacePhase>,

    /// Name of its claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc_name: Option<String>,

    /// Name of the Job that fills it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed_job_name: Option<String>,

    /// Name of the run that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_run_ref: Option<String>,

    /// UID of the run that holds it.
    #[serde(
        default,
        rename = "activeRunUID",
        skip_serializing_if = "Option::is_none"
    )]
    pub active_run_uid: Option<String>,

    /// How many runs held it.
    #[serde(default)]
    pub total_runs: i32,

    /// The last run that was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_counted_run: Option<String>,

    /// When a run got it or let it go last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub last_activity: Option<Timestamp>,

    /// PVCBound, Seeded, Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// How far a workspace came.
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
    /// Its claim is made and filled.
    #[default]
    Seeding,
    /// Runs may have it.
    Active,
    /// It could not be filled.
    Failed,
    /// It is being deleted.
    Terminating,
}
