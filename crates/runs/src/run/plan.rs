//! The plan for each state of a run.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use oz_api::harness::{HarnessRun, HarnessRunStatus, Workspace};
use oz_api::labels;
use oz_core::access::{approval, stamp};
use oz_core::controller::{
    Controller, Decision, Failure, Live, Outcome, Plan, Step, Transition, Verdict,
};
use oz_core::lifecycle::drift::is_owned;
use oz_core::lifecycle::window::has_come;
use oz_trail::{Action, Decision as Decision_};
use serde_json::Value;

use super::decided::Decided;
use super::ends::until;
use super::existing::{self, Seen};
use super::facts::{Asked, Facts, Question, State};
use super::records::{lent_records, undecided_record};
use super::resolving::waits_until;
use super::spec::is_over;
use super::terms::keep_ticket;
use super::{Runs, drift, events, report, termination, upkeep};
use crate::child::child;
use crate::isolation::Isolation;
use crate::jobs::is_active;
use crate::objects;
use crate::stored::StoredObject;

impl Controller for Runs {
    type Object = HarnessRun;
    type Facts = Facts;
    type Question = Question;
    type State = State;
    type Status = HarnessRunStatus;

    fn name(&self) -> &'static str {
        "harnessrun"
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, run: &HarnessRun) -> Option<HarnessRunStatus> {
        Some(run.status.clone().unwrap_or_default())
    }

    fn decide(
        &self,
        now: Timestamp,
        run: &HarnessRun,
        facts: &Facts,
        live: &[Live],
    ) -> Verdict<Question, Decision<State>> {
        let stored = match StoredObject::new(run) {
            Ok(stored) => stored,
            Err(error) => {
                let failure = Failure::from(error);
                let plan = Plan::default().because(failure.clone());
                let state = State::Waiting(failure);
                return Verdict::Decided(Decision { plan, state });
            }
        };
        let run = &stored;
        let seen = Seen::of(&self.keys, run, live);
        let (state, awaited) = match self.assess(now, run, facts, &seen) {
            Ok(both) => both,
            Err(question) => {
                return Verdict::Need {
                    question,
                    until: None,
                };
            }
        };
        let plan = match state.split().0 {
            State::Over => termination::over(now, run, &seen),
            State::Waiting(obstacle) => awaited.plan(now, run, facts, waiting(now, run, obstacle)),
            State::Asking(obstacle, asked) => asking(now, run, obstacle, asked),
            State::Next | State::Approved(..) => Plan::default(),
            State::Lacking => {
                let workspace = child::<Workspace>(objects::workspace(run));
                Plan::default().then(workspace.map(Step::Apply))
            }
            State::Confinable(decided, isolation) => {
                let opened = opened_record(now, decided, isolation);
                self.confining(run, decided, opened, &seen)
            }
            State::Startable(decided, job, isolation) => {
                let opened = opened_record(now, decided, isolation);
                self.starting(now, decided, opened, job)
            }
            State::Begun(decided, pending, isolation, _) => {
                let opened = opened_record(now, decided, isolation);
                let plan = upkeep::active(now, run, decided, opened, *pending, &seen);
                keep_ticket(now, decided, facts, plan)
            }
            State::Ending(end, decided) => {
                termination::ending(now, run, end, decided.as_deref(), &seen)
            }
            State::Ended(end, _, decided) => {
                let has_begun = facts.job_made || seen.has_begun(run);
                termination::ended(now, run, end, decided.as_deref(), &seen, has_begun)
            }
        };
        Verdict::Decided(Decision { plan, state })
    }

    fn status(
        &self,
        now: Timestamp,
        run: &HarnessRun,
        decision: &Decision<State>,
        outcome: &Outcome,
    ) -> HarnessRunStatus {
        report::report(self, now, run, &decision.state, outcome)
    }

    fn flow(&self, run: &HarnessRun) -> String {
        stamp::flow(&run.metadata)
    }

    fn is_decided(&self, run: &HarnessRun, live: &[Live]) -> bool {
        let is_decided = |run| Seen::of(&self.keys, &run, live).decided.is_some();
        is_over(run) || StoredObject::new(run).is_ok_and(is_decided)
    }

    fn lasts_until(&self, run: Option<&HarnessRun>, live: &[Live]) -> Option<Timestamp> {
        let run = StoredObject::new(run?).ok()?;
        let seen = Seen::of(&self.keys, &run, live);
        until(seen.decided.as_ref()?, &seen)
    }

    /// Returns the plan for the objects of a deleted run: they are deleted; its NetworkPolicy remains until no pod
    /// runs. An object with only the labels of a run is not changed: other users can write labels.
    fn orphaned(&self, now: Timestamp, run: Option<&HarnessRun>, live: &[Live]) -> Plan {
        let owner = |one: &Live| labels::owner_uid(&one.object.metadata).map(ToOwned::to_owned);
        let is_owned_by_run = |one: &&Live| {
            let metadata = &one.object.metadata;
            owner(one).is_some_and(|uid| is_owned(metadata, &uid))
        };
        let plan = Plan::default().then(termination::deleted(live.iter().filter(is_owned_by_run)));
        if live
            .iter()
            .any(|one| one.parse().is_some_and(|pod| is_active(&pod)))
        {
            return plan;
        }
        let sealed = live.iter().filter_map(|one| {
            let decided = Decided::open_any(&self.keys, one)?;
            (owner(one).as_ref() == Some(&decided.run.uid)).then_some((one, decided))
        });
        let sealed: Vec<(&Live, Decided)> = sealed.collect();
        let was_over = run.is_some_and(is_over);
        let record = sealed.first().filter(|_| !was_over).map(|(_, decided)| {
            Step::Record(termination::record(now, &existing::deleted(), decided))
        });
        let policies = sealed.iter().map(|(one, _)| *one);
        let policies = policies.filter(|one| one.parse::<NetworkPolicy>().is_some());
        plan.then(record).then(termination::deleted(policies))
    }

    fn transitions(
        &self,
        _: &HarnessRun,
        before: Option<&HarnessRunStatus>,
        after: &HarnessRunStatus,
    ) -> Vec<Transition> {
        events::transitions(before, after)
    }
}

