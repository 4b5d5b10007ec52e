//! What the kinds of access have in common and in what they differ. A kind says in [`Kind`] what is
//! its own; where a request stands ([`assess`](super::assess)), what follows ([`plan`](super::plan))
//! and what its status says ([`report`](super::report)) are written once, for all of them.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::{Resource as _, ResourceExt};

use super::continued::Continued;
use super::decide;
use super::grant::{Grant, SessionTerms};
use super::lifecycle;
use super::objects::Objects;
use super::request::Request;
use super::seal::Keys;
use super::stamp::{self, Requester};
use super::status::{Fact, transitions};
use super::window::Window;
use crate::api::{
    AccessConfig, CrossVersionObjectReference, OnTemplateChange, Phase, RequestStatus,
};
use crate::audit::PodRef;
use crate::build;
use crate::conditions::{self, message};
use crate::controller::{Child, Controller, Failure, Live, Outcome, Plan, Transition};
use crate::kinds::{self, AccessRequest, AccessTemplate, Kind as _};
use crate::lifecycle::End;
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
    /// The state that the request is in instead.
    fn offer(&self, case: Case<'_, Self>) -> Result<Offer, State>;

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

    /// The grant as it goes on in another pod of its workload; `None` if there will never be one.
    ///
    /// # Errors
    /// Why there is none yet.
    fn successor(
        &self,
        grant: &Grant,
        workload: Option<&Result<Self::Workload, Failure>>,
    ) -> Result<Option<Grant>, Failure> {
        let _ = (grant, workload);
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

/// What a plan needs besides the request and its objects.
#[derive(Debug)]
pub struct Observed<T, W> {
    /// The template that the request names, if there is one.
    pub template: Option<Arc<T>>,
    /// Name of another request that carries the very same stamp.
    pub same_stamp: Option<String>,
    /// What is known of the request that this one continues.
    pub continued: Option<Continued>,
    /// The NetworkPolicies of the namespace, if somebody looked.
    pub policies: Option<Result<Vec<NetworkPolicy>, Failure>>,
    /// Whether the template's author could make the pod themselves, if that was tried.
    pub tried: Option<Result<(), Failure>>,
    /// Whether the API server says that the request is being deleted or gone; asked if [`drifted`].
    pub leaving: bool,
    /// What was read of the target workload, if [`State::Wants`] asked for it.
    pub workload: Option<Result<W, Failure>>,
    /// What has the name of the pod that was granted, if anybody looked.
    pub pod: Option<PodSeen>,
    /// The pod that this process made for the request, if it did.
    pub made: Option<PodMade>,
    /// What has the name of the grant, whoever made it; read if [`is_unstamped`].
    pub left: Option<Result<Vec<Live>, Failure>>,
}

/// A pod as the API server made it for a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodMade {
    /// Its UID.
    pub uid: String,
    /// Digest of what it runs.
    content: String,
    /// Digest of what can be changed of it.
    changeable: String,
}

impl PodMade {
    /// The pod that was made; `None` if this is none.
    #[must_use]
    pub fn of(live: &Live) -> Option<Self> {
        let spec = &live.object.data["spec"];
        (live.resource.kind == "Pod").then(|| Self {
            uid: live.object.metadata.uid.clone().unwrap_or_default(),
            content: build::content(spec),
            changeable: build::changeable(spec),
        })
    }

    /// Digest of what it runs, by which the decision tells it.
    pub(super) fn runs(&self, content: &str) -> bool {
        self.content == content
    }
}

/// What has a name among pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSeen {
    /// The name.
    pub name: String,
    /// UID of the pod that has it; `None` if none has.
    pub uid: Option<String>,
}

impl PodSeen {
    /// Why the pod of a grant is not there any more; `None` if it is, or this is about another.
    pub(super) fn replaced(&self, grant: &Grant) -> Option<String> {
        if grant.own_pod.is_some() || self.name != grant.pod.name {
            return None;
        }
        let name = &self.name;
        match &self.uid {
            Some(uid) if *uid == grant.pod.uid => None,
            Some(_) => Some(format!("pod {name} was replaced by another of its name")),
            None => Some(format!("pod {name} is gone")),
        }
    }
}

