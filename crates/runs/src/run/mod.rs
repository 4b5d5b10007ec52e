//! The controller of HarnessRuns. At the start it writes the audit record and the NetworkPolicy, which carries the
//! decision, and then the Job. At the end it deletes the Job and its pods, and, when no container runs, writes the
//! audit record and deletes the NetworkPolicy. The NetworkPolicy has no owner, so it exists until the operator has
//! observed that no container runs.

mod assess;
mod conditions;
pub mod creation;
mod decided;
mod drift;
mod ends;
mod events;
mod existing;
mod facts;
mod grants;
mod offer;
mod plan;
mod proposal;
mod records;
mod report;
mod resolving;
mod spec;
mod termination;
mod terms;
mod upkeep;

use jiff::SignedDuration;
use oz_core::lifecycle::seal::Keys;

pub use crate::credential::DecidedCredential;
pub(crate) use conditions::{
    BROKER_READY, CREDENTIALS_READY, JOB_CREATED, TEMPLATE_RESOLVED, WORKSPACE_BOUND,
    WORKSPACE_FREE,
};
pub use decided::{Decided, HeldWorkspace};
pub(crate) use existing::TOO_MANY_RUNS;
pub use existing::{COMPLETED, RunEnd, is_hidden};
pub use facts::{Asked, Facts, Pending, Question, State};
pub use grants::Granted;
pub use spec::{candidate, has_begun, is_concerned_by, is_over, spec_digest};

use super::objects::Broker;
use super::pod::Settings;

/// The controller of HarnessRuns.
#[derive(Clone)]
pub struct Runs {
    /// Keys that verify stamps, and seal and open decisions.
    pub keys: Keys,
    /// The settings for the pods of runs, without the certificates of the broker, which are a fact.
    pub settings: Settings,
    /// The pods of brokers.
    pub broker: Broker,
    /// The maximum time from the scheduling of a pod to its start.
    pub pod_ready_timeout: SignedDuration,
    /// Whether a run may neither begin nor continue while other NetworkPolicies open more connections to its pods.
    pub require_confined: bool,
}
