//! What can be approved, a request for access or a transient binding, as far as approvals go by it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{Phase, Requester};
use oz_trail::RequestRef;

use super::super::request::Request;
use super::super::stamp::{self, StampError};
use crate::lifecycle::seal::Keys;

/// One object that others may have to approve.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// Kind, as an answer names it.
    pub kind: &'static str,
    /// Metadata.
    pub metadata: &'a ObjectMeta,
    /// The namespace of the answers to it: its own, or oz's for what belongs to the whole cluster.
    pub answered_in: Option<&'a str>,
    /// Name of its template; `None` if policies alone say who has to agree.
    pub template: Option<&'a str>,
    /// Digest of its spec, which the stamp must name.
    pub spec_digest: String,
    /// How far it came.
    pub phase: Phase,
    /// Whether nobody is asked since it is an emergency.
    pub emergency: bool,
}

impl<'a> Request<'a> {
    /// The request as approvals see it.
    #[must_use]
    pub fn candidate(&self) -> Candidate<'a> {
        Candidate {
            kind: self.kind,
            metadata: self.metadata,
            answered_in: self.metadata.namespace.as_deref(),
            template: Some(self.template),
            spec_digest: self.spec.digest(),
            phase: self.phase(),
            emergency: self.ask.emergency,
        }
    }
}

impl Candidate<'_> {
    /// UID; empty before the API server gave one.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// When it was created, by the API server's clock.
    #[must_use]
    pub fn created(&self) -> Timestamp {
        let created = self.metadata.creation_timestamp.as_ref();
        created.map(|time| time.0).unwrap_or_default()
    }

    /// Who asked, if that is proven.
    ///
    /// # Errors
    /// Why it is not.
    pub fn requester(&self, keys: &Keys) -> Result<Requester, StampError> {
        stamp::verify(keys, self.kind, self.metadata, &self.spec_digest)
    }

    /// Kind, namespace, name and UID, for records.
    #[must_use]
    pub fn reference(&self) -> RequestRef {
        RequestRef {
            kind: self.kind.to_owned(),
            namespace: self.metadata.namespace.clone().unwrap_or_default(),
            name: self.name().to_owned(),
            uid: self.uid().to_owned(),
        }
    }

    /// Who says who has to agree, in words.
    pub(super) fn authority(&self) -> String {
        match self.template {
            Some(template) => format!("template {template}"),
            None => "the AccessPolicies of the cluster".to_owned(),
        }
    }
}
