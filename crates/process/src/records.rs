//! The record log: one line of JSON on standard output for each audit record. A thread of its own
//! writes, so that a reader who stops reading holds up nobody but those who need the record.

use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use oz_core::audit::Record;
use oz_core::controller::Failure;
use oz_engine::Sink;
use tokio::sync::oneshot;

/// How long a record may take to be written.
const PATIENCE: Duration = Duration::from_secs(2);
/// Lines that wait at most; more would only hide that nobody reads.
const BACKLOG: usize = 1024;

type Entry = (String, oneshot::Sender<std::io::Result<()>>);

/// Writes records to standard output, in the order in which they come.
#[derive(Clone, Debug)]
pub struct RecordLog {
    component: &'static str,
    replica: String,
    lines: mpsc::SyncSender<Entry>,
}

impl RecordLog {
    /// The log of one replica of one component.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(component: &'static str, replica: &str) -> std::io::Result<Self> {
        Self::over(component, replica, std::io::stdout())
    }

    fn over(
        component: &'static str,
        replica: &str,
        mut out: impl Write + Send + 'static,
    ) -> std::io::Result<Self> {
        let (lines, entries) = mpsc::sync_channel::<Entry>(BACKLOG);
        std::thread::Builder::new()
            .name("records".to_owned())
            .spawn(move || {
                for (line, done) in entries {
                    let written = writeln!(out, "{line}").and_then(|()| out.flush());
                    // Whoever asked may have given up waiting.
                    let _ = done.send(written);
                }
            })?;
        Ok(Self {
            component,
            replica: replica.to_owned(),
            lines,
        })
    }

    /// Writes one record; it is with the reader of standard output when this returns.
    ///
    /// # Errors
    /// A transient failure when it could not be written in two seconds.
    pub async fn write(&self, record: &Record) -> Result<(), Failure> {
        let failed = |why: String| {
            Failure::transient(
                "RecordFailed",
                format!("failed to write the audit record: {why}"),
            )
        };
        let (done, written) = oneshot::channel();
        let line = record.line_by(self.component, &self.replica);
        self.lines
            .try_send((line, done))
            .map_err(|error| failed(error.to_string()))?;
        match tokio::time::timeout(PATIENCE, written).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(failed(error.to_string())),
            Ok(Err(_)) => Err(failed("the writer has ended".to_owned())),
            Err(_) => Err(failed("nobody reads standard output".to_owned())),
        }
    }
}

impl Sink for RecordLog {
    fn record<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<(), Failure>> {
        self.write(record).boxed()
    }
}
