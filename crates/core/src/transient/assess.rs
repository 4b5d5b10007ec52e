//! The assessment of a transient binding. All other code follows its result.

use jiff::Timestamp;
use oz_api::{ApprovalStatus, EndReason, Phase, labels};

use super::facts::{Assessment, ESTABLISHED, Facts, Opens, Question};
use super::grant::Grant;
use super::kind::{Kind, StoredBinding, Transient};
use super::proposal::{BindingProposal, Stop};
use crate::access::approval;
use crate::access::fact::Fact;
use crate::access::lock::Access;
use crate::access::rules::{self, Held, HeldFacts, Passed};
use crate::access::ticket::Ticket;
use crate::controller::Live;
use crate::lifecycle::drift::{self, Drift};
use crate::lifecycle::machine::{self, Lifecycle, Lost, Sealed};
use crate::lifecycle::revoke::still_gives_access;
use crate::lifecycle::{End, seal};

/// Returns the objects of `live` that belong to this object: those with a decision of oz for it, those with its owner
/// reference, which Kubernetes deletes with it anyway, and the object with the UID in its status. Labels are no proof,
/// as other clients can write them.
pub(super) fn ours(
    keys: &crate::lifecycle::seal::Keys,
    binding: &StoredBinding<'_>,
    live: &[Live],
) -> Vec<Live> {
    let uid = binding.uid();
    let told = binding
        .status
        .and_then(|status| status.binding_uid.as_ref());
    let belongs = |live: &&Live| {
        Grant::open(keys, live, &binding.api_version, uid).is_some()
            || drift::is_owned(&live.object.metadata, uid)
            || (told.is_some() && live.object.metadata.uid.as_ref() == told)
    };
    live.iter().filter(belongs).cloned().collect()
}

/// The next question of an assessment, and the instant after which its answer has no effect.
pub(super) type Need = machine::Need<Question>;

/// A binding in one pass.
struct Pass<'a, K: Kind> {
    transient: &'a Transient<K>,
    now: Timestamp,
    binding: &'a StoredBinding<'a>,
    known: &'a Facts,
    live: &'a [Live],
    /// The sealed grant, and the live object that carries it.
    decided: Option<(Grant, &'a Live)>,
    /// What the rules established about the binding without a grant.
    waiting: Waiting,
}

/// The conditions and approvals of a binding without a grant.
#[derive(Default)]
struct Waiting {
    /// The established conditions, of the types in [`ESTABLISHED`].
    facts: Vec<Fact>,
    /// The required approvals, as the status shows them.
    status: Option<ApprovalStatus>,
    /// The instant at which a lock on an approver ends and the approval counts again, if there is such a lock.
    unlocked_at: Option<Timestamp>,
    /// The instant at which the object stops waiting for approvals, if it waits for them.
    until: Option<Timestamp>,
}

impl<'a, K: Kind> Pass<'a, K> {
    fn new(
        transient: &'a Transient<K>,
        now: Timestamp,
        binding: &'a StoredBinding<'a>,
        known: &'a Facts,
        live: &'a [Live],
    ) -> Self {
        let decided = live.iter().find_map(|live| {
            let grant = Grant::open(&transient.keys, live, &binding.api_version, binding.uid())?;
            Some((grant, live))
        });
        Self {
            transient,
            now,
            binding,
            known,
            live,
            decided,
            waiting: Waiting::default(),
        }
    }
}

impl Held for Grant {
    fn access(&self) -> Access<'_> {
        let access = Access::bound(&self.requester, &self.subjects, self.namespace());
        access.in_emergency(self.emergency.is_some())
    }

    fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }
}

