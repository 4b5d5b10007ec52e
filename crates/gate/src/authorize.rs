//! The authorization of a request: by the grant of its user, before the request, and, last of all, by the target pod
//! and once more by the grant.

use std::sync::Arc;

use axum::http::StatusCode;
use oz_api::Requester;
use oz_core::access::grant::Grant;
use oz_core::connect::GrantState;
use oz_core::gate::ticket::Ticket;
use oz_gating::path::{Path, Rest};
use oz_gating::{Found, GateRequest};
use oz_runtime::Clock;

use crate::answer::Refused;
use crate::grants::Grants;
use crate::upstream::Upstream;

/// The authorizer of the [module](self).
pub(crate) struct Authorizer {
    pub(crate) grants: Arc<Grants>,
    pub(crate) upstream: Upstream,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Authorizer {
    /// Returns the grant that permits the request.
    pub(crate) fn authorize(&self, user: &Requester, path: &Path) -> Result<GrantState, Refused> {
        let now = self.clock.now();
        let standing = self.grants.find(&path.namespace, &path.request, user)?;
        let lock = standing
            .as_ref()
            .and_then(|standing| self.grants.lock(&standing.grant, user, now));
        let asked = GateRequest { now, user, path };
        oz_gating::decide(asked, standing.as_ref(), lock.as_ref())?;
        // `decide` refuses without one.
        standing.ok_or_else(|| Refused::unavailable("NotReady", "try again"))
    }

    /// Completes the authorization by the pod that the API server has now. Returns the path and query of the request to
    /// the API server, and the debug container that may be entered only because the grant added it.
    pub(crate) async fn complete(
        &self,
        grant: &Grant,
        user: &Requester,
        path: &Path,
    ) -> Result<(String, Option<String>), Refused> {
        let entered = self.settle(grant, &path.rest).await?;
        self.confirm(grant, user)?;
        Ok((upstream_target(path)?, entered))
    }

    /// Checks that the grant still permits the request, which may have waited for its body, for room for its recording
    /// and for the pod.
    pub(crate) fn confirm(&self, grant: &Grant, user: &Requester) -> Result<(), Refused> {
        let lasts = self.grants.lasts(grant, user, self.clock.now());
        lasts.map_err(Refused::from)
    }

    async fn settle(&self, grant: &Grant, rest: &Rest) -> Result<Option<String>, Refused> {
        if oz_gating::sees_pod(grant, rest) {
            let pod = self.upstream.pod(grant).await?;
            let found = Found {
                uid: pod.as_ref().and_then(|pod| pod["metadata"]["uid"].as_str()),
                pod: pod.as_ref(),
            };
            return Ok(oz_gating::settle(grant, rest, found)?.map(ToOwned::to_owned));
        }
        let uid = self.upstream.pod_uid(grant).await?;
        let found = Found {
            uid: uid.as_deref(),
            pod: None,
        };
        Ok(oz_gating::settle(grant, rest, found)?.map(ToOwned::to_owned))
    }

    /// Creates the session token, from which the connect hook reads the user and the container.
    pub(crate) fn ticket(
        &self,
        grant: &Grant,
        user: &Requester,
        entered: Option<&str>,
    ) -> Result<String, Refused> {
        let ticket = Ticket::new(grant, user, self.clock.now()).to(entered);
        let sealed = ticket.seal(self.grants.keys());
        sealed.map_err(|error| Refused::unavailable("NotSealed", error.to_string()))
    }
}

/// Returns the path and query of the request to the API server.
pub(crate) fn upstream_target(path: &Path) -> Result<String, Refused> {
    path.target().ok_or_else(|| {
        let message = "the API server has no such path";
        Refused::new(StatusCode::NOT_FOUND, "NotFound", message)
    })
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use jiff::Timestamp;
    use oz_core::access::seal::Keys;
    use oz_core::gate::{GateAccount, prefix};
    use oz_gating::path;
    use oz_runtime::{Runtime, SystemClock};

    use super::*;
    use crate::recordings::tests::grant;

    #[tokio::test]
    async fn grant_that_ended_while_its_request_waited_permits_nothing() {
        let pod = r#"{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"name": "db-0", "namespace": "shop", "uid": "pod-uid"}}"#;
        let api_server = Router::new().fallback(move || async move { pod });
        let client = kube::Client::new(api_server, "shop");
        let runtime = Runtime::new("oz", client.clone(), SystemClock);
        let account: GateAccount = "oz-system/oz-gate".parse().unwrap();
        let mut grant = grant();
        grant.sessions.gate = Some(account.clone());
        let authorizer = Authorizer {
            // The Role of the grant does not exist any more.
            grants: Grants::new(runtime.feeds(), Keys::with_every_owner([[7; 32]])),
            upstream: Upstream::with_client(client, account),
            clock: Arc::new(|| Timestamp::UNIX_EPOCH),
        };
        let pod = format!(
            "{}/api/v1/namespaces/shop/pods/db-0",
            prefix("shop", "debug")
        );
        let path = path::read("GET", &pod, None).unwrap();
        let user = grant.requester.clone();
        let refused = authorizer.complete(&grant, &user, &path).await.unwrap_err();
        assert_eq!(refused.reason, "Revoked", "{}", refused.message);
    }
}
