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
pub(super) enum PodNow {
    /// No pod has it.
    Nothing,
    /// The pod with this UID has it.
    Pod(String),
    /// The pod could not be read, for this reason.
    Unread(String),
}

/// The reason why an object could not be read.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error(transparent)]
    Request(#[from] kube::core::request::Error),
    #[error(transparent)]
    Call(kube::Error),
    #[error("no answer within a second")]
    Late,
}

impl PodNow {
    /// Reads the pod from the API server.
    pub(super) async fn ask(client: &Client, attempt: &Attempt<'_>) -> Self {
        // A service is no pod, even if it has the name of one.
        if attempt.way == Way::ServiceProxy {
            return Self::Nothing;
        }
        let found = metadata::<Pod>(client, attempt.namespace, attempt.pod).await;
        match found.map(|pod| pod.and_then(|metadata| metadata.uid)) {
            Ok(Some(uid)) => Self::Pod(uid),
            Ok(None) => Self::Nothing,
            Err(why) => Self::Unread(why.to_string()),
        }
    }

    /// Returns the pod in the form that the rules require.
    pub(super) fn named(&self) -> Named<'_> {
        match self {
            Self::Pod(uid) => Named::Pod(uid),
            Self::Nothing => Named::Nothing,
            Self::Unread(why) => Named::Unread(why),
        }
    }
}

impl Grants {
    /// Checks whether the API server has exactly this grant now.
    pub(super) async fn confirm(&self, client: &Client, grant: &Grant) -> Result<(), Box<Refusal>> {
        let (namespace, name) = (&grant.request.namespace, grant.role_name());
        let role = metadata::<Role>(client, namespace, &name).await;
        let role = role.map_err(|why| unconfirmed(grant, Err(&why.to_string())))?;
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
) -> Result<Option<ObjectMeta>, Unread>
where
    K: Resource<DynamicType = ()>,
{
    let request = Request::new(K::url_path(&(), Some(namespace)))
        .get_metadata(name, &GetParams::default())?;
    let answer = client.request::<PartialObjectMeta<K>>(request);
    match tokio::time::timeout(READ_TIMEOUT, answer).await {
        Ok(Ok(object)) => Ok(Some(object.metadata)),
        Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Ok(None),
        Ok(Err(error)) => Err(Unread::Call(error)),
        Err(_) => Err(Unread::Late),
    }
}
