//! Errors of expressions.

use std::time::Duration;

use oz_core::access::policy::situation::MAX_BYTES;
use oz_core::connect::policy::Excess;

/// The reason why an expression does not compile, or gives no value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CelError {
    /// The expression exceeds a bound.
    #[error(transparent)]
    Excess(#[from] Excess),
    /// The expression cannot be parsed.
    #[error("{line}")]
    Syntax {
        /// First line of the library's error.
        line: String,
    },
    /// The expression names something that does not exist.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The evaluation failed.
    #[error("{line}")]
    Evaluation {
        /// First line of the library's error.
        line: String,
    },
    /// A variable has content that CEL cannot represent.
    #[error("{line}")]
    Content {
        /// First line of the library's error.
        line: String,
    },
    /// The deadline has passed.
    #[error("time is up")]
    TimeIsUp,
    /// The value of an access policy or of a condition is no boolean.
    #[error("the expression does not return true or false")]
    NotBoolean,
    /// The value of `accept` is no boolean.
    #[error("accept does not return true or false")]
    AcceptNotBoolean,
    /// The value of an expression that a user writes is no boolean.
    #[error("must return true or false")]
    MustBeBoolean,
    /// The evaluation failed, for a reason that may contain a secret.
    #[error("has no value for this record; the reason may contain a secret, and is not shown")]
    Hidden,
    /// The brackets of the expression nest too deep.
    #[error("brackets nest deeper than {most} levels")]
    Nested {
        /// Maximum depth.
        most: usize,
    },
    /// The expression of the body of a notification has too many operators.
    #[error("must not have more than {most} operators")]
    Operators {
        /// The maximum.
        most: usize,
    },
    /// The value of the body of a notification is no map.
    #[error("must return a map, as in {{'text': record.message}}")]
    NotMap,
    /// A key in the body of a notification is no text.
    #[error("the keys of its maps must be texts")]
    BodyKey,
    /// The body of a notification contains a value that JSON cannot represent.
    #[error(
        "has a value of the type {kind}, which JSON cannot represent; write string(…) around it"
    )]
    BodyValue {
        /// Type of the value.
        kind: String,
    },
    /// The body of a notification is too large.
    #[error("has more than {} KiB as JSON", most >> 10)]
    BodyTooLarge {
        /// The maximum, in bytes.
        most: usize,
    },
    /// The variables are too large.
    #[error(
        "the variables of the expression have {size} bytes, and the maximum is {MAX_BYTES}: the \
         groups of the requester, or the labels and annotations, are too many"
    )]
    TooLarge {
        /// Size of the variables, in bytes.
        size: usize,
    },
    /// A text is no regular expression, or one that is too large.
    #[error("{pattern} is not a regular expression: {error}")]
    Pattern {
        /// Text of the regular expression.
        pattern: String,
        /// Error of the library.
        error: regex::Error,
    },
    /// The time zone does not exist.
    #[error("there is no time zone {name}; name one of the IANA database, as in Europe/Berlin")]
    NoZone {
        /// First characters of its name.
        name: String,
    },
    /// CEL has no such instant.
    #[error("{instant}: {line}")]
    Instant {
        /// Instant as text.
        instant: String,
        /// Error of the library.
        line: String,
    },
    /// CEL has no such duration.
    #[error("a duration is infinite")]
    Endless,
    /// The thread of the evaluation could not be started.
    #[error("failed to start its thread: {error}")]
    NoThread {
        /// Error of the operating system.
        error: String,
    },
    /// The evaluation took too long.
    #[error("no response within {patience:?}")]
    NoAnswer {
        /// Time for which it was awaited.
        patience: Duration,
    },
    /// The thread of the evaluation ended without a result.
    #[error("its evaluation failed")]
    Failed,
}

/// A name in an expression that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownName {
    /// The type does not exist.
    #[error("there is no type {name}")]
    Type {
        /// The name in the expression.
        name: String,
    },
    /// The function does not exist.
    #[error("there is no function {name}")]
    Function {
        /// The name in the expression.
        name: String,
    },
    /// The variable does not exist.
    #[error("there is no variable {name} (there are {})", known.join(", "))]
    Variable {
        /// The name in the expression.
        name: String,
        /// Names of the variables that exist.
        known: Vec<String>,
    },
    /// The field does not exist.
    #[error("{variable} has no field {field} (it has {})", known.join(", "))]
    Field {
        /// Name of the variable.
        variable: String,
        /// Name of the field.
        field: String,
        /// Names of the fields that exist.
        known: Vec<String>,
    },
}
