//! The checks that harness runs can begin where they are served, and that Paddock does not run them
//! as well.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use oz_api::harness::GROUP;
use oz_api::names;
use oz_runs::authority::{BUNDLE_KEY, trusted};

use super::finding::{Check, Finding, Object};
use super::registrations::Registration;
use super::site::{Site, logs};
use crate::cluster::Cluster;
use crate::failure::Result;

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
    if harness.git_image.is_empty() {
        findings.push(CHECK.wrong(
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
async fn broker(cluster: &Cluster, oz: &str) -> Result<Finding> {
    let object = Object::in_namespace("ConfigMap", oz, names::BROKER_CA);
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), oz);
    let map = cluster.find(&maps, names::BROKER_CA).await?;
    let finding = match map.as_ref().and_then(trusted) {
        Some(_) => CHECK.good(format!("{} is known by its certificate", names::BROKER)),
        None => CHECK.wrong(
            format!(
                "{object} has no certificate under {BUNDLE_KEY}, so no run begins: no {} has come up yet",
                names::BROKER
            ),
            format!(
                "start it, or see why it does not run: {}",
                logs(oz, "broker")
            ),
        ),
    };
    Ok(finding.about(object))
}

/// Reports a registration for the same kinds that is not oz's; Paddock has some.
fn other(registration: &Registration) -> Finding {
    let object = &registration.object;
    let wrong = CHECK.wrong(
        format!(
            "{object} is in the path of {GROUP}, and is not oz's: Paddock may run the same runs"
        ),
        format!("uninstall Paddock and leave its CRDs; then kubectl delete {object}"),
    );
    wrong.about(object.clone())
}
