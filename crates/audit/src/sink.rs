//! Where [`Step::Record`](oz_core::controller::Step::Record) goes. What
//! makes a record durable (a line, an object, both) is the trail's business.

use futures::FutureExt;
use futures::future::BoxFuture;
use oz_core::controller::Failure;
use oz_trail::Record;

/// Makes records durable.
pub trait Sink: Send + Sync + 'static {
    /// Makes one record durable before it returns. A failure ends the plan before its later
    /// stages. The same record may come again after a crash or a retry: its id tells.
    fn record<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<(), Failure>>;
}

/// Writes each record as a line of the log, under the target `audit`: for tests and first steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSink;

impl Sink for LogSink {
    fn record<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<(), Failure>> {
        tracing::info!(target: "audit", record = %record.line());
        futures::future::ready(Ok(())).boxed()
    }
}
