//! What a template comes to, with the one that it inherits from and with what a run overrides.

use k8s_openapi::api::core::v1::ResourceRequirements;
use oz_api::duration::GoDuration;
use oz_api::harness::{
    EgressNeed, HarnessRunSpec, HarnessTemplateSpec, InteractiveMode, InteractiveTerms,
    RunDefaults, RuntimeImage, TemplateKind, TemplateRef, TemplateWorkspace,
};
use oz_core::validate::Violation;
use serde_json::Value;

use super::mount::MountPath;

const MINUTE: i64 = 60;
/// How long a batch run may last if nothing says so.
pub const DEFAULT_TIMEOUT: GoDuration = GoDuration::from_secs(30 * MINUTE);
/// How many seconds an agent has to end by itself if nothing says so.
pub const DEFAULT_GRACE_SECONDS: i64 = 60;
/// The most seconds that an agent has to end by itself: so long it may keep what it was given.
pub const MAX_GRACE_SECONDS: i64 = 300;
/// How many events a run's status keeps if nothing says so.
pub const DEFAULT_RECENT_EVENTS: i32 = 50;

/// A template with everything in it that it comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Which harness it is, for a label.
    pub harness: Option<String>,
    /// Image of the agent.
    pub image: String,
    /// Command of the agent.
    pub command: Vec<String>,
    /// Arguments of the command.
    pub args: Vec<String>,
    /// The model.
    pub model: Option<String>,
    /// How long a batch run may last.
    pub timeout: GoDuration,
    /// Resources of the agent.
    pub resources: Option<ResourceRequirements>,
    /// How many seconds the agent has to end by itself, from 0 to [`MAX_GRACE_SECONDS`].
    pub grace_seconds: i64,
    /// The container beside the agent.
    pub runtime: RuntimeImage,
    /// The names of the credentials that it needs, sorted, each once.
    pub credentials: Vec<String>,
    /// The hosts that it needs.
    pub egress: Vec<EgressNeed>,
    /// How it uses a workspace.
    pub workspace: TemplateWorkspace,
    /// What its pods have besides.
    pub overlay: Option<Value>,
    /// Whether and how it takes more than one prompt.
    pub interactive: Interactive,
}

/// Bounds of interactive runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interactive {
    /// How the harness takes prompts.
    pub mode: InteractiveMode,
    /// How long nothing may happen while somebody is attached.
    pub idle_timeout: GoDuration,
    /// How long nothing may happen while nobody is attached.
    pub detach_idle_timeout: GoDuration,
    /// How long nobody may be attached.
    pub detach_timeout: GoDuration,
    /// How long a run may last.
    pub max_lifetime: GoDuration,
    /// How many events the status keeps.
    pub max_recent_events: i32,
}

/// Why a template comes to nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unresolved {
    /// The base is not there.
    #[error(
        "ClusterHarnessTemplate {0} does not exist: create it, or name another in spec.baseTemplateRef"
    )]
    NoBase(String),
    /// The base has a base.
    #[error(
        "ClusterHarnessTemplate {0} has a baseTemplateRef itself: a base must stand alone; remove it there"
    )]
    Chain(String),
    /// Something in it cannot stay as it is.
    #[error("{}", Violation::list(.0))]
    Invalid(Vec<Violation>),
}

/// Which of two templates of one name a run means: that of its namespace or that of the cluster.
#[must_use]
pub fn chosen<'a>(
    reference: &TemplateRef,
    own: Option<&'a HarnessTemplateSpec>,
    cluster: Option<&'a HarnessTemplateSpec>,
) -> Option<(TemplateKind, &'a HarnessTemplateSpec)> {
    let own = own.map(|spec| (TemplateKind::HarnessTemplate, spec));
    let cluster = cluster.map(|spec| (TemplateKind::ClusterHarnessTemplate, spec));
    match reference.kind {
        Some(TemplateKind::HarnessTemplate) => own,
        Some(TemplateKind::ClusterHarnessTemplate) => cluster,
        None => own.or(cluster),
    }
}

/// What a template comes to; `base` is the cluster template that it names, if that exists.
///
/// The base is taken as it is, but for what the template says of `defaults` and `interactive`, field by field;
/// credentials are joined by name, hosts added, the overlay replaced.
///
/// # Errors
/// That the base is not there or has one itself, or everything in the two that cannot be used.
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
    finished(merged(template, base))
}

/// The two as one that inherits from none.
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
    all.pod_template_overlay = template
        .pod_template_overlay
        .clone()
        .or(all.pod_template_overlay);
    all
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

/// The values of a template that inherits from none.
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
        found.push(Violation::of("spec.image", "must be set"));
    }
    if template.command.is_empty() {
        found.push(Violation::of("spec.command", "must be set"));
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
            overlay: template.pod_template_overlay,
            interactive,
        }),
        _ => Err(Unresolved::Invalid(found)),
    }
}

/// Returns the same with the one spelling of its path; [`violations`](super::pod::violations) reports one that is not valid.
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

/// Reads a duration that must be some time; `None` if it is not there or is none.
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
    /// The same with what a run overrides: model, timeout and resources.
    ///
    /// # Errors
    /// That the run's timeout is none.
    pub fn for_run(&self, run: &HarnessRunSpec) -> Result<Self, Vec<Violation>> {
        let mut found = Vec::new();
        let timeout = positive(&mut found, "spec.timeout", run.timeout.clone());
        if !found.is_empty() {
            return Err(found);
        }
        Ok(Self {
            model: run.model.clone().or_else(|| self.model.clone()),
            timeout: timeout.unwrap_or(self.timeout),
            resources: run.resources.clone().or_else(|| self.resources.clone()),
            ..self.clone()
        })
    }
}
