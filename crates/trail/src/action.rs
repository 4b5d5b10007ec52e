//! The actions and decisions of audit records, in one place for all processes that write them. `cargo xtask generate`
//! writes docs/reference/audit.md from the doc comments here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The action in an audit record.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::IntoStaticStr,
    strum::EnumIter,
    strum::EnumString,
    strum::EnumMessage,
)]
#[strum(ascii_case_insensitive)]
pub enum Action {
    /// A process started a new chain. Signed; the record names the chains that were known at that time, the digest of
    /// the configuration, and the values that flags set instead of it.
    #[default]
    WriterStarted,
    /// The webhook admitted a request.
    RequestCreated,
    /// The webhook denied a request at admission, or the operator denied it later.
    RequestDenied,
    /// A user deleted a request, or the webhook denied the deletion. The details name the requester.
    RequestDeleted,
    /// A request requires approvals; recorded again if its content changes. The details name the possible approvers.
    ApprovalRequested,
    /// A request did not receive the approvals of a rule in time, and the rule has additional approvers by now. The
    /// details name the possible approvers.
    ApprovalEscalated,
    /// An approver approved a request. The details name the approval rules for which the approval may count.
    ApprovalGiven,
    /// An approver denied a request. The denial ends the request.
    ApprovalDenied,
    /// The webhook rejected an approval or denial: its author may not decide, or not about this request.
    ApprovalRefused,
    /// The author of an approval or denial withdrew it, or the webhook denied the withdrawal.
    ApprovalWithdrawn,
    /// A request did not receive its approvals in time.
    ApprovalTimedOut,
    /// A user created a lock or changed its end, or was denied; AccessRevoked and RequestDenied name the lock.
    AccessLocked,
    /// A user removed a lock, or the webhook denied the removal.
    AccessUnlocked,
    /// The operator granted access to the pod that the record names by its UID.
    AccessGranted,
    /// The operator granted an emergency without approvals. The details name the reviewers and the review's deadline.
    EmergencyGranted,
    /// A user of a break-glass group connected in an enforcing namespace without a grant. The details contain the
    /// period that the review covers.
    BreakGlassOpened,
    /// A user attested each line of the list of users who can get access. The details contain the digests of the list
    /// and of the file with the decisions, and the numbers of lines to keep and to remove.
    EntitlementsAttested,
    /// A user reviewed an emergency or a use of break-glass. The details contain the finding and the reason.
    ReviewGiven,
    /// The webhook denied a user a finding, an attestation, or the creation or deletion of an access review.
    ReviewRefused,
    /// No user reviewed an emergency or a use of break-glass in time.
    ReviewOverdue,
    /// A grant moved to another pod of the same workload.
    TargetPinned,
    /// Access ended at its expiry.
    AccessExpired,
    /// Access ended before its expiry.
    AccessRevoked,
    /// Another client changed an object of oz. Its access or run ends, or oz restores the object (decision Note).
    DriftDetected,
    /// An object that oz did not create grants access through an object of oz or resembles one: a binding to a Role
    /// with its name, a copy of its seal.
    ForeignAccess,
    /// A user created a template or changed its spec, or the webhook denied it.
    TemplateChanged,
    /// The webhook allowed a session to open (exec, attach, port-forward, ephemeral container).
    SessionOpened,
    /// The webhook denied a session.
    SessionRefused,
    /// A session ended without termination by oz.
    SessionEnded,
    /// oz ended a session.
    #[serde(alias = "SessionCut")]
    SessionTerminated,
    /// The recording of a session is complete. The details name the session, the number of parts and the head of their
    /// chain, with which stored parts are compared; and, if it is encrypted, the recipients (`encryptedTo`).
    SessionRecorded,
    /// A session has no recording, or an incomplete one. The message states the cause.
    SessionUnrecorded,
    /// A user received a recording. The details name the session.
    RecordingPlayed,
    /// A viewer began to watch an open session (reason `Began`), or stopped (`Ended`). The details name the session and
    /// the start.
    SessionWatched,
    /// The gate stopped the traffic of a session that has too few viewers (reason `Paused`), or resumed it (`Resumed`).
    #[serde(alias = "SessionHeld")]
    SessionPaused,
    /// The webhook created or replaced its certificate authority.
    CertificateRotated,
    /// A key that signs audit records or seals objects was replaced or created, or the operator vouched for a writer's
    /// key.
    KeyRotated,
    /// The webhook restored its registration, which had been changed or deleted.
    WebhookRepaired,
    /// The API server returned new requests without a stamp.
    CanaryFailed,
    /// The operator is about to delete the oldest records in the cluster, all before the time in the record: there are
    /// too many, or an administrator requested it. Signed; verification counts them as deleted, not as missing.
    TrailShortened,
    /// The operator signed the checksums of an evidence bundle (`ozctl audit evidence`) for a user. Signed; proves only
    /// that the bundle has not changed since, not that its content is correct.
    EvidenceSealed,
    /// A user removed the enforcing label from a namespace, or the webhook denied the removal.
    EnforcementLifted,
    /// The webhook denied a Role of another author that gives the rights of a grant, or could not check whether it does
    /// (decision Note). The details name the Role.
    #[serde(alias = "RightCopied")]
    GrantCopied,
    /// A user created, changed or deleted the ConfigMap of a Rego policy or an access policy, or created or changed a
    /// broker policy, or the webhook denied it. The details contain the digests before and after.
    PolicyChanged,
    /// A user submitted a harness run, or the webhook denied it.
    RunSubmitted,
    /// A harness run is confined and may start. The record contains the requester, and the template, the policies and
    /// the workspace as digests and UIDs.
    RunStarted,
    /// A harness run has ended, and no part of it is active. The details name its phase.
    RunEnded,
    /// Other NetworkPolicies allow the pods of a harness run, or the pods that fill a workspace, more connections than
    /// oz allows. The details name these policies.
    IsolationLost,
    /// The broker denied a pod's call for a harness run that the pod does not belong to, or that has ended. The user
    /// is the pod's service account.
    RunRefused,
    /// The broker lent a credential to the proxy of a harness run for at most five minutes, or the operator had the
    /// kubelet deliver it to the agent. The details name the credential, the host, the policy, the Secret and its version.
    CredentialLent,
    /// The broker did not lend a credential to the proxy of a harness run.
    CredentialRefused,
    /// The proxy of a harness run connected to a host that a policy grants. Recorded at the first connection, and then
    /// counted for each minute.
    EgressAllowed,
    /// The proxy of a harness run refused a connection, a request or a name. Recorded at the first refusal, and then
    /// counted for each minute. The details name host, port and reason.
    EgressRefused,
}

