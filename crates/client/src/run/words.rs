//! Words that users type for the parts of a run.

use oz_api::harness::{ProviderKind, TemplateKind};

/// The reason why a word means nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordError {
    /// The text is not a kind of template.
    #[error("write HarnessTemplate or ClusterHarnessTemplate")]
    TemplateKind,
    /// The text is not a provider of credentials.
    #[error("write one of UserSuppliedSecret, AnthropicAPI, GitHubApp, PATPool")]
    Provider,
}

/// Parses a kind of template, by its name or its short name.
///
/// # Errors
/// There is no such kind.
pub fn template_kind(text: &str) -> Result<TemplateKind, WordError> {
    match text.to_ascii_lowercase().as_str() {
        "harnesstemplate" | "ht" => Ok(TemplateKind::HarnessTemplate),
        "clusterharnesstemplate" | "cht" => Ok(TemplateKind::ClusterHarnessTemplate),
        _ => Err(WordError::TemplateKind),
    }
}

/// Parses a source of credentials.
///
/// # Errors
/// There is no such source.
pub fn provider(text: &str) -> Result<ProviderKind, WordError> {
    text.parse().map_err(|_| WordError::Provider)
}
