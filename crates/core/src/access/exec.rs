//! Exec access, planned: from a request and what exists to what should happen now.
//!
//! Everything follows from [`ExecAccess::assess`], which looks at the request, its template and
//! its live objects and says in which [`State`] it is. `plan` and `status` only spell that out.
//!
//! Order matters twice. Granting: the Role, which gives nobody anything yet and carries the sealed
//! decision, beside the audit record; the RoleBinding only when both are there. Ending: the
//! RoleBinding, the record, the status; the Role last, in a pass of its own, so that until the
//! status says that it is over there is something left that knows what was granted.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use super::decide;
use super::grant::{self, Grant};
use super::request::Request;
use super::seal::Keys;
use super::stamp::{self, Requester, StampError};
use super::status::{self, End, Fact};
use super::target::Workload;
use super::window::{self, Window};
use crate::api::{
    CrossVersionObjectReference, ExecAccessRequest, ExecAccessTemplate, GROUP, OnTemplateChange,
    Phase, RequestStatus, VERSION,
};
use crate::audit::{Action, Decision, PodRef, Record};
use crate::controller::{Child, Controller, Failure, Live, Outcome, Plan, Step, Transition};
use crate::validate::{self, Violation};
use crate::conditions::{self, message, reason};
use crate::{access_command, build, encode};

/// The controller of ExecAccessRequests.
#[derive(Clone, Debug)]
pub struct ExecAccess {
    /// Opens stamps, seals and opens grants.
    pub keys: Keys,
    /// How long a request is kept as a record after it ended.
    pub keep_finished: SignedDuration,
}

/// What a plan needs besides the request and its objects.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The template that the request names, if there is one.
    pub template: Option<Arc<ExecAccessTemplate>>,
    /// Name of an older request that carries the very same stamp.
    pub same_stamp: Option<String>,
    /// The target workload, if [`ExecAccess::wants`] asked for it.
    pub workload: Option<Result<Workload, Failure>>,
}

/// Where a request stands.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// It ended, and its status says so.
    Over,
    /// It must end now. The grant is `None` if there never was one.
    Ending(End, Option<Box<Grant>>),
    /// It was granted; nothing that was decided is decided again.
    Granted(Box<Grant>),
    /// It may be granted now.
    Grantable(Box<Grant>),
    /// It is refused for good, in this phase.
    Refused(Phase, Failure),
    /// It cannot be granted yet.
    Waiting(Failure),
    /// The target workload must be looked up to tell.
    Wants(CrossVersionObjectReference),
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

impl ExecAccess {
    /// The workload that must be looked up before the plan can be made; `None` when the answer
    /// would change nothing, so that a granted or finished request costs no reads.
    #[must_use]
    pub fn wants(
        &self,
        now: Timestamp,
        request: &ExecAccessRequest,
        observed: &Observed,
        live: &[Live],
    ) -> Option<CrossVersionObjectReference> {
        match self.assess(now, request, observed, live).state {
            State::Wants(target) => Some(target),
            _ => None,
        }
    }

    /// Where the request stands. Time comes first: whatever else is broken, missing or unreadable,
    /// a grant whose window is over is ending.
    #[must_use]
    pub fn assess(
        &self,
        now: Timestamp,
        object: &ExecAccessRequest,
        observed: &Observed,
        live: &[Live],
    ) -> Assessment {
        let request = Request::from(object);
        let mut facts = Vec::new();
        let asked = request.asked();
        let waits_until =
            window::waits_until(request.created(), asked.as_ref().ok().copied().flatten());
        let state = self
            .after_grant(now, &request, observed, live)
            .unwrap_or_else(|| self.before_grant(now, object, &request, observed, &mut facts));
        let state = match state {
            // Waiting ends as well, whatever was waited for.
            State::Waiting(_) | State::Wants(_) if now >= waits_until => {
                State::Ending(End::Expired, None)
            }
            state => state,
        };
        Assessment { state, facts, waits_until }
    }

