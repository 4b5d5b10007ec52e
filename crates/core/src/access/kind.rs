//! What the kinds of access have in common and in what they differ. A kind says in [`Kind`] what is
//! its own; where a request stands ([`assess`](super::assess)), what follows ([`plan`](super::plan)),
//! what its status says ([`report`](super::report)) and its controller
//! ([`controller`](super::controller)) are written once, for all of them.

use std::fmt::Debug;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use oz_api::Requester;
use oz_api::conditions::{self, message};
use oz_api::{ApprovalStatus, OnTemplateChange, Phase, RequestStatus, SessionProbe};
use oz_trail::PodRef;

pub use super::facts::{
    Chosen, Facts, MAX_ANSWERS, MAX_POLICIES, PodMade, PodReplaced, PodSeen, Question, ReviewLimit,
    RoleName, Trial,
};

use super::continued::Continued;
use super::decide;
use super::emergency::Emergency;
use super::grant::{Approved, Grant, SessionTerms};
use super::objects::{self, Objects};
use super::policy::Judgement;
use super::request::StoredRequest;
use super::stamp;
use super::status::Fact;
use super::ticket::Ticket;
use crate::controller::{Child, Failure, Live, Plan};
use crate::gate::GateAccount;
use crate::kinds::{AccessRequest, AccessTemplate, Kind as _};
use crate::lifecycle::drift::Drift;
use crate::lifecycle::seal::Keys;
use crate::lifecycle::window::Window;
use crate::lifecycle::{self, End};
use crate::validate::{ValidatedRequest, ValidatedTemplate};

/// How long a request is kept after it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepFinished {
    /// One whose grant ended, as the trail tells: who applies the same manifest again then asks again.
    pub ended: SignedDuration,
    /// Every other: it was refused, never granted, or failed, and people are to read why.
    pub others: SignedDuration,
}

impl KeepFinished {
    /// The same for all.
    #[must_use]
    pub const fn all(keep: SignedDuration) -> Self {
        Self {
            ended: keep,
            others: keep,
        }
    }

    /// How long a request with this status is kept.
    #[must_use]
    pub fn of(self, status: Option<&RequestStatus>) -> SignedDuration {
        let ended = status.is_some_and(|status| {
            let phase = matches!(status.phase, Phase::Expired | Phase::Revoked);
            phase && status.granted_at.is_some()
        });
        if ended { self.ended } else { self.others }
    }
}

/// One kind of access. Whoever implements this has a [`Controller`](crate::controller::Controller) of its requests.
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
    /// How long a request is kept after it is over.
    fn keep_finished(&self) -> KeepFinished;
    /// The gate's service account, if there is a gate.
    fn gate(&self) -> Option<&GateAccount>;

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
    fn decision(&self, request: &StoredRequest<'_>, live: &[Live]) -> Option<Grant> {
        let role = Objects::of(request, live).role?;
        objects::decision(self.keys(), request, &role)
    }

    /// The decision as the RoleBinding carries it: good for ending what it gave when the Role is gone
    /// or its seal is broken, and for nothing else.
    fn remembered(&self, request: &StoredRequest<'_>, live: &[Live]) -> Option<Grant> {
        let binding = Objects::of(request, live).binding?;
        Grant::open(self.keys(), &binding.metadata, request.uid())
    }

    /// What is wrong when the live objects carry no decision; `None` if none is to be expected.
    fn lost(&self, request: &StoredRequest<'_>, live: &[Live]) -> Option<Drift> {
        Objects::of(request, live).without_decision(request)
    }

    /// What stands in the place of what is to be made, and is not ours to remove; asked when the
    /// live objects carry no decision.
    fn blocked(&self, request: &StoredRequest<'_>, live: &[Live]) -> Option<Failure> {
        let _ = (request, live);
        None
    }

    /// What became of what was made for a grant before its Role was; `made` is what this process made.
    fn exchanged(
        &self,
        request: &StoredRequest<'_>,
        grant: &Grant,
        live: &[Live],
        made: Option<&PodMade>,
    ) -> Option<Drift> {
        let _ = (request, grant, live, made);
        None
    }

    /// Why a grant whose time is not over ends all the same.
    fn early_end(
        &self,
        now: Timestamp,
        request: &StoredRequest<'_>,
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
    fn upkeep(&self, request: &StoredRequest<'_>, grant: &Grant, live: &[Live]) -> Plan {
        let _ = (request, live);
        Plan::default().wake_at(grant.window.until)
    }

    /// The message that everything was created.
    fn created(&self, grant: &Grant) -> String {
        let (role, name) = (grant.role_name(), grant.object_name());
        format!("Success. Role {role}, RoleBinding {name} created")
    }

    /// Whether a grant that stands can be used, and what else is to be said of it.
    fn facts(&self, request: &StoredRequest<'_>, grant: &Grant, live: &[Live]) -> Vec<Fact> {
        let _ = (request, grant, live);
        vec![Fact::holds(
            conditions::ACCESS_RESOURCES_READY,
            message::READY,
        )]
    }
}

