//! The checks that harness runs can begin where they are served, and that Paddock does not run them
//! as well.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use oz_api::harness::GROUP;
use oz_api::names;
use oz_runs::authority::{BUNDLE_KEY, trusted};

use super::installed::operator_arguments;
use super::registrations::Registration;
use super::{Finding, logs};
use crate::cluster::Cluster;
use crate::failure::Result;

const CHECK: &str = "harness runs";
const SERVED: &str = "--harness";
const GIT_IMAGE: &str = "--harness-git-image=";

/// Checks whether an operator with these arguments serves harness runs.
pub(super) fn is_served(arguments: &[&str]) -> bool {
    arguments
        .iter()
        .any(|it| *it == SERVED || *it == "--harness=true")
}

/// Checks harness runs. Reports nothing if the operator does not serve them, or the user may not
/// read its Deployment.
pub(super) async fn harness(
    cluster: &Cluster,
    oz: &str,
    deployments: &Result<Vec<Deployment>>,
    registrations: &Result<Vec<Registration>>,
) -> Vec<Finding> {
    let arguments = operator_arguments(deployments.as_deref().unwrap_or_default());
    if !is_served(&arguments) {
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
    // Another check reports that the user may not list them.
    let others = registrations.iter().flatten();
    let others = others.filter(|one| one.is_foreign(GROUP));
    findings.extend(others.map(other));
    findings
}

/// Checks whether a broker has published its CA.
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

/// Reports a registration for the same kinds that is not oz's; Paddock has some.
fn other(registration: &Registration) -> Finding {
    let Registration { kind, name, .. } = registration;
    Finding::wrong(
        CHECK,
        format!(
            "{kind} {name} is in the path of {GROUP}, and is not oz's: Paddock may run the same runs"
        ),
        format!("uninstall Paddock and leave its CRDs; then kubectl delete {kind} {name}"),
    )
}
