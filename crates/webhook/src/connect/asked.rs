//! The state that the hook reads from the API server at the moment of connecting. A watch may lag,
//! and a user who can make it lag must gain no access by that: the hook reads, and does not cache,
//! which pod has the name now and whether the grant still exists.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::Role;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::GetParams;
use kube::core::{PartialObjectMeta, Request};
use kube::{Api, Client, Resource};
use oz_api::labels;
use oz_core::access::grant::Grant;
use oz_core::connect::{Attempt, ConnectionKind, Named, Refusal, run_pod, unconfirmed};

use super::Grants;

/// The timeout of one read. Both reads and the policies fit into the timeout of the hook.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// The pod that has the name now.
#[derive(Debug)]
pub(super) enum PodNow {
    /// No pod has the name.
    Nothing,
    /// The pod with this UID has the name.
    Pod {
        uid: String,
        /// The containers that no user enters, if it is the pod of a harness run.
        closed: Option<BTreeSet<String>>,
    },
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
    #[error("no response within a second")]
    Late,
}

impl PodNow {
    /// Reads the pod from the API server.
    pub(super) async fn ask(client: &Client, attempt: &Attempt<'_>) -> Self {
        // A service is no pod, even if it has the name of one.
        if attempt.way == ConnectionKind::ServiceProxy {
            return Self::Nothing;
        }
        let found = metadata::<Pod>(client, attempt.namespace, attempt.pod).await;
        let pod = match found {
            Ok(pod) => pod,
            Err(why) => return Self::Unread(why.to_string()),
        };
        let closed = match run_pod::is_of_run(pod.as_ref().and_then(labels::owner_kind)) {
            true => Some(closed(client, attempt).await),
            false => None,
        };
        match pod.and_then(|metadata| metadata.uid) {
            Some(uid) => Self::Pod { uid, closed },
            None => Self::Nothing,
        }
    }

    /// Refuses a connection that no user opens, in each mode. A pod that could not be read is
    /// taken for an ordinary one: outside of enforcing namespaces, connections do not depend on oz.
    pub(super) fn permits(&self, attempt: &Attempt<'_>) -> Result<(), Box<Refusal>> {
        match self {
            Self::Pod {
                closed: Some(closed),
                ..
            } => run_pod::permitted(attempt, closed),
            Self::Pod { .. } | Self::Nothing | Self::Unread(_) => Ok(()),
        }
    }

    /// Returns the pod in the form that the rules require.
    pub(super) fn as_named(&self) -> Named<'_> {
        match self {
            Self::Pod { uid, .. } => Named::Pod(uid),
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

/// Returns the containers of a run's pod that no user enters. Of a pod that cannot be read, they are all that may be.
async fn closed(client: &Client, attempt: &Attempt<'_>) -> BTreeSet<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), attempt.namespace);
    let pod = tokio::time::timeout(READ_TIMEOUT, pods.get(attempt.pod)).await;
    run_pod::closed(pod.ok().and_then(Result::ok).as_ref())
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
