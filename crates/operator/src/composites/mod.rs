//! Composites: CompositeControllers and RegoControllers that are found in the cluster are looked up ([`survey`]), started and
//! stopped ([`runs`]), and run: what a pass over a parent asks ([`parents`]), and how a function behind HTTP
//! is asked ([`webhook`]).

mod args;
mod kinds;
mod parents;
mod rego;
mod related;
mod reports;
mod runs;
mod survey;
mod webhook;

pub(crate) use args::{CompositeArgs, HookAddress, label};
pub(crate) use rego::Policies;
pub(crate) use reports::{Reports, ReportsPort};
pub(crate) use runs::{Runs, RunsPort};
pub(crate) use survey::Surveys;
pub(crate) use webhook::Webhooks;
