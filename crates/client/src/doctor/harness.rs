//! The checks that harness runs can begin where they are served, that the broker can lend the credentials of the
//! policies of the namespace, and that Paddock does not run the same runs.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt};
use oz_api::harness::{BrokerPolicy, GROUP};
use oz_api::names;
use oz_runs::authority::{BUNDLE_KEY, trusted};

use super::finding::{Check, Finding, Object};
use super::registrations::Registration;
use super::site::{Site, logs};
use crate::cluster::Cluster;
use crate::explain::operator::is_of_component;
use crate::failure::Result;
use crate::run::{self, PolicyCondition};

const CHECK: Check = Check::HarnessRuns;

/// Checks harness runs. Reports nothing if the operator does not serve them, or the user may not
/// read its configuration.
pub(super) async fn harness(
    site: &Site<'_>,
    registrations: &Result<Vec<Registration>>,
) -> Vec<Finding> {
    let harness = match &site.config {
        Ok(config) if config.harness.enabled => &config.harness,
        _ => return Vec::new(),
    };
    let mut findings = vec![CHECK.concluded(broker(site.cluster, site.oz).await)];
    findings.extend(serving(site.readable(), site.oz));
    findings.extend(policies(site.cluster).await);
    if harness.git_image.is_empty() {
        findings.push(CHECK.wrong(
            "there is no image to clone the repositories of workspaces: those with a seed fail",
            "set harness.gitImage in oz's values",
        ));
    }
    // Another check reports that the user may not list them.
    let others = registrations.iter().flatten();
    let others = others.filter(|one| one.is_foreign(GROUP));
    findings.extend(others.map(other));
    findings
}

/// Checks whether a broker has published its CA.
async fn broker(cluster: &Cluster, oz: &str) -> Result<Finding> {
    let object = Object::in_namespace("ConfigMap", oz, names::BROKER_CA);
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), oz);
    let map = cluster.find(&maps, names::BROKER_CA).await?;
    let finding = match map.as_ref().and_then(trusted) {
        Some(_) => CHECK.good(format!("{} has a published certificate", names::BROKER)),
        None => CHECK.wrong(
            format!(
                "{object} has no certificate under {BUNDLE_KEY}, so no run begins: no {} has \
                    started yet",
                names::BROKER
            ),
            format!(
                "start it, or find out why it does not run: {}",
                logs(oz, "broker")
            ),
        ),
    };
    Ok(finding.about(object))
}

/// Checks whether a broker is available. Reports nothing if the user may not read its Deployment.
fn serving(deployments: &[Deployment], oz: &str) -> Option<Finding> {
    let broker = deployments
        .iter()
        .find(|one| is_of_component(one, "broker"))?;
    let name = broker.name_any();
    let wanted = broker.spec.as_ref().and_then(|spec| spec.replicas);
    let wanted = wanted.unwrap_or(1);
    let status = broker.status.as_ref();
    let available = status.and_then(|status| status.available_replicas);
    let available = available.unwrap_or(0);
    let object = Object::in_namespace("Deployment", oz, &name);
    let finding = match available {
        0 => CHECK.wrong(
            format!(
                "{object} has no available replica: runs do not begin, and the proxies of active runs refuse every request"
            ),
            format!("find out why it does not run: {}", logs(oz, "broker")),
        ),
        available => CHECK.good(format!("{available} of {wanted} replicas of {name} are available")),
    };
    Some(finding.about(object))
}

/// Checks whether brokers can lend credentials by the policies of the namespace.
async fn policies(cluster: &Cluster) -> Vec<Finding> {
    const CHECK: Check = Check::BrokerPolicies;
    match run::policies(cluster).await {
        Ok(policies) => judge(&cluster.namespace, &policies),
        Err(failure) if failure.is_unknown_kind() || failure.is_not_found() => Vec::new(),
        Err(failure) => vec![CHECK.unknown(failure.message())],
    }
}

