//! The kinds of harness runs, group `paddock.dev`: names, fields, types, enumerations and defaults are those of
//! Paddock, so that its manifests stay valid; new fields are optional. Rules of the definitions reject errors within
//! one object, also while no process of oz runs.
//!
//! The rules over them are in `oz-runs`.
//!
//! The defaults of durations are not in the schemas but are set when a template is resolved: the values that the API
//! server sets in a template that inherits could not be distinguished from the values of its author.

mod broker_policy;
mod hosts;
pub mod interception;
mod overrides;
mod policy_grants;
mod policy_status;
mod run;
mod run_status;
mod template;
mod template_parts;
pub mod wire;
mod workspace;

pub use broker_policy::{BrokerPolicy, BrokerPolicySpec, EgressDiscovery, Limits};
pub use hosts::{HostError, Hosts, has_port_in, is_any_port};
pub use overrides::InteractiveOverrides;
pub use policy_grants::{
    Accepted, BasicAuth, CredentialGrant, DeliveryMode, EgressGrant, GitAccess, GitRepo, Grants,
    Header, Interception, Provider, ProviderKind, ProxyInjected, QueryParam, RunGrants, SecretKey,
    Shell, ShellTarget, Transparent,
};
pub use policy_status::{PolicyStatus, VerifiedSpec};
pub use run::{
    EnvEntry, HarnessRun, HarnessRunSpec, KeyRef, PromptSource, RunMode, TemplateKind, TemplateRef,
};
pub use run_status::{
    DeliveryName, HarnessRunStatus, InteractiveStatus, IssuedLease, MAX_EGRESS, PoolRef,
    RunCredential, RunEgress, RunEvent, RunOutputs, RunPhase, SlotSecret,
};
pub use template::{
    ClusterHarnessTemplate, ClusterHarnessTemplateSpec, HarnessTemplate, HarnessTemplateSpec,
    HarnessTemplateStatus,
};
pub use template_parts::{
    BaseTemplateRef, CredentialNeed, DEFAULT_MOUNT_PATH, EgressNeed, InteractiveMode,
    InteractiveTerms, Requires, RunDefaults, RuntimeImage, TemplateWorkspace,
};
pub use workspace::{
    AccessMode, Repository, RepositoryCredential, SecretName, Seed, Storage, Workspace,
    WorkspacePhase, WorkspaceSource, WorkspaceSpec, WorkspaceStatus,
};

/// The API group of these kinds.
pub const GROUP: &str = "paddock.dev";
