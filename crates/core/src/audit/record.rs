//! One audit record, as one line of JSON. Records have deterministic ids: the same fact, written
//! twice after a crash, is recognisably the same.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::access::stamp::Requester;

/// A fact about access: who, what, where, until when, and how it was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Hash of the action and the UID of what it is about: equal for the same fact.
    pub id: String,
    /// When it was decided, by the API server's clock.
    pub time: Timestamp,
    /// What happened.
    pub action: Action,
    /// Whether it was allowed.
    pub decision: Decision,
    /// Why, in CamelCase from a bounded vocabulary.
    pub reason: String,
    /// One sentence for people.
    pub message: String,
    /// The person, as the API server authenticated them; absent when nobody could be verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<Requester>,
    /// The request it is about.
    pub request: RequestRef,
    /// Template that the request names.
    pub template: String,
    /// Digest of the template's spec at the grant, `sha256:` and hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_digest: Option<String>,
    /// The pod that access was given to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// When the access ends or was to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Whatever else is worth keeping, such as the reason that the requester gave.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, String>,
}

/// What happened.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::IntoStaticStr,
)]
pub enum Action {
    /// A request was admitted by the webhook.
    RequestCreated,
    /// A request was refused, at admission or by the operator.
    RequestDenied,
    /// Access was given.
    AccessGranted,
    /// Access ended at its agreed instant.
    AccessExpired,
    /// Access ended early.
    AccessRevoked,
    /// What oz wrote was changed by somebody else.
    DriftDetected,
}

/// Whether it was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
pub enum Decision {
    /// Allowed.
    Allow,
    /// Refused.
    Deny,
    /// Nothing was asked for: time passed or somebody withdrew it.
    End,
}

/// An access request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRef {
    /// Kind, such as `ExecAccessRequest`.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name; at admission of a `generateName` object that prefix.
    pub name: String,
    /// UID; empty at admission, where the API server has not given one yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// A pod, by name and UID: a pod that comes back under the same name is another pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRef {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Container, when access is for one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

impl Record {
    /// The deterministic id of a fact: `action` about the object with `uid`.
    #[must_use]
    pub fn id(action: Action, uid: &str) -> String {
        let digest = Sha256::new()
            .chain_update(action.to_string())
            .chain_update([0])
            .chain_update(uid)
            .finalize();
        crate::encode::hex(&digest[..16])
    }

    /// The record as one line of JSON, without the line feed.
    #[must_use]
    pub fn line(&self) -> String {
        // Strings, numbers and timestamps always serialise.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The same, with who wrote it: the component, such as `oz-operator`, and its replica.
    #[must_use]
    pub fn line_by(&self, component: &str, replica: &str) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            component: &'a str,
            replica: &'a str,
            #[serde(flatten)]
            record: &'a Record,
        }
        serde_json::to_string(&Line {
            component,
            replica,
            record: self,
        })
        .unwrap_or_default()
    }
}
