//! Whether harness runs can begin where they are served, and whether Paddock runs them as well.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use oz_core::api::harness::GROUP;
use oz_core::harness::authority::{BUNDLE_KEY, trusted};
use oz_core::names;

use super::installed::operator_arguments;
use super::{Finding, logs};
use crate::cluster::Cluster;
use crate::failure::Result;

const CHECK: &str = "harness runs";
const SERVED: &str = "--harness";
const GIT_IMAGE: &str = "--harness-git-image=";

/// Nothing is said where the operator does not serve them, or may not be looked at.
pub(super) async fn harness(
    cluster: &Cluster,
    oz: &str,
    deployments: &Result<Vec<Deployment>>,
) -> Vec<Finding> {
    let arguments = operator_arguments(deployments.as_deref().unwrap_or_default());
    if !arguments
        .iter()
        .any(|it| *it == SERVED || *it == "--harness=true")
    {
        return Vec::new();
    }
    let mut findings = vec![broker(cluster, oz).await];
    if !arguments.iter().any(|it| it.starts_with(GIT_IMAGE)) {
        findings.push(Finding::wrong(
            CHECK,
            "no image is known to clone the repositories of workspaces by: those with a seed fail",
            "set harness.gitImage in oz's values",
        ));
    }
    findings.extend(others(cluster).await);
    findings
}

/// Whether a broker has said by what it is known.
async fn broker(cluster: &Cluster, oz: &str) -> Finding {
    let name = names::BROKER_CA;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), oz);
    let map = match cluster.answer(maps.get(name)).await {
        Ok(map) => Some(map),
        Err(failure) if failure.is_not_found() => None,
        Err(failure) => return Finding::unknown(CHECK, failure.message()),
    };
    match map.as_ref().and_then(trusted) {
        Some(_) => Finding::good(
            CHECK,
            format!("{} is known by its certificate", names::BROKER),
        ),
        None => Finding::wrong(
            CHECK,
            format!(
                "ConfigMap {oz}/{name} has no certificate under {BUNDLE_KEY}, so no run begins: no {} has come up yet",
                names::BROKER
            ),
            format!(
                "start it, or see why it does not run: {}",
                logs(oz, "broker")
            ),
        ),
    }
}

/// The registrations of others for the same kinds, of which Paddock has some. Who may not list them is told nothing:
/// another check says so.
async fn others(cluster: &Cluster) -> Vec<Finding> {
    let all = ListParams::default();
    let mutating = Api::<MutatingWebhookConfiguration>::all(cluster.client.clone());
    let validating = Api::<ValidatingWebhookConfiguration>::all(cluster.client.clone());
    let read = futures::future::try_join(
        cluster.answer(mutating.list(&all)),
        cluster.answer(validating.list(&all)),
    );
    let Ok((mutating, validating)) = read.await else {
        return Vec::new();
    };
    let mutating = mutating.items.into_iter().map(|one| {
        let hooks = one.webhooks.into_iter().flatten();
        let rules: Vec<_> = hooks.filter_map(|hook| hook.rules).flatten().collect();
        ("mutatingwebhookconfiguration", one.metadata.name, rules)
    });
    let validating = validating.items.into_iter().map(|one| {
        let hooks = one.webhooks.into_iter().flatten();
        let rules: Vec<_> = hooks.filter_map(|hook| hook.rules).flatten().collect();
        ("validatingwebhookconfiguration", one.metadata.name, rules)
    });
    let all = mutating.chain(validating);
    let others = all.filter_map(|(kind, name, rules)| {
        let name = name.unwrap_or_default();
        (name != names::REGISTRATION && rules.iter().any(is_of_runs)).then(|| other(kind, &name))
    });
    others.collect()
}

fn is_of_runs(rule: &RuleWithOperations) -> bool {
    rule.api_groups.iter().flatten().any(|group| group == GROUP)
}

fn other(kind: &str, name: &str) -> Finding {
    Finding::wrong(
        CHECK,
        format!(
            "{kind} {name} is in the path of {GROUP}, and is not oz's: Paddock may run the same runs"
        ),
        format!("uninstall Paddock and leave its CRDs; then kubectl delete {kind} {name}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_concerns_runs_by_its_group() {
        let rule = |groups: &[&str]| RuleWithOperations {
            api_groups: Some(groups.iter().map(ToString::to_string).collect()),
            ..RuleWithOperations::default()
        };
        assert!(is_of_runs(&rule(&["apps", "paddock.dev"])));
        assert!(!is_of_runs(&rule(&[
            "",
            "*.paddock.dev",
            "paddock.development"
        ])));
    }
}
