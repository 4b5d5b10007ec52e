//! A request without a grant, as the rules read it, and its offer once all rules hold.

use jiff::Timestamp;
use kube::Resource as _;
use oz_api::conditions::{self, message, reason};
use oz_api::{AccessConfig, Phase, Requester};

use super::approval::Approvals;
use super::denial::Denial;
use super::fact::Fact;
use super::facts::ReviewLimit;
use super::kind::{Case, FactsOf, Kind, Offer, Question, Special, Stop};
use super::lock::Access;
use super::policy::{self, Judgement};
use super::request::StoredRequest;
use super::rules::{Known, Passed, Proposal};
use super::stamp::{Stamp, StampError};
use super::ticket::{self, Ticket};
use super::{continued, decide, emergency};
use crate::controller::Failure;
use crate::gate::{self, GateAccount};
use crate::kinds::{AccessRequest as _, AccessTemplate};
use crate::lifecycle::End;
use crate::lifecycle::window::Window;
use crate::tickets::Tickets;
use crate::validate::{ValidatedRequest, ValidatedTemplate, Violation};

/// A request without a grant.
pub(super) struct AccessProposal<'a, K: Kind> {
    kind: &'a K,
    now: Timestamp,
    request: &'a StoredRequest<'a>,
    known: &'a FactsOf<K>,
    approvals: Option<&'a Approvals>,
    stamp: Result<Stamp, StampError>,
    spec: Result<ValidatedRequest, Vec<Violation>>,
    template: Result<Template<'a, K>, Failure>,
}

/// A template that exists, and its validated spec.
struct Template<'a, K: Kind> {
    object: &'a K::Template,
    terms: Result<ValidatedTemplate<K::Target>, Vec<Violation>>,
}

impl<'a, K: Kind> AccessProposal<'a, K> {
    pub(super) fn new(
        kind: &'a K,
        now: Timestamp,
        (object, request): (&K::Request, &'a StoredRequest<'a>),
        known: &'a FactsOf<K>,
        approvals: Option<&'a Approvals>,
    ) -> Self {
        let template = existing::<K>(request, known.template.as_deref());
        Self {
            kind,
            now,
            request,
            known,
            approvals,
            stamp: request.stamp(kind.keys()),
            spec: object.check(),
            template: template.map(|object| Template {
                object,
                terms: object.check(),
            }),
        }
    }

    /// Returns the config of the template.
    fn config(&self) -> Result<&'a AccessConfig, Failure> {
        let template = self.template.as_ref().map_err(Failure::clone)?;
        Ok(template.object.config())
    }

    /// Returns the window that a grant would have.
    fn grant_window(&self, passed: &mut Passed) -> Result<Window, Stop> {
        let spec = self.spec.as_ref();
        let spec = spec.map_err(|found| invalid_request(found, &mut passed.facts))?;
        let template = self
            .template
            .as_ref()
            .map_err(|why| Stop::Wait(why.clone()))?;
        let terms = template.terms.as_ref();
        let terms = terms.map_err(|found| self.invalid_template(found, &mut passed.facts))?;
        // Waiting for other users costs the requester no time.
        let from = match passed.needs_approval {
            true => whole_second(self.now),
            false => self.request.created(),
        };
        let config = template.object.config();
        let longest = emergency::longest(config, passed.emergency.is_some(), terms.max);
        let judgement = self.stamp.as_ref().ok();
        let judgement = judgement.and_then(|stamp| stamp.judgement.as_ref());
        let max = policy::longest(judgement, longest);
        Ok(Window::new(from, spec.duration, terms.default, max))
    }

    /// Returns the state of a request with an invalid template. Its owners may correct the template, so the request waits.
    fn invalid_template(&self, violations: &[Violation], facts: &mut Vec<Fact>) -> Stop {
        let unusable = format!("template {} cannot be used: ", self.request.template);
        Stop::Wait(invalid("template", &unusable, violations, facts))
    }

    /// Returns the offer for a request for which all rules hold.
    pub(super) fn offer(self, passed: &mut Passed) -> Result<Offer, Stop> {
        let window = self.grant_window(passed)?;
        let Self {
            kind, now, known, ..
        } = self;
        let stamp = self.stamp.map_err(|error| Stop::Wait(error.failure()))?;
        let template = self.template.map_err(Stop::Wait)?;
        let invalid = |violations: Vec<Violation>| {
            let message = Violation::list(&violations);
            Stop::Wait(Failure::invalid(reason::BAD_REQUEST, message))
        };
        kind.offer(Case {
            now,
            request: self.request.clone(),
            asked: self.spec.map_err(invalid)?,
            requester: stamp.requester,
            template: template.object,
            terms: template.terms.map_err(invalid)?,
            window,
            approvals: std::mem::take(&mut passed.approvals),
            on_call: passed.on_call.take(),
            judgement: stamp.judgement,
            ticket: passed.ticket.take(),
            emergency: passed.emergency.take().map(|terms| terms.granted(now)),
            gate: passed.gate.take(),
            workload: workload::<K>(template.object, known)?,
            continued: known.continued.as_ref(),
            probes: known.probes.as_deref(),
            policies: known.policies.as_ref().map(|policies| policies.as_deref()),
        })
    }
}

