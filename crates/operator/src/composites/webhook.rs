//! The calls of functions behind HTTP. The author of a CompositeController chooses the address;
//! therefore addresses that only this process can reach are not called, redirects are not followed,
//! and the size of a response is limited.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER};
use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::body::Incoming;
use jiff::{SignedDuration, Timestamp};
use oz_composites::declared::Call;
use oz_composites::protocol::MAX_ANSWER;
use oz_composites::{AnswerError, Refused};
use oz_core::controller::Failure;
use oz_core::lifecycle::window::has_come;
use oz_outbound::{Allowed, HttpClient, Trust};
use oz_runtime::root_cause;
use serde_json::Value;
use tokio::sync::Semaphore;

/// The part of a response, in bytes, that is read without waiting for others.
const SMALL_ANSWER: usize = 256 * 1024;
/// The maximum number of larger responses that are read concurrently, of all composites.
const LARGE_ANSWERS: usize = 8;
/// The delay after a denial without an instant.
const LATER: SignedDuration = SignedDuration::from_secs(10);
/// The maximum delay after a denial.
const LATEST: SignedDuration = SignedDuration::from_hours(1);
/// The timeout of the lookup of a host.
const LOOKUP: Duration = Duration::from_secs(5);
/// The maximum number of characters of an unsuccessful response in a message.
const TOLD: usize = 200;

/// The client that calls functions. Clones share connections.
#[derive(Clone)]
pub(crate) struct Webhooks {
    client: HttpClient,
    addresses: Arc<BTreeMap<String, SocketAddr>>,
    allowed: Allowed,
    large: Arc<Semaphore>,
}

impl Webhooks {
    /// Creates a client that uses these addresses for their hosts, and never calls `api_servers`.
    pub(crate) fn new(
        addresses: &BTreeMap<String, SocketAddr>,
        api_servers: Vec<IpAddr>,
    ) -> anyhow::Result<Self> {
        let allowed = Allowed {
            api_servers: api_servers.into(),
            ..Allowed::default()
        };
        let addresses = addresses
            .iter()
            .map(|(host, address)| (host.to_lowercase(), *address));
        Ok(Self {
            client: oz_outbound::client(allowed.clone(), &Trust::System)?,
            addresses: Arc::new(addresses.collect()),
            allowed,
            large: Arc::new(Semaphore::new(LARGE_ANSWERS)),
        })
    }

    /// Calls a function with a request, and decodes the response with `read`.
    pub(crate) async fn call<T>(
        &self,
        call: &Call,
        request: &Value,
        now: Timestamp,
        read: impl FnOnce(&Value) -> Result<T, AnswerError>,
    ) -> Result<T, Refused> {
        let what = || format!("failed to ask {}", call.url);
        let answer = tokio::time::timeout(call.timeout, self.ask(call, request, now));
        let value = answer.await.unwrap_or_else(|_| {
            let timeout = call.timeout;
            Err(failed(format!("no response within {timeout:?}")))
        });
        let value = value.map_err(|mut refused: Refused| {
            refused.failure.message = format!("{}: {}", what(), refused.failure.message);
            refused
        })?;
        read(&value).map_err(|error| {
            let message = format!("{}: its response {error}", what());
            Failure::invalid("ResponseInvalid", message).into()
        })
    }

    /// Checks whether the host of a hook is known, if it has no namespace: the name of a Service without its namespace
    /// is that of a Service next to the operator.
    ///
    /// # Errors
    /// The host does not resolve.
    pub(crate) async fn check_host(&self, hook: &str, call: &Call) -> Result<(), Failure> {
        let Some((host, path)) = host_without_namespace(&call.url) else {
            return Ok(());
        };
        if self.addresses.contains_key(&host) {
            return Ok(());
        }
        let found = tokio::time::timeout(LOOKUP, tokio::net::lookup_host((&host[..], 80))).await;
        if found.is_ok_and(|found| found.is_ok_and(|mut found| found.next().is_some())) {
            return Ok(());
        }
        let message = format!(
            "the host {host} of spec.hooks.{hook}.webhook has no namespace and does not resolve: write \
             http://{host}.NAMESPACE{path}"
        );
        Err(Failure::transient("HookHostUnknown", message))
    }

