//! The rules of harness runs: the result of a template ([`template`]), the policies that apply to it and their grants
//! ([`policy`]), their stamp ([`policy_stamp`]), missing requirements ([`requires`]), change tickets and emergencies
//! ([`terms`]), the pod, Job and NetworkPolicy of a run ([`pod`], [`objects`], [`isolation`]), the seed of a workspace
//! ([`seed`]), validation at admission ([`admission`]), and the controllers ([`run`], [`workspace`], [`definitions`]). The
//! crate is pure: admission, operator, broker and command line call the same functions.

pub mod admission;
pub mod authority;
pub mod caller;
mod child;
mod credential;
pub mod definitions;
pub mod isolation;
mod jobs;
pub mod lean;
pub mod lending;
mod mount;
pub mod objects;
mod overlay;
pub mod pod;
pub mod policy;
pub mod policy_stamp;
pub mod provider;
pub mod queue;
pub mod reach;
pub mod reader;
pub mod report;
pub mod requires;
pub mod reserved;
pub mod run;
pub mod scaffold;
pub mod seed;
pub mod stored;
pub mod template;
pub mod terms;
pub mod voucher;
pub mod workspace;