impl<T, W> Default for Observed<T, W> {
    fn default() -> Self {
        Self {
            template: None,
            same_stamp: None,
            continued: None,
            policies: None,
            tried: None,
            leaving: false,
            workload: None,
            pod: None,
            made: None,
            left: None,
        }
    }
}

/// What is observed for a kind.
pub type ObservedOf<K> = Observed<<K as Kind>::Template, <K as Kind>::Workload>;

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
    /// The NetworkPolicies of the namespace, if somebody looked.
    pub policies: Option<Result<&'a [NetworkPolicy], &'a Failure>>,
    /// Whether the template's author could make the pod themselves, if that was tried.
    pub tried: Option<&'a Result<(), Failure>>,
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
    /// The target workload must be looked up to tell.
    Wants(CrossVersionObjectReference),
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

/// The workload that must be looked up before the plan can be made; `None` when the answer would
/// change nothing, so that a granted or finished request costs no reads.
#[must_use]
pub fn wants<K: Kind>(
    kind: &K,
    now: Timestamp,
    request: &K::Request,
    observed: &ObservedOf<K>,
    live: &[Live],
) -> Option<CrossVersionObjectReference> {
    match super::assess::assess(kind, now, request, observed, live).state {
        State::Wants(target) => Some(target),
        State::Moving(moving) if observed.workload.is_none() => {
            moving.from.following.map(|following| following.workload)
        }
        _ => None,
    }
}

/// Whether the plan would end a grant because somebody meddled with it. What the garbage collector
/// removes after a request was deleted looks the same, if its watch is ahead of the request's: ask
/// the API server before somebody is suspected.
#[must_use]
pub fn drifted<K: Kind>(
    kind: &K,
    now: Timestamp,
    request: &K::Request,
    observed: &ObservedOf<K>,
    live: &[Live],
) -> bool {
    let request = K::view(request);
    let state = super::assess::after_grant(kind, now, &request, observed, live);
    let drifts = |state: State| matches!(state, State::Ending(end, _) if end.is_drift());
    state.is_some_and(drifts) && End::begun(request.status).is_none()
}

/// Whether the plan would refuse the request because it bears no stamp. It may be older than oz, and
/// the program that was there before may have granted it.
#[must_use]
pub fn is_unstamped<K: Kind>(
    kind: &K,
    now: Timestamp,
    request: &K::Request,
    observed: &ObservedOf<K>,
    live: &[Live],
) -> bool {
    let refused = || super::assess::assess(kind, now, request, observed, live).state;
    stamp::of(request.meta()).is_none() && matches!(refused(), State::Refused(..))
}

impl<K: Kind> Controller for K {
    type Object = K::Request;
    type Observed = ObservedOf<K>;
    type Status = RequestStatus;

    fn name(&self) -> &'static str {
        <K::Request as kinds::Kind>::NAME
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, object: &K::Request) -> Option<RequestStatus> {
        // One that says nothing is as none: half way to a grant it is not worth a write.
        Some(K::view(object).status.cloned().unwrap_or_default())
    }

    fn plan(
        &self,
        now: Timestamp,
        object: &K::Request,
        observed: &Self::Observed,
        live: &[Live],
    ) -> Plan {
        super::plan::plan(self, now, object, observed, live)
    }

    fn status(
        &self,
        now: Timestamp,
        object: &K::Request,
        observed: &Self::Observed,
        outcome: &Outcome,
    ) -> RequestStatus {
        super::report::status(self, now, object, observed, outcome)
    }

    fn is_decided(&self, object: &K::Request, live: &[Live]) -> bool {
        let request = K::view(object);
        request.phase().is_terminal() || self.decision(&request, live).is_some()
    }

    fn lasts_until(&self, object: Option<&K::Request>, live: &[Live]) -> Option<Timestamp> {
        lifecycle::lasts_until(self.keys(), object.map(K::view).as_ref(), live)
    }

    fn orphaned(&self, now: Timestamp, object: Option<&K::Request>, live: &[Live]) -> Plan {
        let request = object.map(K::view);
        lifecycle::orphaned(now, self.keys(), request.as_ref(), live)
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