fn judge(namespace: &str, policies: &[BrokerPolicy]) -> Vec<Finding> {
    const CHECK: Check = Check::BrokerPolicies;
    let mut findings = Vec::new();
    for policy in policies {
        let name = policy.name_any();
        for condition in run::policy_conditions(policy) {
            let finding = match condition.holds {
                Some(true) => continue,
                Some(false) => {
                    CHECK.wrong(&condition.message, repair(&condition, namespace, &name))
                }
                None => CHECK.unknown(&condition.message),
            };
            findings.push(finding.about(Object::in_namespace("BrokerPolicy", namespace, &name)));
        }
    }
    if findings.is_empty() && !policies.is_empty() {
        let count = policies.len();
        findings.push(CHECK.good(format!(
            "all {count} in {namespace} are verified, and the broker may read their Secrets"
        )));
    }
    findings
}

fn repair(condition: &PolicyCondition, namespace: &str, name: &str) -> String {
    match condition.type_ {
        run::SECRETS_READABLE => format!(
            "create the Secret, and let the broker read it: ozctl run policy scaffold --role --name {name} -n {namespace} | \
             kubectl apply -f -"
        ),
        _ => format!(
            "check its content and create it again: kubectl get brokerpolicy {name} -n {namespace} -o yaml | kubectl replace \
             --force -f -"
        ),
    }
}

/// Reports a registration for the same kinds that is not oz's; Paddock has some.
fn other(registration: &Registration) -> Finding {
    let object = &registration.object;
    let wrong = CHECK.wrong(
        format!(
            "{object} registers hooks for {GROUP}, and is not oz's: Paddock may run the same runs"
        ),
        format!("uninstall Paddock and leave its CRDs; then kubectl delete {object}"),
    );
    wrong.about(object.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Verdict;
    use super::*;

    fn policy(conditions: &[(&str, &str)]) -> BrokerPolicy {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(type_, status)| {
                json!({
                    "type": type_, "status": status, "reason": "Tested", "message": "a message", "observedGeneration": 2,
                    "lastTransitionTime": "2026-01-01T12:00:00Z",
                })
            })
            .collect();
        let provider = json!({"kind": "AnthropicAPI", "secretRef": {"name": "key", "key": "key"}});
        serde_json::from_value(json!({
            "metadata": {"name": "claude", "namespace": "shop", "generation": 2},
            "spec": {
                "appliesToTemplates": ["claude"],
                "grants": {"credentials": [{"name": "KEY", "provider": provider}]},
            },
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn broker_policies_without_condition_are_reported_with_repair() {
        let met = [("Verified", "True"), ("SecretsReadable", "True")];
        for (conditions, repairs) in [
            (&met[..], &[][..]),
            (
                &[met[0], ("SecretsReadable", "False")],
                &["--role --name claude -n shop | kubectl apply"],
            ),
            (
                &[("Verified", "False"), met[1]],
                &["kubectl replace --force"],
            ),
        ] {
            let found = judge("shop", &[policy(conditions)]);
            let fixes: Vec<&str> = found
                .iter()
                .filter_map(|finding| match &finding.verdict {
                    Verdict::Wrong { fix } => Some(&fix[..]),
                    _ => None,
                })
                .collect();
            assert_eq!(fixes.len(), repairs.len(), "{found:?}");
            for (fix, part) in fixes.iter().zip(repairs) {
                assert!(fix.contains(part), "{fix}");
            }
        }
        let unseen = judge("shop", &[policy(&[])]);
        assert!(
            unseen.iter().all(|one| one.verdict == Verdict::Unknown),
            "{unseen:?}"
        );
        assert_eq!(unseen.len(), 2);
        assert_eq!(judge("shop", &[]), []);
    }

    #[test]
    fn broker_without_available_replica_is_reported() {
        let deployment = |available: Option<i32>| -> Deployment {
            serde_json::from_value(json!({
                "metadata": {"name": "oz-broker", "labels": {"app.kubernetes.io/component": "broker"}},
                "spec": {"replicas": 2, "selector": {}, "template": {}},
                "status": {"availableReplicas": available},
            }))
            .unwrap()
        };
        for (available, wrong) in [(None, true), (Some(0), true), (Some(1), false)] {
            let found = serving(&[deployment(available)], "oz-system").unwrap();
            assert_eq!(found.is_wrong(), wrong, "{found:?}");
        }
        assert_eq!(serving(&[], "oz-system"), None);
    }
}
