//! Metadata of an object that is not stored and stands for one created now. A local key seals its stamp: the
//! operator's key is secret, and the rest of a plan is the same.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use oz_api::{Requester, labels};
use oz_core::access::policy::Judgement;
use oz_core::access::seal::Keys;
use oz_core::access::stamp::Stamp;

use crate::failure::{Failure, Result};

/// A placeholder for the UID that the API server would assign.
const UID: &str = "00000000-0000-0000-0000-000000000000";
const NONCE: &str = "explained";

/// The data that the webhook would have stamped.
pub(crate) struct Unsaved<'a> {
    pub(crate) requester: &'a Requester,
    pub(crate) kind: String,
    /// Namespace of the object; `None` for the whole cluster.
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
    pub(crate) spec_digest: String,
    pub(crate) at: Timestamp,
    /// The judgement of the access policies, if there are any.
    pub(crate) judgement: Option<Judgement>,
}

impl Unsaved<'_> {
    /// Returns the metadata that the API server would have stored.
    pub(crate) fn metadata(&self) -> Result<ObjectMeta> {
        Ok(ObjectMeta {
            name: Some(self.name.to_owned()),
            namespace: self.namespace.map(ToOwned::to_owned),
            uid: Some(UID.to_owned()),
            creation_timestamp: Some(Time(self.at)),
            generation: Some(1),
            annotations: Some([(labels::REQUESTER.to_owned(), self.stamp()?)].into()),
            ..ObjectMeta::default()
        })
    }

    /// Returns the stamp, sealed with the local key.
    pub(crate) fn stamp(&self) -> Result<String> {
        let stamp = Stamp {
            requester: self.requester.clone(),
            kind: self.kind.clone(),
            namespace: self.namespace.unwrap_or_default().to_owned(),
            name: self.name.to_owned(),
            generate_name: String::new(),
            spec_digest: self.spec_digest.clone(),
            at: self.at,
            nonce: NONCE.to_owned(),
            judgement: self.judgement.clone(),
            ..Stamp::default()
        };
        stamp
            .seal(&keys())
            .map_err(|error| Failure::new(error.to_string()))
    }
}

/// Returns the keys for seals of simulated objects.
pub(crate) fn keys() -> Keys {
    Keys::with_every_owner([[0; 32]])
}
