//! The alarm for admission policies: checks every few minutes whether the policies with which the
//! API server itself denies requests are unchanged since their installation. A change has no other
//! effect: a user who may change them can do without oz what oz does.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, Client};
use oz_core::policies::{Installation, Policy};
use oz_runtime::{Task, Warnings};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The interval between two checks.
const INTERVAL: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    policy: String,
}

/// The task that checks the admission policies of an installation.
pub(crate) struct PolicyAlarm {
    policies: Vec<Policy>,
    in_force: Family<Labels, Gauge>,
    client: Client,
    warnings: Warnings,
}

/// The fault of each policy, so that it is reported once.
type Faults = BTreeMap<String, &'static str>;

impl PolicyAlarm {
    /// Creates a task without known faults.
    pub(crate) fn new(
        installation: &Installation,
        client: &Client,
        warnings: Warnings,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            policies: Policy::all(installation).context("failed to read the admission policies")?,
            in_force: Family::default(),
            client: client.clone(),
            warnings,
        })
    }

    /// Registers the metric.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "oz_policy_in_force",
            "Whether an admission policy of oz and its binding are as installed: 1 or 0",
            self.in_force.clone(),
        );
    }

    async fn look(&self, faults: &mut Faults) -> kube::Result<()> {
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
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
                Some(fault) => faults.insert(name.clone(), fault),
                None => faults.remove(name),
            };
            match fault {
                Some(fault) if before != Some(fault) => {
                    let note = format!(
                        "ValidatingAdmissionPolicy {name} {fault}; oz denies its requests only \
                         while the webhook is called. Upgrade the release again, or apply \
                         deploy/policies, or set policies.create=false"
                    );
                    tracing::warn!("{note}");
                    self.warnings.publish("PolicyNotInForce", note).await;
                }
                None if before.is_some() => {
                    tracing::info!(policy = name, "the admission policy is in force again");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Task for PolicyAlarm {
    /// Checks the policies at intervals.
    async fn run(&self) {
        let mut faults = Faults::new();
        loop {
            if let Err(error) = self.look(&mut faults).await {
                tracing::warn!("failed to check oz's admission policies: {error:#}");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}
