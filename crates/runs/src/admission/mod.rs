//! Admission of harness runs, templates, workspaces and policies. A denial lists all violations of an object, each with
//! its path. The definitions also deny a part of them, one at a time and while no hook responds.

mod authors;
mod found;
mod policy;
mod run;
mod template;
mod workspace;

pub use authors::{Named, NamedKind, of_policy, of_run, of_workspace};
pub use policy::{MAX_DISCOVERY, policy, standing_policy};
pub use run::{MAX_NAME, MAX_PROMPT, run, run_of_template, run_update};
pub use template::template;
pub use workspace::{workspace, workspace_update};
