//! Asks functions behind HTTP. Whoever writes a CompositeController chooses where; therefore no address is
//! asked that only this process can reach, no redirect is followed, and what is answered has a bound.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER};
use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::body::Incoming;
use hyper_rustls::builderstates::WantsSchemes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::rt::TokioExecutor;
use jiff::{SignedDuration, Timestamp};
use oz_core::composite::Refused;
use oz_core::composite::declared::Call;
use oz_core::composite::protocol::MAX_ANSWER;
use oz_core::controller::Failure;
use oz_core::lifecycle::window::has_come;
use oz_runtime::root_cause;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::sync::Semaphore;
use tower::Service;

use super::HookAddress;

/// What is read of an answer without waiting for others.
const SMALL_ANSWER: usize = 256 * 1024;
/// How many larger answers are read at once, of all composites.
const LARGE_ANSWERS: usize = 8;
/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(60);
/// How long a refusal puts off that does not say how long.
const LATER: SignedDuration = SignedDuration::from_secs(10);
/// The longest that one puts off.
const LATEST: SignedDuration = SignedDuration::from_hours(1);
/// How much of an answer that is no success is told.
const TOLD: usize = 200;

/// Asks functions. Clones share connections.
#[derive(Clone)]
pub(crate) struct Webhooks {
    client: Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>,
    addresses: Arc<BTreeMap<String, SocketAddr>>,
    forbidden: Forbidden,
    large: Arc<Semaphore>,
}

