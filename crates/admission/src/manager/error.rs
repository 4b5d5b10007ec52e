//! What upkeep fails at.

use std::time::Duration;

use crate::{
    certificate::{authority::Error as CertificateError, store},
    registration::apply,
};

/// Why certificate or registration are not as they should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpkeepError {
    /// The authority.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The registration.
    #[error(transparent)]
    Registration(#[from] apply::Error),
    /// The API server did not answer.
    #[error("failed to hear from the API server within {0:?}")]
    TimedOut(Duration),
    /// The supplied Secret.
    #[error("failed to read Secret {namespace}/{name}: {source}")]
    Supplied {
        /// Where it should be.
        namespace: String,
        /// Its name.
        name: String,
        /// What came back.
        source: Box<kube::Error>,
    },
}
