//! A run that has not begun, as the rules read it.

use std::convert::Infallible;

use jiff::{SignedDuration, Timestamp};
use oz_api::Requester;
use oz_api::harness::{HarnessRun, RunMode};
use oz_core::access::approval::{self, ApprovalRequest, Approvals};
use oz_core::access::denial::Denial;
use oz_core::access::emergency;
use oz_core::access::fact::Fact;
use oz_core::access::kind::ReviewLimit;
use oz_core::access::lock::Access;
use oz_core::access::policy::{self, Judgement};
use oz_core::access::rules::{Known, Passed, Proposal};
use oz_core::access::stamp::{self, Stamp, StampError};
use oz_core::access::ticket::{self, Ticket};
use oz_core::controller::Failure;
use oz_core::lifecycle::window::after;
use oz_core::tickets::Tickets;
use oz_core::validate::Violation;

use super::Runs;
use super::existing::TOO_MANY_RUNS;
use super::facts::{Asked, Facts, Question, Stop};
use super::resolving::{Chosen, chosen, refused, resolved};
use super::spec::{access, candidate, judged, spec_digest};
use crate::objects::KIND;
use crate::policy::Matching;
use crate::stored::StoredObject;
use crate::template::Resolved;
use crate::{admission, pod, requires, terms};

/// Time for which a run waits for its change ticket, for which its approvals count, and within which an emergency begins.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(24);

/// A run that has not begun.
pub(super) struct RunProposal<'a> {
    pub(super) now: Timestamp,
    pub(super) run: &'a StoredObject<'a, HarnessRun>,
    pub(super) facts: &'a Facts,
    pub(super) stamp: Result<Stamp, StampError>,
    pub(super) template: Result<Template<'a>, Stop>,
    pub(super) policies: Matching<'a>,
    approvals: Option<Approvals>,
}

/// A template that exists, and what it gives to the run.
pub(super) struct Template<'a> {
    pub(super) chosen: Chosen<'a>,
    pub(super) resolved: Resolved,
}

impl<'a> RunProposal<'a> {
    pub(super) fn new(
        runs: &Runs,
        now: Timestamp,
        run: &'a StoredObject<'a, HarnessRun>,
        facts: &'a Facts,
    ) -> Self {
        let stamp = stamp::open(&runs.keys, KIND, &run.metadata, &spec_digest(run));
        let judgement = stamp.as_ref().ok();
        let judgement = judgement.and_then(|stamp| stamp.judgement.as_ref());
        let template = chosen(now, run, facts).and_then(|chosen| {
            let mut resolved = resolved(now, run, &chosen)?;
            resolved.approval = policy::joined(resolved.approval.take(), judgement);
            if let Some(ceiling) = policy::ceiling(judgement) {
                resolved.timeout = resolved.timeout.min(ceiling);
            }
            Ok(Template { chosen, resolved })
        });
        let approvals = match (&stamp, &template) {
            (Ok(stamp), Ok(template)) => {
                approvals(runs, now, run, facts, &stamp.requester, template)
            }
            _ => None,
        };
        Self {
            now,
            run,
            facts,
            stamp,
            template,
            approvals,
            policies: Matching::from_policies(
                facts.policies.iter().map(AsRef::as_ref),
                &run.spec.template_ref.name,
            ),
        }
    }
}

impl RunProposal<'_> {
    /// Returns the template, which the rule about it requires first.
    fn existing(&self) -> Result<&Template<'_>, Denial> {
        let missing = |_| Denial::new("TemplateNotFound", "its template does not exist".to_owned());
        self.template.as_ref().map_err(missing)
    }

    /// Returns the approvals that the run waits for, if it requires some.
    pub(super) fn asked(&self) -> Option<Asked> {
        let approvals = self.approvals.as_ref()?;
        let until = approvals.status.until;
        Some(Asked {
            submitter: self.stamp.as_ref().ok()?.requester.clone(),
            config: self.template.as_ref().ok()?.resolved.approval.clone()?,
            status: approvals.status.clone(),
            changes_at: approvals.unlocked_at.map_or(until, |at| at.min(until)),
        })
    }

    /// Returns the condition that the run has its approvals, if it requires some and they are given.
    pub(super) fn approved(&self) -> Option<Fact> {
        self.approvals.as_ref()?.given(self.now)
    }

    /// Returns the change ticket that the run names, with the checks that must accept it, and the name of the user of the
    /// run.
    pub(super) fn named_ticket(&self) -> Option<(Ticket, String)> {
        let stamp = self.stamp.as_ref().ok()?;
        let (ticket, _) = self.ticket(stamp.judgement.as_ref())?;
        Some((ticket, stamp.requester.user.clone()))
    }

    /// Returns the instant at which the run stops waiting, if there is one: a day after its last approval, and a day after the
    /// creation of an emergency. While it waits for its change ticket, it is the deadline of missing approvals, and a day after
    /// its creation if it requires none.
    pub(super) fn waits_until(&self, is_bounded: bool) -> Option<Timestamp> {
        match &self.approvals {
            Some(approvals) if is_bounded => Some(approvals.waits_until()),
            Some(approvals) => approvals.valid_until(),
            None => {
                let is_bounded = is_bounded || self.is_emergency();
                is_bounded.then(|| after(self.run.identity.created, LONGEST_WAIT))
            }
        }
    }

    /// Checks whether the run declares an emergency.
    pub(super) fn is_emergency(&self) -> bool {
        self.run.spec.is_emergency()
    }

    /// Requires a read of the approvals from the API server before an approved run begins.
    pub(super) fn confirmed(&self) -> Result<(), Stop> {
        let read = self.facts.confirmed.as_ref();
        approval::confirmed(self.approvals.as_ref(), read, Question::Approvals)
    }
}

