//! The stored data of a watched object: its identity, its controller, whether it is being deleted, and the phase of a
//! run.

use std::borrow::Cow;
use std::marker::PhantomData;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use oz_api::harness::RunPhase;
use oz_api::labels::{GRANT, OWNER_KIND, OWNER_UID, VOUCHER};
use oz_runs::objects::RECENT_EVENTS;
use serde::{Deserialize, Deserializer};

/// The stored part of an object of kind `K`.
#[derive(Debug)]
pub(crate) struct Lean<K> {
    pub(crate) metadata: ObjectMeta,
    /// The phase of a run; `None` if it is unknown.
    pub(crate) phase: Option<RunPhase>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Lean<K> {
    fn clone(&self) -> Self {
        Self::new(self.metadata.clone(), self.phase)
    }
}

impl<K> Lean<K> {
    pub(crate) fn new(mut metadata: ObjectMeta, phase: Option<RunPhase>) -> Self {
        if let Some(owners) = &mut metadata.owner_references {
            owners.retain(|owner| owner.controller == Some(true));
            owners.shrink_to_fit();
        }
        if let Some(all) = &mut metadata.annotations {
            all.retain(|name, _| [RECENT_EVENTS, VOUCHER, GRANT].contains(&name.as_str()));
        }
        if let Some(all) = &mut metadata.labels {
            all.retain(|name, _| [OWNER_UID, OWNER_KIND].contains(&name.as_str()));
        }
        Self {
            metadata: ObjectMeta {
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid,
                resource_version: metadata.resource_version,
                deletion_timestamp: metadata.deletion_timestamp,
                owner_references: metadata.owner_references.filter(|all| !all.is_empty()),
                annotations: metadata.annotations.filter(|all| !all.is_empty()),
                labels: metadata.labels.filter(|all| !all.is_empty()),
                ..ObjectMeta::default()
            },
            phase,
            kind: PhantomData,
        }
    }
}

/// Returns the phase of a run by its name in a status.
pub(crate) fn phase(name: &str) -> Option<RunPhase> {
    serde_json::from_value(name.into()).ok()
}

impl<'de, K> Deserialize<'de> for Lean<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Whole {
            metadata: ObjectMeta,
            #[serde(default)]
            status: Option<Status>,
        }
        #[derive(Deserialize)]
        struct Status {
            #[serde(default)]
            phase: Option<String>,
        }
        let whole = Whole::deserialize(deserializer)?;
        let named = whole.status.and_then(|status| status.phase);
        Ok(Self::new(whole.metadata, named.as_deref().and_then(phase)))
    }
}

impl<K> Resource for Lean<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use oz_api::harness::HarnessRun;
    use serde_json::json;

    use super::*;

    #[test]
    fn prompts_and_labels_of_others_are_not_kept_and_the_phase_is() {
        let run = json!({
            "apiVersion": "paddock.dev/v1alpha1", "kind": "HarnessRun",
            "metadata": {
                "name": "hello", "uid": "run-1", "labels": {"a": "b", "oz.wizardofoz.co/owner-uid": "1"},
                "annotations": {"a": "b", "oz.wizardofoz.co/recent-events": "10"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1"},
                    {"apiVersion": "v1", "kind": "Pod", "name": "b", "uid": "2", "controller": true},
                ],
            },
            "spec": {"prompt": "a secret", "templateRef": {"name": "echo"}},
            "status": {"phase": "Succeeded", "recentEvents": [{"type": "Message"}]},
        });
        let mut lean: Lean<HarnessRun> = serde_json::from_value(run.clone()).unwrap();
        assert_eq!(lean.phase, Some(RunPhase::Succeeded));
        let metadata = &lean.metadata;
        assert_eq!(metadata.labels.as_ref().unwrap().len(), 1);
        assert_eq!(metadata.annotations.as_ref().unwrap().len(), 1);
        assert_eq!(metadata.owner_references.as_ref().unwrap()[0].name, "b");
        assert!(!format!("{lean:?}").contains("secret"));
        // The broker knows a run also if a later version wrote its status.
        for status in [json!({"phase": "Dreaming"}), json!({}), json!(null)] {
            let mut other = run.clone();
            other["status"] = status;
            lean = serde_json::from_value(other).unwrap();
            assert_eq!(lean.phase, None);
        }
    }
}
