//! The assessment of a run: the only place that decides about its state. Plan and status follow from it.

use std::cell::OnceCell;

use jiff::Timestamp;
use oz_api::Phase;
use oz_api::harness::{HarnessRun, RunPhase};
use oz_core::access::approval;
use oz_core::access::lock::Access;
use oz_core::access::rules::{self, Held, HeldFacts, Passed};
use oz_core::access::ticket::Ticket;
use oz_core::controller::Failure;
use oz_core::lifecycle::drift::Drift;
use oz_core::lifecycle::machine::{self, Lifecycle, Sealed};
use oz_core::lifecycle::window::has_come;
use oz_core::lifecycle::{self, End};
use serde_json::Value;

use super::decided::Decided;
use super::drift::lasting;
use super::ends::{hidden_until, looked_for_at, ready_until, remembered, until};
use super::existing::{RunEnd, Seen};
use super::facts::{Facts, Otherwise, Pending, Question, State};
use super::grants::Granted;
use super::offer::Rendered;
use super::proposal::RunProposal;
use super::spec::{access, is_over};
use super::terms::Awaited;
use super::{Runs, ends};
use crate::isolation::{Isolation, NOT_CONFINED, pod_labels};
use crate::jobs;
use crate::objects::{self, policy_name};
use crate::stored::StoredObject;

/// The reason why a run does not begin or does not continue. A state that only runs have is complete.
type Stop = lifecycle::Stop<Box<State>, Question>;

/// A run in one pass.
struct Pass<'a, 'o> {
    runs: &'a Runs,
    now: Timestamp,
    run: &'a StoredObject<'a, HarnessRun>,
    facts: &'a Facts,
    seen: &'a Seen<'o>,
    has_begun: bool,
    /// The NetworkPolicies that permit more connections to the existing pods.
    isolation: OnceCell<Isolation>,
    /// The change ticket and the deadline of a run that has not begun.
    awaited: Awaited,
}

impl Runs {
    /// Returns the state of a run, and what it awaits in the state [`State::Waiting`].
    ///
    /// # Errors
    /// The data that must be read first.
    pub(super) fn assess(
        &self,
        now: Timestamp,
        run: &StoredObject<'_, HarnessRun>,
        facts: &Facts,
        seen: &Seen<'_>,
    ) -> Result<(State, Awaited), Question> {
        let mut pass = Pass {
            runs: self,
            now,
            run,
            facts,
            seen,
            has_begun: facts.job_made || seen.has_begun(run),
            isolation: OnceCell::new(),
            awaited: Awaited::default(),
        };
        if let Some(state) = pass.job_ended() {
            return Ok((state, pass.awaited));
        }
        let state = machine::assess(&mut pass).map_err(|need| need.question)?;
        let state = match state {
            lifecycle::State::Over => State::Over,
            lifecycle::State::Ending(end, _) => pass.ending(RunEnd::from(&*end)),
            lifecycle::State::Granted(decided) => pass.continued(decided),
            lifecycle::State::Grantable(state) | lifecycle::State::Special(state) => *state,
            lifecycle::State::Waiting(failure) => State::Waiting(failure),
            lifecycle::State::Refused(_, failure) => {
                let end = RunEnd::new(RunPhase::Failed, failure.reason, failure.message);
                State::Ended(end, None, pass.decided())
            }
        };
        Ok((state, pass.awaited))
    }

    /// Returns the decision with which a run would begin.
    fn undecided(
        &self,
        now: Timestamp,
        run: &StoredObject<'_, HarnessRun>,
        facts: &Facts,
        awaited: &mut Awaited,
    ) -> Result<(Decided, Rendered), Otherwise> {
        let proposal = RunProposal::new(self, now, run, facts);
        let approved = proposal.approved();
        let decided = self.decided_by_rules(proposal, awaited);
        decided.map_err(|otherwise| otherwise.with_approvals(approved))
    }