/// Returns the state of the approvals that a run requires; `None` if it requires none, or if their rules are invalid.
fn approvals(
    runs: &Runs,
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    facts: &Facts,
    submitter: &Requester,
    template: &Template<'_>,
) -> Option<Approvals> {
    let config = template.resolved.approval.as_ref()?;
    let candidate = candidate(run);
    let digest = template.chosen.digest();
    let asked = ApprovalRequest::from_candidate(&candidate, submitter, digest, config)?;
    let approvals = Approvals::evaluate(
        (&candidate, &asked),
        (&facts.approvals, facts.confirmed.as_ref()),
        (&runs.keys, &facts.locks),
        now,
    );
    Some(approvals.valid_for(LONGEST_WAIT))
}

impl Proposal for RunProposal<'_> {
    type Question = Question;
    type Special = Infallible;

    fn ask_same_stamp() -> Question {
        Question::SameStamp
    }

    fn ask_reviews(limit: ReviewLimit) -> Option<Question> {
        Some(Question::Emergencies(Box::new(limit)))
    }

    fn known(&self) -> Known<'_> {
        Known {
            now: self.now,
            created: self.run.identity.created,
            locks: &self.facts.locks,
            same_stamp: self.facts.same_stamp.as_ref(),
            unreviewed: self.facts.unreviewed.as_ref(),
        }
    }

    fn stamp(&self) -> Result<&Stamp, &StampError> {
        self.stamp.as_ref()
    }

    fn access<'a>(&'a self, requester: &'a Requester) -> Access<'a> {
        access(requester, Some(self.run.namespace.as_str()), self.run)
    }

    fn spec(&self, _: &mut Vec<Fact>) -> Result<(), Stop> {
        valid(&admission::run(self.run))?;
        if self.run.spec.mode == RunMode::Interactive {
            let message = "interactive runs are not served yet: submit it without mode Interactive";
            return Err(refused("InteractiveNotServed", message));
        }
        Ok(())
    }

    fn template(&self) -> Option<Result<(), Stop>> {
        Some(self.template.as_ref().map(drop).map_err(Stop::clone))
    }

    /// Checks whether the run has what its template requires of the requester, and whether the broker policies grant what
    /// the template requires.
    fn permits(&self, requester: &Requester) -> Result<(), Denial> {
        let template = self.existing()?;
        terms::may(requester, &self.run.spec, &template.resolved)?;
        let (name, namespace) = (
            &self.run.spec.template_ref.name,
            self.run.namespace.as_str(),
        );
        requires::admitted(
            name,
            namespace,
            &template.resolved,
            &self.policies,
            self.now,
        )
        .map_err(|lacking| Denial::new("PolicyMissing", lacking.to_string()))
    }

    fn judged(&self, judgement: Option<&Judgement>) -> Result<(), Denial> {
        judged(self.run, judgement)?;
        self.existing()?.chosen.is_judged(judgement)
    }

    fn template_terms(&self, _: &mut Vec<Fact>) -> Result<(), Stop> {
        let template = &self.template.as_ref().map_err(Stop::clone)?.resolved;
        let workspace = self.facts.workspace.as_deref();
        valid(&admission::run_of_template(
            self.run,
            template,
            &self.policies,
            workspace,
        ))?;
        let overlaid = pod::violations(template);
        if !overlaid.is_empty() {
            return Err(refused("TemplateInvalid", Violation::list(&overlaid)));
        }
        Ok(())
    }

    fn emergency(&self) -> Result<Option<emergency::Terms>, Failure> {
        if !self.is_emergency() {
            return Ok(None);
        }
        let template = self.template.as_ref().ok();
        let declared = template.and_then(|it| it.resolved.declared_emergency(&self.run.spec));
        declared.map(Some).ok_or_else(|| {
            let message = format!(
                "spec.emergency of template {} is invalid; have the template's owners correct it",
                self.run.spec.template_ref.name
            );
            Failure::invalid("EmergencyConfigInvalid", message)
        })
    }

    fn ticket(&self, judgement: Option<&Judgement>) -> Option<(Ticket, &Tickets)> {
        let template = self.template.as_ref().ok()?;
        let (ask, own) = (terms::ask(&self.run.spec), &template.resolved.tickets);
        let ticket = ticket::terms_by(ask, judgement, own)?;
        Some((ticket, &self.facts.tickets))
    }

    /// Checks whether the limits of the broker policies allow one more run. A run waits for its approvals first: their
    /// timeout begins with its creation.
    fn capacity(&self, _: &Requester) -> Result<(), Stop> {
        let approvals = self.approvals.as_ref();
        if approvals.is_some_and(|approvals| !approvals.are_valid(self.now)) {
            return Ok(());
        }
        let Some(most) = self.policies.concurrent_runs() else {
            return Ok(());
        };
        if usize::try_from(most).is_ok_and(|most| self.facts.older < most) {
            return Ok(());
        }
        let message = format!(
            "{most} runs, the maximum of a BrokerPolicy's limits.concurrentRuns, are before it; it \
             begins when they have ended"
        );
        Err(Stop::Wait(Failure::invalid(TOO_MANY_RUNS, message)))
    }

    fn needs_approval(&self, _: Option<&Judgement>) -> bool {
        let template = self.template.as_ref();
        template.map_or(true, |template| template.resolved.approval.is_some())
    }

    fn approvals(&self) -> Option<&Approvals> {
        self.approvals.as_ref()
    }

    fn window(&self, _: &mut Passed) -> Result<(), Stop> {
        Ok(())
    }
}

fn valid(found: &[Violation]) -> Result<(), Stop> {
    match found {
        [] => Ok(()),
        found => Err(refused("Invalid", Violation::list(found))),
    }
}
