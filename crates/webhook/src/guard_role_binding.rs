//! The hook that keeps other bindings off the Roles of grants. Kubernetes judges what a binding hands
//! out when it is written. One that names an empty Role hands out nothing, and would wait, the Role
//! deleted, for the one that oz makes: whoever it binds would be let in with the requester.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::try_join_all;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::{Api, Client, ResourceExt as _};
use oz_admission::{Cx, Notes, Rejection, Review, Validate};
use oz_core::access::grant;
use oz_core::for_each_kind;
use oz_core::names;

use crate::connect::Grants;

/// How long looking a request up may take: well below what the API server waits for our answer.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Called only for names like those of a grant's objects.
pub(crate) struct RoleBindingGuard {
    pub(crate) grants: Grants,
}

impl Validate for RoleBindingGuard {
    type Object = RoleBinding;

    async fn validate(&self, cx: &Cx, review: &Review<RoleBinding>) -> Result<Notes, Rejection> {
        let Some(binding) = &review.object else {
            return Ok(Notes::none());
        };
        let role = &binding.role_ref.name;
        if names::grant_role_number(role).is_some() {
            return Err(Rejection::forbidden(
                "GrantRoleReserved",
                format!(
                    "the name {role} is reserved for Roles that oz makes for grants; name another Role"
                ),
            ));
        }
        let namespace = review.namespace.as_deref().unwrap_or_default();
        let request = match self.grants.request_of(namespace, role) {
            // One that was created a moment ago may not have come by the watch.
            None => look_up(&cx.client, namespace, role).await,
            known => known,
        };
        match request {
            None => Ok(Notes::none()),
            Some(request) => Err(Rejection::forbidden(
                "GrantRoleReserved",
                format!(
                    "Role {role} is oz's, for request {request}, and is for whoever made that request \
                     alone; name another Role, or have them ask for access themselves"
                ),
            )),
        }
    }
}

/// The name of the request whose grant has, or will have, a Role of this name, by the API server. What it
/// does not answer stands in nobody's way: the API server's own policy refuses as well, and the operator
/// looks for such bindings before it makes a Role.
async fn look_up(client: &Client, namespace: &str, role: &str) -> Option<String> {
    let (name, _) = role.rsplit_once('-')?;
    let mut lookups = Vec::new();
    for_each_kind!(requests R => {
        let requests = Api::<R>::namespaced(client.clone(), namespace);
        let uid = async move {
            let found = requests.get_metadata_opt(name).await?;
            Ok::<_, kube::Error>(found.and_then(|found| found.uid()))
        };
        lookups.push(uid.boxed());
    });
    match tokio::time::timeout(LOOKUP_TIMEOUT, try_join_all(lookups)).await {
        Ok(Ok(found)) => {
            let mut uids = found.into_iter().flatten();
            uids.any(|uid| grant::object_name(name, &uid) == role)
                .then(|| name.to_owned())
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, namespace, role, "failed to look for the request of a Role");
            None
        }
        Err(_) => {
            tracing::warn!(namespace, role, "found no request of a Role in time");
            None
        }
    }
}
