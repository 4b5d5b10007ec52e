//! The API client for the engine. It reads the server's time, ends a request that has no response
//! within the timeout, removes managed fields, and leaves retries to the work queue, where no
//! object that is due waits behind them.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use jiff::Timestamp;
use kube::client::Body;
use kube::{Client, Config};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use tower::{BoxError, Layer, Service};

use crate::clock::ServerClock;
use crate::connection::connecting;
use crate::raw::StripLayer;

/// The maximum time from a request that is not a stream to the start of its response.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum time without data on a connection. The API server ends a watch after 290 s.
const SILENCE: Duration = Duration::from_secs(300);

/// The failure to create a client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The configuration is not valid for a client.
    #[error("failed to build the API client")]
    Build(#[from] kube::Error),
}

/// Creates the client and the clock of its server. The caller calls it in the runtime that serves the
/// connections, also for callers in other runtimes.
///
/// # Errors
///
/// When the configuration is not valid for a client, such as for an unreadable certificate.
pub fn client(mut config: Config) -> Result<(Client, ServerClock), ClientError> {
    config.connect_timeout = Some(REQUEST_TIMEOUT);
    // The timeout is longer than the silence of a watch: a connection without data for longer is
    // dead. The time counts from the last request, not from the moment when a pooled connection
    // became idle.
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    let clock = ServerClock::new();
    let client = connecting(&config)?
        .with_layer(&ClockLayer {
            clock: clock.clone(),
            connections: Handle::current(),
        })
        .with_layer(&StripLayer)
        .build();
    Ok((client, clock))
}

#[derive(Clone)]
struct ClockLayer {
    clock: ServerClock,
    connections: Handle,
}

impl<S> Layer<S> for ClockLayer {
    type Service = Clocked<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Clocked {
            inner,
            clock: self.clock.clone(),
            connections: self.connections.clone(),
        }
    }
}

/// A service that records the `Date` of each response and bounds the wait for it. The runtime that opens
/// a connection serves it, also for other runtimes; a runtime in which computations would delay it must
/// not open a connection.
struct Clocked<S> {
    inner: S,
    clock: ServerClock,
    connections: Handle,
}

impl<S, B> Service<Request<Body>> for Clocked<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let requested = Instant::now();
        let clock = self.clock.clone();
        let answer = self.inner.call(request);
        let answer = async move {
            let answer = tokio::time::timeout(REQUEST_TIMEOUT, answer);
            answer.await?.map_err(Into::into)
        };
        let answer = AbortOnDropHandle::new(self.connections.spawn(answer));
        async move {
            let response: Response<B> = answer.await??;
            if let Some(date) = date(response.headers()) {
                clock.note(requested, Instant::now(), date);
            }
            Ok(response)
        }
        .boxed()
    }
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get(http::header::DATE)?.to_str().ok()?;
    jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .ok()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use jiff::SignedDuration;
    use tower::{ServiceExt, service_fn};

    use super::*;
    use crate::clock::Clock;

    fn layer() -> ClockLayer {
        ClockLayer {
            clock: ServerClock::new(),
            connections: Handle::current(),
        }
    }

    #[tokio::test]
    async fn response_date_sets_server_time() {
        let layer = layer();
        let ahead = Timestamp::now() + SignedDuration::from_hours(1);
        let date = jiff::fmt::rfc2822::DateTimePrinter::new()
            .timestamp_to_rfc9110_string(&ahead)
            .unwrap();
        let service = layer.layer(service_fn(move |_: Request<Body>| {
            let response = Response::builder().header("date", date.clone()).body(());
            async move { Ok::<_, Infallible>(response.unwrap()) }
        }));
        service.oneshot(Request::new(Body::empty())).await.unwrap();
        let error = layer.clock.now().duration_since(ahead).abs();
        assert!(error < SignedDuration::from_secs(30), "off by {error}");
        assert!(layer.clock.skew() < SignedDuration::from_mins(-59));
    }

    #[tokio::test]
    async fn an_answer_without_a_date_says_nothing() {
        let layer = layer();
        for date in ["", "yesterday", "Sat, 31 Feb 2026 25:00:00 GMT"] {
            let service = layer.layer(service_fn(move |_: Request<Body>| {
                let response = Response::builder().header("date", date).body(());
                async move { Ok::<_, Infallible>(response.unwrap()) }
            }));
            service.oneshot(Request::new(Body::empty())).await.unwrap();
        }
        assert!(layer.clock.skew().is_zero());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_not_answered_is_given_up() {
        let service = layer().layer(service_fn(|_: Request<Body>| async {
            std::future::pending::<Result<Response<()>, Infallible>>().await
        }));
        let began = tokio::time::Instant::now();
        let answer = service.oneshot(Request::new(Body::empty())).await;
        assert!(answer.is_err());
        assert_eq!(began.elapsed().as_secs(), REQUEST_TIMEOUT.as_secs());
    }
}
