//! The decision about a request. A [`Grant`] is decided once, and carried, sealed, in an annotation of the first object
//! that is written for it: after a crash between any two writes the operator finds the decision again and does not make
//! another, and no write records an intent alone. All later steps are computed from the decision, so later changes of
//! the template do not change it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::Subject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::duration::GoDuration;
use oz_api::{
    AccessConfig, CrossVersionObjectReference, ModerationConfig, Network, Operation,
    RecordingConfig, RecordingMode, Requester, Reviewers, Sessions, Timeout, labels,
};
use oz_trail::{Action, Decision, PodRef, Record, RequestRef};
use serde::{Deserialize, Serialize};

pub use super::object_names::{object_name, shared_name};
use super::on_call::OnCall;
use super::pod::Isolation;
use super::policy::Applied;
use super::ticket::Ticket;
use crate::confine::NameServer;
use crate::gate::GateAccount;
use crate::lifecycle::seal::{self, Keys, Purpose, SealError};
use crate::lifecycle::window::Window;

const PURPOSE: Purpose = Purpose::Grant;

/// The emergency of a grant, as the grant seals it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Emergency {
    /// The time until which a review is due.
    pub due_at: Timestamp,
    /// The users and groups who may review it.
    pub reviewers: Reviewers,
}

/// An approval, as a grant stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approved {
    /// Name of the approval rule.
    pub rule: String,
    /// User name.
    pub user: String,
    /// The identity provider's unique id, if it gave one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Time of the approval.
    pub at: Timestamp,
}

/// Access for exactly these subjects, to exactly this pod, until exactly this instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// The granted request, with its UID: a grant is valid for no other request.
    pub request: RequestRef,
    /// The requester.
    pub requester: Requester,
    /// Digest of the stamp that proves the requester; `None` in grants of releases that did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<String>,
    /// The subjects with access: the requester, or the template's groups if the template binds groups. They are bound
    /// to the Role, unless the gate is.
    pub subjects: Vec<Subject>,
    /// The pod.
    pub pod: PodRef,
    /// The pod was Running, but not Ready, when it was chosen: no pod of the workload was Ready, or the request named
    /// it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_ready: bool,
    /// The operations on the pod that the grant permits.
    pub operations: Vec<Operation>,
    /// The window, which ends at the expiry.
    pub window: Window,
    /// Time of the decision.
    pub granted_at: Timestamp,
    /// Name of the template.
    pub template: String,
    /// Digest of the template's spec at the time of the decision.
    pub template_digest: String,
    /// A change of the template revokes the grant.
    pub revoke_on_template_change: bool,
    /// The access message for the user.
    pub access_message: String,
    /// The requester's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The data for the choice of a successor when the pod is replaced; `None` if the grant then ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub following: Option<Following>,
    /// The rules for sessions and their termination.
    #[serde(default, skip_serializing_if = "SessionTerms::is_default")]
    pub sessions: SessionTerms,
    /// The dedicated pod, if the pod was created for this grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_pod: Option<OwnPod>,
    /// The Role's name, if it is one of the names reserved for grants; `None` until the Role exists, and for a Role
    /// with the name that all other objects of the grant have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The approvals with their rules, if the template requires approvals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approved>,
    /// The on-call checks that replaced approvals; access ends when one of them stops accepting the requester.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_call: Option<OnCall>,
    /// The access policies that applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Applied>,
    /// The change ticket that the request named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<Ticket>,
    /// The emergency for which the request was granted without approvals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emergency: Option<Emergency>,
    /// Digest of the Role's rules, since another release may write other rules for the same grant; `None` until the
    /// Role exists, and in grants of releases that did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
}

/// The rules for sessions of a grant and for their termination, as they were at the time of the decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionTerms {
    /// The containers to which a session may connect; empty means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
    /// The containers that the pod had.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub of_pod: Vec<String>,
    /// The pod's other containers: sidecars among the init containers, and ephemeral containers. A user who names no
    /// container does not have to choose one because of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// The containers with a shell, but without a program that can limit the duration of a command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shells: Vec<String>,
    /// The condition on commands, in CEL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_policy: Option<String>,
    /// A session that does not end automatically is denied.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Audit records contain the arguments of commands.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub record_arguments: bool,
    /// The way to end a command automatically, by container.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub timeouts: BTreeMap<String, Timeout>,
    /// The idle timeout after which the gate ends a session; `None` for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<SignedDuration>,
    /// The gate's service account, if sessions go through the gate: it, and not the grant's subjects, is bound to the
    /// Role, and the gate connects the subjects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateAccount>,
    /// The parts of sessions that the gate records; `None` for no recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<RecordingConfig>,
    /// The moderators that an open session requires; `None` for no moderation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moderation: Option<ModerationConfig>,
    /// The permitted images of debug containers, as patterns; with the operation Debug.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub debug_images: Vec<String>,
}

impl SessionTerms {
    /// Returns the rules of a template for sessions.
    #[must_use]
    pub fn from_config(rules: &AccessConfig) -> Self {
        Self {
            containers: rules.containers.clone(),
            command_policy: rules.command_policy.clone(),
            required: rules.sessions == Sessions::Required,
            record_arguments: rules.record_arguments,
            recording: rules.recording.filter(|one| one.mode != RecordingMode::Off),
            moderation: rules.moderation.clone(),
            idle_timeout: idle_timeout(rules),
            debug_images: rules
                .debug
                .iter()
                .flat_map(|debug| debug.images.clone())
                .collect(),
            ..Self::default()
        }
    }

