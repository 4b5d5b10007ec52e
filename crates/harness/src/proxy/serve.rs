//! HTTP on a connection, request by request: each is decided by the grants of this moment, gets its credential, and is
//! forwarded to its host. Bodies are streamed in both directions.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::{TokioIo, TokioTimer};
use oz_api::harness::wire::EgressReason;
use oz_egress::grants::Granted;
use oz_egress::heads::Heads;
use oz_egress::request::{self, Connection, Pass, Refused, Route};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::time::timeout;
use tokio_util::io::InspectReader;

use super::credentials::Lent;
use super::network::Network;
use super::state::Proxy;
use super::upstream::{self, MAX_HEAD, Unreachable, Upstream};
use super::uses::Uses;

/// The time for which a connection may be idle, or send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);
/// The time for which a request waits for the end of the one before, on the same connection to the host.
const READY_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of attempts to decide while the grants change.
const ATTEMPTS: usize = 5;
/// The time for which a request waits for grants with the version of the credential that the broker lent.
const VERSION_TIMEOUT: Duration = Duration::from_secs(1);

/// A response: that of the host, or one of the proxy.
type Body = Either<Incoming, Full<Bytes>>;

/// The two ends of a connection that no longer speaks HTTP.
struct Tunnel {
    client: OnUpgrade,
    upstream: OnUpgrade,
    /// Keeps the connection to the host.
    _upstream: Upstream,
}

/// The state of a connection that speaks HTTP.
pub(crate) struct Session<N> {
    proxy: Arc<Proxy<N>>,
    uses: Arc<Uses>,
    /// The host that the client named in TLS; none without TLS.
    host: Option<String>,
    port: u16,
    /// The connection to the host of the last request.
    upstream: Mutex<Option<Upstream>>,
    tunnel: Mutex<Option<Tunnel>>,
    /// The number of requests so far.
    requests: AtomicU64,
    /// The number of the request with more than one length, from one; 0 while there is none.
    ambiguous: Arc<AtomicU64>,
}

/// A request that passes.
struct Passed {
    granted: Arc<Granted>,
    lent: Option<(String, Arc<Lent>)>,
}

