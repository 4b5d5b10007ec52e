//! The rules of harness runs: the result of a template ([`template`]), the policies that apply to it and their grants
//! ([`policy`]), missing requirements ([`requires`]), the pod, Job and NetworkPolicy of a run ([`pod`], [`objects`],
//! [`isolation`]), the seed of a workspace ([`seed`]), validation at admission ([`admission`]), and the controllers
//! ([`run`], [`workspace`], [`definitions`]). The crate is pure: admission, operator, broker and command line call the
//! same functions.

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
pub mod stored;
pub mod template;
pub mod voucher;
pub mod workspace;
