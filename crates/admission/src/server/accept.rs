//! Connections: accept, TLS, limits for slow and dead connections, and graceful shutdown.

use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    http::{HeaderValue, Request, header::CONNECTION},
};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use oz_listen::ConnectionSlots;
use tokio::{
    net::{TcpListener, TcpStream},
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use super::{
    Limits,
    pace::{Pace, Paced},
    peer::{KnownSlots, Peer},
};
use crate::{
    certificate::{client::ClientCertificate, resolver::Current},
    metrics::Metrics,
};

/// The window of a stream over HTTP/2. Streams that wait for memory occupy as much of the connection's
/// window, which has room for all of them: otherwise they would block the reading of the others.
const STREAM_WINDOW: u32 = 64 << 10;
/// The maximum window of the protocol.
const LARGEST_WINDOW: u32 = (1 << 31) - 1;
/// The idle time after which a connection over HTTP/1 is closed once the server no longer accepts
/// connections. A connection in use ends with its next response: an earlier close could hit a call in
/// transit, which the API server does not retry.
const QUIET_BEFORE_CLOSE: Duration = Duration::from_secs(1);

/// The three stages of the shutdown of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    /// The stage in which the server responds as before, but ends each connection over HTTP/1 with its next
    /// response, and each over HTTP/2 with its open streams (GOAWAY).
    pub(crate) draining: CancellationToken,
    /// The stage in which the server accepts no connections, finishes open calls, and closes idle
    /// connections.
    pub(crate) gently: CancellationToken,
    /// The stage in which the server drops all connections.
    pub(crate) now: CancellationToken,
}

/// A TLS server over a router.
pub(crate) struct Server {
    pub(crate) tls: TlsAcceptor,
    /// The certificate for handshakes.
    pub(crate) current: Current,
    pub(crate) router: Router,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    pub(crate) stop: Stop,
    /// True if a connection over HTTP/1 may change to another protocol.
    pub(crate) upgrades: bool,
}

/// The reason why a connection broke.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("failed to complete the TLS handshake: {0}")]
    Handshake(std::io::Error),
    #[error("failed to complete the TLS handshake in time")]
    SlowHandshake,
    #[error("the head of a request took too long to arrive")]
    SlowHead,
    #[error("the connection sent no request in time, or its slot was needed")]
    Evicted,
    #[error(transparent)]
    Connection(hyper::Error),
}

