//! The vocabulary of the record: what can happen, in one place for every process that writes.
//! `cargo xtask generate` makes docs/reference/audit.md of the doc comments' twins here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happened.
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
    /// A process began to write a chain of its own. Signed; names the chains known then.
    #[default]
    WriterStarted,
    /// A request was admitted by the webhook.
    RequestCreated,
    /// A request was refused, at admission or by the operator.
    RequestDenied,
    /// A request was deleted, by the user that is named; or that was refused. The details name who had
    /// made it.
    RequestDeleted,
    /// A request waits for others to approve it; again, if what they are asked has changed. The details name who
    /// may.
    ApprovalRequested,
    /// Somebody who may approved a request. The details name the rules that it may count for.
    ApprovalGiven,
    /// Somebody who could have approved a request denied it, which ends it.
    ApprovalDenied,
    /// An answer to a request was refused: whoever gave it may not, or not to that.
    ApprovalRefused,
    /// An answer was taken back by whoever gave it; or that was refused.
    ApprovalWithdrawn,
    /// A request was not approved in time.
    ApprovalTimedOut,
    /// A lock was made, or until when it holds was changed, by the user that is named; or that was refused. What it
    /// ends is on record as AccessRevoked and RequestDenied, with its name.
    AccessLocked,
    /// A lock was removed, by the user that is named; or that was refused.
    AccessUnlocked,
    /// Access was given, to the pod that the record names by its UID.
    AccessGranted,
    /// Access was given without anybody's approval, since whoever asked said that it is an emergency. The details
    /// say until when it is to be reviewed, and by whom.
    EmergencyGranted,
    /// Somebody of a break-glass group connected in an enforcing namespace, without a grant. The details say which
    /// time its review is about.
    BreakGlassOpened,
    /// Somebody decided about each line of who could get in; the details name the digests of the list and of the file
    /// with the decisions, and how many lines are kept and removed.
    EntitlementsAttested,
    /// Somebody wrote what they found of an emergency or of break-glass; the details say what, and why.
    ReviewGiven,
    /// A finding or an attestation was refused, or that a review is made or deleted: whoever it was may not.
    ReviewRefused,
    /// Nobody reviewed an emergency, or what break-glass opened, in time.
    ReviewOverdue,
    /// A grant moved to another pod of the same workload.
    TargetPinned,
    /// Access ended at its agreed instant.
    AccessExpired,
    /// Access ended early.
    AccessRevoked,
    /// What oz wrote was changed by somebody else. It ends what it was for, or is put back: then the decision is
    /// Note.
    DriftDetected,
    /// Something that oz did not make gives access by what it made, or looks like it: a binding to a Role
    /// of its name, its seal in another place.
    ForeignAccess,
    /// A template was created, or its spec changed, by the user that is named; or that was refused.
    TemplateChanged,
    /// A session was allowed to open (exec, attach, port-forward, ephemeral container).
    SessionOpened,
    /// A session was refused.
    SessionRefused,
    /// A session ended by itself.
    SessionEnded,
    /// A session was ended by oz.
    SessionCut,
    /// The recording of a session is whole. The details name the session, how many parts there are, and the head of
    /// their chain: what is stored is compared with it; and to whom it is encrypted, if it is (`encryptedTo`).
    SessionRecorded,
    /// A session was not recorded, or not to its end; the message says why.
    SessionUnrecorded,
    /// Somebody was given a recording. The details name the session.
    RecordingPlayed,
    /// Somebody began to watch a session while it was open (reason `Began`), or stopped (`Ended`). The details name the
    /// session, and since when it was watched.
    SessionWatched,
    /// Nothing passes in a session any more, since too few people watch it (reason `Held`), or it goes on (`Resumed`).
    SessionHeld,
    /// The webhook's certificate authority was made or replaced.
    CertificateRotated,
    /// A key was made or replaced: the one that signs the record, or the one that seals stamps.
    KeyRotated,
    /// The webhook's registration had been changed or deleted, and was put right.
    WebhookRepaired,
    /// New requests did not come back stamped.
    CanaryFailed,
    /// The oldest records are about to be deleted from the cluster, all that are older than the record
    /// says: there were too many, or an administrator asked for it. Signed; verifying counts them as
    /// gone, not as missing.
    TrailShortened,
    /// The sums of a bundle of evidence (`ozctl audit evidence`) were signed, as somebody asked. Signed; says
    /// nothing about what is in the bundle but that it has not changed since.
    EvidenceSealed,
    /// The label that has connections enforced was taken off a namespace; or that was refused.
    EnforcementLifted,
    /// Rights of a grant were to be handed out by a Role of somebody's own, and that was refused; or
    /// it could not be found out whether they were. The details name the Role.
    RightCopied,
    /// The ConfigMap of a policy of composites, or an AccessPolicy, was created, changed or deleted, by the user
    /// that is named; or a BrokerPolicy was created or changed; or that was refused. The details name the digests
    /// before and after.
    PolicyChanged,
    /// A harness run was submitted, by the user that is named; or that was refused.
    RunSubmitted,
    /// A harness run was confined and may begin: who submitted it, by which template and policies, on which
    /// workspace, as digests and UIDs.
    RunStarted,
    /// A harness run is over, and nothing of it runs any more. The details name its phase.
    RunEnded,
    /// Other NetworkPolicies let the pods of a harness run, or those that fill a workspace, reach more than oz does.
    /// The details name them.
    IsolationLost,
    /// A pod asked the broker for a harness run that it does not belong to, or that is over, and was refused.
    /// The user is its service account.
    RunRefused,
}

