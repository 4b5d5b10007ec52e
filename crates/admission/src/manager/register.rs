//! A single registration: for installers and Jobs, and for a preview of the registered configurations.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{Declared, Manager, error::UpkeepError, upkeep::Upkeep};
use crate::{
    endpoint::Endpoint,
    hook::Hook,
    registered_rules::RulesNow,
    registration::desired::{self, Configurations, Declaration},
    scope::NamespaceScope,
};

/// The result of [`Manager::register`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registration {
    /// The number of registered mutating webhooks.
    pub mutating: usize,
    /// The number of registered validating webhooks.
    pub validating: usize,
    /// The number of definitions with a registered conversion: those that exist.
    pub conversions: usize,
    /// The expiry of the authority of the webhooks, or of the supplied certificate: register again well
    /// before it.
    pub until: Timestamp,
}

impl Manager {
    /// Registers the hooks and returns: for an installer, or a Job that accompanies processes that only
    /// serve ([`RegistrationMode::Never`](crate::RegistrationMode::Never)). Run it on every installation and, if no
    /// process maintains the registration, periodically: a run performs a due rotation of the authority, which
    /// takes as long as [`CertPolicy::settle`](crate::CertPolicy::settle).
    ///
    /// # Errors
    /// The Secret or the configurations cannot be written.
    ///
    /// ```no_run
    /// # async fn install(manager: oz_admission::Manager) -> Result<(), oz_admission::UpkeepError> {
    /// // In a job of the installation; the processes that serve say `RegistrationMode::Never`.
    /// let registration = manager.register().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn register(&self) -> Result<Registration, UpkeepError> {
        let mut upkeep = Upkeep::new(self, true, None);
        let until = loop {
            // In the second pass, there is a staged authority that is already published to clients.
            if let Some(until) = upkeep.pass_once().await? {
                break until;
            }
        };
        if let Some(hook) = upkeep.unknown_rules() {
            return Err(UpkeepError::RulesUnknown(hook.to_owned()));
        }
        let rules = rules_now(&self.declared.hooks);
        let desired = desired(&self.declared, &rules, None, None);
        let mutating = desired.mutating.and_then(|it| it.webhooks);
        let validating = desired.validating.and_then(|it| it.webhooks);
        Ok(Registration {
            mutating: mutating.map_or(0, |webhooks| webhooks.len()),
            validating: validating.map_or(0, |webhooks| webhooks.len()),
            conversions: upkeep.conversions.count(),
            until,
        })
    }
}

impl Upkeep {
    /// Performs one pass of [`Manager::register`]. Returns the expiry of the registration, or `None`, after
    /// a pause, if a rotation is incomplete.
    async fn pass_once(&mut self) -> Result<Option<Timestamp>, UpkeepError> {
        let now = self.now();
        // All possible parts are done, even if a namespace is missing.
        let labelled = self.label_namespaces().await;
        if !self.is_self_signed() {
            let supplied = self.supplied(now).await?;
            self.publish(now).await?;
            return labelled.map(|()| Some(supplied.leaf.until));
        }
        let (stored, _) = self.authority(now).await?;
        self.publish(now).await?;
        let Some(promotion) = self.promotion(&stored) else {
            return labelled.map(|()| Some(stored.active.until));
        };
        let wait = promotion
            .duration_since(now)
            .max(SignedDuration::ZERO)
            .unsigned_abs();
        tracing::info!(
            ?wait,
            "a new authority is published; waiting before it takes over"
        );
        tokio::time::sleep(wait).await;
        Ok(None)
    }
}

/// Returns the rules of each hook.
pub(super) fn rules_now(hooks: &[Hook]) -> Vec<RulesNow> {
    hooks.iter().map(RulesNow::from_hook).collect()
}

/// Builds the configurations. `segment` precedes every path.
pub(super) fn desired(
    declared: &Declared,
    rules: &[RulesNow],
    bundle: Option<&str>,
    segment: Option<&str>,
) -> Configurations {
    let declaration = Declaration {
        fingerprint: &declared.fingerprint,
        namespace: &declared.namespace,
        endpoint: &declared.endpoint,
        hooks: &declared.hooks,
        rules,
        segment,
    };
    desired::configurations(&declaration, bundle)
}

/// Returns the configurations as manifests, without certificates and without the key in the paths.
pub(super) fn manifests(declared: &Declared) -> Vec<serde_json::Value> {
    let rules = rules_now(&declared.hooks);
    as_manifests(desired(declared, &rules, None, None))
}

/// Builds the webhook configurations of a product, without certificates and without the key in their paths.
/// A function of the declaration: it requires neither client nor runtime. `namespace` is the manager's
/// namespace, which hooks exclude by default.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use oz_admission::{Endpoint, Hook, Notes, configurations, mutate_fn};
///
/// let hook = Hook::mutating("note", mutate_fn(|_, _, _: &mut Pod| Ok(Notes::none())));
/// let endpoint = Endpoint::Url("https://hooks.example.com".into());
/// let found = configurations("acme", "acme-system", &endpoint, &[hook]);
/// assert_eq!(found[0]["webhooks"][0]["name"], "note.acme.admission");
/// ```
pub fn configurations(
    fingerprint: &str,
    namespace: &str,
    endpoint: &Endpoint,
    hooks: &[Hook],
) -> Vec<serde_json::Value> {
    let declaration = Declaration {
        fingerprint,
        namespace,
        endpoint,
        hooks,
        rules: &rules_now(hooks),
        segment: None,
    };
    as_manifests(desired::configurations(&declaration, None))
}

fn as_manifests(desired: Configurations) -> Vec<serde_json::Value> {
    let with_kind = |mut value: serde_json::Value, kind: &str| {
        value["apiVersion"] = json!("admissionregistration.k8s.io/v1");
        value["kind"] = json!(kind);
        value
    };
    let mutating = desired
        .mutating
        .map(|it| with_kind(json!(it), "MutatingWebhookConfiguration"));
    let validating = desired
        .validating
        .map(|it| with_kind(json!(it), "ValidatingWebhookConfiguration"));
    mutating.into_iter().chain(validating).collect()
}

/// Returns for each namespace with the label of the product whether it is optional: it is required if any
/// hook requires it.
pub(super) fn labelled(declared: &Declared) -> BTreeMap<String, bool> {
    let mut names = BTreeMap::new();
    for hook in &declared.hooks {
        let NamespaceScope::Labelled(namespaces) = &hook.namespaces else {
            continue;
        };
        for namespace in namespaces {
            let optional = names.entry(namespace.name.clone()).or_insert(true);
            *optional &= namespace.optional;
        }
    }
    names
}
