//! The errors of a policy, and of an evaluation.

use std::fmt;
use std::time::Duration;

/// The reason why a policy was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The policy is too large, or nested too deeply.
    Size,
    /// The text is not Rego.
    Syntax,
    /// A function that does not exist.
    UnknownFunction,
    /// A function with a result that is not a function of its input.
    NotAFunctionOfInput,
    /// A function or syntax of OPA that is not supported.
    NotSupported,
    /// Rules that contradict each other, variables without a value and the like.
    Semantics,
    /// A path below `data` that nothing defines, or a document that cannot be read or contradicts a module.
    Data,
}

/// An error in a policy, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// The name of the module; empty for an error of the whole policy.
    pub file: String,
    /// The line, from 1; 0 without a particular line.
    pub line: u32,
    /// The column, from 1; 0 without a particular column.
    pub column: u32,
    /// The kind of the error.
    pub reason: Reason,
    /// The message, for users.
    pub message: String,
}

impl CompileError {
    pub(crate) fn whole(reason: Reason, message: String) -> Self {
        Self {
            file: String::new(),
            line: 0,
            column: 0,
            reason,
            message,
        }
    }

    /// Parses an error of the interpreter, which draws the line in question: `--> FILE:LINE:COLUMN`, the line, a mark
    /// below it, and `error: MESSAGE`.
    pub(crate) fn drawn(file: &str, reason: Reason, error: &str) -> Self {
        let place = Location::parse(error);
        Self {
            file: place.file.unwrap_or(file).to_owned(),
            line: place.line,
            column: place.column,
            reason,
            message: place.message,
        }
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            message,
            ..
        } = self;
        match (file.as_str(), line) {
            ("", _) => f.write_str(message),
            (_, 0) => write!(f, "{file}: {message}"),
            _ => write!(f, "{file}:{line}:{column}: {message}"),
        }
    }
}

/// All errors of a policy: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileErrors(Vec<CompileError>);

impl CompileErrors {
    pub(crate) fn one(error: CompileError) -> Self {
        Self(vec![error])
    }

    pub(crate) fn all(errors: Vec<CompileError>) -> Result<(), Self> {
        if errors.is_empty() {
            return Ok(());
        }
        Err(Self(errors))
    }

    /// Returns the errors, in the order of modules and lines.
    #[must_use]
    pub fn errors(&self) -> &[CompileError] {
        &self.0
    }
}

impl fmt::Display for CompileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("; ")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for CompileErrors {}

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluateError {
    /// The query is not the path of a document.
    #[error("`{0}` is not a path such as `controller` or `team.policies`")]
    Path(String),
    /// The input is nested more deeply than an object that the API server would store.
    #[error("the input is nested too deeply: {0} levels at most")]
    Input(usize),
    /// The instant is before 1678 or after 2261.
    #[error(
        "{0} is not an instant at which a policy can be evaluated: nanoseconds since 1970 have \
        64 bits"
    )]
    Instant(jiff::Timestamp),
    /// The evaluation exceeded its time limit.
    #[error("the policy was stopped after {0:?}")]
    Time(Duration),
    /// The evaluation created more than its limits allow, before it had an answer.
    #[error("the policy was stopped: {0}")]
    Work(String),
    /// The answer is larger than its limit.
    #[error("the result is larger than {0} bytes")]
    Bytes(usize),
    /// The answer is nested more deeply than its limit.
    #[error("the result is nested too deeply: {0} levels at most")]
    Depth(usize),
    /// The answer has a number that JSON parsers would round.
    #[error("the result has a number that cannot be written exactly: {0}")]
    Number(String),
    /// The policy failed, for example because one rule has two values.
    #[error("{}", Failed(.file, .line, .message))]
    Failed {
        /// The name of the module; empty if it is not known.
        file: String,
        /// The line, from 1; 0 if it is not known.
        line: u32,
        /// The message.
        message: String,
    },
    /// A step of the evaluation exceeds its time, and cannot be stopped.
    #[error(
        "the policy did not stop {0:?} after its timeout; it is not evaluated again before it is \
            changed"
    )]
    Stuck(Duration),
    /// The interpreter panicked.
    #[error("internal error: the interpreter panicked (please report)")]
    Internal,
    /// The operating system did not create a thread.
    #[error("failed to start a thread for the policy: {0}")]
    Thread(String),
}

struct Failed<'a>(&'a String, &'a u32, &'a String);

impl fmt::Display for Failed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(file, line, message) = self;
        match file.as_str() {
            "" => write!(f, "{message}"),
            _ => write!(f, "{file}:{line}: {message}"),
        }
    }
}

/// The content of the interpreter's drawing.
pub(crate) struct Location<'a> {
    pub(crate) file: Option<&'a str>,
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) message: String,
}

impl<'a> Location<'a> {
    pub(crate) fn parse(error: &'a str) -> Self {
        let mut place = Self {
            file: None,
            line: 0,
            column: 0,
            message: String::new(),
        };
        // In nested drawings the last is the innermost, and the first is the position for the author.
        for line in error.lines() {
            if let Some(drawn) = line.trim_start().strip_prefix("--> ") {
                let mut parts = drawn.rsplitn(3, ':');
                let column = parts.next().and_then(|part| part.parse().ok());
                let row = parts.next().and_then(|part| part.parse().ok());
                if let (None, Some(column), Some(row)) = (place.file, column, row) {
                    place.file = parts.next();
                    place.line = row;
                    place.column = column;
                }
            } else if let Some(message) = line.strip_prefix("error: ")
                && place.message.is_empty()
            {
                // The additional text helps only to find errors of the interpreter.
                let message = message.split(" (path [").next().unwrap_or(message);
                message.clone_into(&mut place.message);
            }
        }
        if place.message.is_empty() {
            let plain = error.lines().map(str::trim).find(|line| !line.is_empty());
            plain
                .unwrap_or("unknown error")
                .clone_into(&mut place.message);
        }
        place
    }
}