impl Action {
    /// Whether something is let through only once this is on record: in every place that holds the
    /// record, not only in one.
    #[must_use]
    pub fn is_gate(self) -> bool {
        matches!(
            self,
            Self::AccessGranted
                | Self::EmergencyGranted
                | Self::TargetPinned
                | Self::SessionOpened
                | Self::SessionRecorded
                | Self::RecordingPlayed
                | Self::SessionWatched
                | Self::BreakGlassOpened
                | Self::TrailShortened
                | Self::EvidenceSealed
                | Self::RunStarted
        )
    }

    /// How it can be decided.
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
            | Self::SessionOpened => &[Decision::Allow],
            Self::RequestDenied
            | Self::ApprovalDenied
            | Self::ApprovalRefused
            | Self::ReviewRefused
            | Self::SessionRefused
            | Self::RunRefused => &[Decision::Deny],
            Self::TemplateChanged
            | Self::PolicyChanged
            | Self::RunSubmitted
            | Self::AccessLocked
            | Self::EnforcementLifted => &[Decision::Allow, Decision::Deny],
            Self::SessionWatched => &[Decision::Allow, Decision::End],
            Self::RightCopied => &[Decision::Deny, Decision::Note],
            Self::RequestDeleted | Self::ApprovalWithdrawn | Self::AccessUnlocked => {
                &[Decision::End, Decision::Deny]
            }
            Self::AccessExpired
            | Self::AccessRevoked
            | Self::ApprovalTimedOut
            | Self::SessionEnded
            | Self::SessionCut
            | Self::RunEnded => &[Decision::End],
            Self::DriftDetected => &[Decision::End, Decision::Note],
            Self::WriterStarted
            | Self::ApprovalRequested
            | Self::CertificateRotated
            | Self::KeyRotated
            | Self::WebhookRepaired
            | Self::TrailShortened
            | Self::EvidenceSealed
            | Self::ReviewOverdue
            | Self::ForeignAccess
            | Self::SessionRecorded
            | Self::SessionUnrecorded
            | Self::SessionHeld
            | Self::IsolationLost
            | Self::CanaryFailed => &[Decision::Note],
        }
    }

    /// Which process writes it.
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
            | Self::RightCopied => "webhook",
            Self::RunRefused => "broker",
            Self::SessionRecorded
            | Self::SessionUnrecorded
            | Self::RecordingPlayed
            | Self::SessionWatched
            | Self::SessionHeld => "gate",
            Self::SessionEnded | Self::SessionCut => "operator, gate",
            Self::AccessGranted
            | Self::EmergencyGranted
            | Self::ReviewOverdue
            | Self::TargetPinned
            | Self::AccessExpired
            | Self::AccessRevoked
            | Self::ApprovalRequested
            | Self::ApprovalTimedOut
            | Self::DriftDetected
            | Self::KeyRotated
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

/// Whether it was allowed.
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
    /// Allowed.
    Allow,
    /// Refused.
    Deny,
    /// Nothing was asked for: time passed or somebody withdrew it.
    End,
    /// Nothing was decided: something about oz itself.
    #[default]
    Note,
}
