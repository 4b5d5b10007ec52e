//! The errors of a store of recordings.

use std::fmt::Display;

/// The reason for which a part was not stored or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StorageError {
    /// The name is not valid in the store.
    #[error(
        "failed to use {0:?} as a name: it must be segments of a-z, 0-9, '-' and '.' between slashes"
    )]
    Name(String),
    /// The content has more bytes than the reader accepts.
    #[error("failed to read {name}: it has more than {limit} bytes")]
    TooLarge {
        /// The name.
        name: String,
        /// The maximum size in bytes.
        limit: usize,
    },
    /// The store does not respond, or fails: another attempt may succeed.
    #[error("failed to {what} {name}: {why}")]
    Unavailable {
        /// The operation: "store", "read" or "list".
        what: &'static str,
        /// The name.
        name: String,
        /// The cause.
        why: String,
    },
    /// The store denies the operation until an administrator changes the configuration of the store or of the gate.
    #[error(
        "failed to {what} {name}: {why}; check the permissions of the credentials, and the name of \
            the bucket"
    )]
    Refused {
        /// The operation, as above.
        what: &'static str,
        /// The name.
        name: String,
        /// The cause.
        why: String,
    },
    /// The server does not implement a header of the gate's uploads, and therefore stores no part.
    #[error("failed to store {name}: {why}; {remedy}")]
    NotImplemented {
        /// The name.
        name: String,
        /// The cause, with the header.
        why: String,
        /// The change with which uploads succeed.
        remedy: &'static str,
    },
}

impl StorageError {
    /// Returns the error of an operation ("store", "read" or "list") that another attempt may complete.
    pub(crate) fn unavailable(what: &'static str, name: &str, why: &dyn Display) -> Self {
        Self::Unavailable {
            what,
            name: name.to_owned(),
            why: why.to_string(),
        }
    }

    /// Returns the reason as one word, for metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Name(_) => "Name",
            Self::TooLarge { .. } => "TooLarge",
            Self::Unavailable { .. } => "Unavailable",
            Self::Refused { .. } => "Refused",
            Self::NotImplemented { .. } => "NotImplemented",
        }
    }
}
