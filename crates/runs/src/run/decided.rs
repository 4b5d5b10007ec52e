//! The decision to start a run. It is sealed in an annotation of its NetworkPolicy and of its Job: later edits of
//! templates and policies do not change it, and an operator that restarts finds it again.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::harness::{EgressNeed, HarnessRun};
use oz_api::{Requester, labels};
use oz_core::access::approval::approvers;
use oz_core::access::emergency::Emergency;
use oz_core::access::grant::Approved;
use oz_core::access::policy::{Applied, applied};
use oz_core::access::ticket::Ticket;
use oz_core::controller::Live;
use oz_core::lifecycle::seal::{self, Keys, Purpose, SealError};
use oz_core::lifecycle::window::after;
use oz_trail::{Action, Decision, Record, RequestRef};
use serde::{Deserialize, Serialize};

use crate::credential::DecidedCredential;
use crate::objects::Broker;
use crate::reach::Reach;
use crate::stored::StoredObject;

const PURPOSE: Purpose = Purpose::HarnessRun;

/// The delay of the status about the Job of a run that begins: most pods start within it, so that one write reports
/// both.
const REPORTED_AFTER: SignedDuration = SignedDuration::from_secs(2);

/// A run that may begin, or has begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    /// The run, with its UID: the decision is valid for no other run.
    pub run: RequestRef,
    /// The requester of the run.
    pub submitter: Requester,
    /// Digest of the spec of the run.
    pub spec_digest: String,
    /// Kind and name of its template, such as `HarnessTemplate/echo`.
    pub template: String,
    /// Digest of the merged template.
    pub template_digest: String,
    /// Digest of the policies that apply to the template.
    pub policies_digest: String,
    /// The workspace that the run locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<HeldWorkspace>,
    /// Image of the agent.
    pub image: String,
    /// The maximum duration in seconds; absent for an interactive run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i64>,
    /// The credentials that its template requires, each with the policy that granted it. A decision of an earlier
    /// release has none: its run was started without credentials, and gets none. That release wrote the names alone
    /// into `credentials`.
    #[serde(
        default,
        rename = "credentialsGranted",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub credentials: Vec<DecidedCredential>,
    /// The hosts that its template requires, with their ports; likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<EgressNeed>,
    /// Whether its pod has a proxy, through which every connection of the agent goes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub intercepted: bool,
    /// The addresses and ports that its NetworkPolicy opens in addition to the broker; absent for a run without a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
    /// The signature by which the broker trusts the Job. It is missing in a decision of an earlier release, and the
    /// broker denies the requests of such a run.
    #[serde(default)]
    pub voucher: String,
    /// The pods of the broker, to which its NetworkPolicy permits connections.
    pub broker: Broker,
    /// The time of the decision.
    pub decided_at: Timestamp,
    /// The reason that the requester gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The access policies that matched the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access_policies: Vec<Applied>,
    /// The approvals, if the template or an access policy requires some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approved>,
    /// The change ticket that the run names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<Ticket>,
    /// The emergency for which the run begins without approvals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emergency: Option<Emergency>,
}

/// A workspace that a run locks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldWorkspace {
    /// Name of the workspace.
    pub name: String,
    /// UID of the workspace.
    pub uid: String,
}

impl Decided {
    /// Returns the instant at which the status reports the creation of the Job, if its pod has not started by then.
    pub(super) fn reported_at(&self) -> Timestamp {
        after(self.decided_at, REPORTED_AFTER)
    }

    /// Returns the name of its template, without the kind.
    #[must_use]
    pub fn template_name(&self) -> &str {
        let name = self.template.split_once('/').map(|(_, name)| name);
        name.unwrap_or(&self.template)
    }

    /// Opens the decision that an object carries, such as the Job of a run, with the keys of the operator. A decision for
    /// a run of another namespace than the object's is not accepted; the caller compares the run.
    #[must_use]
    pub fn open_on(keys: &Keys, metadata: &ObjectMeta) -> Option<Self> {
        let annotations = metadata.annotations.as_ref()?;
        let decided = Self::open_text(keys, annotations.get(labels::GRANT)?).ok()?;
        (metadata.namespace.as_ref() == Some(&decided.run.namespace)).then_some(decided)
    }

    /// Returns the decision that an object carries for the run with this UID, in its namespace.
    pub(super) fn open(
        keys: &Keys,
        live: &Live,
        run: &StoredObject<'_, HarnessRun>,
    ) -> Option<Self> {
        let decided = Self::open_any(keys, live)?;
        (decided.run.uid == run.uid()).then_some(decided)
    }

    /// Returns the decision that an object carries, for any run of its namespace.
    pub(super) fn open_any(keys: &Keys, live: &Live) -> Option<Self> {
        Self::open_on(keys, &live.object.metadata)
    }

    /// Opens a sealed decision of any run.
    pub(crate) fn open_text(keys: &Keys, text: &str) -> Result<Self, SealError> {
        seal::open(keys, PURPOSE, text)
    }

    /// Returns the sealed text that an object carries, before its verification.
    pub(super) fn sealed(live: &Live) -> Option<&str> {
        let annotations = live.object.metadata.annotations.as_ref()?;
        annotations.get(labels::GRANT).map(String::as_str)
    }

    pub(crate) fn seal(&self, keys: &Keys) -> Result<String, SealError> {
        seal::seal_decision(keys, PURPOSE, self)
    }

    /// Checks whether another decision, made now, is the same apart from the times that follow from its own.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let decided_at = self.decided_at;
        let due_at = self.emergency.as_ref().map(|emergency| emergency.due_at);
        let emergency = other.emergency.clone();
        let emergency = emergency.map(|emergency| Emergency {
            due_at: due_at.unwrap_or(emergency.due_at),
            ..emergency
        });
        *self
            == Self {
                decided_at,
                emergency,
                ..other.clone()
            }
    }

    /// Creates an audit record about an event of the run.
    pub(super) fn record(
        &self,
        time: Timestamp,
        action: Action,
        decision: Decision,
        reason: &str,
        message: impl Into<String>,
    ) -> Record {
        let mut record = Record {
            user: Some(self.submitter.clone()),
            request: self.run.clone(),
            template: self.template.clone(),
            template_digest: Some(self.template_digest.clone()),
            ..Record::about(time, action, decision, &self.run.uid, reason, message)
        };
        record = record
            .detail("image", self.image.as_str())
            .detail("policies", self.policies_digest.as_str());
        if let Some(workspace) = &self.workspace {
            let held = format!("{} ({})", workspace.name, workspace.uid);
            record = record.detail("workspace", held);
        }
        if !self.access_policies.is_empty() {
            record = record.detail("accessPolicies", applied(&self.access_policies));
        }
        if !self.approvals.is_empty() {
            record = record.detail("approvedBy", approvers(&self.approvals));
        }
        if let Some(ticket) = &self.ticket {
            record = record.detail("ticket", ticket.name.as_str());
        }
        match &self.reason {
            Some(reason) => record.detail("reason", reason.as_str()),
            None => record,
        }
    }
}