impl<K: Kind> Proposal for AccessProposal<'_, K> {
    type Question = Question;
    type Special = Special;

    fn ask_same_stamp() -> Question {
        Question::SameStamp
    }

    fn ask_reviews(limit: ReviewLimit) -> Option<Question> {
        Some(Question::Emergencies(Box::new(limit)))
    }

    fn known(&self) -> Known<'_> {
        Known {
            now: self.now,
            created: self.request.created(),
            locks: &self.known.locks,
            same_stamp: self.known.same_stamp.as_ref(),
            unreviewed: self.known.unreviewed.as_ref(),
        }
    }

    fn stamp(&self) -> Result<&Stamp, &StampError> {
        self.stamp.as_ref()
    }

    fn access<'a>(&'a self, requester: &'a Requester) -> Access<'a> {
        let namespace = self.request.metadata.namespace.as_deref();
        let config = self.known.template.as_deref().map(AccessTemplate::config);
        Access::asked(self.request, namespace, requester, config)
    }

    fn spec(&self, facts: &mut Vec<Fact>) -> Result<(), Stop> {
        match &self.spec {
            Ok(_) => Ok(()),
            Err(violations) => Err(invalid_request(violations, facts)),
        }
    }

    fn template(&self) -> Option<Result<(), Stop>> {
        Some(self.config().map(drop).map_err(Stop::Wait))
    }

    fn permits(&self, requester: &Requester) -> Result<(), Denial> {
        let (request, config) = (self.request, self.config()?);
        decide::may(requester, request.template, config, request.ask)?;
        let continued = self.known.continued.as_ref();
        continued::may(requester, request, request.created(), continued)
    }

    fn judged(&self, judgement: Option<&Judgement>) -> Result<(), Denial> {
        let template = self.template.as_ref().map_err(Failure::clone)?;
        policy::holds(judgement, self.request.ask, template.object)
    }

    fn gate(&self) -> Result<Option<GateAccount>, Denial> {
        gate::needed(self.kind.gate(), self.request.template, self.config()?)
    }

    fn template_terms(&self, facts: &mut Vec<Fact>) -> Result<(), Stop> {
        match self.template.as_ref().map(|template| &template.terms) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(violations)) => Err(self.invalid_template(violations, facts)),
            Err(failure) => Err(Stop::Wait(failure.clone())),
        }
    }

    fn emergency(&self) -> Result<Option<emergency::Terms>, Failure> {
        let (request, config) = (self.request, self.config()?);
        if !request.ask.emergency {
            return Ok(None);
        }
        let terms = config.emergency.as_ref();
        let terms = emergency::Terms::from_template(request.template, terms);
        terms.map(Some).ok_or_else(|| {
            let message = format!(
                "spec.accessConfig.emergency of template {} is invalid; have the template's owners \
                 correct it",
                request.template
            );
            Failure::invalid("EmergencyConfigInvalid", message)
        })
    }

    fn ticket(&self, judgement: Option<&Judgement>) -> Option<(Ticket, &Tickets)> {
        let template = self.template.as_ref().ok()?;
        let ticket = ticket::terms(self.request.ask, judgement, template.object)?;
        Some((ticket, &self.known.tickets))
    }

    fn needs_approval(&self, judgement: Option<&Judgement>) -> bool {
        let template = self.template.as_ref();
        template.map_or(true, |it| policy::approval(judgement, it.object).is_some())
    }

    fn approvals(&self) -> Option<&Approvals> {
        self.approvals
    }

    fn window(&self, passed: &mut Passed) -> Result<(), Stop> {
        let window = self.grant_window(passed)?;
        passed.facts.push(Fact::holds(
            conditions::ACCESS_DURATIONS_VALID,
            window.message(),
        ));
        if window.is_over(self.now) {
            return Err(Stop::End(End::EXPIRED));
        }
        passed.facts.push(Fact::holds(
            conditions::ACCESS_STILL_VALID,
            message::STILL_VALID,
        ));
        Ok(())
    }
}

