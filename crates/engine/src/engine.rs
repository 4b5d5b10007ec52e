//! The public interface of the engine: the controllers to run, their process, and their end.

use std::sync::Arc;

use kube::Client;
use oz_audit::{LogSink, Sink};
use oz_core::controller::Controller;
use oz_runtime::{Clock, Leadership, Runtime, RuntimeError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::background::Background;
use crate::controllers::{Controllers, Setup, Start, StartError};
use crate::events::Events;
use crate::metrics::Metrics;
use crate::observe::Observe;
use crate::ports::{Port, Ports};
use crate::run::WriteSlots;

/// The engine that runs controllers in a process. See the [crate's documentation](crate) for an
/// example.
pub struct Engine {
    runtime: Runtime,
    sink: Arc<dyn Sink>,
    ports: Ports,
    concurrency: usize,
    metrics: Metrics,
    controllers: Controllers,
    starts: mpsc::UnboundedReceiver<Start>,
    /// The first controller that could not be started.
    failed: Option<StartError>,
}

/// The parts that all controllers share.
pub(crate) struct Parts {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) ports: Ports,
    pub(crate) concurrency: usize,
    pub(crate) metrics: Metrics,
    pub(crate) events: Events,
    pub(crate) tenure: Leadership,
    pub(crate) write_slots: WriteSlots,
    /// The runtime of ordinary passes.
    pub(crate) ordinary: Handle,
}

impl Engine {
    /// Creates an engine without controllers, in a process.
    pub fn new(runtime: Runtime) -> Self {
        let metrics = Metrics::register(&mut runtime.registry());
        let (controllers, starts) = Controllers::new(runtime.feeds().clone());
        Self {
            runtime,
            sink: Arc::new(LogSink),
            ports: Ports::default(),
            concurrency: 32,
            metrics,
            controllers,
            starts,
            failed: None,
        }
    }

    /// Returns the process: its stores, its tasks, its addresses, its leadership.
    pub fn runtime(&mut self) -> &mut Runtime {
        &mut self.runtime
    }

    /// Sets the destination of audit records; by default the log.
    pub fn sink(&mut self, sink: impl Sink) -> &mut Self {
        self.sink = Arc::new(sink);
        self
    }

    /// Registers the port for the effects with this port name. An effect for a port that is not
    /// registered is a failure that names the port.
    pub fn port(&mut self, name: impl Into<String>, port: impl Port) -> &mut Self {
        self.ports.register(name.into(), Arc::new(port));
        self
    }

    /// Sets the maximum number of concurrent passes of one controller, and of concurrent writes of
    /// all controllers together. The same number of writes is reserved for deletions that a plan
    /// begins with; due passes run in addition to the others. By default 32.
    pub fn concurrency(&mut self, passes: usize) -> &mut Self {
        self.concurrency = passes.max(1);
        self
    }

    /// Returns the handle that starts controllers of this engine, also while it runs.
    pub fn controllers(&self) -> &Controllers {
        &self.controllers
    }

    /// Adds a controller and its edge, which runs as long as the engine.
    pub fn controller<C, O>(&mut self, controller: C, observe: O) -> &mut Self
    where
        C: Controller,
        O: Observe<C>,
    {
        let started = self.controllers.start(Setup::new(controller, observe));
        if let Err(error) = started {
            self.failed.get_or_insert(error);
        }
        self
    }

    /// Runs the process with its controllers until `shutdown` is cancelled: then no new pass begins,
    /// the running passes finish, and the process releases the Lease.
    ///
    /// # Errors
    /// The same as for [`Runtime::run`], and when a controller could not be started.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), RuntimeError> {
        if let Some(error) = self.failed {
            return Err(not_started(error));
        }
        let background = Background::start().map_err(not_started)?;
        let mut runtime = self.runtime;
        let parts = Parts {
            client: runtime.client().clone(),
            clock: Arc::clone(runtime.clock()),
            sink: self.sink,
            ports: self.ports,
            concurrency: self.concurrency,
            metrics: self.metrics,
            events: Events(runtime.events().clone()),
            tenure: runtime.leadership().clone(),
            write_slots: WriteSlots::new(self.concurrency),
            ordinary: background.handle(),
        };
        let starts = self.starts;
        runtime.part(PART, |stop| run_controllers(parts, starts, stop));
        runtime.run(shutdown).await
    }
}

/// The name of the part that the process requires.
const PART: &str = "the controllers";

fn not_started(error: impl std::error::Error + Send + Sync + 'static) -> RuntimeError {
    RuntimeError::Task {
        name: PART.into(),
        error: error.into(),
    }
}

/// Starts controllers until `stop`, and then waits for the end of those that run. Ends before that
/// only if one of them panics, which is a defect.
async fn run_controllers(
    parts: Parts,
    mut starts: mpsc::UnboundedReceiver<Start>,
    stop: CancellationToken,
) {
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(start) = starts.recv() => {
                running.spawn(start(&parts, &stop));
            }
            Some(ended) = running.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a controller broke off");
                    return;
                }
            }
        }
    }
    // Controllers that wait for their start are not started, and events are published until no sender
    // is left.
    drop((parts, starts));
    while running.join_next().await.is_some() {}
}
