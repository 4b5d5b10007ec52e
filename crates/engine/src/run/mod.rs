//! The run of one controller: a queue of objects to reconcile, the pass over one object, and the
//! writes that carry out its plan.

mod applied;
mod backoff;
mod carry_out;
mod children;
mod packed;
mod pass;
mod priority;
mod queue;
mod runner;
mod shared;
mod write;

pub(crate) use applied::Applied;
pub(crate) use children::{Adopts, Beside, ChildStore, Children, Departed};
pub use packed::Packed;
pub(crate) use priority::WriteSlots;
pub(crate) use queue::Lane;
pub(crate) use runner::Runner;
pub(crate) use shared::Shared;
pub(crate) use write::Writer;
