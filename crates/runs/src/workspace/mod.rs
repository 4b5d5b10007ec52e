//! The controller of Workspaces: the claim, the seed, and the lock. Only this controller writes the lock: of the runs
//! that wait only for a workspace, the oldest holds it until the run has ended and its NetworkPolicy is deleted, when none
//! of its containers runs. Runs only read the lock, so that no run can fail to release it.
//! See docs/adr/0025-who-holds-a-workspace.md.

mod assess;
mod claim;
mod plan;
mod report;
mod seeding;

use oz_core::lifecycle::seal::Keys;

pub use assess::{Facts, Holder, Question, State, Waiting, queue};
pub use claim::claim;
pub use oz_api::names::WORKSPACE_FINALIZER as FINALIZER;
pub use report::{SeedOutcome, seeding_ended};

pub use super::objects::WORKSPACE_KIND as KIND;
use super::seed;

/// The controller of Workspaces.
#[derive(Clone, Debug)]
pub struct Workspaces {
    /// Keys that verify stamps.
    pub keys: Keys,
    /// The settings for seeds.
    pub seeds: seed::Settings,
    /// Whether a seed may neither begin nor continue while other NetworkPolicies open more connections to its pods.
    pub require_confined: bool,
}
