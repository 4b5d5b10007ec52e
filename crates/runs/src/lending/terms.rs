//! The part of the sealed decision of a run that its credentials depend on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{Requester, labels};
use oz_core::lifecycle::seal::{Keys, SealError};
use oz_trail::RequestRef;

use crate::objects::KIND;
use crate::run::Decided;

/// The template, the credentials and the submitter of a run, as the operator decided when the run began.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// The run.
    pub run: RequestRef,
    /// The user who submitted the run.
    pub submitter: Requester,
    /// The name of the template, by which policies match.
    pub template: String,
    /// The kind and name of the template, as audit records have it.
    pub template_ref: String,
    /// The digest of the template.
    pub template_digest: String,
    /// The names of the credentials that the template required.
    pub credentials: Vec<String>,
}

/// The reason for which the terms of a run are not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    /// The Job has no decision.
    #[error(
        "the Job of the run has no annotation {}, which the operator seals",
        labels::GRANT
    )]
    Missing,
    /// The decision was not sealed by the operator.
    #[error("the decision of the Job is not the operator's: {0}")]
    Seal(#[from] SealError),
    /// The decision is of another run.
    #[error(
        "the decision in annotation {} of the Job is of another run",
        labels::GRANT
    )]
    OtherRun,
}

impl Terms {
    /// Opens the decision in the annotation of the run's Job with the public keys of the operator.
    ///
    /// # Errors
    /// The Job has no decision of the operator for this run.
    pub fn open(
        keys: &Keys,
        job: &ObjectMeta,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<Self, TermsError> {
        let annotations = job.annotations.as_ref();
        let sealed = annotations.and_then(|all| all.get(labels::GRANT));
        let decided = Decided::open_text(keys, sealed.ok_or(TermsError::Missing)?)?;
        let run = &decided.run;
        let is_of_run = run.namespace == namespace && run.name == name && run.uid == uid;
        if !is_of_run || uid.is_empty() {
            return Err(TermsError::OtherRun);
        }
        Ok(Self {
            template: decided.template_name().to_owned(),
            run: RequestRef {
                kind: KIND.to_owned(),
                ..decided.run
            },
            submitter: decided.submitter,
            template_ref: decided.template,
            template_digest: decided.template_digest,
            credentials: decided.credentials.into_iter().map(|it| it.name).collect(),
        })
    }
}
