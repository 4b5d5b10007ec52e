//! The engine as its user sees it: which controllers to run, in which process, until when.

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

/// Runs controllers in a process. See the [crate's documentation](crate) for an example.
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

/// What all controllers share.
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
    /// Where ordinary passes run.
    pub(crate) ordinary: Handle,
}

impl Engine {
    /// An engine without controllers, in a process.
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

    /// The process: its stores, its tasks, what it listens on, who leads.
    pub fn runtime(&mut self) -> &mut Runtime {
        &mut self.runtime
    }

    /// Where records go; by default to the log.
    pub fn sink(&mut self, sink: impl Sink) -> &mut Self {
        self.sink = Arc::new(sink);
        self
    }

    /// Carries out the effects that are for the port of this name. An effect for a port that nobody
    /// registered is a failure that names it.
    pub fn port(&mut self, name: impl Into<String>, port: impl Port) -> &mut Self {
        self.ports.register(name.into(), Arc::new(port));
        self
    }

    /// How many passes of one controller may run at once, and how many writes of all controllers
    /// together. As many writes again are reserved for what takes something away; passes that are
    /// due run beside the others. By default 32.
    pub fn concurrency(&mut self, passes: usize) -> &mut Self {
        self.concurrency = passes.max(1);
        self
    }

    /// What starts controllers of this engine, also while it runs.
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

    /// Runs the process with its controllers until `shutdown` is cancelled: no new pass begins then,
    /// those under way finish, and the Lease is given back.
    ///
    /// # Errors
    /// As [`Runtime::run`], and when a controller could not be started.
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

/// What the process cannot go on without.
const PART: &str = "the controllers";

fn not_started(error: impl std::error::Error + Send + Sync + 'static) -> RuntimeError {
    RuntimeError::Task {
        name: PART.into(),
        error: error.into(),
    }
}

/// Starts controllers until `stop`, and then waits for those that run. Ends before that only if one of
/// them breaks off, which is a defect.
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
    // Who is still to be started is not, and events are published until nobody can leave one any more.
    drop((parts, starts));
    while running.join_next().await.is_some() {}
}
