//! The controller of a kind of access. It assesses a request, plans the next steps, and reports the status.

use jiff::Timestamp;
use kube::Resource as _;
use oz_api::{IdentityError, RequestStatus};

use super::assess;
use super::kind::{Assessment, FactsOf, Kind, Question, State};
use super::{ending, plan, report, stamp, status};
use crate::controller::{Controller, Decision, Failure, Live, Outcome, Plan, Transition, Verdict};
use crate::kinds::{self, AccessRequest};
use crate::lifecycle::machine::Need;

impl<K: Kind> Controller for K {
    type Object = K::Request;
    type Facts = FactsOf<K>;
    type Question = Question;
    type State = Assessment;
    type Status = RequestStatus;

    fn name(&self) -> &'static str {
        <K::Request as kinds::Kind>::NAME
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, object: &K::Request) -> Option<RequestStatus> {
        // One that says nothing is as none: half way to a grant it is not worth a write.
        Some(object.status().cloned().unwrap_or_default())
    }

    fn decide(
        &self,
        now: Timestamp,
        object: &K::Request,
        facts: &Self::Facts,
        live: &[Live],
    ) -> Verdict<Question, Decision<Assessment>> {
        let request = match object.stored() {
            Ok(request) => request,
            Err(error) => {
                let plan = self.orphaned(now, None, live);
                return Verdict::Decided(unidentified(plan, error));
            }
        };
        match assess::assess(self, now, object, &request, facts, live) {
            Ok(state) => Verdict::Decided(Decision {
                plan: plan::plan(self, now, (object, &request), facts, &state, live),
                state,
            }),
            Err(Need { question, until }) => Verdict::Need {
                question,
                until: Some(until),
            },
        }
    }

    fn status(
        &self,
        now: Timestamp,
        object: &K::Request,
        decision: &Decision<Assessment>,
        outcome: &Outcome,
    ) -> RequestStatus {
        report::status(self, now, object, &decision.state, outcome)
    }

    fn flow(&self, object: &K::Request) -> String {
        stamp::flow(object.meta())
    }

    fn is_decided(&self, object: &K::Request, live: &[Live]) -> bool {
        object.stored().is_ok_and(|request| {
            request.phase().is_terminal() || self.decision(&request, live).is_some()
        })
    }

    fn lasts_until(&self, object: Option<&K::Request>, live: &[Live]) -> Option<Timestamp> {
        let request = object.and_then(|object| object.stored().ok());
        ending::lasts_until(self.keys(), request.as_ref(), live)
    }

    fn orphaned(&self, now: Timestamp, object: Option<&K::Request>, live: &[Live]) -> Plan {
        let request = object.and_then(|object| object.stored().ok());
        ending::orphaned(now, self.keys(), request.as_ref(), live)
    }

    fn transitions(
        &self,
        _: &K::Request,
        before: Option<&RequestStatus>,
        after: &RequestStatus,
    ) -> Vec<Transition> {
        status::transitions(before, after)
    }
}

/// Returns the decision about an object without identity: its grant ends, as if the object were gone, and the pass
/// fails.
fn unidentified(plan: Plan, error: IdentityError) -> Decision<Assessment> {
    let failure = Failure::from(error);
    Decision {
        plan: plan.because(failure.clone()),
        state: Assessment {
            state: State::Waiting(failure),
            facts: Vec::new(),
            waits_until: Timestamp::MAX,
            unlocked_at: None,
            approval: None,
        },
    }
}