/// Why nothing is offered.
pub type Otherwise = lifecycle::Otherwise<State, Question>;

/// What is known for a kind.
pub type FactsOf<K> = Facts<<K as Kind>::Template, <K as Kind>::Workload>;

/// A request that may be granted: who asks, by which terms, until when.
pub struct Case<'a, K: Kind> {
    /// The instant of the decision.
    pub now: Timestamp,
    /// The request.
    pub request: StoredRequest<'a>,
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
    /// Who approved, where somebody has to.
    pub approvals: Vec<Approved>,
    /// What policies came to when it was asked, if there were any.
    pub judgement: Option<Judgement>,
    /// The ticket that it names, with who accepted it.
    pub ticket: Option<Ticket>,
    /// That it is an emergency.
    pub emergency: Option<Emergency>,
    /// The gate that sessions go through, if the template says that they do.
    pub gate: Option<GateAccount>,
    /// What was read of the workload; there if the template names one.
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
        let rules = self.template.config();
        Grant {
            request: self.request.reference(),
            subjects: match self.emergency {
                // It is one person's, whatever the template says of groups.
                Some(_) => vec![decide::subject(&self.requester)],
                None => decide::subjects(&self.requester, rules),
            },
            requester: self.requester,
            stamp: stamp::digest(self.request.metadata),
            pod,
            operations: decide::operations(rules),
            window: self.window,
            granted_at: self.now,
            template: self.request.template.to_owned(),
            template_digest: self.template.spec_digest(),
            revoke_on_template_change: rules.on_template_change == OnTemplateChange::Revoke,
            access_message,
            reason: self.asked.reason,
            sessions: SessionTerms {
                gate: self.gate,
                ..SessionTerms::of(rules)
            },
            following: None,
            own_pod: None,
            role: None,
            approvals: self.approvals,
            policies: self
                .judgement
                .into_iter()
                .flat_map(|it| it.policies)
                .collect(),
            ticket: self.ticket,
            emergency: self.emergency,
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
pub type State = lifecycle::State<Grant, Offer, Special>;

/// Where only a request can stand.
#[derive(Clone, Debug, PartialEq)]
pub enum Special {
    /// It could be granted, but others would have what its Role hands out.
    Blocked(Blocked),
    /// It was granted, and goes on in another pod.
    Moving(Box<Move>),
    /// It is being deleted, which the watch has not shown yet.
    Leaving,
}

/// What others wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The Role that the request would get.
    pub role: String,
    /// Their RoleBindings to it.
    pub bindings: Vec<String>,
}

/// A grant whose pod was replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// What became of the pod.
    pub why: PodReplaced,
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
    /// When an approval counts again whose author is locked out until then, if there is one.
    pub unlocked_at: Option<Timestamp>,
    /// What the status says of the approvals that it takes.
    pub approval: Option<ApprovalStatus>,
}
