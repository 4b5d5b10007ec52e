//! The plan for each state. A binding is created after the audit record, and carries the sealed decision. It ends in
//! the order binding, audit record, status. If the status does not report the binding yet, the subjects are removed in
//! a first pass and the binding in a second, so that at every instant an object shows that the window was used.

use jiff::Timestamp;
use oz_api::{BindingStatus, EndReason, IdentityError, Uid, labels};
use oz_trail::{Action, Decision as Decided, Record};

use super::assess::{end_message, end_reason, ours};
use super::facts::{Assessment, Facts, Opens, Question, State};
use super::grant::Grant;
use super::kind::{Kind, StoredBinding, Transient};
use super::roles::Listed;
use super::terms::Terms;
use super::{FINALIZER, judged};
use crate::access::{emergency, stamp};
use crate::controller::{
    Controller, Decision, Failure, Live, Outcome, Plan, Step, Transition, Verdict,
};
use crate::lifecycle::revoke::{self, Marks, remove};
use crate::lifecycle::{End, drift};

impl<K: Kind> Controller for Transient<K> {
    type Object = K;
    type Facts = Facts;
    type Question = Question;
    type State = Assessment;
    type Status = BindingStatus;

    fn name(&self) -> &'static str {
        K::NAME
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, object: &K) -> Option<BindingStatus> {
        Some(object.status().cloned().unwrap_or_default())
    }

    fn decide(
        &self,
        now: Timestamp,
        object: &K,
        facts: &Facts,
        live: &[Live],
    ) -> Verdict<Question, Decision<Assessment>> {
        let binding = match object.stored() {
            Ok(binding) => binding,
            Err(error) => {
                let plan = self.orphaned(now, None, live);
                return Verdict::Decided(unidentified(now, plan, error));
            }
        };
        let assessment = match self.assess(now, &binding, facts, live) {
            Ok(assessment) => assessment,
            Err(need) => {
                return Verdict::Need {
                    question: need.question,
                    until: Some(need.until),
                };
            }
        };
        let plan = match &assessment.state {
            State::Over => self.over(&binding, live),
            State::Ending(end, grant) => self.ending(now, &binding, end, grant.as_deref(), live),
            State::Granted(grant) => grant.upkeep(now, &facts.tickets),
            State::Grantable(grant) => self.activating(now, grant),
            State::Special(Opens(opens)) => Plan::default().wake_at(*opens),
            State::Refused(_, failure) => Plan::default().then([Step::Record(binding.record(
                now,
                Action::RequestDenied,
                Decided::Deny,
                failure.reason,
                failure.message.clone(),
            ))]),
            State::Waiting(failure) => {
                let plan = self.waiting(now, &binding, &assessment, failure);
                judged::with_checks(self, now, &binding, facts, failure.reason, plan)
            }
        };
        let plan = match (&assessment.state, binding.counted_again(now)) {
            (State::Special(_) | State::Waiting(_), Some(again)) => plan.wake_at(again),
            _ => plan,
        };
        Verdict::Decided(Decision {
            plan,
            state: assessment,
        })
    }

    fn status(
        &self,
        now: Timestamp,
        object: &K,
        decision: &Decision<Assessment>,
        outcome: &Outcome,
    ) -> BindingStatus {
        self.report(now, object, &decision.state, outcome)
    }

    fn flow(&self, object: &K) -> String {
        stamp::flow(object.meta())
    }

    fn lasts_until(&self, object: Option<&K>, live: &[Live]) -> Option<Timestamp> {
        let object = object.and_then(|object| object.stored().ok());
        let sealed = self.decided(object.as_ref(), live);
        let sealed = sealed.map(|(grant, _)| grant.until).max();
        sealed.or_else(|| object.as_ref()?.status?.remembers_until())
    }

    /// Returns the plan for the binding of an object that is deleted, without its finalizer; the binding carries the
    /// decision.
    fn orphaned(&self, now: Timestamp, object: Option<&K>, live: &[Live]) -> Plan {
        let last = object.and_then(|object| object.stored().ok());
        let decided = self.decided(last.as_ref(), live);
        let (grants, live): (Vec<_>, Vec<_>) =
            decided.map(|(grant, live)| (grant, live.clone())).unzip();
        let removed = grants.first().map_or_else(Plan::default, |grant: &Grant| {
            let marks = Marks {
                kind: K::MARK,
                uid: Uid::new(&grant.request.uid),
            };
            remove(marks, &live)
        });
        let records = live.iter().zip(grants).filter_map(|(live, grant)| {
            let end = End::of_gone(now, grant.until);
            (!revoke::is_leaving(live)).then(|| Step::Record(ended(now, &end, &grant)))
        });
        // An object that ended before its deletion has no binding.
        let looks = last.filter(|last| !last.is_over()).map(|last| last.look());
        removed.then(looks).then(records)
    }

    fn transitions(
        &self,
        object: &K,
        before: Option<&BindingStatus>,
        after: &BindingStatus,
    ) -> Vec<Transition> {
        object.stored().map_or_else(
            |_| Vec::new(),
            |binding| super::events::transitions(&binding, before, after),
        )
    }
}

