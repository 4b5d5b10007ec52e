//! Where a request stands: the rules in the order in which they apply. Time comes first.

use jiff::Timestamp;
use kube::ResourceExt;

use super::{Assessment, ExecAccess, Observed, State};
use crate::access::decide;
use crate::access::grant::Grant;
use crate::access::objects::Objects;
use crate::access::request::Request;
use crate::access::stamp::{self, Requester, StampError};
use crate::access::status::{End, Fact};
use crate::access::window::{self, Window};
use crate::api::{CrossVersionObjectReference, ExecAccessRequest, OnTemplateChange, Phase};
use crate::audit::PodRef;
use crate::conditions::{self, message, reason};
use crate::controller::{Failure, Live};
use crate::encode;
use crate::validate::{self, Violation};

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
        Assessment {
            state,
            facts,
            waits_until,
        }
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
        let decision = objects
            .role
            .as_ref()
            .and_then(|role| Grant::open(&self.keys, &role.metadata, request.uid()));
        let deleted = request.metadata.deletion_timestamp.is_some();
        let Some(grant) = decision.map(Box::new) else {
            if let Some(what) = objects.without_decision(request) {
                let expired = request
                    .status
                    .and_then(|status| status.expires_at)
                    .is_some_and(|until| now >= until);
                let end = if expired {
                    End::Expired
                } else {
                    End::Drift(what)
                };
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
        facts.push(Fact::holds(
            conditions::TARGET_TEMPLATE_EXISTS,
            message::TEMPLATE_FOUND,
        ));
        let rules = &template.spec.access_config;
        decide::may(&requester, request.template, rules, request.ask)
            .map_err(|denial| refused(facts, denial.reason, denial.message))?;
        let terms = validate::exec_access_template(template)
            .map_err(|violations| invalid_template(request.template, &violations, facts))?;
        let window = Window::new(request.created(), valid.duration, terms.default, terms.max);
        facts.push(Fact::holds(
            conditions::ACCESS_DURATIONS_VALID,
            window.message(),
        ));
        if window.is_over(now) {
            return Err(Box::new(State::Ending(End::Expired, None)));
        }
        facts.push(Fact::holds(
            conditions::ACCESS_STILL_VALID,
            message::STILL_VALID,
        ));
        let target = &template.spec.controller_target_ref;
        let workload = match &observed.workload {
            None => return Err(Box::new(State::Wants(target.clone()))),
            Some(Err(failure)) => return Err(Box::new(State::Waiting(failure.clone()))),
            Some(Ok(workload)) => workload,
        };
        let pod = workload
            .choose(request.uid(), object.spec.target_pod.as_deref())
            .map_err(|failure| Box::new(State::Waiting(failure)))?;
        let access_message = terms.command.render(&pod.metadata).map_err(|error| {
            let message = format!("failed to render spec.accessConfig.accessCommand: {error}");
            Box::new(State::Waiting(Failure::invalid(
                "AccessCommandInvalid",
                message,
            )))
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
        let verified = stamp::verify(
            &self.keys,
            request.kind,
            request.metadata,
            &request.spec_digest,
        );
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
}

fn refused(facts: &mut Vec<Fact>, reason: &'static str, message: String) -> Box<State> {
    facts.retain(|fact| fact.type_ != conditions::REQUESTER_VERIFIED);
    facts.push(Fact::fails(
        conditions::REQUESTER_VERIFIED,
        reason,
        message.clone(),
    ));
    Box::new(State::Refused(
        Phase::Denied,
        Failure::invalid(reason, message),
    ))
}

fn waiting(facts: &mut Vec<Fact>, type_: &'static str, failure: Failure) -> Box<State> {
    facts.push(Fact::fails(type_, failure.reason, failure.message.clone()));
    Box::new(State::Waiting(failure))
}

/// The spec cannot change, so what is wrong with it stays wrong.
fn invalid_request(violations: &[Violation], facts: &mut Vec<Fact>) -> Box<State> {
    let message = match violations
        .iter()
        .find(|violation| violation.is_about_duration())
    {
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
    Box::new(State::Refused(
        Phase::Failed,
        Failure::invalid(reason::BAD_REQUEST, message),
    ))
}

/// The template may be mended, so the request waits for it.
fn invalid_template(name: &str, violations: &[Violation], facts: &mut Vec<Fact>) -> Box<State> {
    let message = match violations
        .iter()
        .find(|violation| violation.is_about_duration())
    {
        Some(violation) => format!(
            "template error: \"access request duration invalid\": {}",
            violation.message
        ),
        None => format!(
            "template {name} cannot be used: {}",
            Violation::list(violations)
        ),
    };
    waiting(
        facts,
        conditions::ACCESS_DURATIONS_VALID,
        Failure::invalid(reason::BAD_REQUEST, message),
    )
}
