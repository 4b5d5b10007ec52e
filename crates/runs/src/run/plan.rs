//! The plan for each state of a run.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use oz_api::harness::{HarnessRun, HarnessRunStatus, RunPhase, Workspace};
use oz_api::labels;
use oz_core::access::{approval, stamp};
use oz_core::controller::{
    Controller, Decision, Failure, Live, Outcome, Plan, Sought, Step, Transition, Verdict,
};
use oz_core::lifecycle::drift::{has_finalizer, is_owned};
use oz_core::lifecycle::window::{after, has_come};
use oz_trail::{Action, Decision as Decision_, Record};
use serde_json::Value;

use super::decided::Decided;
use super::ends::until;
use super::existing::{self, RunEnd, Seen};
use super::facts::{Asked, Facts, Pending, Question, State};
use super::records::lent_records;
use super::resolving::waits_until;
use super::spec::is_over;
use super::terms::keep_ticket;
use super::{Runs, drift, report};
use crate::child::child;
use crate::isolation::{Isolation, LOOK_AGAIN};
use crate::jobs::is_active;
use crate::objects::{self, KIND, policy_name};
use crate::stored::StoredObject;
use crate::terms;

/// The finalizers of Paddock, which stored objects may still have.
const ORIGINAL_FINALIZERS: [&str; 2] = [
    "paddock.dev/harnessrun-finalizer",
    "paddock.dev/broker-leases-finalizer",
];

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
            State::Over => over(now, run, &seen),
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
                let plan = going_on(now, run, decided, opened, *pending, &seen);
                keep_ticket(now, decided, facts, plan)
            }
            State::Ending(end, decided) => ending(now, run, end, decided.as_deref(), &seen),
            State::Ended(end, _, decided) => {
                let has_begun = facts.job_made || seen.has_begun(run);
                ended(now, run, end, decided.as_deref(), &seen, has_begun)
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
        let goes_with_it = |one: &&Live| {
            let metadata = &one.object.metadata;
            owner(one).is_some_and(|uid| is_owned(metadata, &uid))
        };
        let plan = Plan::default().then(deleted(live.iter().filter(goes_with_it)));
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
        let record = sealed
            .first()
            .filter(|_| !was_over)
            .map(|(_, decided)| Step::Record(ended_record(now, &existing::deleted(), decided)));
        let policies = sealed.iter().map(|(one, _)| *one);
        let policies = policies.filter(|one| one.parse::<NetworkPolicy>().is_some());
        plan.then(record).then(deleted(policies))
    }

    fn transitions(
        &self,
        _: &HarnessRun,
        before: Option<&HarnessRunStatus>,
        after: &HarnessRunStatus,
    ) -> Vec<Transition> {
        report::transitions(before, after)
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
        let told = decided.told_at();
        match has_come(now, told) {
            true => plan,
            false => plan.wake_at(told),
        }
    }
}

/// Returns the plan for an active run: changes by other clients are reverted.
fn going_on(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    decided: &Decided,
    opened: Option<Step>,
    pending: Pending,
    seen: &Seen<'_>,
) -> Plan {
    let policy = drift::policy(decided, run, seen.sealed, seen.policy);
    let policy = policy.filter(|desired| {
        let is_as_decided = |live: &Live| !drift::has_drifted(live, desired);
        !(seen.is_confined && seen.policy.is_some_and(is_as_decided))
    });
    let job = drift::job(decided, run, seen);
    let record = |what: &str, there: Option<&Live>| {
        let (action, note) = (Action::DriftDetected, Decision_::Note);
        let message = format!("{what} of the run was changed by another client, and is restored");
        let mut record = decided.record(now, action, note, "Restored", message);
        // Each change is a fact of its own.
        let metadata = there.map(|there| &there.object.metadata);
        let version = metadata.and_then(|metadata| metadata.resource_version.as_deref());
        let mut changed = format!("{}/{what}/", decided.run.uid);
        changed.extend(version);
        record.id = Record::id(action, &changed);
        Step::Record(record.detail("object", what))
    };
    let look = (seen.policy.is_none()).then(|| look_for_policy(run));
    let again = opened.as_ref().map(|_| after(now, LOOK_AGAIN));
    let live_job = seen.job.as_ref().map(|(live, _)| *live);
    let records = [
        policy
            .as_ref()
            .map(|_| record("the NetworkPolicy", seen.policy)),
        job.as_ref().map(|_| record("the Job", live_job)),
    ];
    let mut plan = Plan::default()
        .then(look)
        .then(records.into_iter().flatten().chain(opened))
        .then([policy, job].into_iter().flatten().map(Step::Apply));
    let wakes = [
        pending.until,
        pending.ready_until,
        pending.told_from,
        pending.quiet_until,
        again,
    ];
    for at in wakes.into_iter().flatten() {
        plan = plan.wake_at(at);
    }
    plan
}

