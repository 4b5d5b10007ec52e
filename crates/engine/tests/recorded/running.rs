//! A running engine with a scripted API server.

use oz_audit::Sink;
use oz_engine::Engine;
use oz_runtime::{Clock, Election, Runtime, RuntimeError, SystemClock};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::mock::Mock;
use crate::timebox::{ObserveTimeboxes, Timeboxes};

/// The running engine.
pub(crate) struct Running {
    pub(crate) controller: Timeboxes,
    pub(crate) readiness: oz_runtime::Readiness,
    mock: Mock,
    stop: CancellationToken,
    task: JoinHandle<Result<(), RuntimeError>>,
}

impl Mock {
    pub(crate) fn run(&self) -> Running {
        self.run_with(Timeboxes::default(), oz_audit::LogSink, Election::Off)
    }

    pub(crate) fn run_with(
        &self,
        controller: Timeboxes,
        sink: impl Sink,
        election: Election,
    ) -> Running {
        self.run_at(SystemClock, controller, sink, election)
    }

    pub(crate) fn run_at(
        &self,
        clock: impl Clock,
        controller: Timeboxes,
        sink: impl Sink,
        election: Election,
    ) -> Running {
        let mut engine = Engine::new(Runtime::new("oz", self.client(), clock));
        engine.sink(sink);
        engine.runtime().election(election);
        self.run_engine(engine, controller)
    }

    pub(crate) fn run_engine(&self, mut engine: Engine, controller: Timeboxes) -> Running {
        let observe = ObserveTimeboxes::new(engine.controllers().feeds());
        engine.controller(controller.clone(), observe);
        let readiness = engine.runtime().readiness().clone();
        let stop = CancellationToken::new();
        let task = tokio::spawn(engine.run(stop.clone()));
        Running {
            controller,
            readiness,
            mock: self.clone(),
            stop,
            task,
        }
    }
}

impl Running {
    /// Returns the failure with which the engine ends.
    pub(crate) async fn lost(self) -> String {
        let ended = self.task.await.expect("the engine panicked");
        ended.expect_err("the engine stopped").to_string()
    }

    /// Plays the script to its end and stops the engine, which finishes its passes. Fails if an
    /// unexpected call was made.
    pub(crate) async fn finish(self) {
        self.mock.played().await;
        self.stop_and_finish().await;
    }

    /// Does the same, for a script with an end that is played while the engine stops.
    pub(crate) async fn stop_and_finish(self) {
        self.stop.cancel();
        self.task
            .await
            .expect("the engine panicked")
            .expect("the engine failed");
        self.mock.played().await;
        self.mock.nothing_else();
    }
}
