//! The merge of a template with its base and with the overrides of a run.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::duration::GoDuration;
use oz_api::harness::{
    EgressNeed, HarnessRunSpec, HarnessTemplateSpec, InteractiveMode, InteractiveTerms,
    RunDefaults, RuntimeImage, TemplateKind, TemplateRef, TemplateWorkspace,
};
use oz_api::{ApprovalConfig, EmergencyConfig, TicketConfig, encode};
use oz_core::access::emergency::Terms;
use oz_core::access::policy;
use oz_core::validate::Violation;
use serde_json::Value;

use super::mount::MountPath;

const MINUTE: i64 = 60;
/// The default timeout of a batch run.
pub const DEFAULT_TIMEOUT: GoDuration = GoDuration::from_secs(30 * MINUTE);
/// The default termination grace period of an agent, in seconds.
pub const DEFAULT_GRACE_SECONDS: i64 = 60;
/// The maximum termination grace period of an agent, in seconds: for this time it may keep its credentials.
pub const MAX_GRACE_SECONDS: i64 = 300;
/// The default number of events in the status of a run.
pub const DEFAULT_RECENT_EVENTS: i32 = 50;

/// A template with all values after the merge.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// The name of the harness, for a label.
    pub harness: Option<String>,
    /// Image of the agent.
    pub image: String,
    /// Command of the agent.
    pub command: Vec<String>,
    /// Arguments of the command.
    pub args: Vec<String>,
    /// The model.
    pub model: Option<String>,
    /// Timeout of a batch run.
    pub timeout: GoDuration,
    /// Resources of the agent.
    pub resources: Option<ResourceRequirements>,
    /// Termination grace period of the agent in seconds, from 0 to [`MAX_GRACE_SECONDS`].
    pub grace_seconds: i64,
    /// The runtime container.
    pub runtime: RuntimeImage,
    /// The names of the required credentials, sorted, each once.
    pub credentials: Vec<String>,
    /// The required hosts.
    pub egress: Vec<EgressNeed>,
    /// The use of a workspace.
    pub workspace: TemplateWorkspace,
    /// The approvals that a run requires.
    pub approval: Option<ApprovalConfig>,
    /// The requirements for the change ticket of a run, which must satisfy all.
    pub tickets: Vec<TicketConfig>,
    /// The emergency settings; `None` if a run cannot be an emergency.
    pub emergency: Option<EmergencyConfig>,
    /// The overlay of its pods.
    pub overlay: Option<Value>,
    /// Whether and how runs accept more than one prompt.
    pub interactive: Interactive,
}

/// Bounds of interactive runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interactive {
    /// The input mode of the harness.
    pub mode: InteractiveMode,
    /// The idle timeout while a user is attached.
    pub idle_timeout: GoDuration,
    /// The idle timeout while no user is attached.
    pub detach_idle_timeout: GoDuration,
    /// The maximum time without an attached user.
    pub detach_timeout: GoDuration,
    /// The maximum duration of a run.
    pub max_lifetime: GoDuration,
    /// The maximum number of events in the status.
    pub max_recent_events: i32,
}

/// The reason why a template cannot be merged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unresolved {
    /// The base does not exist.
    #[error(
        "ClusterHarnessTemplate {0} does not exist: create it, or name another in spec.baseTemplateRef"
    )]
    NoBase(String),
    /// The base has a base.
    #[error(
        "ClusterHarnessTemplate {0} has a baseTemplateRef: a base cannot inherit; remove it there"
    )]
    Chain(String),
    /// A value is invalid.
    #[error("{}", Violation::list(.0))]
    Invalid(Vec<Violation>),
}

/// Returns the template that a run names, of its namespace or of the cluster; without a kind, that of the namespace has
/// priority.
#[must_use]
pub fn chosen<T>(
    reference: &TemplateRef,
    own: Option<T>,
    cluster: Option<T>,
) -> Option<(TemplateKind, T)> {
    let own = own.map(|template| (TemplateKind::HarnessTemplate, template));
    let cluster = cluster.map(|template| (TemplateKind::ClusterHarnessTemplate, template));
    match reference.kind {
        Some(TemplateKind::HarnessTemplate) => own,
        Some(TemplateKind::ClusterHarnessTemplate) => cluster,
        None => own.or(cluster),
    }
}

/// Checks whether runs may begin by a template or inherit from it: as long as it is not being deleted.
#[must_use]
pub fn is_available(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_none()
}

