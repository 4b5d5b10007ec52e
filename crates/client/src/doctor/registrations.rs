//! The hooks that are registered in the API server, of oz and of other projects: read once, for all
//! their checks.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration,
    WebhookClientConfig,
};
use kube::Api;
use kube::api::ListParams;
use oz_api::names;

use super::finding::Object;
use crate::cluster::Cluster;
use crate::failure::Result;

/// The kind of the registrations of hooks that may change objects, as kubectl takes it.
pub(super) const MUTATING: &str = "mutatingwebhookconfiguration";
/// The kind of the registrations of hooks that may not change objects.
pub(super) const VALIDATING: &str = "validatingwebhookconfiguration";

/// A registration.
#[derive(Clone, Debug)]
pub(super) struct Registration {
    pub(super) object: Object,
    pub(super) hooks: Vec<Hook>,
}

/// A hook.
#[derive(Clone, Debug, Default)]
pub(super) struct Hook {
    pub(super) name: String,
    pub(super) config: WebhookClientConfig,
    rules: Vec<RuleWithOperations>,
}

impl Registration {
    /// Checks whether the registration is that of oz.
    pub(super) fn is_own(&self) -> bool {
        self.object.name == names::REGISTRATION
    }

    /// Checks whether a project other than oz registered a hook for an API group.
    pub(super) fn is_foreign(&self, group: &str) -> bool {
        !self.is_own() && self.hooks.iter().any(|hook| hook.concerns(group))
    }
}

impl Hook {
    /// Checks whether the hook is registered for an API group by name.
    pub(super) fn concerns(&self, group: &str) -> bool {
        let mut groups = self
            .rules
            .iter()
            .flat_map(|rule| &rule.api_groups)
            .flatten();
        groups.any(|one| one == group)
    }
}

/// Returns all registrations; those of hooks that may change objects come first.
pub(super) async fn read(cluster: &Cluster) -> Result<Vec<Registration>> {
    let all = ListParams::default();
    let mutating = Api::<MutatingWebhookConfiguration>::all(cluster.client.clone());
    let validating = Api::<ValidatingWebhookConfiguration>::all(cluster.client.clone());
    let (mutating, validating) = futures::future::try_join(
        cluster.answer(mutating.list(&all)),
        cluster.answer(validating.list(&all)),
    )
    .await?;
    let hook = |name, config, rules: Option<Vec<_>>| Hook {
        name,
        config,
        rules: rules.into_iter().flatten().collect(),
    };
    let mutating = mutating.items.into_iter().map(|one| {
        let hooks = one.webhooks.into_iter().flatten();
        let hooks = hooks.map(|it| hook(it.name, it.client_config, it.rules));
        (MUTATING, one.metadata, hooks.collect())
    });
    let validating = validating.items.into_iter().map(|one| {
        let hooks = one.webhooks.into_iter().flatten();
        let hooks = hooks.map(|it| hook(it.name, it.client_config, it.rules));
        (VALIDATING, one.metadata, hooks.collect())
    });
    let all = mutating.chain(validating);
    let all = all.map(|(kind, metadata, hooks)| {
        let object = Object::from_metadata(kind, &metadata)?;
        Ok(Registration { object, hooks })
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_concerns_a_group_by_its_name() {
        let registered = |name: &str, groups: &[&str]| Registration {
            object: Object::of_cluster(MUTATING, name),
            hooks: vec![Hook {
                rules: vec![RuleWithOperations {
                    api_groups: Some(groups.iter().map(ToString::to_string).collect()),
                    ..RuleWithOperations::default()
                }],
                ..Hook::default()
            }],
        };
        let group = "paddock.dev";
        assert!(registered("paddock", &["apps", group]).is_foreign(group));
        let others = ["", "*.paddock.dev", "paddock.development"];
        assert!(!registered("paddock", &others).is_foreign(group));
        assert!(!registered(names::REGISTRATION, &[group]).is_foreign(group));
    }
}
