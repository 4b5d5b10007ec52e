//! What the kinds of access have in common and in what they differ. A kind says in [`Kind`] what is
//! its own; where a request stands ([`assess`](super::assess)), what follows ([`plan`](super::plan))
//! and what its status says ([`report`](super::report)) are written once, for all of them.

use std::fmt::Debug;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;

pub use super::facts::{Chosen, Facts, PodMade, PodSeen, Question, Trial};

use super::assess::Need;
use super::continued::Continued;
use super::decide;
use super::ending;
use super::grant::{Grant, SessionTerms};
use super::objects::Objects;
use super::request::Request;
use super::stamp::{self, Requester};
use super::status::{Fact, transitions};
use crate::api::{
    AccessConfig, CrossVersionObjectReference, OnTemplateChange, Phase, RequestStatus, SessionProbe,
};
use crate::audit::PodRef;
use crate::conditions::{self, message};
use crate::controller::{
    Child, Controller, Decision, Failure, Live, Outcome, Plan, Transition, Verdict,
};
use crate::kinds::{self, AccessRequest, AccessTemplate, Kind as _};
use crate::lifecycle::End;
use crate::lifecycle::seal::Keys;
use crate::lifecycle::window::Window;
use crate::validate::{ValidatedRequest, ValidatedTemplate, Violation};

/// One kind of access. Whoever implements this has a [`Controller`] of its requests.
pub trait Kind: Send + Sync + Sized + 'static {
    /// The requests.
    type Request: AccessRequest<Template = Self::Template>;
    /// The templates that they name.
    type Template: AccessTemplate<Target = Self::Target>;
    /// What a template, validated, gives access to.
    type Target;
    /// What is read of a workload to decide.
    type Workload: Send + Sync + 'static;

    /// Opens stamps, seals and opens grants.
    fn keys(&self) -> &Keys;
    /// How long a request is kept as a record after it ended.
    fn keep_finished(&self) -> SignedDuration;

    /// The request as the common rules see it.
    fn view(request: &Self::Request) -> Request<'_> {
        request.view()
    }
    /// Who may get access by the template, to do what.
    fn config(template: &Self::Template) -> &AccessConfig {
        template.config()
    }
    /// Digest of the template's spec.
    fn spec_digest(template: &Self::Template) -> String {
        template.spec_digest()
    }
    /// The workload that must be read before anything can be decided, if there is one.
    fn target(template: &Self::Template) -> Option<CrossVersionObjectReference> {
        template.workload().cloned()
    }
    /// Checks a request.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    fn check_request(request: &Self::Request) -> Result<ValidatedRequest, Vec<Violation>> {
        request.check()
    }
    /// Checks a template.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    fn check_template(
        template: &Self::Template,
    ) -> Result<ValidatedTemplate<Self::Target>, Vec<Violation>> {
        template.check()
    }

    /// The grant for a request that everything else allows.
    ///
    /// # Errors
    /// The state that the request is in instead, or what must be found out first.
    fn offer(&self, case: Case<'_, Self>) -> Result<Offer, Otherwise>;

    /// What is to be tried before what is offered is made; `None` if nothing is.
    fn trial(&self, offer: &Offer, template: &Self::Template) -> Option<Result<Trial, Failure>> {
        let _ = (offer, template);
        None
    }

    /// The decision that the live objects carry.
    fn decision(&self, request: &Request<'_>, live: &[Live]) -> Option<Grant> {
        let role = Objects::of(request, live).role?;
        Grant::open(self.keys(), &role.metadata, request.uid())
    }

    /// The decision as the RoleBinding carries it: good for ending what it gave when the Role is gone
    /// or its seal is broken, and for nothing else.
    fn remembered(&self, request: &Request<'_>, live: &[Live]) -> Option<Grant> {
        let binding = Objects::of(request, live).binding?;
        Grant::open(self.keys(), &binding.metadata, request.uid())
    }

    /// What is wrong when the live objects carry no decision; `None` if none is to be expected.
    fn lost(&self, request: &Request<'_>, live: &[Live]) -> Option<String> {
        Objects::of(request, live).without_decision(request)
    }

    /// What stands in the place of what is to be made, and is not ours to remove; asked when the
    /// live objects carry no decision.
    fn blocked(&self, request: &Request<'_>, live: &[Live]) -> Option<Failure> {
        let _ = (request, live);
        None
    }

    /// What became of what was made for a grant before its Role was; `made` is what this process made.
    fn exchanged(
        &self,
        request: &Request<'_>,
        grant: &Grant,
        live: &[Live],
        made: Option<&PodMade>,
    ) -> Option<String> {
        let _ = (request, grant, live, made);
        None
    }

    /// Why a grant whose time is not over ends all the same.
    fn early_end(
        &self,
        now: Timestamp,
        request: &Request<'_>,
        grant: &Grant,
        live: &[Live],
    ) -> Option<End> {
        let _ = now;
        let drift = Objects::of(request, live).drift(request, grant);
        drift.map(End::drift)
    }

    /// The grant as it goes on in another pod of its workload, or why there is none yet; `None` if there
    /// will never be one.
    ///
    /// # Errors
    /// What must be found out to tell.
    fn successor(
        &self,
        grant: &Grant,
        facts: &FactsOf<Self>,
    ) -> Result<Option<Result<Grant, Failure>>, Question> {
        let _ = (grant, facts);
        Ok(None)
    }

    /// What is to be done about a grant that stands, and when to look at it again.
    fn upkeep(&self, request: &Request<'_>, grant: &Grant, live: &[Live]) -> Plan {
        let _ = (request, live);
        Plan::default().wake_at(grant.window.until)
    }

    /// The message that everything was created.
    fn created(&self, grant: &Grant) -> String {
        let name = grant.object_name();
        format!("Success. Role {name}, RoleBinding {name} created")
    }

    /// Whether a grant that stands can be used, and what else is to be said of it.
    fn facts(&self, request: &Request<'_>, grant: &Grant, live: &[Live]) -> Vec<Fact> {
        let _ = (request, grant, live);
        vec![Fact::holds(
            conditions::ACCESS_RESOURCES_READY,
            message::READY,
        )]
    }
}

