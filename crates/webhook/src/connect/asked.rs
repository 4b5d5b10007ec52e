//! The state that the hook reads from the API server at the moment of connecting. A watch may lag,
//! and a user who can make it lag must gain no access by that: the hook reads, and does not cache,
//! which pod has the name now and whether the grant still exists.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::Role;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::GetParams;
use kube::core::{PartialObjectMeta, Request};
use kube::{Client, Resource};
use oz_core::access::grant::Grant;
use oz_core::connect::{Attempt, Named, Refusal, Way, unconfirmed};

use super::Grants;

/// The timeout of one read. Both reads and the policies fit into the timeout of the hook.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// The pod that has the name now.
#[derive(Debug)]
pub(super) struct PodNow(Result<Option<String>, String>);

impl PodNow {
    /// Reads the pod from the API server.
    pub(super) async fn ask(client: &Client, attempt: &Attempt<'_>) -> Self {
        // A service is no pod, even if it has the name of one.
        if attempt.way == Way::ServiceProxy {
            return Self(Ok(None));
        }
        let found = metadata::<Pod>(client, attempt.namespace, attempt.pod).await;
        Self(found.map(|pod| pod.and_then(|metadata| metadata.uid)))
    }

    /// Returns the pod in the form that the rules require.
    pub(super) fn named(&self) -> Named<'_> {
        match &self.0 {
            Ok(Some(uid)) => Named::Pod(uid),
            Ok(None) => Named::Nothing,
            Err(why) => Named::Unread(why),
        }
    }
}

impl Grants {
    /// Checks whether the API server has exactly this grant now.
    pub(super) async fn confirm(&self, client: &Client, grant: &Grant) -> Result<(), Box<Refusal>> {
        let (namespace, name) = (&grant.request.namespace, grant.role_name());
        let role = metadata::<Role>(client, namespace, &name).await;
        let role = role.map_err(|why| unconfirmed(grant, Err(&why)))?;
        let now = role.as_ref().and_then(|role| self.opened(role));
        if now.as_ref() == Some(grant) {
            return Ok(());
        }
        Err(Box::new(unconfirmed(grant, Ok(now.is_some()))))
    }
}

/// Returns the name, UID, labels and annotations of an object; `None` if it does not exist.
async fn metadata<K>(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<ObjectMeta>, String>
where
    K: Resource<DynamicType = ()>,
{
    let request = Request::new(K::url_path(&(), Some(namespace)))
        .get_metadata(name, &GetParams::default())
        .map_err(|error| error.to_string())?;
    let answer = client.request::<PartialObjectMeta<K>>(request);
    match tokio::time::timeout(READ_TIMEOUT, answer).await {
        Ok(Ok(object)) => Ok(Some(object.metadata)),
        Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Ok(None),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer within a second".to_owned()),
    }
}