    /// The state of a request for which something was granted or that has ended; `None` if there
    /// is nothing of the kind.
    fn after_grant(
        &self,
        now: Timestamp,
        request: &Request<'_>,
        observed: &Observed,
        live: &[Live],
    ) -> Option<State> {
        if request.phase().is_terminal() {
            return Some(State::Over);
        }
        let objects = Objects::of(request, live);
        let decision =
            objects.role.as_ref().and_then(|role| Grant::open(&self.keys, &role.metadata, request.uid()));
        let deleted = request.metadata.deletion_timestamp.is_some();
        let Some(grant) = decision.map(Box::new) else {
            if let Some(what) = objects.without_decision(request) {
                let expired = request
                    .status
                    .and_then(|status| status.expires_at)
                    .is_some_and(|until| now >= until);
                let end = if expired { End::Expired } else { End::Drift(what) };
                return Some(State::Ending(end, None));
            }
            return deleted.then_some(State::Ending(End::Deleted, None));
        };
        let end = if grant.window.is_over(now) {
            End::Expired
        } else if deleted {
            End::Deleted
        } else if let Some(what) = objects.drift(request, &grant) {
            End::Drift(what)
        } else if grant.revoke_on_template_change
            && observed
                .template
                .as_ref()
                .is_some_and(|template| encode::digest(&template.spec) != grant.template_digest)
        {
            End::TemplateChanged
        } else {
            return Some(State::Granted(grant));
        };
        Some(State::Ending(end, Some(grant)))
    }

    /// The state of a request for which nothing was granted: who asks, by which template, for how
    /// long, may they, which pod.
    fn before_grant(
        &self,
        now: Timestamp,
        object: &ExecAccessRequest,
        request: &Request<'_>,
        observed: &Observed,
        facts: &mut Vec<Fact>,
    ) -> State {
        match self.decide(now, object, request, observed, facts) {
            Ok(grant) => State::Grantable(Box::new(grant)),
            Err(state) => *state,
        }
    }

    fn decide(
        &self,
        now: Timestamp,
        object: &ExecAccessRequest,
        request: &Request<'_>,
        observed: &Observed,
        facts: &mut Vec<Fact>,
    ) -> Result<Grant, Box<State>> {
        let requester = self.requester(request, observed, facts)?;
        let valid = validate::exec_access_request(object)
            .map_err(|violations| invalid_request(&violations, facts))?;
        let Some(template) = observed.template.as_deref() else {
            let message = format!(
                "Error: template does not exist: no ExecAccessTemplate {} in namespace {}; \
                 create it, or delete this request and name another",
                request.template,
                object.namespace().unwrap_or_default()
            );
            return Err(waiting(
                facts,
                conditions::TARGET_TEMPLATE_EXISTS,
                Failure::invalid(reason::NOT_FOUND, message),
            ));
        };
        facts.push(Fact::holds(conditions::TARGET_TEMPLATE_EXISTS, message::TEMPLATE_FOUND));
        let rules = &template.spec.access_config;
        decide::may(&requester, request.template, rules, request.ask)
            .map_err(|denial| refused(facts, denial.reason, denial.message))?;
        let terms = validate::exec_access_template(template)
            .map_err(|violations| invalid_template(request.template, &violations, facts))?;
        let window = Window::new(request.created(), valid.duration, terms.default, terms.max);
        facts.push(Fact::holds(conditions::ACCESS_DURATIONS_VALID, window.message()));
        if window.is_over(now) {
            return Err(Box::new(State::Ending(End::Expired, None)));
        }
        facts.push(Fact::holds(conditions::ACCESS_STILL_VALID, message::STILL_VALID));
        let target = &template.spec.controller_target_ref;
        let workload = match &observed.workload {
            None => return Err(Box::new(State::Wants(target.clone()))),
            Some(Err(failure)) => return Err(Box::new(State::Waiting(failure.clone()))),
            Some(Ok(workload)) => workload,
        };
        let pod = workload
            .choose(request.uid(), object.spec.target_pod.as_deref())
            .map_err(|failure| Box::new(State::Waiting(failure)))?;
        let access_message = access_command::render(&rules.access_command, &pod.metadata)
            .map_err(|error| {
                let message = format!("failed to render spec.accessConfig.accessCommand: {error}");
                Box::new(State::Waiting(Failure::invalid("AccessCommandInvalid", message)))
            })?;
        Ok(Grant {
            request: request.reference(),
            subjects: decide::subjects(&requester, rules),
            requester,
            pod: PodRef {
                name: pod.name_any(),
                uid: pod.uid().unwrap_or_default(),
                container: object.spec.container.clone(),
            },
            operations: decide::operations(rules),
            window,
            granted_at: now,
            template: request.template.to_owned(),
            template_digest: encode::digest(&template.spec),
            revoke_on_template_change: rules.on_template_change == OnTemplateChange::Revoke,
            access_message,
            reason: object.spec.reason.clone(),
        })
    }

