//! The distinction between an idle connection and a deliberately slow one.
//!
//! HTTP keeps connections open between requests, so a limit on silence must be long, and one byte a minute
//! stays below it (slow loris). This module records when a request begins to arrive, and when the service
//! has it completely.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Pace {
    opened: Instant,
    /// The milliseconds from `opened`, plus one, at which bytes arrived that belong to no known request
    /// yet; 0 if there are none.
    begun: AtomicU64,
    /// The milliseconds from `opened` at which the last request left the service.
    rested: AtomicU64,
    in_service: AtomicU32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            opened: Instant::now(),
            begun: AtomicU64::new(0),
            rested: AtomicU64::new(0),
            in_service: AtomicU32::new(0),
        }
    }
}

impl Pace {
    /// Records that bytes arrived.
    fn received(&self) {
        if self.in_service.load(Ordering::Relaxed) == 0 {
            let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1;
            // The first instant stays: more bytes do not extend the time.
            let _ = self
                .begun
                .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Records that the bytes so far were not part of a request.
    pub(crate) fn rest(&self) {
        self.begun.store(0, Ordering::Relaxed);
    }

    /// Checks whether a request has been arriving for longer than `limit`.
    pub(crate) fn stalled(&self, limit: Duration) -> bool {
        let begun = self.begun.load(Ordering::Relaxed);
        begun != 0
            && self
                .opened
                .elapsed()
                .saturating_sub(Duration::from_millis(begun - 1))
                > limit
    }

    /// Checks whether there has been no request for longer than `limit`.
    pub(crate) fn idle(&self, limit: Duration) -> bool {
        let rested = Duration::from_millis(self.rested.load(Ordering::Relaxed));
        self.in_service.load(Ordering::Relaxed) == 0
            && self.opened.elapsed().saturating_sub(rested) > limit
    }

    /// Runs the service on a request with a complete head.
    pub(crate) fn during<F: Future>(
        self: std::sync::Arc<Self>,
        response: F,
    ) -> impl Future<Output = F::Output> {
        self.in_service.fetch_add(1, Ordering::Relaxed);
        self.rest();
        let guard = InService(self);
        async move {
            let output = response.await;
            drop(guard);
            output
        }
    }
}

/// A request in the service; a request that is dropped before its response also leaves the service.
struct InService(std::sync::Arc<Pace>);

impl Drop for InService {
    fn drop(&mut self) {
        let now = u64::try_from(self.0.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.rested.store(now, Ordering::Relaxed);
        self.0.in_service.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that reports its reads.
#[derive(Debug)]
pub(crate) struct Paced<S> {
    stream: S,
    pace: std::sync::Arc<Pace>,
}

impl<S> Paced<S> {
    pub(crate) fn new(stream: S, pace: std::sync::Arc<Pace>) -> Self {
        Self { stream, pace }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.pace.received();
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
