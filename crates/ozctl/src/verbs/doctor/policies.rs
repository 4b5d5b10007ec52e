//! The check that the admission policies are as they were installed.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use oz_core::policies::{Installation, Policy};

use super::Finding;
use super::harness;
use super::installed::operator_arguments;
use crate::cluster::Cluster;
use crate::failure::Result;

const CHECK: &str = "policies";

/// Returns the expected installation, from the operator's configuration.
fn installation(oz: &str, deployments: &[Deployment]) -> Option<Installation> {
    let arguments = operator_arguments(deployments);
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
        harness: harness::is_served(&arguments),
        composites: arguments
            .iter()
            .any(|it| matches!(*it, "--composites" | "--composites=true")),
    })
}

/// Checks each admission policy of oz against the operator's flags.
pub(super) async fn policies(
    cluster: &Cluster,
    oz: &str,
    deployments: &Result<Vec<Deployment>>,
) -> Finding {
    let deployments = match deployments {
        Ok(list) => list,
        Err(failure) => return Finding::unknown(CHECK, failure.message()),
    };
    let Some(installation) = installation(oz, deployments) else {
        let text = "the operator expects none: what oz's webhook refuses goes through without it";
        return Finding::unknown(CHECK, text);
    };
    match faults(cluster, &installation).await {
        Ok((_, faults)) if !faults.is_empty() => Finding::wrong(
            CHECK,
            faults.join(", "),
            "upgrade the release again, or apply deploy/policies",
        ),
        Ok((count, _)) => Finding::good(CHECK, format!("{count} stand as they were installed")),
        Err(failure) => Finding::unknown(CHECK, failure.message()),
    }
}

async fn faults(cluster: &Cluster, installation: &Installation) -> Result<(usize, Vec<String>)> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.client.clone());
    let expected = Policy::all(installation).unwrap_or_default();
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
    use serde_json::json;

    use super::*;

    #[test]
    fn what_should_stand_is_what_the_operator_expects() {
        let deployment = |arguments: &[&str]| -> Deployment {
            serde_json::from_value(json!({
                "metadata": {"labels": {"app.kubernetes.io/component": "operator"}},
                "spec": {"selector": {}, "template": {"spec": {
                    "containers": [{"name": "operator", "args": arguments}],
                }}},
            }))
            .unwrap()
        };
        assert_eq!(installation("access", &[]), None);
        assert_eq!(
            installation("access", &[deployment(&["--policies="])]),
            None
        );
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
        assert_eq!(
            installation("access", &[deployment(&arguments)]),
            Some(expected)
        );
    }
}