    fn requester(
        &self,
        request: &Request<'_>,
        observed: &Observed,
        facts: &mut Vec<Fact>,
    ) -> Result<Requester, Box<State>> {
        let verified =
            stamp::verify(&self.keys, request.kind, request.metadata, &request.spec_digest);
        let verified = match &observed.same_stamp {
            Some(older) => verified.and(Err(StampError::Replayed(older.clone()))),
            None => verified,
        };
        match verified {
            Ok(requester) => {
                facts.push(Fact::holds(
                    conditions::REQUESTER_VERIFIED,
                    format!("Requested by {}", requester.user),
                ));
                Ok(requester)
            }
            Err(error) => Err(refused(facts, error.reason(), error.to_string())),
        }
    }

    fn children(&self, grant: &Grant) -> Result<(Child, Child), Failure> {
        let sealed = grant
            .seal(&self.keys)
            .map_err(|error| Failure::invalid("SealFailed", format!("failed to seal the grant: {error}")))?;
        Ok((Child::new(&build::role(grant, sealed)), Child::new(&build::role_binding(grant))))
    }

    fn granting(&self, now: Timestamp, object: &ExecAccessRequest, observed: &Observed, grant: &Grant) -> Plan {
        let (role, binding) = match self.children(grant) {
            Ok(children) => children,
            Err(failure) => return Plan::default().because(failure),
        };
        let template = observed.template.as_deref();
        Plan::default()
            .then([Step::Apply(role), Step::Record(granted(now, grant))])
            .then([Step::Apply(binding)])
            .then(template.and_then(|template| adoption(object, template)).map(Step::Own))
            .wake_at(grant.window.until)
    }

    fn ending(now: Timestamp, request: &Request<'_>, end: &End, grant: Option<&Grant>, live: &[Live]) -> Plan {
        let objects = Objects::of(request, live);
        let mut records = Vec::new();
        let action = if *end == End::Expired { Action::AccessExpired } else { Action::AccessRevoked };
        if let Some(grant) = grant {
            if let End::Drift(what) = end {
                records.push(grant.record(now, Action::DriftDetected, Decision::End, end.reason(), what));
            }
            records.push(grant.record(now, action, Decision::End, end.reason(), end.message()));
        } else if let End::Drift(what) = end {
            // The decision is lost with the Role that carried it; the status remembers for people.
            let mut record = request.refusal(now, end.reason(), what);
            record.id = Record::id(Action::DriftDetected, request.uid());
            (record.action, record.decision) = (Action::DriftDetected, Decision::End);
            record.until = request.status.and_then(|status| status.expires_at);
            records.push(record);
        }
        let plan = Plan::default()
            .then(objects.bindings().map(|live| Step::Delete(live.reference())))
            .then(records.into_iter().map(Step::Record))
            // The Role goes in the next pass, when the status is written.
            .wake_at(now);
        match end {
            End::Drift(what) => plan.because(Failure::invalid(End::DRIFT, what.clone())),
            _ => plan,
        }
    }

    fn over(&self, now: Timestamp, request: &Request<'_>, live: &[Live]) -> Plan {
        let until = status::kept_until(request.status, request.created(), self.keep_finished);
        let plan = remove(Plan::default(), live);
        if request.metadata.deletion_timestamp.is_some() {
            plan
        } else if now >= until {
            plan.then([Step::DeleteSelf])
        } else {
            plan.wake_at(until)
        }
    }
}

