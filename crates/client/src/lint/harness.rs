//! Harness runs and the objects that define them, in files, checked by the functions of admission.
//! Rules that depend on other objects are not checked: the existence of a template's base, and the
//! grants of policies that it requires.

use jiff::Timestamp;
use oz_api::harness::{
    BrokerPolicy, ClusterHarnessTemplate, HarnessRun, HarnessTemplate, TemplateKind, Workspace,
};
pub(super) use oz_api::harness::{GROUP, crds};
use oz_core::validate::Violation;
use oz_runs::admission;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Returns the violations in an object of this group that is created `now`.
///
/// # Errors
/// Returns an error if the object cannot be read at all.
pub(super) fn violations(
    kind: &str,
    object: &Value,
    now: Timestamp,
) -> serde_json::Result<Vec<Violation>> {
    Ok(match kind {
        "HarnessRun" => admission::run(&read::<HarnessRun>(object)?),
        "Workspace" => admission::workspace(&read::<Workspace>(object)?),
        "BrokerPolicy" => admission::policy(&read::<BrokerPolicy>(object)?, None, now),
        "HarnessTemplate" => {
            let template = read::<HarnessTemplate>(object)?;
            admission::template(TemplateKind::HarnessTemplate, &template.spec)
        }
        _ => {
            let template = read::<ClusterHarnessTemplate>(object)?;
            admission::template(TemplateKind::ClusterHarnessTemplate, &template.spec.0)
        }
    })
}

fn read<K: DeserializeOwned>(object: &Value) -> serde_json::Result<K> {
    serde_json::from_value(object.clone())
}