    fn decided_by_rules(
        &self,
        proposal: RunProposal<'_>,
        awaited: &mut Awaited,
    ) -> Result<(Decided, Rendered), Otherwise> {
        let now = proposal.now;
        let mut passed = Passed::default();
        let decided = rules::before_grant(&proposal, &mut passed);
        match &decided {
            Err(lifecycle::Stop::Wait(failure)) => {
                if failure.reason == approval::WAITING
                    && let Some(asked) = proposal.asked()
                {
                    return Err(State::Asking(failure.clone(), Box::new(asked)).into());
                }
                *awaited = Awaited::new(now, &proposal, Some(failure))?;
            }
            Ok(()) | Err(lifecycle::Stop::Need(_)) => {
                *awaited = Awaited::new(now, &proposal, None)?;
            }
            Err(_) => {}
        }
        decided?;
        proposal.confirmed()?;
        self.offer(proposal, passed)
    }
}

/// The decision of a run that has begun, as the rules read it.
struct HeldRun<'a> {
    decided: &'a Decided,
    run: &'a HarnessRun,
}

impl Held for HeldRun<'_> {
    fn access(&self) -> Access<'_> {
        let namespace = self.run.metadata.namespace.as_deref();
        access(&self.decided.submitter, namespace, self.run)
    }

    fn ticket(&self) -> Option<&Ticket> {
        self.decided.ticket.as_ref()
    }
}

impl Lifecycle for Pass<'_, '_> {
    type Grant = Decided;
    type Offer = State;
    type Special = Box<State>;
    type Question = Question;

    const HAS_FINALIZER: bool = true;

    fn now(&self) -> Timestamp {
        self.now
    }

    fn is_over(&self) -> bool {
        is_over(self.run)
    }

    fn is_deleted(&self) -> bool {
        self.run.metadata.deletion_timestamp.is_some()
    }

    fn begun(&self) -> Option<End> {
        remembered(self.run).filter(|_| self.has_begun)
    }

    fn sealed(&self) -> Sealed<Decided> {
        let decided = self.seen.decided.as_ref().filter(|_| self.has_begun);
        Sealed {
            grant: decided.cloned().map(Box::new),
            until: decided.and_then(|decided| until(decided, self.seen)),
            lost: None,
        }
    }

    fn drift(&self, decided: &Decided) -> Option<Drift> {
        ends::changed_spec(self.run, decided)
    }

    fn early_ends(&self, decided: &Decided) -> Vec<End> {
        let run = self.run.object();
        let facts = HeldFacts {
            now: self.now,
            locks: &self.facts.locks,
            template: None,
            tickets: &self.facts.tickets,
        };
        let mut ends = rules::while_granted::<RunProposal<'_>>(&HeldRun { decided, run }, &facts);
        ends.extend(self.own_ends(Some(decided)));
        ends
    }

    /// Checks whether the run has a pod that lost its labels.
    fn proceed(&self, _: &mut Decided) -> Result<(), Stop> {
        self.check_hidden_pod()
    }

    fn propose(&mut self) -> Result<State, Stop> {
        if self.has_begun {
            return Err(self.without_decision());
        }
        let Self {
            runs,
            now,
            run,
            facts,
            seen,
            ..
        } = *self;
        let undecided = runs.undecided(now, run, facts, &mut self.awaited);
        let (new, rendered) = match undecided {
            Ok(both) => both,
            Err(Otherwise::Need(question)) => return Err(Stop::Need(question)),
            Err(Otherwise::State(state)) => {
                return Err(Stop::Special(match *state {
                    State::Ended(end, at, _) => Box::new(State::Ended(end, at, self.decided())),
                    state => Box::new(state),
                }));
            }
        };
        let Rendered { template, pod } = rendered;
        let job = objects::job(run, &template, pod, seen.sealed, &new.voucher);
        let isolation = isolation(run, facts, seen, Some(&job));
        if let Some(why) = isolation.obstacle().filter(|_| runs.require_confined) {
            let failure = Failure::invalid(NOT_CONFINED, why.to_string());
            return Err(Stop::Refuse(Phase::Failed, failure));
        }
        let known = seen.decided.as_ref();
        let Some(known) = known.filter(|it| seen.is_confined && it.is_like(&new)) else {
            return Ok(State::Confinable(Box::new(new), isolation));
        };
        let lasting = seen.policy.and_then(|policy| lasting(known, run, policy));
        if let Some(what) = lasting {
            return Err(Stop::End(End::drift(what)));
        }
        let known = Box::new(known.clone());
        Ok(State::Startable(known, Box::new(job), isolation))
    }