/// Returns the template, if it exists and is not being deleted: a deleted template grants nothing.
fn existing<'a, K: Kind>(
    request: &StoredRequest<'_>,
    found: Option<&'a K::Template>,
) -> Result<&'a K::Template, Failure> {
    let (kind, name) = (K::Template::kind(&()), request.template);
    let message = match found {
        Some(template) if template.meta().deletion_timestamp.is_none() => return Ok(template),
        Some(_) => format!("Error: template does not exist: {kind} {name} is being deleted"),
        None => format!(
            "Error: template does not exist: no {kind} {name} in namespace {}; \
             create it, or delete this request and name another",
            request.reference().namespace
        ),
    };
    Err(Failure::invalid(reason::NOT_FOUND, message))
}

/// Returns the data of the workload, if the template names one.
fn workload<'a, K: Kind>(
    template: &K::Template,
    known: &'a FactsOf<K>,
) -> Result<Option<&'a K::Workload>, Stop> {
    match (template.workload(), &known.workload) {
        (None, _) => Ok(None),
        (Some(target), None) => Err(Stop::Need(Question::Workload(target.clone()))),
        (Some(_), Some(Err(failure))) => Err(Stop::Wait(failure.clone())),
        (Some(_), Some(Ok(workload))) => Ok(Some(workload)),
    }
}

/// Returns the beginning of the second of an instant: an expiry is in whole seconds, and none is later than agreed.
fn whole_second(instant: Timestamp) -> Timestamp {
    Timestamp::from_second(instant.as_second()).unwrap_or(instant)
}

/// Returns the final state of a request with an invalid spec, which is immutable.
fn invalid_request(violations: &[Violation], facts: &mut Vec<Fact>) -> Stop {
    let failure = invalid("request", "", violations, facts);
    Stop::Refuse(Phase::Failed, failure)
}

fn invalid(what: &str, why: &str, violations: &[Violation], facts: &mut Vec<Fact>) -> Failure {
    let of_duration = violations.iter().find(|one| one.is_about_duration());
    let message = match of_duration.map(|violation| &violation.message) {
        Some(wrong) => format!("{what} error: \"access request duration invalid\": {wrong}"),
        None => format!("{why}{}", Violation::list(violations)),
    };
    let (type_, reason) = (conditions::ACCESS_DURATIONS_VALID, reason::BAD_REQUEST);
    facts.push(Fact::fails(type_, reason, message.clone()));
    Failure::invalid(reason, message)
}
