//! Finds the NetworkPolicies that let the pods of a run, or those that fill a workspace, reach more than their own does:
//! policies add up, and one that lets every pod of the namespace ask name servers lets these ask, too.
//! See <https://kubernetes.io/docs/concepts/services-networking/network-policies/#the-two-sorts-of-pod-isolation>.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::labels;
use oz_core::access::denial::list;
use oz_core::access::status::Fact;
use oz_core::confine::json::texts;
use oz_core::confine::network::{CLOSED, openers};
use oz_trail::{Action, Decision, Record};
use serde_json::Value;

/// Condition: no other NetworkPolicy lets its pods reach more.
pub const CONFINED: &str = "Confined";
/// Reason of a run or seed that is refused or ended for that.
pub const NOT_CONFINED: &str = "NotConfined";
/// Reason of [`CONFINED`] where other policies open more.
const OTHER_POLICIES: &str = "OtherPolicies";

/// The interval between two checks of pods that are not confined: the event of a policy with a new selector does not
/// include the pods that it selected before.
pub(super) const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// The reason why pods are not confined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "these NetworkPolicies select its pods as well, and permit more connections than oz does: {}; \
        have them select other pods",
    list(policies)
)]
pub(super) struct Unconfined {
    /// Names of the NetworkPolicies that open more.
    policies: Vec<String>,
}

/// The NetworkPolicies that let the pods of a Job reach more than its own does; none if it is confined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Isolation {
    names: Vec<String>,
    /// UIDs and generations of these policies.
    versions: String,
}

impl Isolation {
    /// Finds the policies of `policies`, which are all of one namespace, that open what the policy `own` closes, to pods
    /// that have one of these sets of labels.
    pub(super) fn find(
        own: &str,
        labels: &[BTreeMap<String, String>],
        policies: &[Arc<NetworkPolicy>],
    ) -> Self {
        let found = openers(CLOSED, own, labels, policies);
        let version = |policy: &&NetworkPolicy| {
            let ObjectMeta {
                uid, generation, ..
            } = &policy.metadata;
            match generation {
                Some(generation) => Some(format!("{}:{generation}", uid.as_ref()?)),
                None => uid.clone(),
            }
        };
        let versions: Vec<String> = found.iter().filter_map(version).collect();
        let names = found.iter().filter_map(|it| it.metadata.name.clone());
        Self {
            names: names.collect(),
            versions: versions.join(","),
        }
    }

    /// Returns why pods are not confined; `None` if they are.
    pub(super) fn obstacle(&self) -> Option<Unconfined> {
        (!self.names.is_empty()).then(|| Unconfined {
            policies: self.names.clone(),
        })
    }

    /// Returns the condition for the object.
    pub(super) fn fact(&self) -> Fact {
        match self.obstacle() {
            None => Fact::holds(
                CONFINED,
                "no other NetworkPolicy permits more connections of its \
                pods",
            ),
            Some(why) => unconfined(why.to_string()),
        }
    }

    /// Creates the audit record about the policies that open the pods of the object with this UID; `None` if they are
    /// confined. Each change of these policies is a separate event.
    pub(super) fn record(
        &self,
        uid: &str,
        about: impl FnOnce(Action, Decision, &'static str, String) -> Record,
    ) -> Option<Record> {
        let (action, note) = (Action::IsolationLost, Decision::Note);
        let mut record = about(action, note, OTHER_POLICIES, self.obstacle()?.to_string());
        record.id = Record::id(action, &format!("{uid}/{}", self.versions));
        Some(record.detail("networkPolicies", list(&self.names)))
    }
}

/// Creates the condition of a run or seed that is not confined.
pub(super) fn unconfined(message: impl Into<String>) -> Fact {
    Fact::fails(CONFINED, OTHER_POLICIES, message)
}

/// Returns the labels with which the Job controller makes the pods of a Job, by the metadata of its pod template as oz or the API
/// server have it. The UID of a Job that does not exist yet is anything.
pub(super) fn pod_labels(job: &str, template: &Value) -> BTreeMap<String, String> {
    let mut labels = texts(&template["labels"]);
    for (key, value) in [("job-name", job), ("controller-uid", "")] {
        for prefix in ["", "batch.kubernetes.io/"] {
            let key = format!("{prefix}{key}");
            labels.entry(key).or_insert_with(|| value.to_owned());
        }
    }
    labels
}

/// Returns the policy with what isolation is decided by, and no more.
#[must_use]
pub fn lean(policy: NetworkPolicy) -> NetworkPolicy {
    let NetworkPolicy { metadata, spec } = policy;
    let spec = spec.map(|spec| NetworkPolicySpec {
        // Whether there is a rule decides, not what it says.
        egress: spec.egress.map(one_for_all),
        ingress: spec.ingress.map(one_for_all),
        ..spec
    });
    NetworkPolicy {
        metadata: who(metadata),
        spec,
    }
}

/// Returns what stands for a policy that cannot be read: one that opens everything to every pod.
#[must_use]
pub fn unreadable(metadata: ObjectMeta) -> NetworkPolicy {
    NetworkPolicy {
        metadata: who(metadata),
        spec: Some(NetworkPolicySpec {
            egress: Some(vec![NetworkPolicyEgressRule::default()]),
            ingress: Some(vec![NetworkPolicyIngressRule::default()]),
            pod_selector: None,
            policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
        }),
    }
}

fn one_for_all<R: Default>(rules: Vec<R>) -> Vec<R> {
    rules.into_iter().take(1).map(|_| R::default()).collect()
}

fn who(metadata: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        generation: metadata.generation,
        resource_version: metadata.resource_version,
        ..ObjectMeta::default()
    }
}

/// Returns the UID of the object to which the selector of a policy is limited, or else its namespace, where it may
/// select any pod.
#[must_use]
pub fn scope(policy: &NetworkPolicy) -> Option<&str> {
    let selector = policy.spec.as_ref().and_then(|it| it.pod_selector.as_ref());
    let required = selector.and_then(|it| it.match_labels.as_ref());
    let owner = required.and_then(|labels| labels.get(labels::OWNER_UID));
    owner
        .or(policy.metadata.namespace.as_ref())
        .map(String::as_str)
}
