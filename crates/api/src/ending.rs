//! `status.ending` of requests and bindings that end: the reason, the time of the beginning, and the progress.

use jiff::Timestamp;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::timestamp;

/// State of the end of access, which the controller uses. The conditions describe it for users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ending {
    /// Reason for the end. Does not change while the end is retried.
    #[serde(default)]
    pub reason: EndReason,

    /// Details that the reason does not contain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,

    /// Time at which the end began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub since: Option<Timestamp>,

    /// True if the audit record of the end is written. The controller then waits for the remaining objects.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recorded: bool,

    /// True if sessions were terminated as far as possible.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sessions_ended: bool,

    /// True if sessions may still be open: their termination failed and is retried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sessions_may_continue: bool,

    /// True if the controller gave up the termination of sessions after a failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sessions_abandoned: bool,
}

/// The reason for the end of access.
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
    /// The access reached its expiry.
    #[default]
    Expired,
    /// The access reached its expiry, and never took effect.
    NeverActive,
    /// A user deleted the request or binding.
    Deleted,
    /// The template changed and has onTemplateChange: Revoke.
    TemplateChanged,
    /// Another user or controller changed an object that oz had created for the access.
    DriftDetected,
    /// The decision was sealed with the key of an earlier release, which is no longer valid.
    SealRetired,
    /// The pod did not become ready in time.
    PodNotReady,
    /// The pod no longer exists, or another pod has its name.
    PodReplaced,
    /// The approvers did not approve it in time.
    ApprovalTimedOut,
    /// An AccessLock applies to the access.
    Locked,
    /// The change ticket was closed.
    TicketClosed,
    /// The ticket check did not respond for its timeout, so the state of the ticket is unknown.
    TicketCheckUnavailable,
    /// The on-call check that replaced an approval stopped accepting the requester.
    OnCallEnded,
    /// The on-call check that replaced an approval did not respond for its timeout.
    OnCallCheckUnavailable,
    /// Another user deleted the Job of a harness run. `status.ending`, which harness runs do not have, never contains it.
    #[schemars(skip)]
    JobDeleted,
    /// Other NetworkPolicies permit more connections to the pods of a harness run; likewise.
    #[schemars(skip)]
    NotConfined,
}
