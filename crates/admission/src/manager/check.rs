//! The checks of a declaration, before the manager runs.

use std::collections::BTreeSet;

use super::builder::{ConfigError, ManagerBuilder};
use crate::{
    certificate::{CertSource, client::client_verifier},
    endpoint::Endpoint,
    hook::{Hook, HookKind},
    review::Operation,
};

impl ManagerBuilder {
    pub(super) fn check(&self) -> Result<Endpoint, ConfigError> {
        if !is_label(&self.fingerprint) {
            return Err(ConfigError::Fingerprint(self.fingerprint.clone()));
        }
        let mut taken = BTreeSet::new();
        let mut unique = |what: &'static str, value: String| {
            let free = taken.insert((what, value.clone()));
            if free {
                Ok(())
            } else {
                Err(ConfigError::Duplicate { what, value })
            }
        };
        for hook in &self.hooks {
            check_hook(hook, &self.fingerprint)?;
            unique("path", hook.served_path())?;
            unique("webhook name", hook.registered_name(&self.fingerprint))?;
        }
        for conversion in &self.conversions {
            let definition = &conversion.definition;
            if !definition.contains('.') || !definition.split('.').all(is_label) {
                return Err(ConfigError::Definition(definition.clone()));
            }
            unique("path", conversion.served_path())?;
        }
        for watcher in &self.watchers {
            unique("watcher", watcher.name().to_string())?;
        }
        if let CertSource::SelfSigned(policy) = &self.certificates {
            if !(0.1..=0.95).contains(&policy.renew_at) {
                return Err(ConfigError::Policy("renew_at must be between 0.1 and 0.95"));
            }
            if policy.leaf_life.is_zero() || policy.ca_life < policy.leaf_life {
                return Err(ConfigError::Policy(
                    "leaf_life must be greater than zero, and not greater than ca_life",
                ));
            }
        }
        if let Some(pem) = &self.client_authority {
            client_verifier(pem).map_err(ConfigError::ClientAuthority)?;
        }
        match &self.endpoint {
            Some(Endpoint::Service { port: 0, .. }) => Err(ConfigError::Port),
            Some(Endpoint::Url(url)) => {
                let checked = Endpoint::host_of(url).map_err(ConfigError::Endpoint);
                checked.map(|_| Endpoint::Url(url.clone()))
            }
            Some(endpoint) => Ok(endpoint.clone()),
            None if self.hooks.is_empty() && self.conversions.is_empty() => {
                Ok(Endpoint::Url("https://localhost".to_owned()))
            }
            None => Err(ConfigError::NoEndpoint),
        }
    }
}

fn check_hook(hook: &Hook, fingerprint: &str) -> Result<(), ConfigError> {
    let name = || hook.name.clone();
    if !is_label(&hook.name) {
        return Err(ConfigError::HookName(name()));
    }
    let path = hook.served_path();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
    if !path.starts_with('/') || !path.chars().all(plain) {
        return Err(ConfigError::Path(path));
    }
    let webhook = hook.registered_name(fingerprint);
    let segments: Vec<_> = webhook.split('.').collect();
    if segments.len() < 3 || !segments.iter().all(|segment| is_label(segment)) {
        return Err(ConfigError::WebhookName(webhook));
    }
    if hook.rules.is_empty() && hook.followed.is_none() {
        return Err(ConfigError::NoRules(name()));
    }
    for rule in &hook.rules {
        let operations = rule.operations.as_ref().unwrap_or(&hook.operations);
        if operations.is_empty() {
            return Err(ConfigError::NoOperations(name()));
        }
        if hook.kind == HookKind::Mutating && operations.contains(&Operation::Delete) {
            return Err(ConfigError::MutatingDelete(name()));
        }
    }
    if !(1..=30).contains(&hook.timeout.as_secs()) || hook.timeout.subsec_nanos() != 0 {
        return Err(ConfigError::Timeout(name()));
    }
    Ok(())
}

/// Checks a DNS label of RFC 1123: lower-case letters, digits and dashes, no dash at either end.
/// See <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-label-names>.
fn is_label(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&name.len())
        && name.chars().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