impl Controller for ExecAccess {
    type Object = ExecAccessRequest;
    type Observed = Observed;
    type Status = RequestStatus;

    fn name(&self) -> &'static str {
        "execaccessrequest"
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, object: &ExecAccessRequest) -> Option<RequestStatus> {
        object.status.clone()
    }

    fn plan(
        &self,
        now: Timestamp,
        object: &ExecAccessRequest,
        observed: &Observed,
        live: &[Live],
    ) -> Plan {
        let request = Request::from(object);
        let Assessment { state, waits_until, .. } = self.assess(now, object, observed, live);
        match state {
            State::Over => self.over(now, &request, live),
            State::Ending(end, grant) => Self::ending(now, &request, &end, grant.as_deref(), live),
            State::Granted(grant) if Objects::of(&request, live).binding.is_some() => {
                Plan::default().wake_at(grant.window.until)
            }
            State::Granted(grant) | State::Grantable(grant) => {
                self.granting(now, object, observed, &grant)
            }
            State::Refused(_, failure) => Plan::default()
                .then([Step::Record(request.refusal(now, failure.reason, &failure.message))])
                .wake_at(waits_until),
            State::Waiting(failure) => Plan::default().because(failure).wake_at(waits_until),
            State::Wants(target) => Plan::default()
                .because(Failure::transient(
                    "NotObserved",
                    format!("{} {} was not looked up yet", target.kind, target.name),
                ))
                .wake_at(waits_until),
        }
    }

    fn status(
        &self,
        now: Timestamp,
        object: &ExecAccessRequest,
        observed: &Observed,
        outcome: &Outcome,
    ) -> RequestStatus {
        let request = Request::from(object);
        let Assessment { state, mut facts, .. } = self.assess(now, object, observed, &outcome.live);
        let failure = outcome.failure.as_ref();
        let state = match (failure, state) {
            // The plan saw drift that it has removed by now.
            (Some(drift), State::Granted(grant) | State::Grantable(grant)) if drift.reason == End::DRIFT => {
                State::Ending(End::Drift(drift.message.clone()), Some(grant))
            }
            (_, state) => state,
        };
        let facts_of = |facts: Vec<Fact>| status::with_facts(now, &object.metadata, request.status, facts);
        match state {
            State::Over => request.status.cloned().unwrap_or_default(),
            State::Ending(end, grant) => {
                let ended = Objects::of(&request, &outcome.live).binding.is_none()
                    && failure.is_none_or(|failure| failure.reason == End::DRIFT);
                finish(facts_of(facts), now, object, &end, grant.as_deref(), ended)
            }
            State::Granted(grant) | State::Grantable(grant) => {
                let bound = Objects::of(&request, &outcome.live).binding.is_some();
                facts = facts_of_grant(&grant);
                facts.push(status::resources_created(
                    format!("Success. Role {name}, RoleBinding {name} created", name = grant.object_name()),
                    failure.filter(|_| !bound),
                ));
                if bound {
                    facts.push(Fact::holds(conditions::ACCESS_RESOURCES_READY, message::READY));
                }
                let mut status = facts_of(facts);
                if bound {
                    status.phase = Phase::Active;
                    status::describe(&mut status, &grant);
                }
                status.ready = status::is_ready(&status);
                status
            }
            State::Refused(phase, refusal) => {
                // Refused for good only once that is on record.
                let recorded = failure.is_none();
                if recorded {
                    facts.push(Fact::fails(
                        conditions::ACCESS_STILL_VALID,
                        refusal.reason,
                        refusal.message,
                    ));
                }
                let mut status = facts_of(facts);
                if recorded {
                    status.phase = phase;
                }
                status
            }
            State::Waiting(_) | State::Wants(_) => {
                if let (State::Waiting(failure), false) =
                    (&state, facts.iter().any(|fact| !fact.holds))
                {
                    facts.push(status::resources_created(String::new(), Some(failure)));
                }
                facts_of(facts)
            }
        }
    }

    fn orphaned(&self, now: Timestamp, live: &[Live]) -> Plan {
        // The request was deleted; its Role still knows what was granted.
        let grant = live.iter().filter_map(Live::parse::<Role>).find_map(|role| {
            let uid = role.labels().get(crate::labels::OWNER_UID)?.clone();
            Grant::open(&self.keys, &role.metadata, &uid)
        });
        let record = grant.map(|grant| {
            let (action, end) = if grant.window.is_over(now) {
                (Action::AccessExpired, End::Expired)
            } else {
                (Action::AccessRevoked, End::Deleted)
            };
            Step::Record(grant.record(now, action, Decision::End, end.reason(), end.message()))
        });
        let (bindings, others): (Vec<_>, Vec<_>) = live.iter().partition(|live| is_binding(live));
        Plan::default()
            .then(bindings.iter().map(|live| Step::Delete(live.reference())))
            .then(record)
            .then(others.iter().map(|live| Step::Delete(live.reference())))
    }

    fn transitions(
        &self,
        _object: &ExecAccessRequest,
        before: Option<&RequestStatus>,
        after: &RequestStatus,
    ) -> Vec<Transition> {
        status::transitions(before, after)
    }
}