/// Merges a template; `base` is the cluster template that it names, if that exists.
///
/// The base is copied, except for the fields of `defaults` and `interactive` that the template sets; credentials are
/// joined by name, hosts, approvals and requirements for change tickets are added, and the overlay is replaced. The
/// emergency settings are those of the base, since an emergency needs none of the approvals that the base requires.
///
/// # Errors
/// The base does not exist or has a base itself, or the result has violations.
pub fn resolve(
    template: &HarnessTemplateSpec,
    base: Option<&HarnessTemplateSpec>,
) -> Result<Resolved, Unresolved> {
    let Some(reference) = &template.base_template_ref else {
        return finished(template.clone());
    };
    let base = base.ok_or_else(|| Unresolved::NoBase(reference.name.clone()))?;
    if base.base_template_ref.is_some() {
        return Err(Unresolved::Chain(reference.name.clone()));
    }
    let resolved = finished(merged(template, base))?;
    Ok(Resolved {
        tickets: tickets([&template.ticket, &base.ticket]),
        ..resolved
    })
}

/// Returns the merge of both as a template without a base.
pub(super) fn merged(
    template: &HarnessTemplateSpec,
    base: &HarnessTemplateSpec,
) -> HarnessTemplateSpec {
    let mut all = base.clone();
    all.harness = template.harness.clone().or(all.harness);
    let defaults = all.defaults.get_or_insert_default();
    if let Some(own) = &template.defaults {
        *defaults = merged_defaults(own.clone(), std::mem::take(defaults));
    }
    let interactive = all.interactive.get_or_insert_default();
    if let Some(own) = &template.interactive {
        *interactive = merged_interactive(own.clone(), std::mem::take(interactive));
    }
    let requires = all.requires.get_or_insert_default();
    if let Some(own) = &template.requires {
        for need in &own.credentials {
            if !requires.credentials.contains(need) {
                requires.credentials.push(need.clone());
            }
        }
        requires.egress.extend(own.egress.iter().cloned());
    }
    all.approval = match (template.approval.clone(), all.approval.take()) {
        (Some(own), Some(of_base)) => {
            let name = template
                .base_template_ref
                .as_ref()
                .map(|base| base.name.as_str());
            Some(policy::both(own, &prefixed(of_base, name)))
        }
        (own, of_base) => own.or(of_base),
    };
    all.ticket = template.ticket.clone().or(all.ticket);
    all.pod_template_overlay = template
        .pod_template_overlay
        .clone()
        .or(all.pod_template_overlay);
    all
}

/// Returns the approvals of a base with rules named after the base, as in `corp/security`: a rule of the template may have
/// the same name.
fn prefixed(mut approval: ApprovalConfig, base: Option<&str>) -> ApprovalConfig {
    for rule in &mut approval.rules {
        rule.name = format!("{}/{}", base.unwrap_or("base"), rule.name);
    }
    approval
}

/// Returns the digest of a template and its base, which identifies what a run is decided by.
#[must_use]
pub fn digest(template: &HarnessTemplateSpec, base: Option<&HarnessTemplateSpec>) -> String {
    encode::digest(&(template, base))
}

/// Returns the digest of a template as access policies see it: of its content and that of its base, its labels and its
/// annotations.
#[must_use]
pub fn seen(
    metadata: &ObjectMeta,
    template: &HarnessTemplateSpec,
    base: Option<&HarnessTemplateSpec>,
) -> String {
    policy::seen_as(metadata, &digest(template, base))
}

fn merged_defaults(own: RunDefaults, base: RunDefaults) -> RunDefaults {
    RunDefaults {
        model: own.model.or(base.model),
        timeout: own.timeout.or(base.timeout),
        resources: own.resources.or(base.resources),
        termination_grace_period_seconds: own
            .termination_grace_period_seconds
            .or(base.termination_grace_period_seconds),
    }
}

fn merged_interactive(own: InteractiveTerms, base: InteractiveTerms) -> InteractiveTerms {
    InteractiveTerms {
        mode: match own.mode {
            InteractiveMode::Batch => base.mode,
            mode => mode,
        },
        idle_timeout: own.idle_timeout.or(base.idle_timeout),
        detach_idle_timeout: own.detach_idle_timeout.or(base.detach_idle_timeout),
        detach_timeout: own.detach_timeout.or(base.detach_timeout),
        max_lifetime: own.max_lifetime.or(base.max_lifetime),
        max_recent_events: own.max_recent_events.or(base.max_recent_events),
    }
}