    /// Returns the end of time: what a run waits for decides how long it waits.
    fn waits_until(&self) -> Timestamp {
        Timestamp::MAX
    }
}

impl Pass<'_, '_> {
    fn decided(&self) -> Option<Box<Decided>> {
        self.seen.decided.clone().map(Box::new)
    }

    fn isolation(&self) -> &Isolation {
        let found = || isolation(self.run, self.facts, self.seen, None);
        self.isolation.get_or_init(found)
    }

    /// Returns the state of a run after the end of its Job.
    fn job_ended(&self) -> Option<State> {
        if is_over(self.run) || !self.has_begun {
            return None;
        }
        let (end, at) = self.seen.job_end()?;
        // A run that fails while it is being ended fails because of that end.
        let begun = remembered(self.run).filter(|_| end.phase == RunPhase::Failed);
        let end = begun.map_or(end, |begun| RunEnd::from(&begun));
        Some(match self.seen.active().next() {
            None => State::Ended(end, at, self.decided()),
            Some(_) => State::Ending(end, self.decided()),
        })
    }

    /// Returns the state of a run that must end.
    fn ending(&self, end: RunEnd) -> State {
        let exists = self.seen.job.is_some() || self.seen.active().next().is_some();
        match exists {
            true => State::Ending(end, self.decided()),
            false => State::Ended(end, None, self.decided()),
        }
    }

    /// Returns the state of a run that continues.
    fn continued(&self, decided: Box<Decided>) -> State {
        let Self {
            runs,
            now,
            facts,
            seen,
            ..
        } = *self;
        let reported_from = seen.newest().and_then(jobs::reported_from);
        let reported_at = facts.job_made.then(|| decided.reported_at());
        let pending = Pending {
            until: until(&decided, seen),
            ready_until: ready_until(runs, seen).or(looked_for_at(now, seen)),
            reported_from: reported_from.filter(|from| !has_come(now, *from)),
            quiet_until: reported_at.filter(|at| !has_come(now, *at)),
        };
        let policies = facts.policies.iter().map(AsRef::as_ref);
        let granted = match facts.has_policies {
            true => Granted::find(&runs.keys, &decided, policies),
            false => None,
        };
        let isolation = self.isolation().clone();
        State::Begun(decided, pending, isolation, granted.map(Box::new))
    }

    /// Returns the reason why a run that has begun ends, if no object carries its decision.
    fn without_decision(&self) -> Stop {
        if let Some(end) = machine::first(self.own_ends(None)) {
            return Stop::End(end);
        }
        match self.check_hidden_pod() {
            Err(stop) => stop,
            Ok(()) => Stop::End(ends::lost_decision(self.seen)),
        }
    }

    fn own_ends(&self, decided: Option<&Decided>) -> Vec<End> {
        let seen = (self.seen, decided);
        let isolation = || self.isolation().clone();
        ends::early_ends(self.runs, self.now, self.run, seen, isolation)
    }

    /// Checks whether the run has a pod that lost its labels. The count of the Job is not proof: watches of different
    /// kinds are not synchronized.
    fn check_hidden_pod(&self) -> Result<(), Stop> {
        if !hidden_until(self.seen).is_some_and(|until| has_come(self.now, until)) {
            return Ok(());
        }
        match self.facts.hidden_pod {
            None => Err(Stop::Need(Question::HiddenPod)),
            Some(true) => Err(Stop::End(ends::hidden_pod())),
            Some(false) => Ok(()),
        }
    }
}

/// Finds the NetworkPolicies that permit more connections to the pods of a run: the existing ones, and the next ones
/// of its Job.
fn isolation(
    run: &StoredObject<'_, HarnessRun>,
    facts: &Facts,
    seen: &Seen<'_>,
    job: Option<&Value>,
) -> Isolation {
    let name = run.name();
    let there = seen.job.as_ref().map(|(live, _)| &live.object.data["spec"]);
    let job = there.or(job.map(|job| &job["spec"]));
    let next = job.map(|spec| pod_labels(name, &spec["template"]["metadata"]));
    let pods = seen
        .active()
        .filter_map(|(_, pod)| pod.metadata.labels.clone());
    let labels: Vec<_> = next.into_iter().chain(pods).collect();
    Isolation::find(&policy_name(name), &labels, &facts.network_policies)
}
