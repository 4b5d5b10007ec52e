//! The controller of a kind of access: asked where a request stands, it says what follows and what the
//! status tells of it.

use jiff::Timestamp;
use kube::Resource as _;
use oz_api::RequestStatus;

use super::assess::{self, Need};
use super::kind::{Assessment, FactsOf, Kind, Question};
use super::{ending, plan, report, stamp, status};
use crate::controller::{Controller, Decision, Live, Outcome, Plan, Transition, Verdict};
use crate::kinds::{self, AccessRequest};

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
        Some(object.view().status.cloned().unwrap_or_default())
    }

    fn decide(
        &self,
        now: Timestamp,
        object: &K::Request,
        facts: &Self::Facts,
        live: &[Live],
    ) -> Verdict<Question, Decision<Assessment>> {
        match assess::assess(self, now, object, facts, live) {
            Ok(state) => Verdict::Decided(Decision {
                plan: plan::plan(self, now, object, facts, &state, live),
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
        let request = object.view();
        request.phase().is_terminal() || self.decision(&request, live).is_some()
    }

    fn lasts_until(&self, object: Option<&K::Request>, live: &[Live]) -> Option<Timestamp> {
        ending::lasts_until(self.keys(), object.map(AccessRequest::view).as_ref(), live)
    }

    fn orphaned(&self, now: Timestamp, object: Option<&K::Request>, live: &[Live]) -> Plan {
        let request = object.map(AccessRequest::view);
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
