//! The common part of the kinds of access, and their differences. Each kind implements [`Kind`]; the assessment of a
//! request ([`assess`](super::assess)), the plan ([`plan`](super::plan)), the status ([`report`](super::report)) and
//! the controller ([`controller`](super::controller)) exist once for all kinds.

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
use super::on_call::OnCall;
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

/// The retention of requests after their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepFinished {
    /// Retention of a request with an ended grant. The audit trail keeps the grant, and a user who applies the same
    /// manifest again requests access again.
    pub ended: SignedDuration,
    /// Retention of all other requests: those denied, never granted or failed. Their status shows users the cause.
    pub others: SignedDuration,
}

impl KeepFinished {
    /// Creates the same retention for all requests.
    #[must_use]
    pub const fn all(keep: SignedDuration) -> Self {
        Self {
            ended: keep,
            others: keep,
        }
    }

    /// Returns the retention of a request with this status.
    #[must_use]
    pub fn retention(self, status: Option<&RequestStatus>) -> SignedDuration {
        let ended = status.is_some_and(|status| {
            let phase = matches!(status.phase, Phase::Expired | Phase::Revoked);
            phase && status.granted_at.is_some()
        });
        if ended { self.ended } else { self.others }
    }
}

/// A kind of access. Each implementation is also a [`Controller`](crate::controller::Controller) of its requests.
pub trait Kind: Send + Sync + Sized + 'static {
    /// The requests.
    type Request: AccessRequest<Template = Self::Template>;
    /// The templates that they name.
    type Template: AccessTemplate<Target = Self::Target>;
    /// The validated target of a template.
    type Target;
    /// The data of a workload that a decision requires.
    type Workload: Send + Sync + 'static;

    /// Returns the keys that verify stamps, and that seal and open grants.
    fn keys(&self) -> &Keys;
    /// Returns the retention of requests after their end.
    fn keep_finished(&self) -> KeepFinished;
    /// Returns the service account of the gate, if there is a gate.
    fn gate(&self) -> Option<&GateAccount>;

    /// Returns the grant for a request that passed all other checks.
    ///
    /// # Errors
    /// The state of a request without a grant, or the next question.
    fn offer(&self, case: Case<'_, Self>) -> Result<Offer, Stop>;

    /// Returns the trial that must succeed before the offered objects are created; `None` if no trial is required.
    fn trial(&self, offer: &Offer, template: &Self::Template) -> Option<Result<Trial, Failure>> {
        let _ = (offer, template);
        None
    }

    /// Returns the decision that the live objects carry.
    fn decision(&self, request: &StoredRequest<'_>, live: &[Live]) -> Option<Grant> {
        let role = Objects::from_live(request, live).role?;
        objects::decision(self.keys(), request, &role)
    }

    /// Returns the decision that the RoleBinding carries. It serves only to revoke the grant after the Role was deleted
    /// or its seal became invalid.
    fn remembered(&self, request: &StoredRequest<'_>, live: &[Live]) -> Option<Grant> {
        let binding = Objects::from_live(request, live).binding?;
        Grant::open(self.keys(), &binding.metadata, request.uid())
    }

    /// Returns the drift if the live objects carry no decision; `None` if none is expected.
    fn lost(&self, request: &StoredRequest<'_>, live: &[Live]) -> Option<Drift> {
        Objects::from_live(request, live).without_decision(request)
    }

    /// Returns the failure if an object that oz may not delete has the name of an object to create. The controller
    /// calls this if the live objects carry no decision.
    fn blocked(&self, request: &StoredRequest<'_>, live: &[Live]) -> Option<Failure> {
        let _ = (request, live);
        None
    }

    /// Returns the drift of the live objects of a grant. `made` is the pod that this process created.
    fn drift(
        &self,
        request: &StoredRequest<'_>,
        grant: &Grant,
        live: &[Live],
        made: Option<&PodMade>,
    ) -> Option<Drift> {
        let _ = made;
        Objects::from_live(request, live).drift(request, grant)
    }

    /// Returns the reason to end a grant before its expiry that only this kind has.
    fn early_end(
        &self,
        now: Timestamp,
        request: &StoredRequest<'_>,
        grant: &Grant,
        live: &[Live],
    ) -> Option<End> {
        let _ = (now, request, grant, live);
        None
    }

    /// Returns the grant for another pod of the same workload, or the reason to wait for one; `None` if there will
    /// never be another pod.
    ///
    /// # Errors
    /// The question that must be answered first.
    fn successor(
        &self,
        grant: &Grant,
        facts: &FactsOf<Self>,
    ) -> Result<Option<Result<Grant, Failure>>, Question> {
        let _ = (grant, facts);
        Ok(None)
    }

    /// Returns the steps that maintain a granted request, and the time of the next check.
    fn upkeep(&self, request: &StoredRequest<'_>, grant: &Grant, live: &[Live]) -> Plan {
        let _ = (request, live);
        Plan::default().wake_at(grant.window.until)
    }

    /// Returns the message that all objects were created.
    fn created(&self, grant: &Grant) -> String {
        let (role, name) = (grant.role_name(), grant.object_name());
        format!("Success. Role {role}, RoleBinding {name} created")
    }

    /// Returns the facts about a granted request, such as whether the grant can be used.
    fn facts(&self, request: &StoredRequest<'_>, grant: &Grant, live: &[Live]) -> Vec<Fact> {
        let _ = (request, grant, live);
        vec![Fact::holds(
            conditions::ACCESS_RESOURCES_READY,
            message::READY,
        )]
    }
}