/// Serves HTTP until the connection ends.
pub(crate) async fn serve<N: Network>(
    session: Session<N>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) {
    let ambiguous = Arc::clone(&session.ambiguous);
    let mut heads = Heads::default();
    let stream = InspectReader::new(stream, move |bytes| {
        if let Some(number) = heads.read(bytes) {
            ambiguous.store(number, Ordering::Relaxed);
        }
    });
    let session = Arc::new(session);
    let service = service_fn(|request| {
        let session = Arc::clone(&session);
        async move { Ok::<_, Infallible>(session.answer(request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    if served.is_err_and(|error| error.is_parse()) {
        session.count(&session.default_route(), EgressReason::Protocol, None);
    }
    let tunnel = session.tunnel.lock().take();
    if let Some(tunnel) = tunnel {
        // Either end closes it.
        let _ = tunnel.run().await.is_ok();
    }
}

impl Tunnel {
    async fn run(self) -> anyhow::Result<()> {
        let client: Upgraded = self.client.await?;
        let upstream: Upgraded = self.upstream.await?;
        let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
        copy_bidirectional(&mut client, &mut upstream).await?;
        Ok(())
    }
}

impl<N: Network> Session<N> {
    pub(crate) fn new(
        proxy: Arc<Proxy<N>>,
        uses: Arc<Uses>,
        host: Option<String>,
        port: u16,
    ) -> Self {
        Self {
            proxy,
            uses,
            host,
            port,
            upstream: Mutex::default(),
            tunnel: Mutex::default(),
            requests: AtomicU64::default(),
            ambiguous: Arc::default(),
        }
    }

    fn connection(&self) -> Connection<'_> {
        Connection {
            host: self.host.as_deref(),
            port: self.port,
            tls: self.host.is_some(),
        }
    }

    /// Returns the destination of a request without a valid one.
    fn default_route(&self) -> Route {
        Route {
            host: self.host.clone().unwrap_or_default(),
            port: self.port,
        }
    }

    fn count(&self, route: &Route, reason: EgressReason, credential: Option<String>) {
        let counts = &self.proxy.counts;
        counts.refuse(&route.host, route.port, reason, credential);
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        if self.ambiguous.load(Ordering::Relaxed) == number {
            let mut response = self.refuse(&self.default_route(), request::ambiguous());
            // What follows is a body to one server, and a request to another.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
            return response;
        }
        let (mut head, body) = request.into_parts();
        let route = match route(&self.connection(), &head) {
            Ok(route) => route,
            Err(refused) => return self.refuse(&self.default_route(), refused),
        };
        self.uses.connect(&route.host, route.port);
        let answered = async {
            let passed = self.decide(&route, &head).await?;
            let lent = match &passed.lent {
                None => None,
                Some((name, lent)) => {
                    let credential = passed.granted.credential(name);
                    let credential = credential
                        .ok_or_else(|| not_lent(name, &route.host, "it is no longer granted"))?;
                    Some((credential, lent.value.as_str()))
                }
            };
            let is_websocket = request::is_websocket(&head);
            let client = head.extensions.remove::<OnUpgrade>();
            let client = client.filter(|_| is_websocket);
            request::forward(&passed.granted, &route, &mut head, lent)?;
            if let Some((name, _)) = &passed.lent {
                self.proxy.counts.lend(&route.host, route.port, name);
            }
            self.forward(
                &passed.granted,
                &route,
                Request::from_parts(head, body),
                client,
            )
            .await
        };
        match answered.await {
            Ok(response) => response,
            Err(refused) => self.refuse(&route, refused),
        }
    }

    /// Decides about a request, and gets its credential. Decides again if the grants change before it has both: the
    /// use of a credential is noted first, so that each change either is seen here or closes the connection.
    async fn decide(&self, route: &Route, head: &Parts) -> Result<Passed, Refused> {
        let proxy = &self.proxy;
        let mut why = String::from("the grants changed too often");
        for _ in 0..ATTEMPTS {
            let mut seen = proxy.grants.subscribe();
            let granted = proxy.grants.current().await.map_err(lapsed)?;
            let pass = request::decide(&granted, &self.connection(), route, head)?;
            let Pass::Inject { credential: name } = pass else {
                return Ok(Passed {
                    granted,
                    lent: None,
                });
            };
            let lent = proxy
                .credentials
                .lend(&proxy.broker, &granted, &name, &route.host)
                .await
                .map_err(|why| not_lent(&name, &route.host, &why))?;
            if !granted.has_credential(&name, &route.host, &lent.version) {
                // The value is newer than the grants, which arrive in a moment; or the broker was slow.
                why = format!("the value of {name} changes");
                let _ = timeout(VERSION_TIMEOUT, seen.changed()).await.is_ok();
                continue;
            }
            self.uses.lend(&name, &route.host, &lent.version);
            let current = proxy.grants.now().map_err(lapsed)?;
            if current.digest() == granted.digest() {
                return Ok(Passed {
                    granted,
                    lent: Some((name, lent)),
                });
            }
        }
        Err(Refused {
            status: StatusCode::SERVICE_UNAVAILABLE,
            reason: EgressReason::CredentialNotLent,
            credential: None,
            message: format!("failed to decide about the request: {why}; try again"),
        })
    }

    async fn forward(
        &self,
        granted: &Granted,
        route: &Route,
        request: Request<Incoming>,
        client: Option<OnUpgrade>,
    ) -> Result<Response<Body>, Refused> {
        let unreachable = |unreachable: Unreachable| Refused {
            status: unreachable.status,
            reason: unreachable.reason,
            credential: None,
            message: unreachable.message,
        };
        let mut upstream = match self.kept(route).await {
            Some(upstream) => upstream,
            None => self.connect(granted, route).await.map_err(unreachable)?,
        };
        let sent = match upstream.sender.try_send_request(request).await {
            Ok(response) => Ok(response),
            Err(mut error) => match error.take_message() {
                // The host closed the connection before it got the request.
                Some(request) => {
                    upstream = self.connect(granted, route).await.map_err(unreachable)?;
                    upstream.sender.send_request(request).await
                }
                None => Err(error.into_error()),
            },
        };
        let mut response = sent.map_err(|error| {
            let message = format!(
                "failed to get a response of {}:{}: {error}; try again",
                route.host, route.port
            );
            unreachable(Unreachable {
                status: StatusCode::BAD_GATEWAY,
                reason: EgressReason::Upstream,
                message,
            })
        })?;
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        match client {
            Some(client) if switches => {
                *self.tunnel.lock() = Some(Tunnel {
                    client,
                    upstream: hyper::upgrade::on(&mut response),
                    _upstream: upstream,
                });
            }
            _ if switches => {
                let message = format!("{} changed the protocol unasked", route.host);
                return Err(Refused {
                    status: StatusCode::BAD_GATEWAY,
                    reason: EgressReason::Protocol,
                    credential: None,
                    message,
                });
            }
            _ => *self.upstream.lock() = Some(upstream),
        }
        let (mut head, body) = response.into_parts();
        request::response(&mut head);
        Ok(Response::from_parts(head, Either::Left(body)))
    }

    /// Returns the connection of the last request, if it was to the same host.
    async fn kept(&self, route: &Route) -> Option<Upstream> {
        let kept = self.upstream.lock().take();
        let mut upstream = kept.filter(|upstream| upstream.route == *route)?;
        let ready = timeout(READY_TIMEOUT, upstream.sender.ready()).await;
        matches!(ready, Ok(Ok(()))).then_some(upstream)
    }

    async fn connect(&self, granted: &Granted, route: &Route) -> Result<Upstream, Unreachable> {
        let proxy = &self.proxy;
        let tls = match self.host {
            None => None,
            Some(_) => {
                let client = proxy.trust.client(granted.certificates());
                Some(client.map_err(|error| Unreachable {
                    status: StatusCode::BAD_GATEWAY,
                    reason: EgressReason::Upstream,
                    message: format!("{error:#}"),
                })?)
            }
        };
        let upstream = upstream::connect(&proxy.network, tls.as_ref(), route).await?;
        proxy.counts.grant(&route.host, route.port);
        Ok(upstream)
    }

    fn refuse(&self, route: &Route, refused: Refused) -> Response<Body> {
        self.count(route, refused.reason, refused.credential);
        let text = Bytes::from(format!("oz: {}\n", refused.message));
        let mut response = Response::new(Either::Right(Full::new(text)));
        *response.status_mut() = refused.status;
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }
}

fn route(connection: &Connection<'_>, head: &Parts) -> Result<Route, Refused> {
    if head.method == Method::CONNECT {
        return Err(Refused {
            status: StatusCode::METHOD_NOT_ALLOWED,
            reason: EgressReason::Protocol,
            credential: None,
            message: "CONNECT is not served: connect to the host itself, without a proxy"
                .to_owned(),
        });
    }
    request::route(connection, head)
}

fn lapsed(why: String) -> Refused {
    Refused {
        status: StatusCode::SERVICE_UNAVAILABLE,
        reason: EgressReason::GrantsStale,
        credential: None,
        message: format!("no host is granted at this moment: {why}; try again"),
    }
}

fn not_lent(name: &str, host: &str, why: &str) -> Refused {
    Refused {
        status: StatusCode::SERVICE_UNAVAILABLE,
        reason: EgressReason::CredentialNotLent,
        credential: Some(name.to_owned()),
        message: format!(
            "the credential {name} was not lent for {host}: {why}; `ozctl run explain` names the cause"
        ),
    }
}
