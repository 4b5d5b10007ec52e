//! The conversion of hooks into webhook configurations. Pure: the same hooks, endpoint and bundle result in
//! the same objects, byte for byte.
//!
//! Every field is written, including defaults: a field that is not written cannot be repaired.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::admissionregistration::v1::{
        MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations,
        ValidatingWebhook, ValidatingWebhookConfiguration,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};
use kube::core::ObjectMeta;

use super::{FINGERPRINT_LABEL, namespace_label};
use crate::{
    endpoint::Endpoint,
    hook::{FailurePolicy, Hook, HookKind, MatchPolicy, SideEffects},
    registered_rules::RulesNow,
    rules::{ResourceRule, ResourceScope},
    scope::NamespaceScope,
};

/// The label that the API server sets on every namespace.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The input of configurations.
pub(crate) struct Declaration<'a> {
    pub(crate) fingerprint: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) hooks: &'a [Hook],
    /// The rules of each hook.
    pub(crate) rules: &'a [RulesNow],
    /// The segment that precedes every path.
    pub(crate) segment: Option<&'a str>,
}

/// The two objects; absent if there is no hook of the kind. A webhook with unknown rules lacks the field.
#[derive(Debug, Default)]
pub(crate) struct Configurations {
    /// The names of webhooks that are not registered at present, because they have no rule.
    pub(crate) absent: BTreeSet<String>,
    /// The names of webhooks with changing rules.
    pub(crate) following: BTreeSet<String>,
    pub(crate) mutating: Option<MutatingWebhookConfiguration>,
    pub(crate) validating: Option<ValidatingWebhookConfiguration>,
}

/// Builds the configurations to register, with `bundle` (PEM) as the trusted authorities.
pub(crate) fn configurations(
    declaration: &Declaration<'_>,
    bundle: Option<&str>,
) -> Configurations {
    let hooks = || declaration.hooks.iter().zip(declaration.rules);
    let of = |kind| hooks().filter(move |(hook, rules)| hook.kind == kind && !is_empty(rules));
    let any = |kind| hooks().any(|(hook, _)| hook.kind == kind);
    let name = |hook: &Hook| hook.registered_name(declaration.fingerprint);
    Configurations {
        absent: hooks()
            .filter(|(_, rules)| is_empty(rules))
            .map(|(hook, _)| name(hook))
            .collect(),
        following: hooks()
            .filter(|(hook, _)| hook.followed.is_some())
            .map(|(hook, _)| name(hook))
            .collect(),
        mutating: any(HookKind::Mutating).then(|| MutatingWebhookConfiguration {
            metadata: metadata(declaration.fingerprint),
            webhooks: Some(
                of(HookKind::Mutating)
                    .map(|(hook, rules)| mutating(declaration, hook, rules, bundle))
                    .collect(),
            ),
        }),
        validating: any(HookKind::Validating).then(|| ValidatingWebhookConfiguration {
            metadata: metadata(declaration.fingerprint),
            webhooks: Some(
                of(HookKind::Validating)
                    .map(|(hook, rules)| validating(declaration, hook, rules, bundle))
                    .collect(),
            ),
        }),
    }
}

fn is_empty(rules: &RulesNow) -> bool {
    matches!(rules, RulesNow::Known(rules) if rules.is_empty())
}

fn metadata(fingerprint: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(fingerprint.to_owned()),
        labels: Some([(FINGERPRINT_LABEL.to_owned(), fingerprint.to_owned())].into()),
        ..ObjectMeta::default()
    }
}

fn mutating(
    declaration: &Declaration<'_>,
    hook: &Hook,
    rules: &RulesNow,
    bundle: Option<&str>,
) -> MutatingWebhook {
    // The two types share every field but one, but the API crate does not express this.
    let common = validating(declaration, hook, rules, bundle);
    MutatingWebhook {
        admission_review_versions: common.admission_review_versions,
        client_config: common.client_config,
        failure_policy: common.failure_policy,
        match_conditions: common.match_conditions,
        match_policy: common.match_policy,
        name: common.name,
        namespace_selector: common.namespace_selector,
        object_selector: common.object_selector,
        reinvocation_policy: Some(if hook.reinvoke { "IfNeeded" } else { "Never" }.to_owned()),
        rules: common.rules,
        side_effects: common.side_effects,
        timeout_seconds: common.timeout_seconds,
    }
}

