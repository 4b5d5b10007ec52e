//! The assessment of a request: what the machine reads of it, the same for every kind of access.

use jiff::Timestamp;
use oz_api::{EndReason, Requester, conditions, names};

use super::approval::{self, Approvals};
use super::fact::Fact;
use super::facts::PodReplaced;
use super::grant::Grant;
use super::kind::{
    Assessment, Blocked, FactsOf, Kind, Move, Offer, Question, Special, State, Stop,
};
use super::lock::Access;
use super::objects::{self, Objects};
use super::on_call::OnCall;
use super::proposal::AccessProposal;
use super::request::{Spec, StoredRequest};
use super::rules::{self, Held, HeldFacts, Passed};
use super::stamp;
use super::ticket::{self, Ticket};
use crate::controller::Live;
use crate::lifecycle::End;
use crate::lifecycle::drift::Drift;
use crate::lifecycle::machine::{self, Lifecycle, Lost, Need, Sealed};

/// A request in one pass.
struct Pass<'a, K: Kind> {
    kind: &'a K,
    now: Timestamp,
    object: (&'a K::Request, &'a StoredRequest<'a>),
    known: &'a FactsOf<K>,
    /// All live objects, and those of the request.
    live: (&'a [Live], &'a [Live]),
    objects: Objects,
    approvals: Option<Approvals>,
    /// The results of the rules before a grant.
    passed: Passed,
}

/// Assesses a request.
///
/// # Errors
/// The data that must be read first.
pub(super) fn assess<K: Kind>(
    kind: &K,
    now: Timestamp,
    object: &K::Request,
    request: &StoredRequest<'_>,
    known: &FactsOf<K>,
    live: &[Live],
) -> Result<Assessment, Need<Question>> {
    let own = &*objects::filter_own(kind.keys(), request, live);
    let mut pass = Pass {
        kind,
        now,
        object: (object, request),
        known,
        live: (live, own),
        objects: Objects::from_live(request, own),
        approvals: approval::evaluate(kind, now, request, known),
        passed: Passed::default(),
    };
    let state = machine::assess(&mut pass)?;
    let waits_until = pass.waits_until();
    let (mut facts, approvals) = (pass.passed.facts, pass.approvals);
    if let State::Ending(end, _) = &state {
        facts.extend(refused(end));
    }
    Ok(Assessment {
        state,
        facts,
        waits_until,
        unlocked_at: approvals
            .as_ref()
            .and_then(|approvals| approvals.unlocked_at),
        approval: approvals.map(|approvals| approvals.status),
    })
}

/// Returns the condition of the change ticket, or of the approval, because of which access ends.
fn refused(end: &End) -> Option<Fact> {
    let of_on_call = [EndReason::OnCallEnded, EndReason::OnCallCheckUnavailable];
    let on_call = || {
        let detail = end.detail().to_owned();
        Fact::fails(conditions::APPROVED, end.reason.into(), detail)
    };
    let of_on_call = of_on_call.contains(&end.reason);
    ticket::lost_fact(end).or_else(|| of_on_call.then(on_call))
}

impl Held for Grant {
    fn access(&self) -> Access<'_> {
        Access::granted(self)
    }

    fn template_digest(&self) -> Option<&str> {
        self.revoke_on_template_change
            .then_some(self.template_digest.as_str())
    }

    fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    fn on_call(&self) -> Option<(&Requester, &OnCall)> {
        Some((&self.requester, self.on_call.as_ref()?))
    }
}

