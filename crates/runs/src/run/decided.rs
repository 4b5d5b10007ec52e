//! What was decided when a run began, sealed, in an annotation of its NetworkPolicy and of its Job: later edits of
//! templates and policies change nothing of it, and a restart finds the same again.

use jiff::{SignedDuration, Timestamp};
use oz_api::harness::HarnessRun;
use oz_api::{Requester, labels};
use oz_core::controller::Live;
use oz_core::lifecycle::seal::{self, Keys, Purpose, SealError};
use oz_core::lifecycle::window::after;
use oz_trail::{Action, Decision, Record, RequestRef};
use serde::{Deserialize, Serialize};

use crate::objects::Broker;
use crate::stored::StoredObject;

const PURPOSE: Purpose = Purpose::HarnessRun;

/// How long a run that begins is silent about its Job: most pods start within it, and one status tells of both.
const TOLD_AFTER: SignedDuration = SignedDuration::from_secs(2);

/// A run that may begin, or has begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    /// The run, with its UID: a decision is good for no other.
    pub run: RequestRef,
    /// Who submitted it.
    pub submitter: Requester,
    /// Digest of what was asked for.
    pub spec_digest: String,
    /// Kind and name of its template, such as `HarnessTemplate/echo`.
    pub template: String,
    /// Digest of what the template comes to.
    pub template_digest: String,
    /// Digest of the policies that speak for the template.
    pub policies_digest: String,
    /// The workspace that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<HeldWorkspace>,
    /// Image of the agent.
    pub image: String,
    /// How many seconds it may last; absent for an interactive run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i64>,
    /// Names of the credentials that its template requires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<String>,
    /// The hosts that its template requires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// What the broker believes its Job by. One of an earlier release has none, and the broker answers it no more.
    #[serde(default)]
    pub voucher: String,
    /// What its NetworkPolicy lets it reach.
    pub broker: Broker,
    /// When it was decided.
    pub decided_at: Timestamp,
    /// Why it is run, in its submitter's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A workspace that a run holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldWorkspace {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl Decided {
    /// When the status of the run tells that its Job was made, if its pod has not started by then.
    pub(super) fn told_at(&self) -> Timestamp {
        after(self.decided_at, TOLD_AFTER)
    }

    /// The decision that an object carries for the run with this UID, in its namespace.
    pub(super) fn open(
        keys: &Keys,
        live: &Live,
        run: &StoredObject<'_, HarnessRun>,
    ) -> Option<Self> {
        let decided = Self::open_any(keys, live)?;
        (decided.run.uid == run.uid()).then_some(decided)
    }

    /// The decision that an object carries, for whatever run of its namespace it was made.
    pub(super) fn open_any(keys: &Keys, live: &Live) -> Option<Self> {
        let decided: Self = seal::open(keys, PURPOSE, Self::sealed(live)?).ok()?;
        let is_here = live.object.metadata.namespace.as_ref() == Some(&decided.run.namespace);
        is_here.then_some(decided)
    }

    /// The sealed text that an object carries, whoever wrote it.
    pub(super) fn sealed(live: &Live) -> Option<&str> {
        let annotations = live.object.metadata.annotations.as_ref()?;
        annotations.get(labels::GRANT).map(String::as_str)
    }

    pub(super) fn seal(&self, keys: &Keys) -> Result<String, SealError> {
        seal::seal(keys, PURPOSE, self)
    }

    /// Whether another decision, made now, is the same.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let decided_at = self.decided_at;
        *self
            == Self {
                decided_at,
                ..other.clone()
            }
    }

    /// The record of something that happened to the run.
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
        match &self.reason {
            Some(reason) => record.detail("reason", reason.as_str()),
            None => record,
        }
    }
}
