//! What was decided. A [`Grant`] is decided once, and carried, sealed, in an annotation of the
//! first object that is written for it: a crash between any two writes finds the decision again
//! instead of making another, and no write is spent on intent alone. Everything later is computed
//! from it, so what happens to the template afterwards changes nothing.

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

use super::pod::Isolation;
use super::policy::Applied;
use super::ticket::Ticket;
use crate::build::NameServer;
use crate::gate::GateAccount;
use crate::lifecycle::seal::{self, Keys, Purpose, SealError};
use crate::lifecycle::window::Window;

const PURPOSE: Purpose = Purpose::Grant;

/// That a grant is an emergency, as it seals it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Emergency {
    /// Until when somebody has to have looked at it.
    pub due_at: Timestamp,
    /// Who may.
    pub reviewers: Reviewers,
}

/// That somebody approved, as a grant keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approved {
    /// Under which rule.
    pub rule: String,
    /// User name.
    pub user: String,
    /// The identity provider's unique id, if it gave one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// When.
    pub at: Timestamp,
}

/// Access for exactly these subjects, to exactly this pod, until exactly this instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// The request that it answers, with its UID: a grant is good for no other.
    pub request: RequestRef,
    /// Who asked.
    pub requester: Requester,
    /// Digest of the stamp by which that is known; `None` in grants of releases that did not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<String>,
    /// Who has access: the requester, or the template's groups where it says so. They are bound to the Role,
    /// unless the gate is.
    pub subjects: Vec<Subject>,
    /// The pod.
    pub pod: PodRef,
    /// What may be done with it.
    pub operations: Vec<Operation>,
    /// Until when.
    pub window: Window,
    /// When it was decided.
    pub granted_at: Timestamp,
    /// Name of the template.
    pub template: String,
    /// Digest of the template's spec as it was.
    pub template_digest: String,
    /// Whether a changed template ends the grant.
    pub revoke_on_template_change: bool,
    /// What the user is told.
    pub access_message: String,
    /// Why the requester asked, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where the grant goes when its pod is replaced; `None` if it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub following: Option<Following>,
    /// What sessions may do, and how they end.
    #[serde(default, skip_serializing_if = "SessionTerms::is_default")]
    pub sessions: SessionTerms,
    /// About the pod, if it was made for this grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_pod: Option<OwnPod>,
    /// The Role's name, if it is one of those that are reserved for grants; `None` until there is a Role,
    /// and for one that has the name that all other objects of the grant have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Who approved it under which rule, where its template asks for that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approved>,
    /// The policies over all templates that applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Applied>,
    /// The ticket that the request named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<Ticket>,
    /// That it was granted without anybody's approval since it was an emergency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emergency: Option<Emergency>,
    /// Digest of the Role's rules, since another release may write others for the same grant; `None`
    /// until there is a Role, and in grants of releases that did not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
}

/// What sessions of a grant may do, and how they end; as it was when it was decided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionTerms {
    /// The containers that may be entered; empty means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
    /// The containers that the pod had.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub of_pod: Vec<String>,
    /// Those beside them: sidecars among the init containers, and ephemeral ones. Who names no
    /// container is not asked to choose because of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// Those in which there is a shell, but nothing by which a command can be made to end by itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shells: Vec<String>,
    /// What a command must satisfy, in CEL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_policy: Option<String>,
    /// Whether a session that does not end by itself is refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Whether records keep the arguments of commands.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub record_arguments: bool,
    /// By container, how a command in it can be made to end by itself.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub timeouts: BTreeMap<String, Timeout>,
    /// How long nothing may be said in a session before the gate ends it; `None` if that does not matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<SignedDuration>,
    /// The gate's service account, if sessions go through the gate: it is bound to the Role in place of
    /// the grant's subjects, whom it lets through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateAccount>,
    /// What the gate keeps of sessions; `None` for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<RecordingConfig>,
    /// Who has to watch while a session is open; `None` for nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moderation: Option<ModerationConfig>,
    /// The images that containers may have which are added to the pod, as patterns; with the operation Debug.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub debug_images: Vec<String>,
}

impl SessionTerms {
    /// What a template says about sessions.
    #[must_use]
    pub fn of(rules: &AccessConfig) -> Self {
        Self {
            containers: rules.containers.clone(),
            command_policy: rules.command_policy.clone(),
            required: rules.sessions == Sessions::Required,
            record_arguments: rules.record_arguments,
            recording: rules.recording.filter(|one| one.mode != RecordingMode::Off),
            moderation: rules.moderation.clone(),
            idle_timeout: idle_timeout(rules),
            debug_images: rules.debug.clone().unwrap_or_default().images,
            ..Self::default()
        }
    }

