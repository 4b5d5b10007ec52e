//! The decisions about requests and transient bindings: by the operator's own functions, with the results of the
//! operator's lookups, and by its configuration.

pub mod access;
pub mod binding;
pub mod composite;
pub mod extra;
pub(crate) mod function;
pub(crate) mod hook;
pub mod operator;
pub mod policies;
mod unsaved;

use kube::Api;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use oz_core::access::workload::{Listed, Reader};
use oz_core::controller::Failure as CoreFailure;

use crate::cluster::Cluster;
use crate::failure::Failure;

/// The reason of a failure to read an object from here that the operator could perhaps read.
const UNREADABLE: &str = "Unreadable";

fn unreadable(failure: Failure) -> CoreFailure {
    CoreFailure::transient(UNREADABLE, failure.message())
}

impl Reader for Cluster {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    async fn get(
        &self,
        resource: &ApiResource,
        name: &str,
    ) -> Result<Option<DynamicObject>, CoreFailure> {
        let client = self.client.clone();
        let api: Api<DynamicObject> = Api::namespaced_with(client, &self.namespace, resource);
        match self.find(&api, name).await {
            // To the operator, an object of a kind that is not installed does not exist.
            Err(failure) if failure.is_unknown_kind() => Ok(None),
            found => found.map_err(unreadable),
        }
    }

    async fn list<K: Listed>(&self, selector: Option<&str>) -> Result<Vec<K>, CoreFailure> {
        let selection = ListParams {
            label_selector: selector.map(ToOwned::to_owned),
            ..ListParams::default()
        };
        let listed = self.answer(self.api::<K>().list(&selection)).await;
        listed.map(|list| list.items).map_err(unreadable)
    }
}
