//! Both kinds of template: the terms that they share, and what access is given to.

use std::collections::BTreeSet;

use oz_api::duration::GoDuration;
use oz_api::{
    AccessConfig, Bind, CrossVersionObjectReference, ExecAccessTemplate, Follow, OnTemplateChange,
    Operation, PodAccessTemplate, Sessions, TargetApiVersion, TargetKind,
};
use serde::Serialize;

use super::access_config::{self, Parsed};
use super::access_pod::{self, AccessPod};
use super::{Found, Violation, name};
use crate::access_command::AccessCommand;

/// The most bytes that the spec of a template may take as JSON: it is kept in memory, stored with
/// every pod that is made from it, and read anew for every request.
pub const MAX_TEMPLATE_SPEC: usize = 64 * 1024;

/// A template that makes sense. What access is given to is a [`Target`] for exec, an [`AccessPod`]
/// for pods.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedTemplate<T> {
    /// How long access lasts if a request does not say; greater than zero, at most `max`.
    pub default: GoDuration,
    /// The longest that access can last.
    pub max: GoDuration,
    /// Groups whose members may ask, in the order of the template.
    pub groups: Vec<String>,
    /// Users who may ask.
    pub users: Vec<String>,
    /// Whether service accounts may ask.
    pub service_accounts: bool,
    /// What to tell the user.
    pub command: AccessCommand,
    /// Who is bound.
    pub bind: Bind,
    /// What a grant permits; never empty.
    pub operations: BTreeSet<Operation>,
    /// The containers that may be entered; empty means all.
    pub containers: BTreeSet<String>,
    /// CEL that a command must satisfy; not compiled yet.
    pub command_policy: Option<String>,
    /// Whether a session must be known to end with its grant.
    pub sessions: Sessions,
    /// What happens when the pod of a grant is replaced.
    pub follow: Follow,
    /// What a change of the template does to its grants.
    pub on_template_change: OnTemplateChange,
    /// Whether audit records keep arguments.
    pub record_arguments: bool,
    /// Whether a request must give a reason.
    pub require_reason: bool,
    /// What access is given to.
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
            follow: config.follow,
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
    /// Kind, which also says the API version.
    pub kind: TargetKind,
    /// Name.
    pub name: String,
}

impl Target {
    /// API version of the workload.
    #[must_use]
    pub fn api_version(&self) -> TargetApiVersion {
        self.kind.api_version()
    }
}

/// Checks a template for exec.
///
/// # Errors
///
/// Everything that is wrong with it.
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
/// Everything that is wrong with it.
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
                "takes {size} bytes as JSON: {MAX_TEMPLATE_SPEC} are enough; move what is long into \
                 a ConfigMap or into the image"
            ),
        );
    }
}

/// How many bytes it takes as JSON.
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

/// On a pod that others use too, nothing can cut an attached or forwarded connection. A pod of
/// one's own ends, and they with it.
fn uncut_operations(config: &AccessConfig, found: &mut Found) {
    if config.sessions == Sessions::Required {
        for operation in &config.operations {
            match operation {
                Operation::Attach | Operation::PortForward => found.add(
                    "spec.accessConfig.sessions",
                    format!(
                        "must be BestEffort with the operation {operation}, which cannot be cut"
                    ),
                ),
                // Debug needs the gate, which is said of itself.
                Operation::Exec | Operation::Log | Operation::Debug => {}
            }
        }
    }
}