impl<K: Kind> Lifecycle for Pass<'_, K> {
    type Grant = Grant;
    type Offer = Grant;
    type Special = Opens;
    type Question = Question;

    const HAS_FINALIZER: bool = true;

    fn now(&self) -> Timestamp {
        self.now
    }

    fn is_over(&self) -> bool {
        self.binding.is_over()
    }

    fn is_deleted(&self) -> bool {
        self.binding.metadata.deletion_timestamp.is_some()
    }

    fn begun(&self) -> Option<End> {
        self.binding.status?.ending.clone().map(End::from)
    }

    fn sealed(&self) -> Sealed<Grant> {
        let status = self.binding.status;
        let grant = self.decided.as_ref().map(|(grant, _)| grant.clone());
        let is_active = status.is_some_and(|status| status.phase == Phase::Active);
        let lost = (grant.is_none() && is_active).then(|| {
            let mut found = self.live.iter().map(|live| &live.object.metadata);
            Lost {
                drift: Drift::BindingOrDecision(self.binding.name().to_owned()),
                is_retired: found.any(|metadata| seal::is_retired_on(metadata, labels::GRANT)),
            }
        });
        let until = match &grant {
            Some(grant) => Some(grant.until),
            None => status.and_then(|status| status.expires_at),
        };
        Sealed {
            grant: grant.map(Box::new),
            until,
            lost,
        }
    }

    fn drift(&self, grant: &Grant) -> Option<Drift> {
        if grant.spec_digest != self.binding.spec_digest {
            return Some(Drift::Spec);
        }
        let (_, live) = self.decided.as_ref()?;
        grant.drift(live)
    }

    fn early_ends(&self, grant: &Grant) -> Vec<End> {
        let facts = HeldFacts {
            now: self.now,
            locks: &self.known.locks,
            template: None,
            tickets: &self.known.tickets,
        };
        rules::while_granted::<BindingProposal<'_>>(grant, &facts)
    }

    fn propose(&mut self) -> Result<Grant, Stop> {
        let proposal = BindingProposal::new(self.transient, self.now, self.binding, self.known);
        let mut passed = Passed::default();
        let decided = rules::before_grant(&proposal, &mut passed);
        let approvals = proposal.approvals.as_ref();
        let facts = std::mem::take(&mut passed.facts).into_iter();
        let waits = matches!(&decided, Err(Stop::Wait(why)) if why.reason == approval::WAITING);
        self.waiting = Waiting {
            facts: facts
                .filter(|fact| ESTABLISHED.contains(&fact.type_))
                .collect(),
            status: approvals.map(|approvals| approvals.status.clone()),
            unlocked_at: approvals.and_then(|approvals| approvals.unlocked_at),
            until: approvals
                .filter(|_| waits)
                .map(|approvals| approvals.status.until),
        };
        decided?;
        let grant = proposal.offer(passed)?;
        self.waiting.facts.extend(grant.emergency_fact());
        let read = self.known.confirmed.as_ref();
        approval::confirmed(approvals, read, Question::Approvals).map(|()| grant)
    }

    fn waits_until(&self) -> Timestamp {
        let terms = self.binding.terms.as_ref();
        terms.map_or(self.now, |terms| terms.gives_up(self.binding.created()))
    }
}

impl<K: Kind> Transient<K> {
    /// Assesses an object.
    pub(super) fn assess(
        &self,
        now: Timestamp,
        binding: &StoredBinding<'_>,
        known: &Facts,
        live: &[Live],
    ) -> Result<Assessment, Need> {
        let mut pass = Pass::new(self, now, binding, known, live);
        let state = machine::assess(&mut pass)?;
        let waits_until = pass.waits_until();
        let Waiting {
            facts,
            status,
            unlocked_at,
            until,
        } = pass.waiting;
        let waits_until = until.map_or(waits_until, |until| waits_until.min(until));
        let mut assessment = Assessment::new(state, waits_until);
        if assessment.facts.is_empty() {
            assessment.facts = facts;
        }
        Ok(Assessment {
            approval: status,
            unlocked_at,
            ..assessment
        })
    }

    /// Checks whether an object still gives access.
    pub(super) fn in_effect(&self, binding: &StoredBinding<'_>, live: &[Live]) -> bool {
        let ours = ours(&self.keys, binding, live);
        ours.iter().any(still_gives_access)
    }
}

/// Returns the reason in conditions and audit records of an end.
pub(super) fn end_reason(end: &End) -> &'static str {
    end.reason.into()
}

/// Returns the message for users about an end.
pub(super) fn end_message(end: &End) -> String {
    match end.reason {
        EndReason::Expired => "the window has ended".to_owned(),
        EndReason::NeverActive => "the window ended before the binding could be created".to_owned(),
        EndReason::ApprovalTimedOut => end.detail().to_owned(),
        EndReason::Deleted => "revoked: the object was deleted".to_owned(),
        _ => format!("revoked: {}", end.detail()),
    }
}
