//! Errors about runs.

use crate::failure::Failure;

/// The reason why a run or its output cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The run does not exist.
    #[error("no run {name} in namespace {namespace}")]
    NoRun {
        /// The name of the run.
        name: String,
        /// The namespace.
        namespace: String,
    },
    /// The run has no pod.
    #[error("run {run} has no pod yet")]
    NoPod {
        /// The name of the run.
        run: String,
    },
    /// The API server does not answer as it should.
    #[error(transparent)]
    Cluster(#[from] Failure),
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let message = error.to_string();
        match error {
            RunError::NoRun { .. } => {
                Self::new(message).next("`ozctl run list` lists the existing runs")
            }
            RunError::NoPod { run } => {
                Self::new(message).next(format!("`ozctl run explain {run}` shows the cause"))
            }
            RunError::Cluster(failure) => failure,
        }
    }
}

/// Returns, for a cluster without these kinds, a failure with the required action; any other failure is unchanged.
pub fn installed(failure: impl Into<Failure>) -> Failure {
    let failure = failure.into();
    if !failure.is_unknown_kind() {
        return failure;
    }
    let exit = failure.exit();
    Failure::new("the CustomResourceDefinitions of harness runs (paddock.dev/v1alpha1) are not \
        installed in the cluster")
        .next("have an administrator install oz's chart with harness.enabled=true, or choose another cluster with --context")
        .with(exit)
}