impl<K: Kind> Transient<K> {
    /// Returns the decisions of the objects that belong to this object, or, without it, to the object in their labels.
    /// Labels can be forged, the sealed decision cannot.
    fn decided<'a>(
        &'a self,
        object: Option<&'a StoredBinding<'_>>,
        live: &'a [Live],
    ) -> impl Iterator<Item = (Grant, &'a Live)> {
        let api_version = K::api_version(&());
        live.iter().filter_map(move |live| {
            let uid = match object {
                Some(object) => object.uid(),
                None => labels::owner_uid(&live.object.metadata)?,
            };
            Some((Grant::open(&self.keys, live, &api_version, uid)?, live))
        })
    }

    fn waiting(
        &self,
        now: Timestamp,
        binding: &StoredBinding<'_>,
        assessment: &Assessment,
        failure: &Failure,
    ) -> Plan {
        let asked = judged::requested(self, now, binding, assessment);
        let waits_until = assessment.waits_until;
        let wake = assessment.unlocked_at;
        Plan::default()
            .then(asked.into_iter().map(Step::Record))
            .because(failure.clone())
            .wake_at(wake.map_or(waits_until, |at| at.min(waits_until)))
    }

    fn activating(&self, now: Timestamp, grant: &Grant) -> Plan {
        let binding = match grant.binding(&self.keys) {
            Ok(binding) => binding,
            Err(error) => return Plan::default().because(error.into_failure("decision")),
        };
        let record = grant.granted(now);
        let record = match emergency::proven(&self.keys, record, grant.emergency.as_ref()) {
            Ok(record) => record,
            Err(error) => {
                return Plan::default().because(error.into_failure("record of an emergency"));
            }
        };
        Plan::default()
            .then([Step::Record(record)])
            .then([Step::Apply(binding)])
            .wake_at(grant.until)
    }

    fn ending(
        &self,
        now: Timestamp,
        binding: &StoredBinding<'_>,
        end: &End,
        grant: Option<&Grant>,
        live: &[Live],
    ) -> Plan {
        let live = ours(&self.keys, binding, live);
        let deleted = binding.metadata.deletion_timestamp.is_some();
        // Without a binding and without this in the status, the window would look unused.
        let known = binding
            .status
            .is_some_and(|status| status.activated_at.is_some());
        let keep = !known && !deleted && !live.is_empty() && self.may_still_be_bound(binding);
        let marks = binding.marks();
        let plan = if keep {
            let emptied = live.iter().filter_map(|live| revoke::emptied(marks, live));
            Plan::default().then(emptied.map(Step::Apply))
        } else {
            remove(marks, &live)
        };
        // The live objects are deleted first; then the API server is asked for a binding that no watch has shown.
        let plan = plan.then([binding.look()]).then(
            self.records(now, binding, end, grant)
                .into_iter()
                .map(Step::Record),
        );
        if deleted {
            release(plan, binding)
        } else if keep {
            plan.wake_at(now)
        } else {
            plan
        }
    }

    /// Checks whether the list still contains the role. A binding to another role can only be deleted: Kubernetes
    /// denies writes of a binding to a user who may not bind its role
    /// (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#restrictions-on-role-binding-creation-or-update>).
    fn may_still_be_bound(&self, binding: &StoredBinding<'_>) -> bool {
        let listed = |terms: &Terms| self.policy.roles.listed(&terms.role, binding.namespace());
        binding
            .terms
            .as_ref()
            .is_ok_and(|terms| listed(terms) != Listed::No)
    }

    fn records(
        &self,
        now: Timestamp,
        binding: &StoredBinding<'_>,
        end: &End,
        grant: Option<&Grant>,
    ) -> Vec<Record> {
        let action = end.action();
        // Without a binding, the stamp has the requester, and the status has the expiry.
        let record_of = |action: Action| match grant {
            Some(grant) => ended_as(now, action, end, grant),
            None => {
                let mut record =
                    binding.record(now, action, Decided::End, end_reason(end), end_message(end));
                record.user = binding.requester(&self.keys).ok();
                record.until = binding.status.and_then(|status| status.expires_at);
                record
            }
        };
        let was_made = grant.is_some()
            || binding
                .status
                .is_some_and(|status| status.activated_at.is_some());
        match end.reason {
            EndReason::DriftDetected => vec![record_of(Action::DriftDetected), record_of(action)],
            // The deletion of an object that was never in effect has no audit record.
            EndReason::Deleted if !was_made => Vec::new(),
            _ => vec![record_of(action)],
        }
    }

    /// Deletes the remaining objects of an ended object. The object itself stays: a user who applies its manifest again
    /// would otherwise create it anew, and a duration would open a new window.
    fn over(&self, binding: &StoredBinding<'_>, live: &[Live]) -> Plan {
        let live = ours(&self.keys, binding, live);
        release(remove(binding.marks(), &live), binding)
    }
}

/// Returns the decision about an object without identity: its grant ends, as if the object were gone, and the pass
/// fails.
fn unidentified(now: Timestamp, plan: Plan, error: IdentityError) -> Decision<Assessment> {
    let failure = Failure::from(error);
    Decision {
        plan: plan.because(failure.clone()),
        state: Assessment::new(State::Waiting(failure), now),
    }
}

/// Removes the finalizer of oz from an object that is being deleted.
fn release(plan: Plan, binding: &StoredBinding<'_>) -> Plan {
    let metadata = binding.metadata;
    let held = metadata.deletion_timestamp.is_some() && drift::has_finalizer(metadata, FINALIZER);
    plan.then(held.then(|| Step::Release(FINALIZER.to_owned())))
}

fn ended(now: Timestamp, end: &End, grant: &Grant) -> Record {
    ended_as(now, end.action(), end, grant)
}

fn ended_as(now: Timestamp, action: Action, end: &End, grant: &Grant) -> Record {
    let (reason, message) = (end_reason(end), end_message(end));
    grant.record(now, action, Decided::End, reason, message)
}