    /// Whether a container was found to have a shell, if no more than that.
    #[must_use]
    pub fn has_shell(&self, container: &str) -> bool {
        self.shells.iter().any(|name| name == container)
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// As the template says it, which the webhook has checked.
fn idle_timeout(rules: &AccessConfig) -> Option<SignedDuration> {
    let text = rules.idle_timeout.as_deref()?;
    text.parse::<GoDuration>().ok().map(SignedDuration::from)
}

/// What a grant needs to find a successor of its pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Following {
    /// The workload, by name.
    pub workload: CrossVersionObjectReference,
    /// Its UID: another one of its name has no successors for this grant.
    pub uid: String,
    /// The access command as the template had it.
    pub command: String,
}

/// A pod that was made for a grant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnPod {
    /// Digest of the pod as it was rendered.
    pub digest: String,
    /// Digest of what it runs, as it was rendered; `None` in grants of releases that did not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Digest of what must not change of it, as the API server made it; known once it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// The access command as the template has it, if what it says depends on what the API server
    /// gives the pod, such as its UID; until the pod exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Whom it can talk to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The name servers that it may ask if it may ask nothing else. `None` for any, in grants of before
    /// they were told from others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_servers: Option<Vec<NameServer>>,
    /// Whether other policies opened more when it was granted, if it is shut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// In what it differs from what one might expect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Grant {
    /// The name that all objects of the grant share, but for its Role:
    /// `<request>-<first 8 characters of its UID>`.
    #[must_use]
    pub fn object_name(&self) -> String {
        object_name(&self.request.name, &self.request.uid)
    }

    /// The name of its Role.
    #[must_use]
    pub fn role_name(&self) -> String {
        self.role.clone().unwrap_or_else(|| self.object_name())
    }

    /// Whom the RoleBinding names: the subjects, or the gate that lets them through.
    #[must_use]
    pub fn bound(&self) -> Vec<Subject> {
        match &self.sessions.gate {
            Some(gate) => vec![gate.subject()],
            None => self.subjects.clone(),
        }
    }

    /// Whether an object of this kind, namespace and name is where one of the grant is.
    #[must_use]
    pub fn is_at(&self, kind: &str, namespace: Option<&str>, name: &str) -> bool {
        let expected = if kind == "Role" {
            self.role_name()
        } else {
            self.object_name()
        };
        namespace == Some(&self.request.namespace) && name == expected
    }

    /// The container that a connection goes to: the one it names, or the only one there is.
    #[must_use]
    pub fn container<'a>(&'a self, named: Option<&'a str>) -> Option<&'a str> {
        let only = match self.sessions.of_pod.as_slice() {
            [only] => Some(only.as_str()),
            _ => None,
        };
        named.filter(|name| !name.is_empty()).or(only)
    }

    /// Whether a connection may go to the container that it names, or to the one it does not name.
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

    /// Whether it is for some of the pod's containers alone.
    #[must_use]
    pub fn is_confined(&self) -> bool {
        self.pod.container.is_some() || !self.sessions.containers.is_empty()
    }

    /// The containers that may be entered, for messages.
    #[must_use]
    pub fn enterable(&self) -> String {
        match &self.pod.container {
            Some(container) => format!("container {container}"),
            None if self.sessions.containers.is_empty() => "every container".to_owned(),
            None => format!("containers {}", self.sessions.containers.join(", ")),
        }
    }

    /// The annotation's value.
    ///
    /// # Errors
    /// Only if the grant does not serialise, which its types rule out.
    pub fn seal(&self, keys: &Keys) -> Result<String, SealError> {
        seal::seal(keys, PURPOSE, self)
    }

    /// The decision that an object carries for the request with `uid`; `None` if it carries none
    /// that we made for that request.
    #[must_use]
    pub fn open(keys: &Keys, metadata: &ObjectMeta, uid: &str) -> Option<Self> {
        let grant = Self::open_any(keys, metadata)?;
        (grant.request.uid == uid).then_some(grant)
    }

    /// The decision that an object carries, for whatever request it was made.
    #[must_use]
    pub fn open_any(keys: &Keys, metadata: &ObjectMeta) -> Option<Self> {
        let text = metadata.annotations.as_ref()?.get(labels::GRANT)?;
        seal::open(keys, PURPOSE, text).ok()
    }

    /// What every record of it says besides.
    fn details(&self) -> impl Iterator<Item = (String, String)> {
        let ticket = self.ticket.as_ref().map(|ticket| &ticket.name);
        let reason = self.reason.as_ref().map(|why| ("reason", why));
        let details = reason.into_iter().chain(ticket.map(|it| ("ticket", it)));
        details.map(|(name, value)| (name.to_owned(), value.clone()))
    }

    /// The record of something that happened to this grant.
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

/// The name that all objects of a request's grant share, but for its Role.
#[must_use]
pub fn object_name(request: &str, uid: &str) -> String {
    let short: String = uid.chars().take(8).collect();
    format!("{request}-{short}")
}
