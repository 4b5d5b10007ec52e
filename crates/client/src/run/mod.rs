//! Harness runs on behalf of a user: submitting one ([`Submission`]), its changes ([`follow`], [`fresh`]), its output
//! ([`output`]) and its transcript ([`TranscriptReader`]), the reasons why it waits ([`explain`]), its end before its
//! time ([`cancel`]), the resolved template and its missing parts ([`Template`]), the policies ([`policies`]), and its
//! destinations ([`egress`]).

mod check;
mod egress;
mod error;
mod events;
mod explain;
mod finding;
mod follow;
mod objects;
mod output;
mod policy;
mod report;
mod submit;
mod template;
mod transcript;
mod words;

pub use check::{PolicyCondition, SECRETS_READABLE, VERIFIED, policy_conditions};
pub use egress::{changed, egress, refusals};
pub use error::{RunError, installed};
pub use events::{fresh, in_the_way};
pub use explain::{Explanation, explain};
pub use finding::Finding;
pub use follow::{Followed, follow};
pub use objects::{Cancelled, cancel, cluster_templates, find_run, list, phase};
pub use output::{Container, copy, output};
pub use policy::{
    PolicyCheck, Scaffold, broker_account, check_policies, scaffold_policy, secret_access,
};
pub use report::{TemplateReport, report_template};
pub use submit::{Submission, SubmitError, submit};
pub use template::{Template, find, find_named, no_template, policies};
pub use transcript::{Reading, TranscriptError, TranscriptReader};
pub use words::{WordError, provider, template_kind};
