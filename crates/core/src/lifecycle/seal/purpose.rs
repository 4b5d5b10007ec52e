//! The purposes of seals, and the component that holds the key of each.

use oz_api::names;

/// A component that seals. No other component holds its private keys; verifiers have its public keys.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::EnumIter, strum::Display,
)]
pub enum Owner {
    /// The webhook.
    #[strum(to_string = "oz-webhook")]
    Webhook,
    /// The operator.
    #[strum(to_string = "oz-operator")]
    Operator,
    /// The gate.
    #[strum(to_string = "oz-gate")]
    Gate,
}

impl Owner {
    /// Returns the name of the Secret with its private keys, which no other component may read.
    #[must_use]
    pub const fn private_keys(self) -> &'static str {
        match self {
            Self::Webhook => names::WEBHOOK_KEY,
            Self::Operator => names::OPERATOR_KEY,
            Self::Gate => names::GATE_KEY,
        }
    }

    /// Returns the name of the Secret with its public keys, which no other component may write.
    #[must_use]
    pub const fn public_keys(self) -> &'static str {
        match self {
            Self::Webhook => names::WEBHOOK_PUBLIC_KEYS,
            Self::Operator => names::OPERATOR_PUBLIC_KEYS,
            Self::Gate => names::GATE_PUBLIC_KEYS,
        }
    }

    /// Returns the other components, of which it verifies seals.
    #[must_use]
    pub const fn verifies(self) -> &'static [Self] {
        match self {
            Self::Webhook => &[Self::Operator, Self::Gate],
            Self::Operator => &[Self::Webhook],
            Self::Gate => &[Self::Operator],
        }
    }
}

/// The purpose of a statement. The signature covers it, and only keys of its owner are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::EnumIter)]
pub enum Purpose {
    /// The requester or approver of an object, and the decision of access policies.
    Stamp,
    /// A connection of a break-glass group.
    BreakGlass,
    /// A finding or an attestation of a reviewer.
    Finding,
    /// A finding of a reviewer, in its audit record.
    FindingRecord,
    /// A grant of access.
    Grant,
    /// A time-limited role binding.
    TransientBinding,
    /// The decision about a harness run.
    HarnessRun,
    /// The proof that a Job belongs to a harness run.
    RunVoucher,
    /// An emergency, in its audit record.
    Emergency,
    /// An open or completed review.
    Review,
    /// The expiry of a composite's child.
    ChildUntil,
    /// The word of the canary.
    Canary,
    /// The session token.
    SessionToken,
    /// The peer token.
    PeerToken,
}

impl Purpose {
    /// Returns the component that seals for it.
    #[must_use]
    pub const fn owner(self) -> Owner {
        match self {
            Self::Stamp | Self::BreakGlass | Self::Finding | Self::FindingRecord => Owner::Webhook,
            Self::Grant
            | Self::TransientBinding
            | Self::HarnessRun
            | Self::RunVoucher
            | Self::Emergency
            | Self::Review
            | Self::ChildUntil
            | Self::Canary => Owner::Operator,
            Self::SessionToken | Self::PeerToken => Owner::Gate,
        }
    }

    /// Returns the name that a signature covers.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stamp => "oz.wizardofoz.co/stamp/v2",
            Self::BreakGlass => "oz.wizardofoz.co/break-glass/v2",
            Self::Finding => "oz.wizardofoz.co/finding/v2",
            Self::FindingRecord => "oz.wizardofoz.co/finding-record/v2",
            Self::Grant => "oz.wizardofoz.co/grant/v2",
            Self::TransientBinding => "oz.wizardofoz.co/transient-binding/v2",
            Self::HarnessRun => "oz.wizardofoz.co/harness-run/v2",
            Self::RunVoucher => "oz.wizardofoz.co/run-voucher/v2",
            Self::Emergency => "oz.wizardofoz.co/emergency/v2",
            Self::Review => "oz.wizardofoz.co/review/v2",
            Self::ChildUntil => "oz.wizardofoz.co/child-until/v2",
            Self::Canary => "oz.wizardofoz.co/canary/v2",
            Self::SessionToken => "oz.wizardofoz.co/session-token/v2",
            Self::PeerToken => "oz.wizardofoz.co/peer-token/v2",
        }
    }
}
