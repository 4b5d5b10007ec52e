//! Composites: the CompositeControllers and RegoControllers in the cluster are surveyed
//! ([`survey`]), started and stopped ([`runs`]), and run: the questions of a pass over a parent
//! ([`parents`]), the calls of functions behind HTTP ([`webhook`]), and the call that shows which
//! rights a composite needs ([`customized`]).

mod customized;
mod kinds;
mod parents;
mod rego;
mod related;
mod reports;
mod runs;
mod stored;
mod survey;
mod webhook;

pub(crate) use rego::Policies;
pub(crate) use reports::{Reports, ReportsPort};
pub(crate) use runs::{Runs, RunsPort};
pub(crate) use survey::Surveys;
pub(crate) use webhook::Webhooks;
