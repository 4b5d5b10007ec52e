//! The client of the API server, under the gate's own account. The gate passes on the method of a request, the options
//! that it read and the few headers that carry streams; of a response, it passes on the headers that a client needs to
//! read it.

use std::time::Duration;

use axum::http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT, WARNING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyDataStream;
use hyper::upgrade::OnUpgrade;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Config};
use oz_core::access::extra::SESSION_TOKEN;
use oz_core::access::grant::Grant;
use oz_core::gate::{GateAccount, PERMITTED};
use oz_gating::debug::PATCH_TYPE;
use oz_gating::upgrade::{Agreed, Upgrade};
use serde_json::Value;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;

use crate::answer::Refused;
use crate::handshake::{agreed, ask};

/// The timeout of a connection to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout until a response begins: the kubelet opens a session during this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(35);
/// The timeout of the request for the current pod.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// The headers of a request that are passed on unchanged.
const ONWARD: [HeaderName; 2] = [ACCEPT, USER_AGENT];
/// The headers of a response that are passed on unchanged.
const BACK: [HeaderName; 2] = [CONTENT_TYPE, WARNING];

/// The result of a request for a session.
pub(crate) enum UpgradeResponse {
    /// The session is open.
    Open(Agreed, OnUpgrade),
    /// The API server sent another response.
    Answered(Response<Body>),
}

/// The client of the API server.
pub(crate) struct Upstream {
    client: Client,
    account: GateAccount,
}

impl Upstream {
    /// Creates a client with this configuration and account. A session may be silent for as long as it lasts.
    pub(crate) fn new(mut config: Config, account: GateAccount) -> Result<Self, kube::Error> {
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = None;
        config.write_timeout = None;
        let client = oz_runtime::connect(config)?;
        Ok(Self { client, account })
    }

    /// Returns the UID of the pod that currently has the name of the grant's pod; `None` if the pod does not exist.
    pub(crate) async fn pod_uid(&self, grant: &Grant) -> Result<Option<String>, Refused> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &grant.request.namespace);
        let found = pods.get_metadata_opt(&grant.pod.name);
        let found: Result<Option<PartialObjectMeta<Pod>>, _> =
            match tokio::time::timeout(READ_TIMEOUT, found).await {
                Ok(found) => found,
                Err(_elapsed) => return Err(no_answer()),
            };
        match found {
            Ok(pod) => Ok(pod.and_then(|pod| pod.metadata.uid)),
            Err(error) => Err(self.not_read(grant, &error)),
        }
    }

    fn not_read(&self, grant: &Grant, error: &kube::Error) -> Refused {
        match error {
            kube::Error::Api(status) if status.code == 403 => Refused::new(
                StatusCode::FORBIDDEN,
                "NotBound",
                format!(
                    "the gate's account {} has no access to pod {}; if the grant is new, try again \
                        in a second",
                    self.account, grant.pod.name
                ),
            ),
            error => unreachable(error),
        }
    }

    /// Returns the complete pod that currently has the name of the grant's pod.
    pub(crate) async fn pod(&self, grant: &Grant) -> Result<Option<Value>, Refused> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &grant.request.namespace);
        let found = tokio::time::timeout(READ_TIMEOUT, pods.get_opt(&grant.pod.name)).await;
        let pod = match found {
            Ok(Ok(pod)) => pod,
            Ok(Err(error)) => return Err(self.not_read(grant, &error)),
            Err(_elapsed) => return Err(no_answer()),
        };
        let pod = pod.map(serde_json::to_value).transpose();
        pod.map_err(|error| Refused::unavailable("ApiServer", error.to_string()))
    }

    /// Patches the object at `path`, for the user in the session token.
    pub(crate) async fn patch(
        &self,
        parts: &Parts,
        path: &str,
        patch: String,
        ticket: &str,
    ) -> Result<Response<Body>, Refused> {
        let internal =
            |error: axum::http::Error| Refused::unavailable("ApiServer", error.to_string());
        let request = Request::patch(path).header(CONTENT_TYPE, PATCH_TYPE);
        let mut request = request
            .body(Body::from(patch.into_bytes()))
            .map_err(internal)?;
        copy(&parts.headers, request.headers_mut(), &[ACCEPT, USER_AGENT]);
        self.say(request.headers_mut(), ticket)?;
        self.answer(request).await
    }

    /// Requests `target`, path and query, like the request in `parts`.
    pub(crate) async fn send(
        &self,
        parts: &Parts,
        target: &str,
    ) -> Result<Response<Body>, Refused> {
        self.answer(onward(parts, target)?).await
    }

    /// Requests a session, over one of the protocols that its client offers, for the user in the session token.
    pub(crate) async fn open(
        &self,
        (parts, target): (&Parts, &str),
        ticket: &str,
        asked: &Upgrade,
    ) -> Result<UpgradeResponse, Refused> {
        let mut request = onward(parts, target)?;
        // A new key for each request: a response to another request cannot be taken for the response to this one.
        let key = generate_key();
        ask(request.headers_mut(), asked, &key)?;
        self.say(request.headers_mut(), ticket)?;
        let answered = self.answer(request).await?;
        if answered.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(UpgradeResponse::Answered(answered));
        }
        let agreed = agreed(asked, &key, answered.headers())?;
        Ok(UpgradeResponse::Open(agreed, hyper::upgrade::on(answered)))
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, Refused> {
        match tokio::time::timeout(ANSWER_TIMEOUT, self.client.send(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(unreachable(&error)),
            Err(_elapsed) => Err(no_answer()),
        }
    }

    /// Acts under its own account, and has the API server pass the session token to the connect hook.
    fn say(&self, headers: &mut HeaderMap, ticket: &str) -> Result<(), Refused> {
        let internal = |_| {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            Refused::new(
                status,
                "Internal",
                "the session token does not fit into a header",
            )
        };
        let user = HeaderValue::from_str(&self.account.user()).map_err(internal)?;
        headers.insert(IMPERSONATE_USER, user);
        let extra = format!("impersonate-extra-{SESSION_TOKEN}");
        let extra = HeaderName::try_from(extra).map_err(|_| {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            Refused::new(status, "Internal", "the session token has no header")
        })?;
        headers.insert(extra, HeaderValue::from_str(ticket).map_err(internal)?);
        Ok(())
    }
}

