//! What is refused of harness runs, templates, workspaces and policies: everything in an object at once, each
//! with its path. The definitions refuse some of it as well, one after the other, and while no hook answers.

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
