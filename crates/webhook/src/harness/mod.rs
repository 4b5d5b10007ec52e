//! Harness runs at admission: the webhook stamps each run with its submitter, and denies actions
//! and reads through oz for which the user has no rights.

mod authors;
mod hooks;
mod record;
mod rules;
mod run;
mod stamp;
mod templates;
mod validate;

pub(crate) use hooks::hooks;
pub(crate) use templates::{FoundTemplate, RunTemplates};
