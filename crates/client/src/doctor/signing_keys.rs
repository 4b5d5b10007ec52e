//! The check that the Secrets with the keys of each component exist: without them, a starting
//! process exits.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use oz_api::names;

use super::finding::{Check, Finding};
use crate::cluster::Cluster;
use crate::failure::Result;

const CHECK: Check = Check::SigningKeys;

pub(super) async fn signing_keys(cluster: &Cluster, oz: &str) -> Result<Finding> {
    // Only their metadata is read, since the keys are secret.
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), oz);
    let mut missing = Vec::new();
    let components = [names::WEBHOOK, names::OPERATOR, names::GATE, names::BROKER];
    for (private, public) in components.into_iter().filter_map(names::key_secrets) {
        let mut lacks = Vec::new();
        for name in [private, public] {
            match cluster.answer(secrets.get_metadata(name)).await {
                Ok(_) => {}
                Err(failure) if failure.is_not_found() => lacks.push(name),
                Err(failure) => return Err(failure),
            }
        }
        // Gate and broker need not be installed.
        let is_optional = [names::GATE_KEY, names::BROKER_KEY].contains(&private);
        if !(is_optional && lacks.len() == 2) {
            missing.extend(lacks);
        }
    }
    Ok(judge(oz, &missing))
}

fn judge(oz: &str, missing: &[&str]) -> Finding {
    if missing.is_empty() {
        return CHECK.good("each component has Secrets for its keys");
    }
    let names = missing.join(" ");
    CHECK.wrong(
        format!("there is no Secret {} in {oz}", missing.join(", ")),
        format!(
            "upgrade the release, or create each as an empty Secret, which its component fills: \
             for name in {names}; do kubectl create secret generic $name -n {oz}; done"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn missing_secrets_are_named_with_what_makes_them() {
        assert_eq!(judge("oz-system", &[]).verdict, Verdict::Good);
        let found = judge("oz-system", &["oz-operator-key", "oz-webhook-key"]);
        let Verdict::Wrong { fix } = found.verdict else {
            panic!("{:?}", found.verdict);
        };
        assert!(
            found
                .message
                .contains("oz-operator-key, oz-webhook-key in oz-system")
        );
        assert!(fix.contains("for name in oz-operator-key oz-webhook-key;"));
    }
}
