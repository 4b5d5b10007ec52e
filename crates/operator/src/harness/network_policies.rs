//! The NetworkPolicies of all namespaces: those of other creators than oz may give the pods of runs
//! and seeds access to more destinations. Those of oz are watched a second time, since any user
//! could write the labels that would exclude a policy; the store of each policy contains little
//! more than the pods that it selects.

use std::sync::Arc;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Resource;
use oz_engine::Watches;
use oz_runs::isolation::{lean, scope, unreadable};
use oz_runtime::{Feeds, Keep, Kind, Selection, Store};

/// The NetworkPolicies of all namespaces.
#[derive(Clone)]
pub(crate) struct NetworkPolicies(Store<NetworkPolicy>);

impl NetworkPolicies {
    pub(crate) fn new(feeds: &Feeds) -> Self {
        let keep = Keep {
            lean: Some(lean),
            stand_in: Some(unreadable),
            group_of: Some(scope),
            ..Keep::default()
        };
        let kind = Kind::from_type::<NetworkPolicy>();
        Self(feeds.store_of(&kind, Selection::default(), &keep))
    }

    /// Returns the policies that may select the pods of an object.
    pub(crate) fn about<O: Resource>(&self, object: &O) -> Vec<Arc<NetworkPolicy>> {
        let metadata = object.meta();
        let scopes = [&metadata.namespace, &metadata.uid];
        let found = scopes.into_iter().flatten();
        let found = found.flat_map(|scope| self.0.group(scope));
        found
            .filter(|policy| policy.metadata.namespace == metadata.namespace)
            .collect()
    }

    /// Reconciles the objects for which `has_pods` is true when a policy changes that may select
    /// their pods, except for their own policy, which has the name from `own`.
    pub(crate) fn watched_for<O>(
        &self,
        watches: Watches<O>,
        own: fn(&str) -> String,
        has_pods: fn(&O) -> bool,
    ) -> Watches<O>
    where
        O: Resource + Send + Sync + 'static,
    {
        watches.related(&self.0, move |policy, objects| {
            let is_concerned = |object: &O| {
                let name = object.meta().name.as_deref().map(own);
                object.meta().namespace == policy.metadata.namespace
                    && has_pods(object)
                    && name != policy.metadata.name
            };
            let Some(scope) = scope(policy) else {
                return Vec::new();
            };
            if policy.metadata.namespace.as_deref() == Some(scope) {
                return objects.select(is_concerned);
            }
            let owner = objects.by_uid(scope);
            owner
                .filter(|owner| is_concerned(owner))
                .into_iter()
                .collect()
        })
    }
}