/// Why nothing is offered.
#[derive(Debug)]
pub enum Otherwise {
    /// The request is in this state instead.
    State(State),
    /// This must be found out first.
    Need(Question),
}

impl From<State> for Otherwise {
    fn from(state: State) -> Self {
        Self::State(state)
    }
}

/// What is known for a kind.
pub type FactsOf<K> = Facts<<K as Kind>::Template, <K as Kind>::Workload>;

/// A request that may be granted: who asks, by which terms, until when.
pub struct Case<'a, K: Kind> {
    /// The instant of the decision.
    pub now: Timestamp,
    /// The request.
    pub request: Request<'a>,
    /// What it asks for, checked.
    pub asked: ValidatedRequest,
    /// Who asks, verified.
    pub requester: Requester,
    /// The template.
    pub template: &'a K::Template,
    /// What it says, checked.
    pub terms: ValidatedTemplate<K::Target>,
    /// Until when.
    pub window: Window,
    /// What was read of the workload; there if [`Kind::target`] named one.
    pub workload: Option<&'a K::Workload>,
    /// What is known of the request that this one continues.
    pub continued: Option<&'a Continued>,
    /// What the containers of the chosen pod are able to, if that was asked.
    pub probes: Option<&'a [SessionProbe]>,
    /// The NetworkPolicies of the namespace, if they were asked for.
    pub policies: Option<Result<&'a [NetworkPolicy], &'a Failure>>,
}

impl<K: Kind> Case<'_, K> {
    /// The grant of access to `pod`.
    #[must_use]
    pub fn grant(self, pod: PodRef, access_message: String) -> Grant {
        let rules = K::config(self.template);
        Grant {
            request: self.request.reference(),
            subjects: decide::subjects(&self.requester, rules),
            requester: self.requester,
            stamp: stamp::digest(self.request.metadata),
            pod,
            operations: decide::operations(rules),
            window: self.window,
            granted_at: self.now,
            template: self.request.template.to_owned(),
            template_digest: K::spec_digest(self.template),
            revoke_on_template_change: rules.on_template_change == OnTemplateChange::Revoke,
            access_message,
            reason: self.asked.reason,
            sessions: SessionTerms::of(rules),
            following: None,
            own_pod: None,
            rules: None,
        }
    }
}

/// A grant, and what must exist before its Role.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// What was decided.
    pub grant: Grant,
    /// Written in this order, the last with the sealed decision. What follows is planned when they
    /// exist. Empty if the Role is the first.
    pub first: Vec<Child>,
}

/// Where a request stands.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// It ended, and its status says so.
    Over,
    /// It must end now. The grant is `None` if there never was one, or nothing is left that knows it.
    Ending(End, Option<Box<Grant>>),
    /// It was granted; nothing that was decided is decided again.
    Granted(Box<Grant>),
    /// It could be granted, but others would have what its Role hands out, by these RoleBindings.
    Blocked(Vec<String>),
    /// It was granted, and goes on in another pod.
    Moving(Box<Move>),
    /// It is being deleted, which the watch has not shown yet.
    Leaving,
    /// It may be granted now.
    Grantable(Box<Offer>),
    /// It is refused for good, in this phase.
    Refused(Phase, Failure),
    /// It cannot be granted yet.
    Waiting(Failure),
}

/// A grant whose pod was replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// What became of the pod.
    pub why: String,
    /// As it was.
    pub from: Grant,
    /// As it will be, or why that cannot be told yet.
    pub to: Result<Grant, Failure>,
}

/// A state, with the conditions that were established on the way to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// Where the request stands.
    pub state: State,
    /// What is known, in the order in which it was found out.
    pub facts: Vec<Fact>,
    /// When a request that is not granted stops waiting.
    pub waits_until: Timestamp,
}

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
        Some(K::view(object).status.cloned().unwrap_or_default())
    }

    fn decide(
        &self,
        now: Timestamp,
        object: &K::Request,
        facts: &Self::Facts,
        live: &[Live],
    ) -> Verdict<Question, Decision<Assessment>> {
        match super::assess::assess(self, now, object, facts, live) {
            Ok(state) => Verdict::Decided(Decision {
                plan: super::plan::plan(self, now, object, facts, &state, live),
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
        super::report::status(self, now, object, &decision.state, outcome)
    }

    fn is_decided(&self, object: &K::Request, live: &[Live]) -> bool {
        let request = K::view(object);
        request.phase().is_terminal() || self.decision(&request, live).is_some()
    }

    fn lasts_until(&self, object: Option<&K::Request>, live: &[Live]) -> Option<Timestamp> {
        super::ending::lasts_until(self.keys(), object.map(K::view).as_ref(), live)
    }

    fn orphaned(&self, now: Timestamp, object: Option<&K::Request>, live: &[Live]) -> Plan {
        let request = object.map(K::view);
        ending::orphaned(now, self.keys(), request.as_ref(), live)
    }

    fn transitions(
        &self,
        _: &K::Request,
        before: Option<&RequestStatus>,
        after: &RequestStatus,
    ) -> Vec<Transition> {
        transitions(before, after)
    }
}

/// Namespace of a request, for messages.
pub(crate) fn namespace_of<K: Kind>(request: &K::Request) -> String {
    request.namespace().unwrap_or_default()
}