impl Runs {
    /// Returns the plan that records the start of a run and confines it in parallel. Its Job follows in the next
    /// pass, after the watch has shown the NetworkPolicy; the assessment of its workspace requires that object as
    /// well.
    fn confining(
        &self,
        run: &StoredObject<'_, HarnessRun>,
        decided: &Decided,
        opened: Option<Step>,
        seen: &Seen<'_>,
    ) -> Plan {
        let sealed = decided.seal(&self.keys);
        let sealed = sealed.map_err(|error| error.into_failure("decision"));
        let (sealed, records) = match sealed.and_then(|it| Ok((it, self.start_records(decided)?))) {
            Ok(both) => both,
            Err(failure) => return Plan::default().because(failure),
        };
        let policy = drift::policy(decided, run, &sealed, seen.policy);
        Plan::default()
            .then(
                records
                    .into_iter()
                    .chain(opened)
                    .chain(policy.map(Step::Apply)),
            )
            .again()
    }

    /// Returns the plan that starts a run. The audit record is first again: a killed process may have left only the
    /// NetworkPolicy. A known record is not written twice.
    fn starting(
        &self,
        now: Timestamp,
        decided: &Decided,
        opened: Option<Step>,
        job: &Value,
    ) -> Plan {
        let records = match self.start_records(decided) {
            Ok(records) => records,
            Err(failure) => return Plan::default().because(failure),
        };
        let lent = lent_records(decided);
        let plan = Plan::default()
            .then(records.into_iter().chain(opened).chain(lent))
            .then(child::<Job>(job.clone()).map(Step::Apply));
        let reported_at = decided.reported_at();
        match has_come(now, reported_at) {
            true => plan,
            false => plan.wake_at(reported_at),
        }
    }
}

/// Returns the plan for a run that cannot begin yet.
fn waiting(now: Timestamp, run: &StoredObject<'_, HarnessRun>, obstacle: &Failure) -> Plan {
    let plan = Plan::default().because(obstacle.clone());
    let until = waits_until(run);
    match obstacle.reason == "TemplateNotFound" && !has_come(now, until) {
        true => plan.wake_at(until),
        false => plan,
    }
}

/// Returns the plan for a run that waits for approvals: an audit record asks the approvers, once for each content of the
/// request.
fn asking(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    obstacle: &Failure,
    asked: &Asked,
) -> Plan {
    let (action, note) = (Action::ApprovalRequested, Decision_::Note);
    let said = (approval::WAITING, obstacle.message.as_str());
    let record = undecided_record(now, run, (action, note), said);
    let reported = run
        .status
        .as_ref()
        .and_then(|status| status.approval.as_ref());
    let from = (asked.submitter.clone(), &asked.status);
    let records = approval::request_of(record, obstacle, &asked.config, from, reported);
    Plan::default()
        .then(records.into_iter().map(Step::Record))
        .because(obstacle.clone())
        .wake_at(asked.changes_at)
}

/// Returns the audit record of NetworkPolicies that permit more connections than oz's, which is written once.
fn opened_record(now: Timestamp, decided: &Decided, isolation: &Isolation) -> Option<Step> {
    let record = isolation.record(&decided.run.uid, |action, decision, reason, message| {
        decided.record(now, action, decision, reason, message)
    });
    record.map(Step::Record)
}
