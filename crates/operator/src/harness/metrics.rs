//! The metrics of runs and workspaces, counted as their statuses are written. Labels are phases and
//! outcomes: no value from a user creates a series.

use jiff::Timestamp;
use oz_api::harness::{HarnessRunStatus, RunPhase, WorkspaceStatus};
use oz_runs::workspace::seeding_ended;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Change {
    /// The previous phase; empty at the first status.
    from: Option<&'static str>,
    to: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phase {
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// Returns a histogram from a second to a day.
fn durations() -> Histogram {
    Histogram::new([
        1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 14_400.0, 86_400.0,
    ])
}

type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

/// The handles of all metrics of harness runs. Clones share their counts.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    run_phases: Family<Change, Counter>,
    run_durations: Durations<Phase>,
    workspace_phases: Family<Change, Counter>,
    seed_durations: Durations<Outcome>,
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            run_phases: Family::default(),
            run_durations: Family::new_with_constructor(durations as fn() -> Histogram),
            workspace_phases: Family::default(),
            seed_durations: Family::new_with_constructor(durations as fn() -> Histogram),
        };
        registry.register(
            "harnessrun_phase_transitions",
            "Changes of the phase of HarnessRuns; from is empty at the first",
            metrics.run_phases.clone(),
        );
        registry.register_with_unit(
            "harnessrun_duration",
            "Time from the start of a HarnessRun's pod to the end of the run, by its final phase; \
             without runs whose pod did not start",
            Unit::Seconds,
            metrics.run_durations.clone(),
        );
        registry.register(
            "workspace_phase_transitions",
            "Changes of the phase of Workspaces; from is empty at the first",
            metrics.workspace_phases.clone(),
        );
        registry.register_with_unit(
            "workspace_seed_duration",
            "Time from the first status of a Workspace with a seed to the end of its seeding",
            Unit::Seconds,
            metrics.seed_durations.clone(),
        );
        metrics
    }

    /// Counts a written status of a run.
    pub(super) fn run(&self, before: Option<&HarnessRunStatus>, after: &HarnessRunStatus) {
        let from = before.and_then(|status| status.phase);
        let Some(to) = after.phase.filter(|to| from != Some(*to)) else {
            return;
        };
        count(&self.run_phases, from, to);
        if from.is_some_and(RunPhase::is_terminal) || !to.is_terminal() {
            return;
        }
        if let (Some(start), Some(end)) = (after.start_time, after.completion_time) {
            observe(&self.run_durations, Phase { phase: to.into() }, start, end);
        }
    }

    /// Counts a written status of a workspace.
    pub(super) fn workspace(
        &self,
        now: Timestamp,
        before: Option<&WorkspaceStatus>,
        after: &WorkspaceStatus,
    ) {
        let from = before.and_then(|status| status.phase);
        if let Some(to) = after.phase.filter(|to| from != Some(*to)) {
            count(&self.workspace_phases, from, to);
        }
        if let Some((start, outcome)) = seeding_ended(before, after) {
            let outcome = outcome.into();
            observe(&self.seed_durations, Outcome { outcome }, start, now);
        }
    }
}

fn count<P: Into<&'static str>>(family: &Family<Change, Counter>, from: Option<P>, to: P) {
    let from = from.map(Into::into);
    let to = to.into();
    family.get_or_create(&Change { from, to }).inc();
}

fn observe<L>(family: &Durations<L>, labels: L, start: Timestamp, end: Timestamp)
where
    L: Clone + std::hash::Hash + Eq,
{
    let took = end.duration_since(start).as_secs_f64();
    family.get_or_create(&labels).observe(took.max(0.0));
}
