//! What the policies over all templates say of a transient binding, as it was sealed in its stamp when it was
//! created: whether it may be made, who has to agree before, and for how long it lasts at most.

use jiff::Timestamp;
use oz_api::{ApprovalConfig, Phase, Requester};
use oz_trail::{Action, Decision, Record};

use super::facts::{Assessment, Facts, Otherwise, State, denied};
use super::kind::{Binding, Kind, StoredBinding, Transient};
use super::terms::Terms;
use crate::access::approval::{self, Approvals, Asked, Candidate};
use crate::access::denial::Denial;
use crate::access::grant::Approved;
use crate::access::policy::{self, Judgement};
use crate::access::stamp::{self, Stamp, StampError};
use crate::controller::Failure;
use crate::lifecycle::seal::Keys;
use crate::lifecycle::window::after;

/// Reason of one of a kind that cannot wait for approvals, where a policy asks for some.
const NOT_APPROVABLE: &str = "CannotBeApproved";

/// Who asks for what, and what policies came to about it.
pub(super) struct Asking<'a> {
    pub(super) requester: &'a Requester,
    pub(super) judgement: Option<&'a Judgement>,
    pub(super) terms: &'a Terms,
}

impl Binding<'_> {
    /// Its stamp, if that is proven: who created it, and what policies came to then.
    ///
    /// # Errors
    /// Why it is not.
    pub fn stamp(&self, keys: &Keys) -> Result<Stamp, StampError> {
        stamp::open(keys, self.kind, self.metadata, &self.spec_digest)
    }

    /// Whether it may be made by what policies came to.
    ///
    /// # Errors
    /// Why not, and what to do next.
    pub fn permitted(
        &self,
        judgement: Option<&Judgement>,
        reason: Option<&str>,
    ) -> Result<(), Denial> {
        policy::permits(judgement, reason)?;
        let Some(judgement) =
            judgement.filter(|it| !self.is_approvable && policy::rules(Some(it)).is_some())
        else {
            return Ok(());
        };
        let names = judgement.names();
        let why = format!(
            "others have to approve it by AccessPolicy {names}, and a {} of {} cannot wait for that; create a {} of \
             {} in its place",
            self.kind,
            self.api_version,
            self.kind,
            oz_api::GROUP,
        );
        Err(Denial::new(NOT_APPROVABLE, why))
    }
}

impl StoredBinding<'_> {
    /// The binding as approvals see it. Answers to what belongs to the whole cluster are in `own_namespace`, oz's:
    /// whoever may answer in one namespace need not be asked about all.
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

    /// What others are asked about it by these rules; `None` if they make no sense. Nobody waits longer for them
    /// than the binding does for anything else.
    #[must_use]
    pub fn asked<'b>(
        &self,
        own_namespace: &str,
        requester: &'b Requester,
        config: &'b ApprovalConfig,
    ) -> Option<Asked<'b>> {
        let candidate = self.candidate(own_namespace);
        let asked = Asked::of(&candidate, requester, &self.spec_digest, config)?;
        let terms = self.terms.as_ref().ok()?;
        Some(Asked {
            until: asked.until.min(terms.gives_up(self.created())),
            ..asked
        })
    }
}

/// The end of what would last until `until` if it begins `now`: policies may say that it lasts no longer.
#[must_use]
pub fn limit(until: Timestamp, now: Timestamp, judgement: Option<&Judgement>) -> Timestamp {
    let ceiling = policy::ceiling(judgement);
    ceiling.map_or(until, |ceiling| until.min(after(now, ceiling)))
}

impl<K: Kind> Transient<K> {
    /// What came of the approvals that it takes; `None` if it takes none, or if they make no sense.
    pub(super) fn approvals(
        &self,
        now: Timestamp,
        binding: &StoredBinding<'_>,
        asking: &Asking<'_>,
        known: &Facts,
    ) -> Option<Approvals> {
        let config = policy::rules(asking.judgement)?;
        let own = &self.policy.own_namespace;
        let asked = binding.asked(own, asking.requester, &config)?;
        let read = known.confirmed.as_ref().and_then(|read| read.as_ref().ok());
        let objects = read.unwrap_or(&known.approvals);
        let candidate = binding.candidate(own);
        let answers = approval::answers(&self.keys, objects, &candidate, &known.locks, now);
        Some(Approvals::of(&asked, &answers, None, now))
    }
}

/// Who approved, if all did who have to and policies do not refuse.
///
/// # Errors
/// The state that it is in instead.
pub(super) fn settled(
    binding: &StoredBinding<'_>,
    asking: &Asking<'_>,
    approvals: Option<&Approvals>,
    assessment: &mut Assessment,
) -> Result<Vec<Approved>, Otherwise> {
    binding
        .permitted(asking.judgement, asking.terms.reason.as_deref())
        .map_err(|denial| denied(Failure::invalid(denial.reason, denial.message)))?;
    if let Some(approvals) = approvals {
        assessment.approval = Some(approvals.status.clone());
        assessment.unlocked_at = approvals.unlocked_at;
    }
    let needed = policy::rules(asking.judgement).is_some();
    let mut facts = Vec::new();
    let settled: Result<_, State> = approval::settled(needed, approvals, &mut facts);
    assessment.approved = facts.pop();
    if let (Err(State::Waiting(_)), Some(approvals)) = (&settled, approvals) {
        assessment.waits_until = assessment.waits_until.min(approvals.status.until);
    }
    Ok(settled?)
}

/// What is put on record when it begins to wait for others.
pub(super) fn requested<K: Kind>(
    transient: &Transient<K>,
    now: Timestamp,
    binding: &StoredBinding<'_>,
    assessment: &Assessment,
) -> Option<Record> {
    let State::Waiting(failure) = &assessment.state else {
        return None;
    };
    let asked = assessment.approval.as_ref()?;
    let stamp = binding.stamp(&transient.keys).ok()?;
    let config = policy::rules(stamp.judgement.as_ref())?;
    let (action, decision) = (Action::ApprovalRequested, Decision::Note);
    let message = failure.message.clone();
    let record = binding.record(now, action, decision, approval::WAITING, message);
    let said = binding.status.and_then(|status| status.approval.as_ref());
    approval::request_of(record, failure, &config, (stamp.requester, asked), said)
}
