//! What can be wrong with a policy, and with an evaluation.

use std::fmt;
use std::time::Duration;

/// Why a policy was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Too large, or nested too deeply.
    Size,
    /// Not Rego.
    Syntax,
    /// A function that does not exist.
    UnknownFunction,
    /// A function whose result is no function of its input.
    NotAFunctionOfInput,
    /// Rules that contradict each other, variables without a value and the like.
    Semantics,
}

/// One thing that is wrong with a policy, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// Name of the module; empty if it is the policy as a whole.
    pub file: String,
    /// From 1; 0 if it is no line in particular.
    pub line: u32,
    /// From 1; 0 if it is no column in particular.
    pub column: u32,
    /// What kind of error it is.
    pub reason: Reason,
    /// What is wrong, for people.
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

    /// From an error of the interpreter, which draws the line in question: `--> FILE:LINE:COLUMN`, the line, a
    /// mark below it, and `error: MESSAGE`.
    pub(crate) fn drawn(file: &str, reason: Reason, error: &str) -> Self {
        let place = Location::of(error);
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

/// Everything that is wrong with a policy: one error at least.
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

    /// The errors, in the order of modules and lines.
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

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluateError {
    /// The query is not the path of a document.
    #[error("`{0}` is not a path such as `controller` or `team.policies`")]
    Path(String),
    /// The input is nested more deeply than what the API server would store.
    #[error("the input is nested too deeply: {0} levels at most")]
    Input(usize),
    /// The instant is before 1678 or after 2261.
    #[error("{0} is no instant that a policy can be asked at: nanoseconds since 1970 have 64 bits")]
    Instant(jiff::Timestamp),
    /// It took longer than it may.
    #[error("the policy was stopped after {0:?}")]
    Time(Duration),
    /// It made more than it may on the way to its answer.
    #[error("the policy was stopped: {0}")]
    Work(String),
    /// The answer is larger than it may be.
    #[error("the answer is larger than {0} bytes")]
    Bytes(usize),
    /// The answer is nested more deeply than it may be.
    #[error("the answer is nested too deeply: {0} levels at most")]
    Depth(usize),
    /// The answer has a number that JSON's readers would round.
    #[error("the answer has a number that cannot be written exactly: {0}")]
    Number(String),
    /// The policy failed, as with two values for one rule.
    #[error("{}", Failed(.file, .line, .message))]
    Failed {
        /// Name of the module; empty if it is not known.
        file: String,
        /// From 1; 0 if it is not known.
        line: u32,
        /// What failed.
        message: String,
    },
    /// One step of it lasts longer than it may, and it cannot be ended.
    #[error(
        "the policy did not stop {0:?} after it was asked; it is not asked again before it is changed"
    )]
    Stuck(Duration),
    /// The interpreter panicked.
    #[error("internal error: the interpreter panicked (please report)")]
    Internal,
    /// The operating system gave no thread.
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

/// What the interpreter's drawing says.
pub(crate) struct Location<'a> {
    pub(crate) file: Option<&'a str>,
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) message: String,
}

impl<'a> Location<'a> {
    pub(crate) fn of(error: &'a str) -> Self {
        let mut place = Self {
            file: None,
            line: 0,
            column: 0,
            message: String::new(),
        };
        // Of drawings within drawings the last is the innermost, and the first is where to look.
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
                // What the interpreter knows besides is for those who look for its errors.
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