fn validating(
    declaration: &Declaration<'_>,
    hook: &Hook,
    rules: &RulesNow,
    bundle: Option<&str>,
) -> ValidatingWebhook {
    let (segment, path) = (declaration.segment, hook.served_path());
    let conditions: Vec<_> = hook
        .conditions
        .iter()
        .map(|(name, expression)| MatchCondition {
            name: name.clone(),
            expression: expression.clone(),
        })
        .collect();
    ValidatingWebhook {
        admission_review_versions: vec!["v1".to_owned()],
        client_config: declaration.endpoint.client_config(segment, &path, bundle),
        failure_policy: Some(failure_policy(hook.effective_failure()).to_owned()),
        match_conditions: (!conditions.is_empty()).then_some(conditions),
        match_policy: Some(
            match hook.match_policy {
                MatchPolicy::Equivalent => "Equivalent",
                MatchPolicy::Exact => "Exact",
            }
            .to_owned(),
        ),
        name: hook.registered_name(declaration.fingerprint),
        namespace_selector: Some(namespace_selector(declaration, &hook.namespaces)),
        object_selector: Some(hook.objects.clone()),
        rules: match rules {
            RulesNow::Known(rules) => Some(rules.iter().map(|rule| rule_of(hook, rule)).collect()),
            RulesNow::Unknown { .. } => None,
        },
        side_effects: match hook.side_effects {
            SideEffects::None => "None",
            SideEffects::NoneOnDryRun => "NoneOnDryRun",
        }
        .to_owned(),
        timeout_seconds: i32::try_from(hook.timeout.as_secs()).ok(),
    }
}

fn failure_policy(policy: FailurePolicy) -> &'static str {
    match policy {
        FailurePolicy::Fail => "Fail",
        FailurePolicy::Ignore => "Ignore",
    }
}

fn rule_of(hook: &Hook, rule: &ResourceRule) -> RuleWithOperations {
    let operations = rule.operations.as_ref().unwrap_or(&hook.operations);
    let resources = if rule.subresources.is_empty() {
        vec![rule.plural.clone()]
    } else {
        rule.subresources
            .iter()
            .map(|sub| format!("{}/{sub}", rule.plural))
            .collect()
    };
    let scope = match rule.scope {
        ResourceScope::Any => "*",
        ResourceScope::Namespaced => "Namespaced",
        ResourceScope::Cluster => "Cluster",
    };
    RuleWithOperations {
        api_groups: Some(vec![rule.group.clone()]),
        api_versions: Some(vec![rule.version.clone()]),
        operations: Some(operations.iter().map(ToString::to_string).collect()),
        resources: Some(resources),
        scope: Some(scope.to_owned()),
    }
}

fn namespace_selector(declaration: &Declaration<'_>, scope: &NamespaceScope) -> LabelSelector {
    match scope {
        NamespaceScope::All => LabelSelector::default(),
        NamespaceScope::Others => select_namespaces(
            "NotIn",
            &["kube-system".to_owned(), declaration.namespace.to_owned()],
        ),
        NamespaceScope::Only(names) => select_namespaces("In", names),
        NamespaceScope::Except(names) => select_namespaces("NotIn", names),
        NamespaceScope::Matching(selector) => selector.clone(),
        NamespaceScope::Labelled(_) => LabelSelector {
            match_labels: Some(BTreeMap::from([(
                namespace_label(declaration.fingerprint),
                "true".to_owned(),
            )])),
            match_expressions: None,
        },
    }
}

fn select_namespaces(operator: &str, names: &[String]) -> LabelSelector {
    let mut values = names.to_vec();
    values.sort();
    values.dedup();
    LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: NAMESPACE_NAME_LABEL.to_owned(),
            operator: operator.to_owned(),
            values: Some(values),
        }]),
        match_labels: None,
    }
}
