//! The check that the admission policies are as they were installed.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::Api;
use oz_core::policies::{Installation, Policy};

use super::finding::{Check, Finding};
use super::harness;
use super::site::Site;
use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

const CHECK: Check = Check::Policies;

/// Returns the installation that an operator with these arguments expects.
fn installation(oz: &str, arguments: &[&str]) -> Option<Installation> {
    let values = |flag: &str| {
        let values = arguments.iter().filter_map(|it| it.strip_prefix(flag));
        let values = values.flat_map(|value| value.split(','));
        values.map(ToOwned::to_owned).collect::<Vec<String>>()
    };
    let break_glass = values("--break-glass-group=");
    Some(Installation {
        name: values("--policies=")
            .pop()
            .filter(|name| !name.is_empty())?,
        namespace: oz.to_owned(),
        break_glass,
        harness: harness::is_served(arguments),
        composites: arguments
            .iter()
            .any(|it| matches!(*it, "--composites" | "--composites=true")),
    })
}

/// Checks each admission policy of oz against the operator's flags.
pub(super) async fn policies(site: &Site<'_>) -> Result<Finding> {
    if let Err(failure) = &site.deployments {
        return Ok(CHECK.unknown(failure.message()));
    }
    let Some(installation) = installation(site.oz, &site.arguments()) else {
        let text = "the operator expects none: what oz's webhook refuses goes through without it";
        return Ok(CHECK.unknown(text));
    };
    let (count, faults) = faults(site.cluster, &installation).await?;
    Ok(match faults.is_empty() {
        true => CHECK.good(format!("{count} stand as they were installed")),
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
    fn expected_policies_follow_operator_arguments() {
        assert_eq!(installation("access", &[]), None);
        assert_eq!(installation("access", &["--policies="]), None);
        let arguments = [
            "--policies=access-oz",
            "--break-glass-group=menders,root",
            "--harness",
            "--composites",
        ];
        let expected = Installation {
            name: "access-oz".to_owned(),
            namespace: "access".to_owned(),
            break_glass: vec!["menders".to_owned(), "root".to_owned()],
            harness: true,
            composites: true,
        };
        assert_eq!(installation("access", &arguments), Some(expected));
    }
}
