//! Telling an idle connection from one that is slow on purpose.
//!
//! HTTP keeps connections open between requests, so a limit on silence has to be long,
//! and one byte a minute passes under it (slow loris). This notes when a request begins
//! to come in, and when the service has it whole.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What one connection is doing.
#[derive(Debug)]
pub(crate) struct Pace {
    opened: Instant,
    /// Milliseconds from `opened`, plus one, at which bytes came in that no request is
    /// known to belong to yet; 0 if there are none.
    begun: AtomicU64,
    /// Milliseconds from `opened` at which the last request left the service.
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
    /// Bytes came in.
    fn received(&self) {
        if self.in_service.load(Ordering::Relaxed) == 0 {
            let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1;
            // Keeps the first instant: more bytes do not win more time.
            let _ = self
                .begun
                .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// What came in so far was no request.
    pub(crate) fn rest(&self) {
        self.begun.store(0, Ordering::Relaxed);
    }

    /// Whether a request has been coming in for longer than `limit`.
    pub(crate) fn stalled(&self, limit: Duration) -> bool {
        let begun = self.begun.load(Ordering::Relaxed);
        begun != 0
            && self
                .opened
                .elapsed()
                .saturating_sub(Duration::from_millis(begun - 1))
                > limit
    }

    /// Whether there has been no request for longer than `limit`.
    pub(crate) fn idle(&self, limit: Duration) -> bool {
        let rested = Duration::from_millis(self.rested.load(Ordering::Relaxed));
        self.in_service.load(Ordering::Relaxed) == 0
            && self.opened.elapsed().saturating_sub(rested) > limit
    }

    /// Runs the service on a request whose head is complete.
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

/// A request that is dropped half-way has left the service as well.
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
