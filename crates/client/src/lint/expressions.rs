//! CEL expressions in templates and policies, compiled as the webhook compiles them, and rules that
//! no user can satisfy.

use std::time::{Duration, Instant};

use oz_api::{AccessConfig, AccessPolicySpec};
use oz_cel::{COMMAND, CelError, Expression};
use oz_core::kinds::{Entry, Role};
use oz_core::validate::{self, Violation};
use serde_json::Value;

use super::found::{self, Found};

/// The timeout of one expression.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Finds expressions that fail to evaluate and rules that never hold, in an object with valid
/// fields.
pub(super) fn check(kind: &Entry, object: &Value, found: &mut Found) {
    let spec = &object["spec"];
    let violations = match kind.role {
        Role::Template => template(&spec["accessConfig"]),
        Role::Policy => policy(spec),
        _ => Vec::new(),
    };
    found::add(violations, found);
}

fn template(config: &Value) -> Vec<Violation> {
    let Ok(config) = serde_json::from_value::<AccessConfig>(config.clone()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let wrong = |field: &str, why: CelError| {
        let field = format!("spec.accessConfig.{field}");
        Violation::new(field, format!("cannot be evaluated: {why}"))
    };
    if let Some(text) = config.command_policy.clone() {
        let compile = move |_| Expression::compile(&text, &COMMAND).map(drop);
        found.extend(tried(compile).err().map(|why| wrong("commandPolicy", why)));
    }
    let when = config.approval.as_ref();
    if let Some(text) = when.and_then(|approval| approval.when.clone()) {
        let check = move |until| oz_cel::policy::check_condition(&text, until);
        found.extend(tried(check).err().map(|why| wrong("approval.when", why)));
    }
    found.extend(validate::unsatisfiable(&config));
    found
}

fn policy(spec: &Value) -> Vec<Violation> {
    let Ok(spec) = serde_json::from_value::<AccessPolicySpec>(spec.clone()) else {
        return Vec::new();
    };
    match tried(move |until| Ok(oz_cel::policy::check(&spec, until))) {
        Ok(Ok(())) => Vec::new(),
        Ok(Err((field, why))) => vec![Violation::new(field, format!("cannot be evaluated: {why}"))],
        Err(why) => vec![Violation::new("spec.match", why.to_string())],
    }
}

/// Runs a check on a separate thread, since other authors wrote the expression.
fn tried<T: Send + 'static>(
    check: impl FnOnce(Instant) -> Result<T, CelError> + Send + 'static,
) -> Result<T, CelError> {
    oz_cel::apart(TIMEOUT, move || check(Instant::now() + TIMEOUT))?
}
