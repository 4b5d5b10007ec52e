//! What a user is told once access is ready: the template's `accessCommand`, in the language of
//! Go's text/template, over the metadata of the pod. The engine is gotmpl; the submodules make it
//! keep to Go where it differs, and keep a template from taking more than its share.

mod functions;
mod metadata;
mod syntax;

use std::fmt::{self, Write};

use gotmpl::parse::ListNode;
use gotmpl::{Template, TemplateError};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The longest message, in bytes.
pub const MAX_MESSAGE: usize = 4096;

/// The longest command, in bytes.
const MAX_SOURCE: usize = 4096;

/// How often all `range`s of one rendering may go round together.
const MAX_ROUNDS: usize = 1000;

/// What one rendering may cost: rounds, times the operations in each, times the longest text of the
/// pod's metadata, which each of them may look through.
const MAX_WORK: usize = 16 * 1024 * 1024;

/// What an operation costs at least, whatever it looks at.
const LEAST_WORK: usize = 256;

/// A command that parsed. Everything that can be known before there is a pod is checked.
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
    /// Reads a command and tries it on a pod that has a bit of everything.
    ///
    /// # Errors
    ///
    /// If the syntax is wrong, something is used that is not supported, a field does not exist, or
    /// the trial fails.
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
            // Another pod may have more of it.
            Ok(_) | Err(AccessCommandError::OutOfRange(_)) => Ok(command),
            Err(error) => Err(error),
        }
    }

    /// As it was written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The message for a pod. Nothing in it is escaped.
    ///
    /// # Errors
    ///
    /// If this pod lacks what the command relies on, such as the first of its owner references, or
    /// the message is longer than [`MAX_MESSAGE`], or the command costs too much on this pod.
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

    /// How often the `range`s may go round for this pod.
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

/// Reads a command and renders it for a pod.
///
/// # Errors
///
/// As [`AccessCommand::parse`] and [`AccessCommand::render`].
pub fn render(source: &str, metadata: &ObjectMeta) -> Result<String, AccessCommandError> {
    AccessCommand::parse(source)?.render(metadata)
}

/// Why a command cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessCommandError {
    /// Not the syntax of a template.
    #[error("{0}")]
    Syntax(String),
    /// Part of Go's language, but not of what is understood here.
    #[error(
        "{0} is not supported: use fields of .Metadata, if, with, range, and the functions {functions}",
        functions = functions::SUPPORTED.join(", ")
    )]
    Unsupported(String),
    /// Could not be rendered.
    #[error("{0}")]
    Render(String),
    /// This pod has fewer of something than the command counts on.
    #[error("index out of range: {0}")]
    OutOfRange(i64),
    /// Too much work on this pod.
    #[error(
        "has {operations} operations, each of which may look through {longest} bytes of the pod's \
         metadata: for this pod at most {enough} are carried out"
    )]
    TooCostly {
        /// How many operations it has.
        operations: usize,
        /// The longest text of the pod's metadata, in bytes.
        longest: usize,
        /// How many would be carried out.
        enough: usize,
    },
    /// Longer than [`MAX_MESSAGE`].
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
