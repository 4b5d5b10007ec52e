//! Validation of both kinds of template: their shared terms, and the target of access.

use std::collections::BTreeSet;

use oz_api::duration::GoDuration;
use oz_api::{
    AccessConfig, Bind, CrossVersionObjectReference, ExecAccessTemplate, OnPodReplacement,
    OnTemplateChange, Operation, PodAccessTemplate, Sessions, TargetApiVersion, TargetKind,
};
use serde::Serialize;

use super::access_config::{self, Parsed};
use super::access_pod::{self, AccessPod};
use super::{Found, Violation, name};
use crate::access_command::AccessCommand;

/// The maximum size of the spec of a template, in bytes of JSON: it is kept in memory, stored with every pod
/// that is created from it, and read again for every request.
pub const MAX_TEMPLATE_SPEC: usize = 64 * 1024;

/// A valid template. The target of access is a [`Target`] for exec, an [`AccessPod`] for pods.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedTemplate<T> {
    /// The duration of access if a request does not specify one; greater than zero, at most `max`.
    pub default: GoDuration,
    /// The maximum duration of access.
    pub max: GoDuration,
    /// Groups of which the members may request access, in the order of the template.
    pub groups: Vec<String>,
    /// Users who may request access.
    pub users: Vec<String>,
    /// Whether service accounts may request access.
    pub service_accounts: bool,
    /// The access command for the user.
    pub command: AccessCommand,
    /// The subjects of the binding.
    pub bind: Bind,
    /// The operations that a grant permits; never empty.
    pub operations: BTreeSet<Operation>,
    /// The containers to which users may connect; empty means all.
    pub containers: BTreeSet<String>,
    /// A CEL expression that a command must satisfy; not compiled yet.
    pub command_policy: Option<String>,
    /// Whether a session must verifiably end with its grant.
    pub sessions: Sessions,
    /// The behaviour when the pod of a grant is replaced.
    pub on_pod_replacement: OnPodReplacement,
    /// The effect of a change of the template on its grants.
    pub on_template_change: OnTemplateChange,
    /// Whether audit records keep arguments.
    pub record_arguments: bool,
    /// Whether a request must give a reason.
    pub require_reason: bool,
    /// The target of access.
    pub target: T,
}

impl<T> ValidatedTemplate<T> {
    fn new(config: &AccessConfig, parsed: Parsed, target: T) -> Self {
        Self {
            default: parsed.default,
            max: parsed.max,
            groups: config.allowed_groups.clone(),
            users: config.allowed_users.clone(),
            service_accounts: config.allow_service_accounts,
            command: parsed.command,
            bind: config.bind,
            operations: config.operations.iter().copied().collect(),
            containers: config.containers.iter().cloned().collect(),
            command_policy: config.command_policy.clone(),
            sessions: config.sessions,
            on_pod_replacement: config.on_pod_replacement,
            on_template_change: config.on_template_change,
            record_arguments: config.record_arguments,
            require_reason: config.require_reason,
            target,
        }
    }
}

/// A workload in the template's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Kind of the workload, which also determines the API version.
    pub kind: TargetKind,
    /// Name of the workload.
    pub name: String,
}

impl Target {
    /// Returns the API version of the workload.
    #[must_use]
    pub fn api_version(&self) -> TargetApiVersion {
        self.kind.api_version()
    }
}

/// Checks a template for exec.
///
/// # Errors
///
/// All violations of the template.
pub fn exec_access_template(
    template: &ExecAccessTemplate,
) -> Result<ValidatedTemplate<Target>, Vec<Violation>> {
    let spec = &template.spec;
    let mut found = Found::default();
    spec_size(spec, &mut found);
    let parsed = access_config::check(&spec.access_config, &mut found);
    uncut_operations(&spec.access_config, &mut found);
    let target = target(&spec.controller_target_ref, &mut found);
    found.finish(
        parsed
            .zip(target)
            .map(|(parsed, target)| ValidatedTemplate::new(&spec.access_config, parsed, target)),
    )
}

/// Checks a template for pods.
///
/// # Errors
///
/// All violations of the template.
pub fn pod_access_template(
    template: &PodAccessTemplate,
) -> Result<ValidatedTemplate<AccessPod>, Vec<Violation>> {
    let spec = &template.spec;
    let mut found = Found::default();
    spec_size(spec, &mut found);
    let parsed = access_config::check(&spec.access_config, &mut found);
    let pod = access_pod::check(spec, &mut found);
    found.finish(
        parsed
            .zip(pod)
            .map(|(parsed, pod)| ValidatedTemplate::new(&spec.access_config, parsed, pod)),
    )
}

fn spec_size(spec: &impl Serialize, found: &mut Found) {
    let size = size(spec);
    if size > MAX_TEMPLATE_SPEC {
        found.add(
            "spec",
            format!(
                "takes {size} bytes as JSON: the maximum is {MAX_TEMPLATE_SPEC}; move long values \
                 into a ConfigMap or into the image"
            ),
        );
    }
}

/// Returns the size of a value, in bytes of JSON.
pub(super) fn size(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}

pub(super) fn target(reference: &CrossVersionObjectReference, found: &mut Found) -> Option<Target> {
    let field = "spec.controllerTargetRef";
    let needed = reference.kind.api_version();
    let pair = if reference.api_version == needed {
        Ok(())
    } else {
        Err(format!(
            "must be {} for a {}",
            needed.as_str(),
            reference.kind
        ))
    };
    let pair = found.check(
        &format!("{field}.apiVersion"),
        reference.api_version.as_str(),
        pair,
    );
    let name = found.check(
        &format!("{field}.name"),
        &reference.name,
        name::dns_subdomain(&reference.name),
    );
    pair.zip(name).map(|_| Target {
        kind: reference.kind,
        name: reference.name.clone(),
    })
}

/// Checks the operations for a shared pod, in which nothing can cut an attached or forwarded connection. A
/// dedicated pod is deleted, and its connections end with it.
fn uncut_operations(config: &AccessConfig, found: &mut Found) {
    if config.sessions == Sessions::Required {
        for operation in &config.operations {
            match operation {
                Operation::Attach | Operation::PortForward => found.add(
                    "spec.accessConfig.sessions",
                    format!(
                        "must be BestEffort with the operation {operation}, which cannot be ended"
                    ),
                ),
                // Debug requires the gate, which another check reports.
                Operation::Exec | Operation::Log | Operation::Debug => {}
            }
        }
    }
}
