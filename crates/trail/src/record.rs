//! One audit record. Records have deterministic ids: if a process writes the same event twice after a crash, both
//! records have the same id.

use std::collections::BTreeMap;

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::schema::timestamp;
use oz_api::{Identity, IdentityError, Name, Requester, Uid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Action, Decision};

/// The maximum length of a text in a record, in bytes. A longer text is truncated.
const TEXT: usize = 1024;
/// The maximum length of the name of a detail; the cluster stores it several times.
const NAME: usize = 512;
/// The maximum number of groups of a user, and of details. A record with all texts at their maximum length, each
/// character escaped, is smaller than the 1.5 MiB that etcd accepts.
const MANY: usize = 64;

/// The number of samples in a record that stands for several events.
pub(super) const SAMPLES: usize = 3;

/// An event of access: user, object, time and decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Identifier of the event, equal for the same event: hash of the action and the UID of its object.
    pub id: String,
    /// Time of the decision, by the clock of the API server.
    #[schemars(schema_with = "timestamp")]
    pub time: Timestamp,
    /// Action that is recorded.
    pub action: Action,
    /// Decision about the action: Allow, Deny, End or Note.
    pub decision: Decision,
    /// Reason for the decision, in CamelCase.
    pub reason: String,
    /// Description of the event for users.
    pub message: String,
    /// User, as the API server authenticated them. Unset if no user is verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Requester>,
    /// Request or other object of the event.
    #[serde(default, skip_serializing_if = "RequestRef::is_empty")]
    pub request: RequestRef,
    /// Name of the template of the request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub template: String,
    /// Digest of the template's spec at the time of the grant, `sha256:` and hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_digest: Option<String>,
    /// Pod to which access is granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// Expiry of the access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub until: Option<Timestamp>,
    /// Additional values, such as the reason of the requester; at most 64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, String>,
    /// Number and time of the events, if the record is a summary of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated: Option<Repeated>,
}

/// A summary of several events of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Repeated {
    /// Number of events.
    #[schemars(with = "i64")]
    pub count: u64,
    /// Time of the first event.
    #[schemars(schema_with = "timestamp")]
    pub first: Timestamp,
    /// Time of the last event.
    #[schemars(schema_with = "timestamp")]
    pub last: Timestamp,
    /// Objects of some of the events, at most 3.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<String>,
}

/// Reference to a request or another object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestRef {
    /// Kind, such as `ExecAccessRequest`.
    pub kind: String,
    /// Namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// Name; at the admission of an object with `generateName`, the prefix.
    pub name: String,
    /// UID; empty at admission, before the API server has assigned it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

impl RequestRef {
    /// Creates the reference to a stored object. That to a cluster-scoped object has no namespace.
    #[must_use]
    pub fn stored(kind: &str, identity: Identity<'_>) -> Self {
        let mut reference = Self {
            kind: kind.to_owned(),
            name: identity.name.to_string(),
            uid: identity.uid.to_string(),
            ..Self::default()
        };
        if let Some(namespace) = identity.namespace {
            namespace.as_str().clone_into(&mut reference.namespace);
        }
        reference
    }

    /// Creates the reference to an object at admission, as far as the API server has completed it.
    #[must_use]
    pub fn new_object(kind: &str, metadata: &ObjectMeta) -> Self {
        let mut reference = Self {
            kind: kind.to_owned(),
            ..Self::default()
        };
        for (text, known) in [
            (&mut reference.namespace, &metadata.namespace),
            (&mut reference.name, &metadata.name),
            (&mut reference.uid, &metadata.uid),
        ] {
            if let Some(known) = known {
                text.clone_from(known);
            }
        }
        reference
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Reference to a pod by name and UID, so that it does not refer to a later pod of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PodRef {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Container, if access is for one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

impl PodRef {
    /// Creates the reference to a stored pod, and to one of its containers if access is for one only.
    ///
    /// # Errors
    /// If the pod is not stored.
    pub fn stored(pod: &ObjectMeta, container: Option<String>) -> Result<Self, IdentityError> {
        Ok(Self {
            name: Name::from_metadata(pod)?.to_string(),
            uid: Uid::from_metadata(pod)?.to_string(),
            container,
        })
    }
}

impl Record {
    /// Creates a record about oz itself, or one to which the caller adds the object. The id is derived from `subject`
    /// and the action, which identify the event.
    #[must_use]
    pub fn about(
        time: Timestamp,
        action: Action,
        decision: Decision,
        subject: &str,
        reason: &str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            id: Self::id(action, subject),
            time,
            action,
            decision,
            reason: reason.to_owned(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// Adds a detail.
    #[must_use]
    pub fn detail(mut self, name: &str, value: impl Into<String>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// Returns the deterministic id of an event: `action` on the object with `uid`.
    #[must_use]
    pub fn id(action: Action, uid: &str) -> String {
        let digest = Sha256::new()
            .chain_update(action.to_string())
            .chain_update([0])
            .chain_update(uid)
            .finalize();
        oz_api::encode::hex(&digest[..16])
    }

    /// Returns the record as one line of JSON, without the line feed.
    #[must_use]
    pub fn line(&self) -> String {
        // Strings, numbers and timestamps always serialise.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Limits the length of the texts, and rounds times to microseconds: no user can make a record too large to be
    /// stored, and its name in the cluster contains its exact time.
    #[must_use]
    pub(super) fn bounded(mut self) -> Self {
        self.time = self.time.round(Unit::Microsecond).unwrap_or(self.time);
        for text in [
            &mut self.id,
            &mut self.reason,
            &mut self.message,
            &mut self.request.kind,
            &mut self.request.namespace,
            &mut self.request.name,
            &mut self.request.uid,
            &mut self.template,
        ] {
            cut(text, TEXT);
        }
        if let Some(digest) = &mut self.template_digest {
            cut(digest, TEXT);
        }
        if let Some(pod) = &mut self.pod {
            cut(&mut pod.name, TEXT);
            cut(&mut pod.uid, TEXT);
            if let Some(container) = &mut pod.container {
                cut(container, TEXT);
            }
        }
        if let Some(repeated) = &mut self.repeated {
            repeated.samples.truncate(SAMPLES);
            cut_all(&mut repeated.samples);
        }
        if let Some(user) = &mut self.user {
            cut(&mut user.user, TEXT);
            cut(&mut user.uid, TEXT);
            let more = user.groups.len().saturating_sub(MANY);
            if more > 0 {
                user.groups.truncate(MANY);
                user.groups.push(format!("and {more} more"));
            }
            cut_all(&mut user.groups);
        }
        let details = std::mem::take(&mut self.details);
        let bounded = |(mut name, mut value): (String, String)| {
            cut(&mut name, NAME);
            cut(&mut value, TEXT);
            (name, value)
        };
        self.details = details.into_iter().take(MANY).map(bounded).collect();
        self
    }
}

fn cut_all(texts: &mut [String]) {
    texts.iter_mut().for_each(|text| cut(text, TEXT));
}

fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let end = text.floor_char_boundary(most - "…".len());
        text.truncate(end);
        text.push('…');
    }
}