/// The reason why a request is not granted, or why its grant does not continue.
pub type Stop = lifecycle::Stop<Special, Question>;

/// The facts for one kind.
pub type FactsOf<K> = Facts<<K as Kind>::Template, <K as Kind>::Workload>;

/// A request that may be granted.
pub struct Case<'a, K: Kind> {
    /// The instant of the decision.
    pub now: Timestamp,
    /// The request.
    pub request: StoredRequest<'a>,
    /// The validated spec of the request.
    pub asked: ValidatedRequest,
    /// The verified requester.
    pub requester: Requester,
    /// The template.
    pub template: &'a K::Template,
    /// The validated spec of the template.
    pub terms: ValidatedTemplate<K::Target>,
    /// The window of the grant.
    pub window: Window,
    /// The approvals, if approvals are required.
    pub approvals: Vec<Approved>,
    /// The on-call checks that replaced approvals.
    pub on_call: Option<OnCall>,
    /// The sealed judgement of the access policies, if any applied.
    pub judgement: Option<Judgement>,
    /// The change ticket that the request names, and the checks that accepted it.
    pub ticket: Option<Ticket>,
    /// The declared emergency, if there is one.
    pub emergency: Option<Emergency>,
    /// The gate of the sessions, if the template has `sessions: Gate`.
    pub gate: Option<GateAccount>,
    /// The data of the workload, if the template names one.
    pub workload: Option<&'a K::Workload>,
    /// The data about the request that this one continues.
    pub continued: Option<&'a Continued>,
    /// The results of the session probe of the chosen pod, if the operator ran it.
    pub probes: Option<&'a [SessionProbe]>,
    /// The NetworkPolicies of the namespace, if a question asked for them.
    pub policies: Option<Result<&'a [NetworkPolicy], &'a Failure>>,
}

impl<K: Kind> Case<'_, K> {
    /// Creates the grant of access to `pod`.
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
            not_ready: false,
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
                ..SessionTerms::from_config(rules)
            },
            following: None,
            own_pod: None,
            role: None,
            approvals: self.approvals,
            on_call: self.on_call,
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

/// A grant, and the objects that must exist before its Role.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The decision.
    pub grant: Grant,
    /// The objects in the order of their creation; the last carries the sealed decision. The plan continues when all
    /// exist. Empty if the Role is the first object.
    pub first: Vec<Child>,
}

/// The state of a request.
pub type State = lifecycle::State<Grant, Offer, Special>;

/// A state that only requests have.
#[derive(Clone, Debug, PartialEq)]
pub enum Special {
    /// The request could be granted, but other subjects would get the rights of its Role.
    Blocked(Blocked),
    /// The request was granted, and its grant moves to another pod.
    Moving(Box<Move>),
    /// The request is being deleted, and the watch has not shown that yet.
    Leaving,
}

/// The RoleBindings of other subjects that prevent a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The Role that the grant would create.
    pub role: String,
    /// RoleBindings of other subjects to that Role.
    pub bindings: Vec<String>,
}

/// The move of a grant to another pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The reason for the replacement of the pod.
    pub why: PodReplaced,
    /// The grant for the previous pod.
    pub from: Grant,
    /// The grant for the next pod, or the reason to wait for one.
    pub to: Result<Grant, Failure>,
}

/// A state, with the conditions that the assessment established.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// The state of the request.
    pub state: State,
    /// The established facts, in order.
    pub facts: Vec<Fact>,
    /// The instant at which a request without a grant stops waiting.
    pub waits_until: Timestamp,
    /// The instant at which a lock on an approver ends and the approval counts again, or at which an approval rule has
    /// additional approvers.
    pub unlocked_at: Option<Timestamp>,
    /// The approvals in the status, if the request requires approvals.
    pub approval: Option<ApprovalStatus>,
}