    /// Checks whether a container was found to have only a shell.
    #[must_use]
    pub fn has_shell(&self, container: &str) -> bool {
        self.shells.iter().any(|name| name == container)
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the idle timeout of a template, which the webhook has validated.
fn idle_timeout(rules: &AccessConfig) -> Option<SignedDuration> {
    let text = rules.idle_timeout.as_deref()?;
    text.parse::<GoDuration>().ok().map(SignedDuration::from)
}

/// The data with which a grant finds a successor of its pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Following {
    /// The workload, by name.
    pub workload: CrossVersionObjectReference,
    /// UID of the workload: another workload of the same name has no successors for this grant.
    pub uid: String,
    /// The access command as the template had it.
    pub command: String,
}

/// A dedicated pod of a grant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnPod {
    /// Digest of the pod as it was rendered.
    pub digest: String,
    /// Digest of its programs, their inputs and their accounts, as rendered; `None` in grants of releases that did not
    /// store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Digest of its immutable parts, as the API server created it; known once the pod exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// The access command of the template, if its text depends on values that the API server assigns to the pod, such
    /// as its UID; until the pod exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The network rules of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The name servers to which the pod may send queries if all other destinations are closed. `None` for any, in
    /// grants of releases that did not distinguish name servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_servers: Option<Vec<NameServer>>,
    /// The result of the check whether other policies opened more at the time of the grant, if the pod's network is
    /// closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// The differences from the pod that a user might expect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Grant {
    /// Returns the name that all objects of the grant share, except its Role; see [`shared_name`].
    #[must_use]
    pub fn object_name(&self) -> String {
        shared_name(&self.request)
    }

    /// Returns the name of its Role.
    #[must_use]
    pub fn role_name(&self) -> String {
        self.role.clone().unwrap_or_else(|| self.object_name())
    }

    /// Returns the subjects of the RoleBinding: the grant's subjects, or the gate through which they connect.
    #[must_use]
    pub fn bound(&self) -> Vec<Subject> {
        match &self.sessions.gate {
            Some(gate) => vec![gate.subject()],
            None => self.subjects.clone(),
        }
    }

    /// Checks whether an object of the grant has this kind, namespace and name.
    #[must_use]
    pub fn is_at(&self, kind: &str, namespace: Option<&str>, name: &str) -> bool {
        let expected = if kind == "Role" {
            self.role_name()
        } else {
            self.object_name()
        };
        namespace == Some(&self.request.namespace) && name == expected
    }

    /// Returns the container of a connection: the named container, or the only container of the pod.
    #[must_use]
    pub fn container<'a>(&'a self, named: Option<&'a str>) -> Option<&'a str> {
        let only = match self.sessions.of_pod.as_slice() {
            [only] => Some(only.as_str()),
            _ => None,
        };
        named.filter(|name| !name.is_empty()).or(only)
    }

    /// Checks whether a connection may use the container that it names, or its default container if it names none.
    #[must_use]
    pub fn may_enter(&self, named: Option<&str>) -> bool {
        let asked = self.pod.container.as_ref();
        let listed = &self.sessions.containers;
        if asked.is_none() && listed.is_empty() {
            return true;
        }
        self.container(named).is_some_and(|name| {
            asked.is_none_or(|asked| asked == name)
                && (listed.is_empty() || listed.iter().any(|one| one == name))
        })
    }

    /// Checks whether the grant is limited to some of the pod's containers.
    #[must_use]
    pub fn is_confined(&self) -> bool {
        self.pod.container.is_some() || !self.sessions.containers.is_empty()
    }

    /// Describes the containers to which the grant permits connections, for messages.
    #[must_use]
    pub fn enterable(&self) -> String {
        match &self.pod.container {
            Some(container) => format!("container {container}"),
            None if self.sessions.containers.is_empty() => "every container".to_owned(),
            None => format!("containers {}", self.sessions.containers.join(", ")),
        }
    }

    /// Returns the value of the annotation.
    ///
    /// # Errors
    /// The grant is longer than a sealed text may be.
    pub fn seal(&self, keys: &Keys) -> Result<String, SealError> {
        seal::seal_decision(keys, PURPOSE, self)
    }

    /// Returns the decision that an object carries for the request with `uid`; `None` if it carries no decision that oz
    /// made for that request.
    #[must_use]
    pub fn open(keys: &Keys, metadata: &ObjectMeta, uid: &str) -> Option<Self> {
        let grant = Self::open_any(keys, metadata)?;
        (grant.request.uid == uid).then_some(grant)
    }

    /// Returns the decision that an object carries, for any request.
    #[must_use]
    pub fn open_any(keys: &Keys, metadata: &ObjectMeta) -> Option<Self> {
        let text = metadata.annotations.as_ref()?.get(labels::GRANT)?;
        seal::open(keys, PURPOSE, text).ok()
    }

    /// Returns the details that each audit record of the grant contains.
    fn details(&self) -> impl Iterator<Item = (String, String)> {
        let ticket = self.ticket.as_ref().map(|ticket| &ticket.name);
        let reason = self.reason.as_ref().map(|why| ("reason", why));
        let details = reason.into_iter().chain(ticket.map(|it| ("ticket", it)));
        details.map(|(name, value)| (name.to_owned(), value.clone()))
    }

    /// Creates the audit record of an event of this grant.
    #[must_use]
    pub fn record(
        &self,
        time: Timestamp,
        action: Action,
        decision: Decision,
        reason: &str,
        message: impl Into<String>,
    ) -> Record {
        Record {
            user: Some(self.requester.clone()),
            request: self.request.clone(),
            template: self.template.clone(),
            template_digest: Some(self.template_digest.clone()),
            pod: Some(self.pod.clone()),
            until: Some(self.window.until),
            details: self.details().collect(),
            ..Record::about(time, action, decision, &self.request.uid, reason, message)
        }
    }
}