/// Returns the values of a template without a base.
fn finished(template: HarnessTemplateSpec) -> Result<Resolved, Unresolved> {
    let mut found = Vec::new();
    let defaults = template.defaults.unwrap_or_default();
    let timeout = positive(&mut found, "spec.defaults.timeout", defaults.timeout);
    let grace = defaults
        .termination_grace_period_seconds
        .unwrap_or(DEFAULT_GRACE_SECONDS);
    if !(0..=MAX_GRACE_SECONDS).contains(&grace) {
        let message = format!("must be from 0 to {MAX_GRACE_SECONDS}");
        let field = "spec.defaults.terminationGracePeriodSeconds";
        found.push(Violation::of_value(field, message, grace.to_string()));
    }
    let interactive = interactive(&mut found, template.interactive.unwrap_or_default());
    if template.image.is_none() {
        found.push(Violation::new("spec.image", "must be set"));
    }
    if template.command.is_empty() {
        found.push(Violation::new("spec.command", "must be set"));
    }
    let requires = template.requires.unwrap_or_default();
    let names = requires.credentials.into_iter().map(|need| need.name);
    let mut credentials: Vec<String> = names.collect();
    credentials.sort_unstable();
    credentials.dedup();
    match template.image {
        Some(image) if found.is_empty() => Ok(Resolved {
            harness: template.harness,
            image,
            command: template.command,
            args: template.args,
            model: defaults.model,
            timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
            resources: defaults.resources,
            grace_seconds: grace,
            runtime: template.runtime.unwrap_or_default(),
            credentials,
            egress: requires.egress,
            workspace: normalized(template.workspace.unwrap_or_default()),
            approval: template.approval,
            tickets: tickets([&template.ticket]),
            emergency: template.emergency,
            overlay: template.pod_template_overlay,
            interactive,
        }),
        _ => Err(Unresolved::Invalid(found)),
    }
}

/// Returns the workspace with a normalized path; [`violations`](super::pod::violations) reports an invalid one.
fn normalized(mut workspace: TemplateWorkspace) -> TemplateWorkspace {
    if let Some(path) = MountPath::of_workspace(&workspace.mount_path) {
        workspace.mount_path = path.to_string();
    }
    workspace
}

fn interactive(found: &mut Vec<Violation>, terms: InteractiveTerms) -> Interactive {
    let mut read = |field: &str, text: Option<String>, default: i64| {
        positive(found, &format!("spec.interactive.{field}"), text)
            .unwrap_or(GoDuration::from_secs(default))
    };
    Interactive {
        mode: terms.mode,
        idle_timeout: read("idleTimeout", terms.idle_timeout, 30 * MINUTE),
        detach_idle_timeout: read("detachIdleTimeout", terms.detach_idle_timeout, 15 * MINUTE),
        detach_timeout: read("detachTimeout", terms.detach_timeout, 5 * MINUTE),
        max_lifetime: read("maxLifetime", terms.max_lifetime, 24 * 60 * MINUTE),
        max_recent_events: terms
            .max_recent_events
            .unwrap_or(DEFAULT_RECENT_EVENTS)
            .clamp(10, 500),
    }
}

/// Reads a duration that must be positive; `None` if it is absent or invalid.
pub(super) fn positive(
    found: &mut Vec<Violation>,
    field: &str,
    text: Option<String>,
) -> Option<GoDuration> {
    let text = text?;
    match text.parse::<GoDuration>() {
        Ok(duration) if duration.is_positive() => return Some(duration),
        Ok(_) => found.push(Violation::of_value(
            field,
            "must be greater than zero",
            text,
        )),
        Err(error) => found.push(Violation::of_value(field, error.to_string(), text)),
    }
    None
}

impl Resolved {
    /// Returns the terms of the emergency that a run declares; `None` if it declares none, or if the terms are invalid.
    #[must_use]
    pub fn declared_emergency(&self, run: &HarnessRunSpec) -> Option<Terms> {
        let declared = self.emergency.as_ref().filter(|_| run.is_emergency());
        Terms::from_template(&run.template_ref.name, declared)
    }

    /// Returns the template with the overrides of a run: model, timeout and resources. An emergency limits the timeout.
    ///
    /// # Errors
    /// The timeout of the run is not a positive duration.
    pub fn for_run(&self, run: &HarnessRunSpec) -> Result<Self, Vec<Violation>> {
        let mut found = Vec::new();
        let timeout = positive(&mut found, "spec.timeout", run.timeout.clone());
        if !found.is_empty() {
            return Err(found);
        }
        let timeout = timeout.unwrap_or(self.timeout);
        let emergency = self.declared_emergency(run);
        Ok(Self {
            model: run.model.clone().or_else(|| self.model.clone()),
            timeout: emergency.map_or(timeout, |terms| timeout.min(terms.longest)),
            resources: run.resources.clone().or_else(|| self.resources.clone()),
            ..self.clone()
        })
    }
}

/// Returns the requirements for change tickets of a template and of its base, each once. A change ticket must satisfy all.
fn tickets<'a>(all: impl IntoIterator<Item = &'a Option<TicketConfig>>) -> Vec<TicketConfig> {
    let mut found: Vec<TicketConfig> = Vec::new();
    for config in all.into_iter().flatten() {
        if !found.contains(config) {
            found.push(config.clone());
        }
    }
    found
}
