//! `status.ending` of requests and bindings that end: the reason, the time of the beginning, and the progress.

use jiff::Timestamp;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::timestamp;

/// How access ends, once that has begun. The controller goes by this; the messages of conditions say the
/// same for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ending {
    /// Why it ends. An end that takes more than one try stays the one it was.
    #[serde(default)]
    pub reason: EndReason,

    /// What was seen, where the reason does not say it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,

    /// When the end began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub since: Option<Timestamp>,

    /// Whether the end is on record; what is left of it is waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recorded: bool,

    /// Whether sessions were ended, as far as they could be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sessions_ended: bool,

    /// Whether sessions may go on: ending them has failed, and is tried again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sessions_may_go_on: bool,

    /// Whether ending sessions was given up, after a try that failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sessions_given_up: bool,
}

/// Why access ends.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
)]
pub enum EndReason {
    /// Its time is over.
    #[default]
    Expired,
    /// Its time is over, and it was never in effect.
    NeverActive,
    /// The object that asked for it was deleted.
    Deleted,
    /// Its template was changed, and says that this ends its grants.
    TemplateChanged,
    /// What oz wrote for it was changed by somebody else.
    DriftDetected,
    /// Its decision was sealed by an earlier release, whose key counts no more.
    SealRetired,
    /// Its pod did not get ready in time.
    PodNotReady,
    /// Its pod is gone, or another one has its name.
    PodReplaced,
    /// Those who had to approve it did not in time.
    ApprovalTimedOut,
    /// An AccessLock ended it.
    Locked,
    /// Its ticket was closed.
    TicketClosed,
    /// Nobody could be asked for long whether its ticket is still open.
    TicketUnanswered,
}