/// The live objects of one request, typed.
struct Objects<'a> {
    live: &'a [Live],
    role: Option<Role>,
    binding: Option<RoleBinding>,
}

impl<'a> Objects<'a> {
    fn of(request: &Request<'_>, live: &'a [Live]) -> Self {
        let name = grant::object_name(
            request.metadata.name.as_deref().unwrap_or_default(),
            request.uid(),
        );
        let ours = || live.iter().filter(|live| live.key().name == name);
        Self {
            live,
            role: ours().find_map(Live::parse),
            binding: ours().find_map(Live::parse),
        }
    }

    /// Every binding that is marked as the request's, under whatever name.
    fn bindings(&self) -> impl Iterator<Item = &'a Live> + use<'a> {
        self.live.iter().filter(|live| is_binding(live))
    }

    /// What is wrong when no Role carries a decision of ours; `None` if none is to be expected.
    fn without_decision(&self, request: &Request<'_>) -> Option<String> {
        let name = request.metadata.name.as_deref().unwrap_or_default();
        if self.role.is_some() {
            return Some(format!("the sealed decision on the Role of {name} was changed"));
        }
        (self.binding.is_some() || request.phase() == Phase::Active)
            .then(|| format!("the Role of {name} was deleted"))
    }

    /// What differs from what the grant says; only in fields that are ours, since others may label
    /// and annotate.
    fn drift(&self, request: &Request<'_>, grant: &Grant) -> Option<String> {
        let name = grant.object_name();
        let role_differs = self
            .role
            .as_ref()
            .is_some_and(|role| role.rules.as_deref() != Some(&build::rules(grant)));
        if role_differs {
            return Some(format!("the rules of Role {name} were changed"));
        }
        let wanted = build::role_binding(grant);
        match &self.binding {
            Some(binding) if binding.role_ref != wanted.role_ref => {
                Some(format!("the roleRef of RoleBinding {name} was changed"))
            }
            Some(binding) if !same_subjects(binding, &wanted) => {
                Some(format!("the subjects of RoleBinding {name} were changed"))
            }
            None if request.phase() == Phase::Active => {
                Some(format!("RoleBinding {name} was deleted"))
            }
            _ => None,
        }
    }
}

fn is_binding(live: &Live) -> bool {
    live.resource.kind == "RoleBinding"
}

/// Subjects are compared as RBAC reads them: an absent API group is the kind's own.
fn same_subjects(one: &RoleBinding, other: &RoleBinding) -> bool {
    let plain = |binding: &RoleBinding| {
        let mut subjects = binding.subjects.clone().unwrap_or_default();
        for subject in &mut subjects {
            subject.api_group = subject.api_group.take().filter(|group| !group.is_empty());
        }
        subjects
    };
    plain(one) == plain(other)
}

