//! The object of approvals, a request for access or a transient binding, as far as approvals depend on it.

use k8s_openapi::api::rbac::v1 as rbac;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{Identity, Phase, Requester};
use oz_trail::RequestRef;

use super::super::request::StoredRequest;
use super::super::stamp::{self, StampError};
use crate::lifecycle::seal::Keys;

/// An object that may require approvals.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// Kind, as an approval names it.
    pub kind: &'static str,
    /// Identity.
    pub identity: Identity<'a>,
    /// Metadata.
    pub metadata: &'a ObjectMeta,
    /// The namespace of its approvals: its own, or oz's for a cluster-scoped object.
    pub answered_in: Option<&'a str>,
    /// Name of its template; `None` if only access policies require approvals.
    pub template: Option<&'a str>,
    /// Digest of its spec, which the stamp must name.
    pub spec_digest: String,
    /// Phase.
    pub phase: Phase,
    /// The subjects of a transient binding.
    pub subjects: &'a [rbac::Subject],
    /// Whether it requires no approvals because it is an emergency.
    pub emergency: bool,
}

impl<'a> StoredRequest<'a> {
    /// Returns the request in the form that approvals use.
    #[must_use]
    pub fn candidate(&self) -> Candidate<'a> {
        Candidate {
            kind: self.kind,
            identity: self.identity(),
            metadata: self.metadata,
            answered_in: self.metadata.namespace.as_deref(),
            template: Some(self.template),
            spec_digest: self.spec.digest(),
            phase: self.phase(),
            subjects: &[],
            emergency: self.ask.emergency,
        }
    }
}

impl Candidate<'_> {
    /// Returns the requester, if the stamp proves it.
    ///
    /// # Errors
    /// The reason why it does not.
    pub fn requester(&self, keys: &Keys) -> Result<Requester, StampError> {
        stamp::verify(keys, self.kind, self.metadata, &self.spec_digest)
    }

    /// Returns kind, namespace, name and UID, for audit records.
    #[must_use]
    pub fn reference(&self) -> RequestRef {
        RequestRef::stored(self.kind, self.identity)
    }

    /// Names the source of the required approvals, in words.
    pub(super) fn authority(&self) -> String {
        match self.template {
            Some(template) => format!("template {template}"),
            None => "the AccessPolicies of the cluster".to_owned(),
        }
    }
}
