//! The destination of [`Step::Record`](oz_core::controller::Step::Record). The trail decides what makes a record
//! durable (a line, an object, or both).

use futures::FutureExt;
use futures::future::BoxFuture;
use oz_core::controller::Failure;
use oz_trail::Record;

/// A destination that makes records durable.
pub trait Sink: Send + Sync + 'static {
    /// Makes one record durable before it returns. A failure ends the plan before its later stages. The same record may
    /// be submitted again after a crash or a retry: its id identifies it.
    fn record<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<(), Failure>>;
}

/// A sink that writes each record as a line of the log, with the target `audit`: for tests and first steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSink;

impl Sink for LogSink {
    fn record<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<(), Failure>> {
        tracing::info!(target: "audit", record = %record.line());
        futures::future::ready(Ok(())).boxed()
    }
}
