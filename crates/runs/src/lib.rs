//! Harness runs, the rules over them: what a template comes to ([`template`]), which policies speak for it and what
//! they grant ([`policy`]), what is lacking ([`requires`]), what a run's pod, Job and NetworkPolicy are ([`pod`],
//! [`objects`], [`isolation`]), what fills a workspace ([`seed`]), what is admitted ([`admission`]), and the
//! controllers ([`run`], [`workspace`], [`definitions`]). All of it pure: admission, operator, broker and command
//! line call the same functions.

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