impl Webhooks {
    /// Asks at these addresses in place of those that names stand for; never `api_servers`.
    pub(crate) fn new(addresses: &[HookAddress], api_servers: Vec<IpAddr>) -> Self {
        let forbidden = Forbidden(api_servers.into());
        let mut connector = HttpConnector::new_with_resolver(Resolver {
            inner: GaiResolver::new(),
            forbidden: forbidden.clone(),
        });
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Duration::from_secs(5)));
        let trusted = HttpsConnectorBuilder::new().try_with_platform_verifier();
        let connector = trusted
            .unwrap_or_else(|error| trusting_nobody(&error))
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .build(connector);
        let addresses = addresses.iter().map(|one| (one.host.clone(), one.address));
        Self {
            client,
            addresses: Arc::new(addresses.collect()),
            forbidden,
            large: Arc::new(Semaphore::new(LARGE_ANSWERS)),
        }
    }

    /// What a function says to a request, as `read` reads it.
    pub(crate) async fn call<T>(
        &self,
        call: &Call,
        request: &Value,
        now: Timestamp,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Result<T, Refused> {
        let what = || format!("failed to ask {}", call.url);
        let answer = tokio::time::timeout(call.timeout, self.ask(call, request, now));
        let value = answer.await.unwrap_or_else(|_| {
            let timeout = call.timeout;
            Err(failed(format!("it did not answer within {timeout:?}")))
        });
        let value = value.map_err(|mut refused: Refused| {
            refused.failure.message = format!("{}: {}", what(), refused.failure.message);
            refused
        })?;
        read(&value).map_err(|error| {
            let message = format!("{}: its answer {error}", what());
            Failure::invalid("AnswerInvalid", message).into()
        })
    }

    async fn ask(&self, call: &Call, request: &Value, now: Timestamp) -> Result<Value, Refused> {
        let request = self.request(&call.url, request)?;
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| failed(root_cause(&error)))?;
        let (status, retry) = (answer.status(), answer.headers().get(RETRY_AFTER).cloned());
        let body = self.body(answer).await?;
        match status {
            StatusCode::OK => serde_json::from_slice(&body)
                .map_err(|error| failed(format!("what it answers is not JSON: {error}"))),
            StatusCode::TOO_MANY_REQUESTS => {
                let until = retry_at(retry.as_ref(), now);
                let message = format!("it asks to be left alone until {until}");
                Err(Refused {
                    // The instant alone brings the next try.
                    failure: Failure::invalid("HookBusy", message),
                    again: Some(until),
                })
            }
            status => {
                let told: String = String::from_utf8_lossy(&body).chars().take(TOLD).collect();
                Err(failed(format!("it answers {status}, not 200: {told:?}")))
            }
        }
    }

    fn request(&self, url: &str, body: &Value) -> Result<Request<Full<Bytes>>, Refused> {
        let invalid = |error: &dyn std::fmt::Display| {
            Refused::from(Failure::invalid(
                "HookInvalid",
                format!("no URL to ask: {error}"),
            ))
        };
        let uri: Uri = url.parse().map_err(|error| invalid(&error))?;
        let authority = uri.authority().cloned();
        let authority = authority.ok_or_else(|| invalid(&"it names no host"))?;
        let host = authority.host().to_lowercase();
        let uri = match self.addresses.get(&host) {
            Some(address) => {
                let mut parts = uri.into_parts();
                let there = Authority::try_from(address.to_string());
                parts.authority = Some(there.map_err(|error| invalid(&error))?);
                Uri::from_parts(parts).map_err(|error| invalid(&error))?
            }
            None => {
                let literal = host.trim_start_matches('[').trim_end_matches(']');
                if let Ok(address) = literal.parse::<IpAddr>() {
                    self.forbidden
                        .check(address)
                        .map_err(|error| invalid(&error))?;
                }
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

    /// The whole body, if it is not too large.
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
                let message = format!("its answer is longer than {MAX_ANSWER} bytes");
                return Err(Failure::invalid("AnswerInvalid", message).into());
            }
            if turn.is_none() && bytes.len() + data.len() > SMALL_ANSWER {
                turn = Arc::clone(&self.large).acquire_owned().await.ok();
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }
}

/// Where the system knows no certificate authority, as in the image, a function behind HTTPS cannot be asked; all
/// others can.
fn trusting_nobody(error: &rustls::Error) -> HttpsConnectorBuilder<WantsSchemes> {
    tracing::info!(%error, "functions behind https cannot be asked; SSL_CERT_FILE names certificate authorities");
    let config = ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    HttpsConnectorBuilder::new().with_tls_config(config)
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

/// Addresses that no function is asked at: those that only this process or its node can reach, and the
/// API server, which would take the request for one of the operator's network.
#[derive(Clone)]
struct Forbidden(Arc<[IpAddr]>);

impl Forbidden {
    fn check(&self, address: IpAddr) -> Result<(), String> {
        let address = address.to_canonical();
        let is_local = match address {
            IpAddr::V4(address) => {
                address.is_loopback()
                    || address.is_link_local()
                    || address.is_unspecified()
                    || address.is_broadcast()
                    || address.is_multicast()
            }
            IpAddr::V6(address) => {
                address.is_loopback()
                    || address.is_unspecified()
                    || address.is_multicast()
                    || address.is_unicast_link_local()
            }
        };
        if is_local {
            return Err(format!(
                "{address} is a local address, at which no function is asked (see --hook-address)"
            ));
        }
        if self.0.contains(&address) {
            return Err(format!("{address} is the API server, which is no function"));
        }
        Ok(())
    }
}

/// Looks names up, and leaves out what may not be asked. What a name stands for is looked up here and
/// nowhere else, so that it cannot stand for something else when it is connected to.
#[derive(Clone)]
struct Resolver {
    inner: GaiResolver,
    forbidden: Forbidden,
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let found = self.inner.call(name);
        let forbidden = self.forbidden.clone();
        Box::pin(async move {
            let mut allowed = Vec::new();
            let mut refused = None;
            for address in found.await? {
                match forbidden.check(address.ip()) {
                    Ok(()) => allowed.push(address),
                    Err(error) => refused = Some(error),
                }
            }
            match refused {
                Some(error) if allowed.is_empty() => {
                    Err(io::Error::new(io::ErrorKind::PermissionDenied, error))
                }
                _ => Ok(allowed.into_iter()),
            }
        })
    }
}
