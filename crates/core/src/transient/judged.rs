//! The effect of access policies on a transient binding, as sealed in its stamp at its creation: a denial, required
//! approvals, and the maximum duration.
//! See docs/adr/0028-what-policies-said-is-sealed.md.

use jiff::Timestamp;
use oz_api::{ApprovalConfig, Phase, Requester};
use oz_trail::{Action, Decision, Record};

use super::facts::{Assessment, Facts, State};
use super::kind::{Binding, Kind, StoredBinding, Transient};
use crate::access::approval::{self, ApprovalRequest, Approvals, Candidate};
use crate::access::denial::Denial;
use crate::access::policy::{self, Judgement};
use crate::access::stamp::{self, Stamp, StampError};
use crate::lifecycle::seal::Keys;
use crate::lifecycle::window::after;

/// Reason of a denial for a kind that cannot wait for approvals, if an access policy requires some.
const NOT_APPROVABLE: &str = "NotApprovable";

impl Binding<'_> {
    /// Opens the stamp of the object, with its requester and the judgement of the access policies.
    ///
    /// # Errors
    /// The reason why the stamp is missing or invalid.
    pub fn stamp(&self, keys: &Keys) -> Result<Stamp, StampError> {
        stamp::open(keys, self.kind, self.metadata, &self.spec_digest)
    }

    /// Checks whether the access policies permit the binding.
    ///
    /// # Errors
    /// The cause, and the next step of the requester.
    pub fn permitted(
        &self,
        judgement: Option<&Judgement>,
        reason: Option<&str>,
    ) -> Result<(), Denial> {
        policy::permits(judgement, reason, "transient binding")?;
        let Some(judgement) =
            judgement.filter(|it| !self.is_approvable && policy::rules(Some(it)).is_some())
        else {
            return Ok(());
        };
        let names = judgement.names();
        let why = format!(
            "AccessPolicy {names} requires approvals, and a {} of {} cannot wait for them; create \
             a {} of {} instead",
            self.kind,
            self.api_version,
            self.kind,
            oz_api::GROUP,
        );
        Err(Denial::new(NOT_APPROVABLE, why))
    }
}

impl StoredBinding<'_> {
    /// Returns the binding as a candidate for approvals. Approvals of a cluster-wide binding are in `own_namespace`,
    /// the namespace of oz: a right to approve in another namespace does not extend to the cluster.
    #[must_use]
    pub fn candidate<'b>(&'b self, own_namespace: &'b str) -> Candidate<'b> {
        let phase = self.status.map_or(Phase::Pending, |status| status.phase);
        Candidate {
            kind: self.kind,
            identity: self.identity(),
            metadata: self.metadata,
            answered_in: self.metadata.namespace.as_deref().or(Some(own_namespace)),
            template: None,
            spec_digest: self.spec_digest.clone(),
            phase,
            emergency: false,
        }
    }

    /// Returns the approvals that these rules require; `None` if the rules are invalid. Their timeout ends with the
    /// time for which the object waits for its binding.
    #[must_use]
    pub fn asked<'b>(
        &self,
        own_namespace: &str,
        requester: &'b Requester,
        config: &'b ApprovalConfig,
    ) -> Option<ApprovalRequest<'b>> {
        let candidate = self.candidate(own_namespace);
        let asked =
            ApprovalRequest::from_candidate(&candidate, requester, &self.spec_digest, config)?;
        let terms = self.terms.as_ref().ok()?;
        Some(ApprovalRequest {
            until: asked.until.min(terms.gives_up(self.created())),
            ..asked
        })
    }
}

/// Returns the expiry of a binding that begins `now` and would last until `until`, shortened to the maximum of the
/// access policies.
#[must_use]
pub fn limit(until: Timestamp, now: Timestamp, judgement: Option<&Judgement>) -> Timestamp {
    let ceiling = policy::ceiling(judgement);
    ceiling.map_or(until, |ceiling| until.min(after(now, ceiling)))
}

impl<K: Kind> Transient<K> {
    /// Returns the state of the required approvals; `None` if none are required, or if the rules are invalid.
    pub(super) fn approvals(
        &self,
        now: Timestamp,
        binding: &StoredBinding<'_>,
        stamp: &Stamp,
        known: &Facts,
    ) -> Option<Approvals> {
        let config = policy::rules(stamp.judgement.as_ref())?;
        let own = &self.policy.own_namespace;
        let asked = binding.asked(own, &stamp.requester, &config)?;
        Some(Approvals::evaluate(
            (&binding.candidate(own), &asked),
            (&known.approvals, known.confirmed.as_ref()),
            (&self.keys, &known.locks),
            now,
        ))
    }
}

/// Creates the audit records of an object that begins to wait for approvals, and of its escalation.
pub(super) fn requested<K: Kind>(
    transient: &Transient<K>,
    now: Timestamp,
    binding: &StoredBinding<'_>,
    assessment: &Assessment,
) -> Vec<Record> {
    let State::Waiting(failure) = &assessment.state else {
        return Vec::new();
    };
    let stamp = binding.stamp(&transient.keys);
    let Some((asked, stamp)) = assessment.approval.as_ref().zip(stamp.ok()) else {
        return Vec::new();
    };
    let Some(config) = policy::rules(stamp.judgement.as_ref()) else {
        return Vec::new();
    };
    let (action, decision) = (Action::ApprovalRequested, Decision::Note);
    let message = failure.message.clone();
    let record = binding.record(now, action, decision, approval::WAITING, message);
    let said = binding.status.and_then(|status| status.approval.as_ref());
    approval::request_of(record, failure, &config, (stamp.requester, asked), said)
}
