//! The submission of a prompt for a template.

use kube::api::{ObjectMeta, PostParams};
use oz_api::harness::{HarnessRun, HarnessRunSpec, TemplateRef};
use oz_core::validate::Violation;
use oz_runs::admission;

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// The maximum length of the prefix that the names of runs take from their template: the API server
/// adds five letters.
const MAX_PREFIX: usize = 57;

/// A run as a user asks for it.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The template.
    pub template: TemplateRef,
    /// The workspace; without one, the run has one that ends with it.
    pub workspace: Option<String>,
    /// The prompt.
    pub prompt: String,
    /// The model, if it is not that of the template.
    pub model: Option<String>,
    /// The time that it may last, if it is not that of the template.
    pub timeout: Option<String>,
    /// The name; without one, the API server adds letters to that of the template.
    pub name: Option<String>,
    /// The reason, for the record.
    pub reason: Option<String>,
    /// The change ticket.
    pub ticket: Option<String>,
    /// Whether the run declares an emergency.
    pub emergency: bool,
}

/// The reason why a run would not be admitted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SubmitError {
    /// The prompt is missing.
    #[error("the prompt is empty")]
    NoPrompt,
    /// The run breaks rules of admission.
    #[error("the run would be refused: {}", Violation::list(.0))]
    Refused(Vec<Violation>),
}

impl From<SubmitError> for Failure {
    fn from(error: SubmitError) -> Self {
        Self::new(error.to_string()).next(match error {
            SubmitError::NoPrompt => "give the prompt with --prompt or --prompt-file",
            SubmitError::Refused(_) => "`ozctl run submit --help` describes each flag",
        })
    }
}

impl Submission {
    /// Returns the run to create, after the checks of admission that require only the run itself.
    ///
    /// # Errors
    /// The run would not be admitted.
    pub fn run(self) -> Result<HarnessRun, SubmitError> {
        if self.prompt.is_empty() {
            return Err(SubmitError::NoPrompt);
        }
        let generate_name = match &self.name {
            Some(_) => None,
            None => Some(prefix(&self.template.name)),
        };
        let run = HarnessRun {
            metadata: ObjectMeta {
                name: self.name,
                generate_name,
                ..ObjectMeta::default()
            },
            spec: HarnessRunSpec {
                template_ref: self.template,
                workspace_ref: self.workspace,
                prompt: Some(self.prompt),
                model: self.model,
                timeout: self.timeout,
                reason: self.reason,
                ticket: self.ticket,
                emergency: self.emergency.then_some(true),
                ..HarnessRunSpec::default()
            },
            status: None,
        };
        let found = admission::run(&run);
        match found.is_empty() {
            true => Ok(run),
            false => Err(SubmitError::Refused(found)),
        }
    }
}

/// Creates a run.
///
/// # Errors
/// The user has no permission, or the webhook rejects the run.
pub async fn submit(cluster: &Cluster, run: &HarnessRun) -> Result<HarnessRun> {
    let api = cluster.api::<HarnessRun>();
    cluster
        .answer(api.create(&PostParams::default(), run))
        .await
}

/// Returns the prefix of the names of a template's runs.
fn prefix(template: &str) -> String {
    let end = template.char_indices().nth(MAX_PREFIX);
    let begun = &template[..end.map_or(template.len(), |(at, _)| at)];
    format!("{}-", begun.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_name_fits_however_long_the_templates_is() {
        assert_eq!(prefix("echo"), "echo-");
        for template in ["a".repeat(253), format!("{}.b", "a".repeat(56))] {
            // The API server adds five letters.
            let prefix = prefix(&template);
            assert!(prefix.len() + 5 <= admission::MAX_NAME, "{prefix}");
            assert!(prefix.ends_with("a-"), "{prefix}");
        }
    }
}