impl<K: Kind> Lifecycle for Pass<'_, K> {
    type Grant = Grant;
    type Offer = Offer;
    type Special = Special;
    type Question = Question;

    fn now(&self) -> Timestamp {
        self.now
    }

    fn is_over(&self) -> bool {
        self.request().phase().is_terminal()
    }

    /// Checks whether the request is being deleted. A deletion that leads to lost objects is confirmed as drift is.
    fn is_deleted(&self) -> bool {
        let is_deleted = self.request().metadata.deletion_timestamp.is_some();
        is_deleted && (self.decision().is_some() || self.lost().is_none())
    }

    fn begun(&self) -> Option<End> {
        End::begun(self.request().status)
    }

    fn sealed(&self) -> Sealed<Grant> {
        let (request, (_, live)) = (self.request(), self.live);
        if let Some(grant) = self.decision() {
            return Sealed {
                until: Some(grant.window.until),
                grant: Some(Box::new(grant)),
                lost: None,
            };
        }
        let Some(drift) = self.lost() else {
            return Sealed {
                until: None,
                grant: None,
                lost: None,
            };
        };
        Sealed {
            until: request.status.and_then(|status| status.expires_at),
            grant: self.kind.remembered(request, live).map(Box::new),
            lost: Some(Lost {
                drift,
                is_retired: objects::is_retired(request, live),
            }),
        }
    }

    fn drift(&self, grant: &Grant) -> Option<Drift> {
        let made = self.known.made.as_ref();
        self.kind.drift(self.request(), grant, self.live.1, made)
    }

    fn confirm_drift(&self) -> Result<(), Stop> {
        match self.known.is_deleted {
            None => Err(Stop::Need(Question::Deletion)),
            Some(true) => Err(Stop::Special(Special::Leaving)),
            Some(false) => Ok(()),
        }
    }

    fn early_ends(&self, grant: &Grant) -> Vec<End> {
        let template = self.known.template.as_deref();
        let facts = HeldFacts {
            now: self.now,
            locks: &self.known.locks,
            template: template.map(|template| template as &dyn Spec),
            tickets: &self.known.tickets,
        };
        let mut ends = rules::while_granted::<AccessProposal<'_, K>>(grant, &facts);
        let own = self
            .kind
            .early_end(self.now, self.request(), grant, self.live.1);
        ends.extend(own);
        if grant.following.is_none() {
            ends.extend(self.replaced(grant).map(End::pod_replaced));
        }
        ends
    }

    /// Checks whether the pod of the grant exists. A grant that follows its workload moves to another pod.
    fn proceed(&self, grant: &mut Grant) -> Result<(), Stop> {
        if let Some(why) = self.replaced(grant) {
            let next = self.kind.successor(grant, self.known);
            return Err(match next.map_err(Stop::Need)? {
                None => Stop::End(End::pod_replaced(format!("{why}, and so is its workload"))),
                Some(to) => {
                    let from = grant.clone();
                    Stop::Special(Special::Moving(Box::new(Move { why, from, to })))
                }
            });
        }
        self.set_role_name(grant).map_err(Stop::Need)?;
        self.check_bindings(grant)
    }

    fn propose(&mut self) -> Result<Offer, Stop> {
        let ((_, request), known) = (self.object, self.known);
        let is_stamped = stamp::read(request.metadata).is_some();
        if is_stamped && let Some(failure) = self.kind.blocked(request, self.live.1) {
            return Err(Stop::Wait(failure));
        }
        let approvals = self.approvals.as_ref();
        let proposal = AccessProposal::new(self.kind, self.now, self.object, known, approvals);
        rules::before_grant(&proposal, &mut self.passed)?;
        let mut offer = proposal.offer(&mut self.passed)?;
        let question = match offer.first.is_empty() {
            true => self.set_role_name(&mut offer.grant).err(),
            false => None,
        };
        self.check_bindings(&offer.grant)?;
        self.check_trial(&offer)?;
        let read = known.confirmed.as_ref();
        approval::confirmed::<Special, Question>(approvals, read, Question::Approvals)?;
        question.map_or(Ok(offer), |question| Err(Stop::Need(question)))
    }

    /// Returns the instant at which the request stops waiting. Approvals have a separate timeout; after the last of them,
    /// the request waits for as long as it would after its creation.
    fn waits_until(&self) -> Timestamp {
        let approvals = self.approvals.as_ref();
        approvals.map_or_else(|| self.request().waits_until(), Approvals::waits_until)
    }

    fn confirm_refusal(&self) -> Option<Question> {
        let is_stamped = stamp::read(self.request().metadata).is_some();
        let is_unread = self.known.predecessor.is_none();
        (!is_stamped && is_unread).then_some(Question::Predecessor)
    }
}

impl<'a, K: Kind> Pass<'a, K> {
    fn request(&self) -> &'a StoredRequest<'a> {
        self.object.1
    }

    /// Returns the decision that the live objects carry.
    fn decision(&self) -> Option<Grant> {
        self.kind.decision(self.request(), self.live.1)
    }

    /// Returns the drift if the live objects carry no decision, and should.
    fn lost(&self) -> Option<Drift> {
        self.kind.lost(self.request(), self.live.1)
    }

    /// Returns the reason why the pod of a grant no longer exists.
    fn replaced(&self, grant: &Grant) -> Option<PodReplaced> {
        self.known.pod.as_ref()?.replaced(grant)
    }

    /// Sets the name of a Role that does not exist yet to the name that was found for it.
    fn set_role_name(&self, grant: &mut Grant) -> Result<(), Question> {
        if self.objects.role.is_some() || self.objects.binding.is_some() {
            return Ok(());
        }
        match &self.known.role_name {
            Some(name) => {
                let own = || names::own_grant_role(&grant.object_name());
                grant.role = Some(name.number.clone().unwrap_or_else(own));
                Ok(())
            }
            None => {
                let (keys, all) = (self.kind.keys(), self.live.0);
                let bound = objects::bound_by_others(keys, self.request(), all);
                Err(Question::RoleName(bound))
            }
        }
    }

    /// Checks whether other subjects are bound to the Role of a grant without a RoleBinding.
    fn check_bindings(&self, grant: &Grant) -> Result<(), Stop> {
        let (keys, request, all) = (self.kind.keys(), self.request(), self.live.0);
        // Before there is a pod, it has no name yet.
        let role = grant.role.clone().unwrap_or_else(|| request.role_name());
        let bindings = objects::strangers(keys, request, &role, all);
        match self.objects.binding.is_none() && !bindings.is_empty() {
            true => Err(Stop::Special(Special::Blocked(Blocked { role, bindings }))),
            false => Ok(()),
        }
    }

    /// Checks whether the trial of the offer has succeeded, if its kind requires one.
    fn check_trial(&self, offer: &Offer) -> Result<(), Stop> {
        let template = self.known.template.as_deref();
        let trial = template.and_then(|template| self.kind.trial(offer, template));
        match (trial, &self.known.tried) {
            (None, _) | (Some(Ok(_)), Some(Ok(()))) => Ok(()),
            (Some(Err(failure)), _) => Err(Stop::Wait(failure)),
            (Some(Ok(_)), Some(Err(failure))) => Err(Stop::Wait(failure.clone())),
            (Some(Ok(trial)), None) => Err(Stop::Need(Question::Trial(Box::new(trial)))),
        }
    }
}
