//! Harness runs, the rules over them: what a template comes to, which policies speak for it, what they grant and
//! what is lacking, and what a run's pod, Job and NetworkPolicy are. All of it pure: admission, operator, broker
//! and command line are to call the same functions.

pub mod admission;
pub mod authority;
pub mod caller;
mod child;
pub mod definitions;
pub mod host;
pub mod isolation;
mod jobs;
pub mod lean;
mod mount;
pub mod objects;
mod overlay;
pub mod pod;
pub mod policy;
pub mod queue;
pub mod reader;
pub mod report;
pub mod requires;
pub mod reserved;
pub mod run;
pub mod scaffold;
pub mod seed;
pub mod template;
pub mod voucher;
pub mod workspace;
