//! The check that the admission policies are as they were installed.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::Api;
use oz_config::OzConfiguration;
use oz_core::policies::{Installation, Policy};

use super::finding::{Check, Finding};
use super::site::Site;
use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

const CHECK: Check = Check::Policies;

/// Returns the installation that an operator with this configuration expects; `None` if it expects no policies.
fn installation(oz: &str, config: &OzConfiguration) -> Option<Installation> {
    config.installation.policies.then(|| Installation {
        name: config.installation.name.clone(),
        namespace: oz.to_owned(),
        break_glass: config.webhook.break_glass_groups.clone(),
        harness: config.harness.enabled,
        composites: config.composites.enabled,
    })
}

/// Checks each admission policy of oz against the operator's configuration.
pub(super) async fn policies(site: &Site<'_>) -> Result<Finding> {
    let config = match &site.config {
        Err(failure) => return Ok(CHECK.unknown(failure.message())),
        Ok(config) => config,
    };
    let Some(installation) = installation(site.oz, config) else {
        let text = "the operator expects none: requests that oz's webhook denies are admitted \
            without it";
        return Ok(CHECK.unknown(text));
    };
    let (count, faults) = faults(site.cluster, &installation).await?;
    Ok(match faults.is_empty() {
        true => CHECK.good(format!("{count} are as installed")),
        false => CHECK.wrong(
            faults.join(", "),
            "upgrade the release again, or apply deploy/policies",
        ),
    })
}

async fn faults(cluster: &Cluster, installation: &Installation) -> Result<(usize, Vec<String>)> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.client.clone());
    let expected = Policy::all(installation);
    let expected = expected.map_err(|error| Failure::new(error.to_string()))?;
    let mut faults = Vec::new();
    for one in &expected {
        let policy = cluster.answer(policies.get_opt(&one.name)).await?;
        let binding = cluster.answer(bindings.get_opt(&one.name)).await?;
        let (policy, binding) = (
            policy.and_then(|it| it.spec),
            binding.and_then(|it| it.spec),
        );
        if let Some(fault) = one.fault(policy.as_ref(), binding.as_ref()) {
            faults.push(format!("{} {fault}", one.name));
        }
    }
    Ok((expected.len(), faults))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_policies_follow_configuration() {
        let read = |sets: &[&str]| {
            let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
            OzConfiguration::read_with(None, &sets).unwrap()
        };
        assert_eq!(installation("access", &read(&[])), None);
        let config = read(&[
            "installation={name: access-oz, policies: true}",
            "webhook.breakGlassGroups=[menders, root]",
            "harness={enabled: true, image: oz-harness}",
            "composites.enabled=true",
        ]);
        let expected = Installation {
            name: "access-oz".to_owned(),
            namespace: "access".to_owned(),
            break_glass: vec!["menders".to_owned(), "root".to_owned()],
            harness: true,
            composites: true,
        };
        assert_eq!(installation("access", &config), Some(expected));
    }
}