impl Server {
    /// Serves until stopped, and returns when the last connection has ended.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let known_slots = KnownSlots::new(self.limits.connections);
        let slots = ConnectionSlots::new(self.limits.strangers, self.limits.strangers_per_peer);
        let connections = TaskTracker::new();
        let server = Arc::new(self);
        while let Some((stream, peer)) = server.accept(&listener).await {
            let peer = Peer::new(peer.ip(), slots.take(peer.ip()), known_slots.clone());
            let server = server.clone();
            connections.spawn(async move {
                server.metrics.connection_opened();
                if let Err(error) = server.connection(stream, peer).await {
                    tracing::debug!(%error, "a connection broke");
                }
                server.metrics.connection_closed();
            });
        }
        drop(listener);
        connections.close();
        tokio::select! {
            () = connections.wait() => {}
            () = server.stop.now.cancelled() => {}
        }
    }

    /// Accepts the next connection; returns `None` when the server is to stop.
    async fn accept(&self, listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
        loop {
            // The order matters: a client that connected before the shutdown is still served.
            let accepted = tokio::select! {
                biased;
                accepted = listener.accept() => accepted,
                () = self.stop.gently.cancelled() => return None,
            };
            match accepted {
                Ok(accepted) => return Some(accepted),
                Err(error) => {
                    // Probably out of file descriptors: connections that close free some.
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Completes the TLS handshake; returns `None` when the server is to stop. The stream is in a box, since it is large
    /// and moves through several futures, each of which would have room for it.
    async fn handshake(
        &self,
        stream: Paced<TcpStream>,
        evicted: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Option<Box<TlsStream<Paced<TcpStream>>>>, Broken> {
        let handshake = async {
            // Directly after a start there is no certificate yet: a client then waits, and is not refused.
            self.current.available().await;
            self.tls.accept(stream).await
        };
        let stream = tokio::select! {
            stream = timeout(self.limits.handshake, handshake) => stream,
            () = self.stop.now.cancelled() => return Ok(None),
            () = evicted => return Err(self.evicted()),
        };
        match stream {
            Ok(Ok(stream)) => Ok(Some(Box::new(stream))),
            Ok(Err(error)) => Err(Broken::Handshake(error)),
            Err(_elapsed) => {
                self.metrics.refused("slow_handshake");
                Err(Broken::SlowHandshake)
            }
        }
    }

    async fn connection(&self, stream: TcpStream, peer: Arc<Peer>) -> Result<(), Broken> {
        let unknown = self.limits.handshake + self.limits.receive;
        let mut evicted = pin!(peer.evicted(unknown));
        // Responses are one small write; waiting to fill a segment only delays them.
        let _ = stream.set_nodelay(true);
        let pace = Arc::new(Pace::default());
        let paced = Paced::new(stream, pace.clone());
        // What only the handshake needs is on the heap for as long: an open connection keeps none of it.
        let stream = Box::pin(self.handshake(paced, evicted.as_mut())).await?;
        let Some(stream) = stream else {
            return Ok(());
        };
        pace.rest();
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice());
        let shown = ClientCertificate::from_connection(stream.get_ref().1).map(Arc::new);
        let service = {
            let (pace, router) = (pace.clone(), self.router.clone());
            let peer = peer.clone();
            let draining = self.stop.draining.clone();
            service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(peer.clone());
                if let Some(shown) = &shown {
                    request.extensions_mut().insert(shown.clone());
                }
                let answer = pace.clone().during(router.clone().oneshot(request));
                let draining = draining.clone();
                async move {
                    let mut answer = answer.await?;
                    if !http2 && draining.is_cancelled() {
                        let close = HeaderValue::from_static("close");
                        answer.headers_mut().insert(CONNECTION, close);
                    }
                    Ok::<_, Infallible>(answer)
                }
            })
        };
        let over = async {
            tokio::select! {
                () = peer.over() => {}
                () = self.stop.draining.cancelled(), if http2 => {}
                () = self.quiet(&pace), if !http2 => {}
                // Pings keep an unused connection alive. Over HTTP/1 the limit on heads ends it.
                () = idle(&pace, self.limits.idle), if http2 => {}
            }
        };
        let broken = async {
            tokio::select! {
                () = &mut evicted => self.evicted(),
                // Concurrent streams have no common beginning; pings and frame limits guard these.
                () = stalled(&pace, self.limits.receive), if !http2 => {
                    self.metrics.refused("slow_head");
                    Broken::SlowHead
                }
            }
        };
        // On the heap, so that a connection occupies no more than its own protocol requires.
        let stream = TokioIo::new(stream);
        if http2 {
            let connection = Box::pin(self.http2().serve_connection(stream, service));
            let end = http2::Connection::graceful_shutdown;
            self.until_end(connection, end, over, broken).await
        } else if self.upgrades {
            let connection = self.http1().serve_connection(stream, service);
            let connection = Box::pin(connection.with_upgrades());
            let end = http1::UpgradeableConnection::graceful_shutdown;
            self.until_end(connection, end, over, broken).await
        } else {
            let connection = Box::pin(self.http1().serve_connection(stream, service));
            let end = http1::Connection::graceful_shutdown;
            self.until_end(connection, end, over, broken).await
        }
    }

    /// Waits until the server no longer accepts connections and no request has arrived for a while.
    async fn quiet(&self, pace: &Pace) {
        self.stop.gently.cancelled().await;
        idle(pace, QUIET_BEFORE_CLOSE).await;
    }

    fn evicted(&self) -> Broken {
        self.metrics.refused("stranger");
        Broken::Evicted
    }

    fn http1(&self) -> http1::Builder {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            // The timeout also counts while a connection idles; `Pace` limits requests that have begun.
            .header_read_timeout(self.limits.idle)
            .max_headers(64)
            .max_buf_size(self.limits.head.max(8 << 10));
        builder
    }

    fn http2(&self) -> http2::Builder<TokioExecutor> {
        let streams = u32::try_from(self.limits.concurrent_reviews).unwrap_or(u32::MAX);
        let window = STREAM_WINDOW.saturating_mul(streams).min(LARGEST_WINDOW);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            // The missing response to a ping reveals a peer that disconnected silently.
            .keep_alive_interval(self.limits.idle / 5)
            .keep_alive_timeout(self.limits.receive)
            .max_concurrent_streams(streams)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(window)
            .max_header_list_size(u32::try_from(self.limits.head).unwrap_or(u32::MAX));
        builder
    }

    /// Drives a connection until it ends: gracefully, by `end`, when it is `over`, or at once when it is `broken`.
    async fn until_end<C: Future<Output = hyper::Result<()>>>(
        &self,
        mut connection: Pin<Box<C>>,
        end: fn(Pin<&mut C>),
        over: impl Future<Output = ()>,
        broken: impl Future<Output = Broken>,
    ) -> Result<(), Broken> {
        let mut over = pin!(over);
        let mut broken = pin!(broken);
        let mut stopping = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => return ended.map_err(Broken::Connection),
                () = &mut over, if !stopping => {
                    stopping = true;
                    end(connection.as_mut());
                }
                () = self.stop.now.cancelled() => return Ok(()),
                why = &mut broken => return Err(why),
            }
        }
    }
}

/// Waits until a request has been incomplete for too long.
async fn stalled(pace: &Pace, limit: Duration) {
    until(limit, || pace.stalled(limit)).await;
}

/// Waits until no request has arrived for too long.
async fn idle(pace: &Pace, limit: Duration) {
    until(limit, || pace.idle(limit)).await;
}

/// Waits until `done` returns `true`, with four checks within `limit`.
async fn until(limit: Duration, done: impl Fn() -> bool) {
    let mut tick = interval(limit / 4);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !done() {
        tick.tick().await;
    }
}
