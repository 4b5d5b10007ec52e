//! Workspaces, as a controller: the claim, what fills it, and who holds it. There is one writer of the lock, and it
//! is here: of the runs that name a workspace, the oldest has it until it is over and its NetworkPolicy is gone,
//! which is when nothing of it runs any more. Runs read that; there is nothing that they could forget to release.

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
    /// What stamps are opened with.
    pub keys: Keys,
    /// What they are filled with.
    pub seeds: seed::Settings,
    /// Whether what fills them ends if other NetworkPolicies let its pods reach more, and does not begin.
    pub require_confined: bool,
}
