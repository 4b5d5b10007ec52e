//! `kubectl debug`: the gate reads the patch, and passes on a new patch that contains only the parts that it read.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Response, StatusCode};
use oz_api::Requester;
use oz_core::access::grant::Grant;
use oz_gating::Found;
use oz_gating::debug::{self, MAX_PATCH, PATCH_TYPE};
use oz_gating::path::Path;

use crate::answer::Refused;
use crate::authorize::{Authorizer, upstream_target};
use crate::upstream::whole;

/// The maximum time until a patch has arrived.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the complete patch, if it is of the one kind that the gate reads.
pub(crate) async fn patch_of(request: Request) -> Result<(Parts, Bytes), Refused> {
    let (parts, body) = request.into_parts();
    is_patch(&parts.headers)?;
    let body = match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_PATCH)).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => {
            let message = format!(
                "failed to read the patch ({error}); send one of at most {MAX_PATCH} bytes, as \
                 kubectl debug does"
            );
            return Err(refused("PatchTooLong", message));
        }
        Err(_elapsed) => {
            let message = format!("the patch did not arrive within {BODY_TIMEOUT:?}; try again");
            let status = StatusCode::REQUEST_TIMEOUT;
            return Err(Refused::new(status, "PatchTimeout", message));
        }
    };
    Ok((parts, body))
}

fn is_patch(headers: &HeaderMap) -> Result<(), Refused> {
    let mut kinds = headers.get_all(CONTENT_TYPE).iter();
    let is_one = kinds.next().is_some_and(|kind| kind == PATCH_TYPE) && kinds.next().is_none();
    if is_one && !headers.contains_key(CONTENT_ENCODING) {
        return Ok(());
    }
    let message = format!("only patches of the kind {PATCH_TYPE} are read; use kubectl debug");
    Err(refused("PatchNotAllowed", message))
}

fn refused(reason: &'static str, message: String) -> Refused {
    Refused::new(StatusCode::FORBIDDEN, reason, message)
}

impl Authorizer {
    /// Adds the container that a patch names to the pod of a grant.
    pub(crate) async fn add_container(
        &self,
        user: &Requester,
        path: &Path,
        grant: &Arc<Grant>,
        parts: &Parts,
        patch: &[u8],
    ) -> Result<Response<Body>, Refused> {
        let Some(pod) = self.upstream.pod(grant).await? else {
            oz_gating::is_granted_pod(grant, None)?;
            return Err(Refused::unavailable("ApiServer", "try again"));
        };
        let found = Found {
            uid: pod["metadata"]["uid"].as_str(),
            pod: Some(&pod),
        };
        oz_gating::settle(grant, &path.rest, found)?;
        let added = debug::read(patch, grant, &pod)?;
        self.confirm(grant, user)?;
        let ticket = self.ticket(grant, user, None)?;
        let target = upstream_target(path)?;
        let sent = self
            .upstream
            .patch(parts, &target, added.patch(grant), &ticket);
        let answered = sent.await?;
        tracing::info!(
            user = user.user,
            request = grant.request.name,
            container = added.name,
            image = added.image,
            status = answered.status().as_u16(),
            "a container was asked for"
        );
        Ok(whole(answered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: &'static str, body: Body) -> Request {
        Request::patch("/")
            .header(CONTENT_TYPE, kind)
            .body(body)
            .unwrap()
    }

    #[tokio::test]
    async fn patch_of_other_type_or_excess_length_is_refused() {
        let (_, body) = patch_of(request(PATCH_TYPE, "{}".into())).await.unwrap();
        assert_eq!(body, "{}");
        for kind in [
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
            "application/strategic-merge-patch+json; charset=utf-8",
            "",
        ] {
            let refused = patch_of(request(kind, "{}".into())).await.unwrap_err();
            assert_eq!(refused.reason, "PatchNotAllowed", "{kind}");
        }
        let long = "x".repeat(MAX_PATCH + 1);
        let refused = patch_of(request(PATCH_TYPE, long.into()))
            .await
            .unwrap_err();
        assert_eq!(refused.reason, "PatchTooLong");
        let mut packed = request(PATCH_TYPE, "{}".into());
        let gzip = axum::http::HeaderValue::from_static("gzip");
        packed.headers_mut().insert(CONTENT_ENCODING, gzip);
        assert!(patch_of(packed).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_patch_that_does_not_come_is_not_waited_for() {
        let never = Body::from_stream(futures::stream::pending::<std::io::Result<Bytes>>());
        let refused = patch_of(request(PATCH_TYPE, never)).await.unwrap_err();
        assert_eq!(refused.reason, "PatchTimeout");
    }
}
