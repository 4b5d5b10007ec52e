//! Looks every few minutes whether the policies by which the API server itself refuses still stand as
//! they were installed. Nothing else comes of it: who may change them may do without oz what it does.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, Client};
use oz_core::policies::{Installation, Policy};
use oz_runtime::Warnings;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// How often to look.
const INTERVAL: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    policy: String,
}

/// Watches over the policies of an installation.
pub(crate) struct PolicyAlarm {
    policies: Vec<Policy>,
    in_force: Family<Labels, Gauge>,
    /// What is wrong with each, so that it is told once.
    faults: BTreeMap<String, &'static str>,
}

impl PolicyAlarm {
    /// One that has seen nothing yet.
    pub(crate) fn new(installation: &Installation) -> anyhow::Result<Self> {
        Ok(Self {
            policies: Policy::all(installation).context("failed to read the policies")?,
            in_force: Family::default(),
            faults: BTreeMap::new(),
        })
    }

    /// Adds the metric.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "oz_policy_in_force",
            "Whether a ValidatingAdmissionPolicy of oz and its binding stand as they were installed: 1 or 0",
            self.in_force.clone(),
        );
    }

    /// Looks now and then, as long as the process lasts.
    pub(crate) async fn run(mut self, client: Client, warnings: Warnings) {
        let policies = Api::all(client.clone());
        let bindings = Api::all(client);
        loop {
            if let Err(error) = self.look(&policies, &bindings, &warnings).await {
                tracing::warn!("failed to look at oz's policies: {error:#}");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn look(
        &mut self,
        policies: &Api<ValidatingAdmissionPolicy>,
        bindings: &Api<ValidatingAdmissionPolicyBinding>,
        warnings: &Warnings,
    ) -> kube::Result<()> {
        for expected in &self.policies {
            let name = &expected.name;
            let policy = policies.get_opt(name).await?.and_then(|one| one.spec);
            let binding = bindings.get_opt(name).await?.and_then(|one| one.spec);
            let fault = expected.fault(policy.as_ref(), binding.as_ref());
            let labels = Labels {
                policy: name.clone(),
            };
            self.in_force
                .get_or_create(&labels)
                .set(i64::from(fault.is_none()));
            let before = match fault {
                Some(fault) => self.faults.insert(name.clone(), fault),
                None => self.faults.remove(name),
            };
            match fault {
                Some(fault) if before != Some(fault) => {
                    let note = format!(
                        "ValidatingAdmissionPolicy {name} {fault}; what it refuses is refused only \
                         while oz's webhook is in the path. Upgrade the release again, or apply \
                         deploy/policies, or set policies.create=false"
                    );
                    tracing::warn!("{note}");
                    warnings.publish("PolicyNotInForce", note).await;
                }
                None if before.is_some() => {
                    tracing::info!(policy = name, "the policy is in force again");
                }
                _ => {}
            }
        }
        Ok(())
    }
}