    async fn ask(&self, call: &Call, request: &Value, now: Timestamp) -> Result<Value, Refused> {
        let request = self.request(&call.url, request)?;
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| failed(root_cause(&error)))?;
        let (status, retry) = (answer.status(), answer.headers().get(RETRY_AFTER).cloned());
        let body = self.body(answer).await?;
        match status {
            StatusCode::OK => serde_json::from_slice(&body)
                .map_err(|error| failed(format!("the response is not JSON: {error}"))),
            StatusCode::TOO_MANY_REQUESTS => {
                let until = retry_at(retry.as_ref(), now);
                let message = format!("it requests a pause until {until}");
                Err(Refused {
                    // Only this instant triggers the next try.
                    failure: Failure::invalid("HookBusy", message),
                    again: Some(until),
                })
            }
            status => {
                let start: String = String::from_utf8_lossy(&body).chars().take(TOLD).collect();
                Err(failed(format!(
                    "the server responded {status}, not 200: {start:?}"
                )))
            }
        }
    }

    fn request(&self, url: &str, body: &Value) -> Result<Request<Full<Bytes>>, Refused> {
        let invalid = |error: &dyn std::fmt::Display| {
            Refused::from(Failure::invalid(
                "HookInvalid",
                format!("the hook has no valid URL: {error}"),
            ))
        };
        let uri: Uri = url.parse().map_err(|error| invalid(&error))?;
        let authority = uri.authority().cloned();
        let authority = authority.ok_or_else(|| invalid(&"the URL of the hook names no host"))?;
        let host = authority.host().to_lowercase();
        let uri = match self.addresses.get(&host) {
            Some(address) => {
                let mut parts = uri.into_parts();
                let there = Authority::try_from(address.to_string());
                parts.authority = Some(there.map_err(|error| invalid(&error))?);
                Uri::from_parts(parts).map_err(|error| invalid(&error))?
            }
            None => {
                let fine = self.allowed.check_url(&uri);
                fine.map_err(|error| invalid(&format!("{error} (see composites.hookAddresses)")))?;
                uri
            }
        };
        let body = serde_json::to_vec(body).map_err(|error| invalid(&error))?;
        let host = HeaderValue::from_str(authority.as_str()).map_err(|error| invalid(&error))?;
        Request::post(uri)
            .header(HOST, host)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| invalid(&error))
    }

    /// Returns the whole body, if it is not too large.
    async fn body(&self, answer: Response<Incoming>) -> Result<Vec<u8>, Refused> {
        let mut body = answer.into_body();
        let mut bytes = Vec::new();
        let mut turn = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| failed(root_cause(&error)))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > MAX_ANSWER {
                let message = format!("the response is longer than {MAX_ANSWER} bytes");
                return Err(Failure::invalid("ResponseInvalid", message).into());
            }
            if turn.is_none() && bytes.len() + data.len() > SMALL_ANSWER {
                turn = Arc::clone(&self.large).acquire_owned().await.ok();
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }
}

/// Returns the host of a URL in lower case, and the path; `None` if the host has a namespace or is an address.
fn host_without_namespace(url: &str) -> Option<(String, String)> {
    let uri: Uri = url.parse().ok()?;
    let host = uri.host()?.trim_end_matches('.').to_lowercase();
    (!host.contains(['.', ':'])).then(|| (host, uri.path().to_owned()))
}

fn failed(message: String) -> Refused {
    Failure::transient("HookFailed", message).into()
}

fn retry_at(retry: Option<&HeaderValue>, now: Timestamp) -> Timestamp {
    let said = retry.and_then(|value| value.to_str().ok());
    let said = said.and_then(|text| match text.parse::<u32>() {
        Ok(seconds) => now
            .checked_add(SignedDuration::from_secs(seconds.into()))
            .ok(),
        Err(_) => jiff::fmt::rfc2822::DateTimeParser::new()
            .parse_timestamp(text)
            .ok(),
    });
    let latest = now.checked_add(LATEST).unwrap_or(Timestamp::MAX);
    let default = now.checked_add(LATER).unwrap_or(latest);
    said.filter(|at| !has_come(now, *at))
        .unwrap_or(default)
        .min(latest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_checked_only_if_it_has_no_namespace() {
        for (url, expected) in [
            ("http://fleets/sync", Some(("fleets", "/sync"))),
            ("http://Fleets:8080", Some(("fleets", "/"))),
            ("http://fleets.:80/", Some(("fleets", "/"))),
            ("http://fleets.functions/sync", None),
            ("http://10.0.0.1/sync", None),
            ("http://[fd00::1]/sync", None),
            ("", None),
        ] {
            let found = host_without_namespace(url);
            let found = found.as_ref().map(|(host, path)| (&host[..], &path[..]));
            assert_eq!(found, expected, "{url}");
        }
    }
}