impl Action {
    /// Returns the former name of a renamed action, which records from before the renaming contain
    /// (docs/reference/renamed.md). The digests of these records cover it.
    #[must_use]
    pub fn former_name(self) -> Option<&'static str> {
        match self {
            Self::SessionTerminated => Some("SessionCut"),
            Self::SessionPaused => Some("SessionHeld"),
            Self::GrantCopied => Some("RightCopied"),
            _ => None,
        }
    }

    /// Checks whether an operation continues only after this record is in every place that holds the trail.
    #[must_use]
    pub fn is_gate(self) -> bool {
        matches!(
            self,
            Self::AccessGranted
                | Self::EmergencyGranted
                | Self::ReviewGiven
                | Self::TargetPinned
                | Self::SessionOpened
                | Self::SessionRecorded
                | Self::RecordingPlayed
                | Self::SessionWatched
                | Self::BreakGlassOpened
                | Self::TrailShortened
                | Self::EvidenceSealed
                | Self::RunStarted
                | Self::CredentialLent
        )
    }

    /// Returns the possible decisions.
    #[must_use]
    pub fn decisions(self) -> &'static [Decision] {
        match self {
            Self::RequestCreated
            | Self::ApprovalGiven
            | Self::AccessGranted
            | Self::EmergencyGranted
            | Self::ReviewGiven
            | Self::TargetPinned
            | Self::RunStarted
            | Self::BreakGlassOpened
            | Self::EntitlementsAttested
            | Self::RecordingPlayed
            | Self::CredentialLent
            | Self::EgressAllowed
            | Self::SessionOpened => &[Decision::Allow],
            Self::RequestDenied
            | Self::ApprovalDenied
            | Self::ApprovalRefused
            | Self::ReviewRefused
            | Self::SessionRefused
            | Self::CredentialRefused
            | Self::EgressRefused
            | Self::RunRefused => &[Decision::Deny],
            Self::TemplateChanged
            | Self::PolicyChanged
            | Self::RunSubmitted
            | Self::AccessLocked
            | Self::EnforcementLifted => &[Decision::Allow, Decision::Deny],
            Self::SessionWatched => &[Decision::Allow, Decision::End],
            Self::GrantCopied => &[Decision::Deny, Decision::Note],
            Self::RequestDeleted | Self::ApprovalWithdrawn | Self::AccessUnlocked => {
                &[Decision::End, Decision::Deny]
            }
            Self::AccessExpired
            | Self::AccessRevoked
            | Self::ApprovalTimedOut
            | Self::SessionEnded
            | Self::SessionTerminated
            | Self::RunEnded => &[Decision::End],
            Self::DriftDetected => &[Decision::End, Decision::Note],
            Self::WriterStarted
            | Self::ApprovalRequested
            | Self::ApprovalEscalated
            | Self::CertificateRotated
            | Self::KeyRotated
            | Self::WebhookRepaired
            | Self::TrailShortened
            | Self::EvidenceSealed
            | Self::ReviewOverdue
            | Self::ForeignAccess
            | Self::SessionRecorded
            | Self::SessionUnrecorded
            | Self::SessionPaused
            | Self::IsolationLost
            | Self::CanaryFailed => &[Decision::Note],
        }
    }

    /// Returns the processes that write this action.
    #[must_use]
    pub fn written_by(self) -> &'static str {
        match self {
            Self::WriterStarted => "each",
            Self::RequestDenied => "webhook (at admission), operator (later)",
            Self::RequestCreated
            | Self::RequestDeleted
            | Self::ApprovalGiven
            | Self::ApprovalDenied
            | Self::ApprovalRefused
            | Self::ApprovalWithdrawn
            | Self::AccessLocked
            | Self::AccessUnlocked
            | Self::BreakGlassOpened
            | Self::EntitlementsAttested
            | Self::ReviewGiven
            | Self::ReviewRefused
            | Self::TemplateChanged
            | Self::PolicyChanged
            | Self::RunSubmitted
            | Self::SessionOpened
            | Self::SessionRefused
            | Self::CertificateRotated
            | Self::WebhookRepaired
            | Self::EnforcementLifted
            | Self::GrantCopied => "webhook",
            Self::CredentialLent => "broker, operator",
            Self::RunRefused
            | Self::CredentialRefused
            | Self::EgressAllowed
            | Self::EgressRefused => "broker",
            Self::SessionRecorded
            | Self::SessionUnrecorded
            | Self::RecordingPlayed
            | Self::SessionWatched
            | Self::SessionPaused => "gate",
            Self::SessionEnded | Self::SessionTerminated => "operator, gate",
            Self::KeyRotated => "operator, webhook, gate",
            Self::AccessGranted
            | Self::EmergencyGranted
            | Self::ReviewOverdue
            | Self::TargetPinned
            | Self::AccessExpired
            | Self::AccessRevoked
            | Self::ApprovalRequested
            | Self::ApprovalEscalated
            | Self::ApprovalTimedOut
            | Self::DriftDetected
            | Self::TrailShortened
            | Self::EvidenceSealed
            | Self::ForeignAccess
            | Self::RunStarted
            | Self::RunEnded
            | Self::IsolationLost
            | Self::CanaryFailed => "operator",
        }
    }
}

/// The decision in an audit record.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::IntoStaticStr,
    strum::EnumIter,
    strum::EnumString,
    strum::EnumMessage,
)]
#[strum(ascii_case_insensitive)]
pub enum Decision {
    /// The operation was allowed.
    Allow,
    /// The operation was denied.
    Deny,
    /// An end without an operation to allow or deny: a time was over, or a user withdrew an object.
    End,
    /// An event without a decision, about oz itself.
    #[default]
    Note,
}