#[cfg(test)]
impl Upstream {
    /// Creates the client of a simulated API server.
    pub(crate) fn with_client(client: Client, account: GateAccount) -> Self {
        Self { client, account }
    }
}

/// Returns a request to the API server for the request in `parts`.
fn onward(parts: &Parts, target: &str) -> Result<Request<Body>, Refused> {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = target.parse().map_err(|_| {
        let message =
            "the query is too long to be forwarded; send long input through standard input";
        Refused::new(StatusCode::BAD_REQUEST, "QueryTooLong", message)
    })?;
    copy(&parts.headers, request.headers_mut(), &ONWARD);
    Ok(request)
}

/// Returns the head of a response for the client.
pub(crate) fn head(from: &Response<Body>) -> Response<axum::body::Body> {
    let mut response = Response::new(axum::body::Body::empty());
    *response.status_mut() = from.status();
    copy(from.headers(), response.headers_mut(), &BACK);
    response
}

/// Returns a response for the client, with its body.
pub(crate) fn whole(answered: Response<Body>) -> Response<axum::body::Body> {
    let head = head(&answered);
    head.map(|_| axum::body::Body::from_stream(BodyDataStream::new(answered.into_body())))
}

/// Checks whether the connect hook has permitted the session of this response.
pub(crate) fn is_permitted(headers: &HeaderMap) -> bool {
    let text = format!("\"{PERMITTED}\"");
    let mut warnings = headers.get_all(WARNING).iter();
    warnings.any(|warning| {
        warning
            .to_str()
            .is_ok_and(|warning| warning.contains(&text))
    })
}

fn copy(from: &HeaderMap, to: &mut HeaderMap, names: &[HeaderName]) {
    for name in names {
        for value in from.get_all(name) {
            to.append(name, value.clone());
        }
    }
}

fn unreachable(error: &kube::Error) -> Refused {
    let message = format!(
        "failed to send the request to the API server: {error}; try again in a \
        moment"
    );
    Refused::unavailable("ApiServer", message)
}

fn no_answer() -> Refused {
    let message =
        "the API server did not respond in time: the node of the pod may be down; try again";
    Refused::new(StatusCode::GATEWAY_TIMEOUT, "ApiServerTimeout", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_is_permitted_if_a_warning_of_the_response_is_the_hooks() {
        let of_other = r#"299 - "exec is discouraged""#;
        let of_hook = r#"299 - "oz permits this session""#;
        for (warnings, expected) in [
            (&[][..], false),
            (&[of_other], false),
            (&[of_hook], true),
            (&[of_other, of_hook], true),
        ] {
            let mut headers = HeaderMap::new();
            for warning in warnings {
                headers.append(WARNING, HeaderValue::from_static(warning));
            }
            assert_eq!(is_permitted(&headers), expected, "{warnings:?}");
        }
    }

    #[test]
    fn identity_and_connection_headers_are_not_forwarded() {
        let mut from = Request::get("/").body(()).unwrap();
        for (name, value) in [
            ("x-remote-user", "alice"),
            ("x-remote-group", "system:masters"),
            ("x-forwarded-for", "10.0.0.1"),
            ("authorization", "Bearer secret"),
            ("impersonate-user", "admin"),
            ("impersonate-extra-oz-ticket", "forged"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("host", "elsewhere"),
            ("connection", "upgrade, x-remote-user"),
            ("cookie", "a=b"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ("user-agent", "kubectl"),
        ] {
            from.headers_mut().append(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        let (parts, ()) = from.into_parts();
        let sent = onward(&parts, "/api?tty=true").unwrap();
        assert_eq!(sent.uri(), "/api?tty=true");
        let names: Vec<&str> = sent.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["user-agent"]);
    }
}