/// Returns the plan that terminates all processes of a run.
fn ending(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    end: &RunEnd,
    decided: Option<&Decided>,
    seen: &Seen<'_>,
) -> Plan {
    let is_timeout = *end == existing::deadline_exceeded();
    // The Job controller says that a Job is over whose time is, and makes no pod of it any more.
    let job = seen
        .job
        .as_ref()
        .filter(|_| !is_timeout)
        .map(|(live, _)| *live);
    let pods = seen.active().map(|(live, _)| *live);
    let look = seen.job.is_none().then(|| look_for_job(run));
    let plan = Plan::default()
        .then(deleted(job.into_iter().chain(pods)))
        .then(look);
    // What we delete ourselves tells nobody that it is gone, nor does a pod that lost its labels.
    let plan = match job {
        Some(_) => plan.wake_at(after(now, SignedDuration::from_secs(1))),
        None => plan,
    };
    match end.reason == "DriftDetected" {
        true => {
            let record = |decided: &Decided| {
                let (action, ends) = (Action::DriftDetected, Decision_::End);
                decided.record(now, action, ends, "DriftDetected", end.message.as_str())
            };
            plan.then(decided.map(record).map(Step::Record))
        }
        false => plan,
    }
}

fn waiting(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    obstacle: &oz_core::controller::Failure,
) -> Plan {
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
    let record = Record {
        request: run.reference(KIND),
        template: run.spec.template_ref.name.clone(),
        details: terms::details(&run.spec).collect(),
        ..Record::about(
            now,
            action,
            note,
            run.uid(),
            approval::WAITING,
            obstacle.message.as_str(),
        )
    };
    let said = run
        .status
        .as_ref()
        .and_then(|status| status.approval.as_ref());
    let from = (asked.submitter.clone(), &asked.status);
    let records = approval::request_of(record, obstacle, &asked.config, from, said);
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

/// Returns the plan for a run without active processes: an audit record of the end, then the deletion of the
/// NetworkPolicy.
fn ended(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    end: &RunEnd,
    decided: Option<&Decided>,
    seen: &Seen<'_>,
    has_begun: bool,
) -> Plan {
    let is_lost = has_begun && seen.job.is_none();
    let looks = is_lost.then(|| look_for_job(run));
    let is_retired = end.reason == existing::SEAL_RETIRED;
    let (action, what) = match is_retired {
        true => (Action::RunEnded, Decision_::End),
        false => (Action::RequestDenied, Decision_::Deny),
    };
    let record = match decided {
        Some(decided) => ended_record(now, end, decided),
        None => Record {
            request: run.reference(KIND),
            template: run.spec.template_ref.name.clone(),
            details: terms::details(&run.spec).collect(),
            ..Record::about(
                now,
                action,
                what,
                run.uid(),
                &end.reason,
                end.message.as_str(),
            )
        },
    };
    let is_withdrawn = decided.is_none() && end.phase == RunPhase::Cancelled && !is_retired;
    let policy = seen.policy.map(|policy| Step::Delete(policy.reference()));
    let plan = Plan::default()
        .then(looks)
        .then((!is_withdrawn).then_some(Step::Record(record)))
        .then(policy);
    released(plan, run)
}

/// Returns the plan for a run that has ended: all of its objects are deleted, whether oz or Paddock created them.
fn over(now: Timestamp, run: &HarnessRun, seen: &Seen<'_>) -> Plan {
    let is_unfinished = seen.job.is_some() && seen.job_end().is_none();
    let job = seen
        .job
        .as_ref()
        .filter(|_| is_unfinished)
        .map(|(live, _)| *live);
    let pods: Vec<&Live> = seen.active().map(|(live, _)| *live).collect();
    let policy = seen.policy.filter(|_| pods.is_empty() && !is_unfinished);
    let plan = Plan::default()
        .then(deleted(job.into_iter().chain(pods)))
        .then(policy.map(|policy| Step::Delete(policy.reference())));
    let plan = released(plan, run);
    let completed = run
        .status
        .as_ref()
        .and_then(|status| status.completion_time);
    match (run.spec.ttl_seconds_after_finished, completed) {
        (Some(seconds), Some(completed)) if run.metadata.deletion_timestamp.is_none() => {
            let at = after(completed, SignedDuration::from_secs(seconds.into()));
            match has_come(now, at) {
                true => plan.then([Step::DeleteSelf]),
                false => plan.wake_at(at),
            }
        }
        _ => plan,
    }
}

/// Removes the finalizers of Paddock when no object remains for which they were set.
fn released(plan: Plan, run: &HarnessRun) -> Plan {
    let metadata = &run.metadata;
    if metadata.deletion_timestamp.is_none() {
        return plan;
    }
    let held = ORIGINAL_FINALIZERS
        .into_iter()
        .filter(|name| has_finalizer(metadata, name));
    held.fold(plan, |plan, name| {
        plan.then([Step::Release(name.to_owned())])
    })
}

fn deleted<'a>(objects: impl IntoIterator<Item = &'a Live>) -> Vec<Step> {
    let stays = |live: &&Live| live.object.metadata.deletion_timestamp.is_none();
    let stay = objects.into_iter().filter(stays);
    stay.map(|live| Step::Delete(live.reference())).collect()
}

fn look_for_policy(run: &StoredObject<'_, HarnessRun>) -> Step {
    let (namespace, name) = (Some(run.namespace.as_str()), policy_name(run.name()));
    Step::Look(Sought::with_name::<NetworkPolicy>(namespace, name))
}

fn look_for_job(run: &StoredObject<'_, HarnessRun>) -> Step {
    let namespace = Some(run.namespace.as_str());
    Step::Look(Sought::with_name::<Job>(namespace, run.name()))
}

fn ended_record(now: Timestamp, end: &RunEnd, decided: &Decided) -> Record {
    let (action, ends) = (Action::RunEnded, Decision_::End);
    let phase: &'static str = end.phase.into();
    let record = decided.record(now, action, ends, &end.reason, end.message.as_str());
    record.detail("phase", phase)
}