fn remove(plan: Plan, live: &[Live]) -> Plan {
    let (bindings, others): (Vec<_>, Vec<_>) = live.iter().partition(|live| is_binding(live));
    plan.then(bindings.iter().map(|live| Step::Delete(live.reference())))
        .then(others.iter().map(|live| Step::Delete(live.reference())))
}

fn granted(now: Timestamp, grant: &Grant) -> Record {
    let message = format!(
        "{} may use pod {} until {}",
        grant.requester.user, grant.pod.name, grant.window.until
    );
    grant.record(now, Action::AccessGranted, Decision::Allow, reason::SUCCESS, message)
}

/// The owner reference that ties a request to its template, if it was created before it.
fn adoption(object: &ExecAccessRequest, template: &ExecAccessTemplate) -> Option<OwnerReference> {
    let uid = template.uid()?;
    let known = object.owner_references().iter().any(|owner| owner.uid == uid);
    (!known).then(|| OwnerReference {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "ExecAccessTemplate".to_owned(),
        name: template.name_any(),
        uid,
        controller: Some(true),
        block_owner_deletion: None,
    })
}

fn facts_of_grant(grant: &Grant) -> Vec<Fact> {
    vec![
        Fact::holds(
            conditions::REQUESTER_VERIFIED,
            format!("Requested by {}", grant.requester.user),
        ),
        Fact::holds(conditions::TARGET_TEMPLATE_EXISTS, message::TEMPLATE_FOUND),
        Fact::holds(conditions::ACCESS_DURATIONS_VALID, grant.window.message()),
        Fact::holds(conditions::ACCESS_STILL_VALID, message::STILL_VALID),
    ]
}

fn finish(
    status: RequestStatus,
    now: Timestamp,
    object: &ExecAccessRequest,
    end: &End,
    grant: Option<&Grant>,
    ended: bool,
) -> RequestStatus {
    let fact = Fact::fails(conditions::ACCESS_STILL_VALID, end.reason(), end.message());
    let mut status = status::with_facts(now, &object.metadata, Some(&status), [fact]);
    if let Some(grant) = grant {
        status::describe(&mut status, grant);
    }
    if ended {
        status.phase = end.phase();
    }
    status.ready = false;
    status
}

fn refused(facts: &mut Vec<Fact>, reason: &'static str, message: String) -> Box<State> {
    facts.retain(|fact| fact.type_ != conditions::REQUESTER_VERIFIED);
    facts.push(Fact::fails(conditions::REQUESTER_VERIFIED, reason, message.clone()));
    Box::new(State::Refused(Phase::Denied, Failure::invalid(reason, message)))
}

fn waiting(facts: &mut Vec<Fact>, type_: &'static str, failure: Failure) -> Box<State> {
    facts.push(Fact::fails(type_, failure.reason, failure.message.clone()));
    Box::new(State::Waiting(failure))
}

/// The spec cannot change, so what is wrong with it stays wrong.
fn invalid_request(violations: &[Violation], facts: &mut Vec<Fact>) -> Box<State> {
    let message = match violations.iter().find(|violation| violation.field == "spec.duration") {
        Some(violation) => format!(
            "request error: \"access request duration invalid\": {}",
            violation.message
        ),
        None => Violation::list(violations),
    };
    facts.push(Fact::fails(
        conditions::ACCESS_DURATIONS_VALID,
        reason::BAD_REQUEST,
        message.clone(),
    ));
    Box::new(State::Refused(Phase::Failed, Failure::invalid(reason::BAD_REQUEST, message)))
}

/// The template may be mended, so the request waits for it.
fn invalid_template(name: &str, violations: &[Violation], facts: &mut Vec<Fact>) -> Box<State> {
    let message = match violations.iter().find(|violation| violation.field.ends_with("Duration")) {
        Some(violation) => format!(
            "template error: \"access request duration invalid\": {}",
            violation.message
        ),
        None => format!("template {name} cannot be used: {}", Violation::list(violations)),
    };
    waiting(
        facts,
        conditions::ACCESS_DURATIONS_VALID,
        Failure::invalid(reason::BAD_REQUEST, message),
    )
}
