//! The message to a user once access is ready: the template's `accessCommand`, in the language of Go's
//! text/template, over the metadata of the pod. The engine is gotmpl; the submodules correct its differences
//! from Go, and bound the cost of a template.
//! See <https://pkg.go.dev/text/template>.

mod functions;
mod metadata;
mod syntax;

use std::fmt::{self, Write};

use gotmpl::parse::ListNode;
use gotmpl::{Template, TemplateError};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The maximum length of a message, in bytes.
pub const MAX_MESSAGE: usize = 4096;

/// The maximum length of a command, in bytes.
const MAX_SOURCE: usize = 4096;

/// The maximum number of iterations of all `range`s of one rendering together.
const MAX_ROUNDS: usize = 1000;

/// The maximum cost of one rendering: iterations, times the operations in each, times the longest text of the
/// pod's metadata, which each of them may read completely.
const MAX_WORK: usize = 16 * 1024 * 1024;

/// The minimum cost of an operation, for any operands.
const LEAST_WORK: usize = 256;

/// A parsed command. All checks that need no pod have passed.
#[derive(Clone, Debug)]
pub struct AccessCommand {
    source: String,
    tree: ListNode,
    operations: usize,
}

impl PartialEq for AccessCommand {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl AccessCommand {
    /// Parses a command and tries it on a pod with values in all fields.
    ///
    /// # Errors
    ///
    /// If the syntax is wrong, something is used that is not supported, a field does not exist, or the trial
    /// fails.
    pub fn parse(source: &str) -> Result<Self, AccessCommandError> {
        if source.len() > MAX_SOURCE {
            return Err(AccessCommandError::Syntax(format!(
                "is longer than {MAX_SOURCE} bytes"
            )));
        }
        let (tree, operations) = syntax::parse(source)?;
        let command = Self {
            source: source.to_owned(),
            tree,
            operations,
        };
        match command.render(&metadata::sample()) {
            // Another pod may have more of them.
            Ok(_) | Err(AccessCommandError::OutOfRange(_)) => Ok(command),
            Err(error) => Err(error),
        }
    }

    /// Returns the text of the command as it was written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders the message for a pod. Nothing in it is escaped.
    ///
    /// # Errors
    ///
    /// If this pod lacks an item that the command requires, such as the first of its owner references, or the
    /// message is longer than [`MAX_MESSAGE`], or the command costs too much on this pod.
    pub fn render(&self, metadata: &ObjectMeta) -> Result<String, AccessCommandError> {
        let template = functions::register(Template::new(syntax::NAME))
            .max_range_iters(self.rounds(metadata)?)
            .add_parse_tree(syntax::NAME, self.tree.clone());
        let mut message = Message::default();
        template
            .execute_template_fmt(&mut message, syntax::NAME, &metadata::root(metadata))
            .map_err(|error| match error {
                TemplateError::Write => AccessCommandError::TooLong,
                TemplateError::IndexOutOfRange { index } => AccessCommandError::OutOfRange(index),
                TemplateError::Exec(text) => AccessCommandError::Render(text),
                other => AccessCommandError::Render(other.to_string()),
            })?;
        if message.0.contains(metadata::STRUCTURE) {
            return Err(AccessCommandError::Render(
                "prints a whole structure: name the field, such as .Metadata.Name".to_owned(),
            ));
        }
        Ok(message.0)
    }

    /// Returns the maximum number of iterations of the `range`s for this pod.
    fn rounds(&self, metadata: &ObjectMeta) -> Result<u64, AccessCommandError> {
        let longest = metadata::longest_text(metadata);
        let round = self.operations.max(1) * longest.max(LEAST_WORK);
        match (MAX_WORK / round).min(MAX_ROUNDS) {
            0 => Err(AccessCommandError::TooCostly {
                operations: self.operations,
                longest,
                enough: MAX_WORK / longest.max(LEAST_WORK),
            }),
            rounds => Ok(rounds as u64),
        }
    }
}

/// Parses a command and renders it for a pod.
///
/// # Errors
///
/// As [`AccessCommand::parse`] and [`AccessCommand::render`].
pub fn render(source: &str, metadata: &ObjectMeta) -> Result<String, AccessCommandError> {
    AccessCommand::parse(source)?.render(metadata)
}

/// The reason why a command cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessCommandError {
    /// The text does not have the syntax of a template.
    #[error("{0}")]
    Syntax(String),
    /// The text uses a part of Go's language that is not supported here.
    #[error(
        "{0} is not supported: use fields of .Metadata, if, with, range, and the functions {functions}",
        functions = functions::SUPPORTED.join(", ")
    )]
    Unsupported(String),
    /// The command could not be rendered.
    #[error("{0}")]
    Render(String),
    /// This pod has fewer items than the command requires.
    #[error("index out of range: {0}")]
    OutOfRange(i64),
    /// The command costs too much on this pod.
    #[error(
        "has {operations} operations, each of which may look through {longest} bytes of the pod's \
         metadata: for this pod at most {enough} are carried out"
    )]
    TooCostly {
        /// Number of operations of the command.
        operations: usize,
        /// The longest text of the pod's metadata, in bytes.
        longest: usize,
        /// Maximum number of operations for this pod.
        enough: usize,
    },
    /// The message is longer than [`MAX_MESSAGE`].
    #[error("the message is longer than {MAX_MESSAGE} bytes")]
    TooLong,
}

/// A text that refuses to grow beyond [`MAX_MESSAGE`].
#[derive(Default)]
struct Message(String);

impl Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_MESSAGE {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
