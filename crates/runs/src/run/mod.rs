//! HarnessRuns, as a controller: the record and the NetworkPolicy first, which carries what was decided, then the
//! Job. At the end the other way round: the Job and its pods, and when no container runs any more, the record and
//! the NetworkPolicy. It has no owner, and so it is there until we have seen that nothing runs.

mod assess;
mod decided;
mod drift;
mod existing;
mod plan;
mod report;

use jiff::SignedDuration;
use oz_core::lifecycle::seal::Keys;

pub use assess::{Facts, Pending, Question, State, is_concerned_by, is_over, spec_digest};
pub use decided::{Decided, HeldWorkspace};
pub use existing::{COMPLETED, RunEnd, is_hidden};

use super::objects::Broker;
use super::pod::Settings;

/// The controller of HarnessRuns.
#[derive(Clone)]
pub struct Runs {
    /// Opens stamps, seals and opens decisions.
    pub keys: Keys,
    /// What the pods of runs are made with, but for the broker's certificates, which are a fact.
    pub settings: Settings,
    /// Where brokers are.
    pub broker: Broker,
    /// How long a pod may take from its node to its start.
    pub pod_ready_timeout: SignedDuration,
    /// Whether runs end whose pods other NetworkPolicies let reach more, and none such begins.
    pub require_confined: bool,
}
