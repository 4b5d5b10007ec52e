//! Admission of templates, namespaced or cluster-scoped.

use oz_api::harness::{HarnessTemplateSpec, TemplateKind};
use oz_core::validate::{
    Violation, dns_subdomain, emergency_config, ticket_config, unconditional_approval,
};

use super::found::Found;
use crate::template::MAX_GRACE_SECONDS;
use crate::{overlay, pod};

/// Returns all violations of a template, without its base.
#[must_use]
pub fn template(kind: TemplateKind, spec: &HarnessTemplateSpec) -> Vec<Violation> {
    let mut found = Found::default();
    match &spec.base_template_ref {
        Some(_) if kind == TemplateKind::ClusterHarnessTemplate => {
            let message = "a cluster template inherits from none: use a HarnessTemplate for that";
            found.add("spec.baseTemplateRef", message);
        }
        Some(base) => {
            if let Err(error) = dns_subdomain(&base.name) {
                found.value("spec.baseTemplateRef.name", error, &base.name);
            }
            locked(&mut found, spec);
        }
        None => alone(&mut found, spec),
    }
    defaults(&mut found, spec);
    requires(&mut found, spec);
    interactive(&mut found, spec);
    if let Some(approval) = &spec.approval {
        found
            .0
            .extend(unconditional_approval("spec.approval", approval));
    }
    let ticket = spec.ticket.iter();
    let ticket = ticket.flat_map(|config| ticket_config("spec.ticket", config));
    found.0.extend(ticket);
    let emergency = spec.emergency.iter();
    let emergency = emergency.flat_map(|config| emergency_config("spec.emergency", config));
    found.0.extend(emergency);
    if let Some(workspace) = &spec.workspace {
        found.0.extend(pod::mount_violation(&workspace.mount_path));
    }
    if let Some(overlay) = &spec.pod_template_overlay {
        found.0.extend(overlay::violations(overlay));
    }
    found.0
}

/// Checks that a template with a base leaves out the fields that only the base may set.
fn locked(found: &mut Found, spec: &HarnessTemplateSpec) {
    for (field, is_set) in [
        ("image", spec.image.is_some()),
        ("command", !spec.command.is_empty()),
        ("args", !spec.args.is_empty()),
        ("runtime", spec.runtime.is_some()),
        ("workspace", spec.workspace.is_some()),
        ("emergency", spec.emergency.is_some()),
    ] {
        if is_set {
            let message = "is the base's, and must be absent where baseTemplateRef is set";
            found.add(format!("spec.{field}"), message);
        }
    }
}

/// Checks that a template without a base sets the required fields.
fn alone(found: &mut Found, spec: &HarnessTemplateSpec) {
    for (field, is_set) in [
        ("image", spec.image.is_some()),
        (
            "command",
            spec.command.first().is_some_and(|word| !word.is_empty()),
        ),
    ] {
        if !is_set {
            let message = "must be set, unless the template inherits (baseTemplateRef)";
            found.add(format!("spec.{field}"), message);
        }
    }
}

fn defaults(found: &mut Found, spec: &HarnessTemplateSpec) {
    let Some(defaults) = &spec.defaults else {
        return;
    };
    found.duration("spec.defaults.timeout", defaults.timeout.as_ref());
    let grace = defaults.termination_grace_period_seconds;
    if let Some(grace) = grace.filter(|grace| !(0..=MAX_GRACE_SECONDS).contains(grace)) {
        let message = format!("must be from 0 to {MAX_GRACE_SECONDS}");
        found.value(
            "spec.defaults.terminationGracePeriodSeconds",
            message,
            grace,
        );
    }
}

fn requires(found: &mut Found, spec: &HarnessTemplateSpec) {
    let Some(requires) = &spec.requires else {
        return;
    };
    let names = requires.credentials.iter().map(|need| need.name.as_str());
    found.once("spec.requires.credentials", "name", names);
    for (number, need) in requires.credentials.iter().enumerate() {
        let field = format!("spec.requires.credentials[{number}].name");
        found.variable(&field, &need.name);
    }
    for (number, need) in requires.egress.iter().enumerate() {
        let field = format!("spec.requires.egress[{number}]");
        found.hosts(&format!("{field}.host"), &need.host);
        found.ports(&format!("{field}.ports"), &need.ports);
    }
}

fn interactive(found: &mut Found, spec: &HarnessTemplateSpec) {
    let Some(terms) = &spec.interactive else {
        return;
    };
    let mut read = |field: &str, text: &Option<String>| {
        found.duration(&format!("spec.interactive.{field}"), text.as_ref())
    };
    let idle = read("idleTimeout", &terms.idle_timeout);
    let detach_idle = read("detachIdleTimeout", &terms.detach_idle_timeout);
    let detach = read("detachTimeout", &terms.detach_timeout);
    let longest = read("maxLifetime", &terms.max_lifetime);
    // Only what was written is compared: defaults are no mistake of the author's.
    for (field, shorter, other, longer) in [
        ("idleTimeout", idle, "maxLifetime", longest),
        ("detachTimeout", detach, "maxLifetime", longest),
        ("detachIdleTimeout", detach_idle, "idleTimeout", idle),
    ] {
        if let (Some(shorter), Some(longer)) = (shorter, longer)
            && shorter > longer
        {
            let message = format!("must not be longer than {other}");
            found.value(format!("spec.interactive.{field}"), message, shorter);
        }
    }
    if let Some(events) = terms
        .max_recent_events
        .filter(|events| !(10..=500).contains(events))
    {
        found.value(
            "spec.interactive.maxRecentEvents",
            "must be from 10 to 500",
            events,
        );
    }
}
