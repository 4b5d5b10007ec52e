//! Harness runs, the rules over them: what a template comes to, which policies speak for it, what they grant and
//! what is lacking, and what a run's pod, Job and NetworkPolicy are. All of it pure: admission, operator, broker
//! and command line are to call the same functions.
//!
//! Nothing of this is wired yet: no hook and no controller calls it.

pub mod admission;
mod child;
pub mod definitions;
pub mod glob;
pub mod host;
pub mod objects;
mod overlay;
pub mod pod;
pub mod policy;
pub mod requires;
pub mod reserved;
pub mod run;
pub mod template;
pub mod wire;
pub mod workspace;
