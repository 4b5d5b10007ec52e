//! The assessment of a run: the only place that decides about its state. Plan and status follow from it.

use jiff::{SignedDuration, Timestamp};
use oz_api::conditions;
use oz_api::harness::{HarnessRun, RunPhase};
use oz_core::access::approval;
use oz_core::access::lock::LOCKED;
use oz_core::access::rules::{self, Passed};
use oz_core::lifecycle::Stop;
use oz_core::lifecycle::window::{after, has_come};
use serde_json::Value;

use super::Runs;
use super::decided::Decided;
use super::drift::lasting;
use super::existing::{self, RunEnd, Seen, deadline_exceeded, deleted};
use super::facts::{Facts, Otherwise, Pending, Question, State};
use super::grants::Granted;
use super::offer::Rendered;
use super::proposal::RunProposal;
use super::spec::{access, is_over, prompt, spec_digest};
use super::terms::{TICKET_CLOSED, TICKET_UNANSWERED, end_by_ticket};
use crate::isolation::{Isolation, NOT_CONFINED, pod_labels};
use crate::jobs;
use crate::objects::{self, policy_name};
use crate::pod::Prompt;
use crate::stored::StoredObject;

/// Time after the start of a run's Job for which its pod may be unknown, and the interval between later searches for
/// it.
const POD_WAIT: SignedDuration = SignedDuration::from_secs(10);

impl Runs {
    pub(super) fn assess(
        &self,
        now: Timestamp,
        run: &StoredObject<'_, HarnessRun>,
        facts: &Facts,
        seen: &Seen<'_>,
    ) -> Result<State, Question> {
        if is_over(run) {
            return Ok(State::Over);
        }
        let decided = || seen.decided.clone().map(Box::new);
        if facts.job_made || seen.has_begun(run) {
            return self.begun(now, run, facts, seen);
        }
        if run.metadata.deletion_timestamp.is_some() {
            return Ok(State::Ended(deleted(), None, decided()));
        }
        match self.undecided(now, run, facts) {
            Ok((new, rendered)) => {
                let Rendered { template, pod } = rendered;
                let job = objects::job(run, &template, pod, seen.sealed, &new.voucher);
                let isolation = isolation(run, facts, seen, Some(&job));
                if let Some(why) = isolation.obstacle().filter(|_| self.require_confined) {
                    let end = RunEnd::new(RunPhase::Failed, NOT_CONFINED, why.to_string());
                    return Ok(State::Ended(end, None, decided()));
                }
                let known = seen.decided.as_ref();
                let Some(known) = known.filter(|it| seen.is_confined && it.is_like(&new)) else {
                    return Ok(State::Confinable(Box::new(new), isolation));
                };
                let lasting = seen.policy.and_then(|policy| lasting(known, run, policy));
                if let Some(what) = lasting {
                    return Ok(State::Ended(drift(what), None, decided()));
                }
                let known = Box::new(known.clone());
                Ok(State::Startable(known, Box::new(job), isolation))
            }
            Err(Otherwise::State(state)) => Ok(match *state {
                State::Ended(end, at, _) => State::Ended(end, at, decided()),
                state => state,
            }),
            Err(Otherwise::Need(question)) => Err(question),
        }
    }

    /// Returns the state of a run with a Job.
    fn begun(
        &self,
        now: Timestamp,
        run: &StoredObject<'_, HarnessRun>,
        facts: &Facts,
        seen: &Seen<'_>,
    ) -> Result<State, Question> {
        let decided = seen.decided.clone().map(Box::new);
        let runs_still = seen.active().next().is_some();
        // How it ended is told by what ended first: what fails while it is being ended fails for that.
        if let Some((end, at)) = seen.job_end() {
            let told = remembered(run).filter(|_| end.phase == RunPhase::Failed);
            let end = told.unwrap_or(end);
            return Ok(match runs_still {
                false => State::Ended(end, at, decided),
                true => State::Ending(end, decided),
            });
        }
        let isolation = isolation(run, facts, seen, None);
        let end = match self.must_end(now, run, facts, seen, &isolation) {
            None => has_hidden_pod(now, facts, seen)?,
            end => end,
        };
        let Some(end) = end else {
            let Some(decided) = decided else {
                let end = match seen.is_retired {
                    true => RunEnd::new(
                        RunPhase::Cancelled,
                        existing::SEAL_RETIRED,
                        "its decision was sealed by an earlier release, whose key is no longer \
                            valid",
                    ),
                    false => drift(
                        "the decision on its NetworkPolicy and its Job was changed or removed",
                    ),
                };
                return Ok(State::Ending(end, None));
            };
            let until = until(&decided, seen);
            let ready_until = self.ready_until(seen).or(looked_for_at(now, seen));
            let told_from = seen.newest().and_then(jobs::told_from);
            let told_from = told_from.filter(|from| !has_come(now, *from));
            let told_at = facts.job_made.then(|| decided.told_at());
            let pending = Pending {
                until,
                ready_until,
                told_from,
                quiet_until: told_at.filter(|at| !has_come(now, *at)),
            };
            let policies = facts.policies.iter().map(AsRef::as_ref);
            let granted = match facts.has_policies {
                true => Granted::find(&self.keys, &decided, policies),
                false => None,
            };
            return Ok(State::Begun(
                decided,
                pending,
                isolation,
                granted.map(Box::new),
            ));
        };
        Ok(match seen.job.is_none() && !runs_still {
            true => State::Ended(end, None, decided),
            false => State::Ending(end, decided),
        })
    }

    /// Returns the reason for which a run that has begun must end, if there is one.
    fn must_end(
        &self,
        now: Timestamp,
        run: &StoredObject<'_, HarnessRun>,
        facts: &Facts,
        seen: &Seen<'_>,
        isolation: &Isolation,
    ) -> Option<RunEnd> {
        if run.metadata.deletion_timestamp.is_some() {
            return Some(deleted());
        }
        if let Some(end) = remembered(run) {
            return Some(end);
        }
        let decided = seen.decided.as_ref();
        if decided
            .and_then(|decided| until(decided, seen))
            .is_some_and(|until| has_come(now, until))
        {
            return Some(deadline_exceeded());
        }
        let lock = decided.and_then(|decided| {
            let access = access(&decided.submitter, run);
            facts.locks.against(&access, now)
        });
        if let Some(lock) = lock {
            return Some(RunEnd::new(RunPhase::Cancelled, LOCKED, lock.to_string()));
        }
        if let Some(end) = decided.and_then(|decided| end_by_ticket(now, decided, facts)) {
            return Some(end);
        }
        if seen.job.is_none() {
            let message = "its Job was deleted";
            return Some(RunEnd::new(RunPhase::Cancelled, "JobDeleted", message));
        }
        if decided.is_some_and(|decided| decided.spec_digest != spec_digest(run)) {
            return Some(drift("the spec was changed without admission"));
        }
        if let Some(what) = seen
            .policy
            .and_then(|policy| lasting(decided?, run, policy))
        {
            return Some(drift(what));
        }
        if seen.is_displaced {
            return Some(drift("its NetworkPolicy was replaced by another"));
        }
        if let Some(why) = isolation.obstacle().filter(|_| self.require_confined) {
            return Some(RunEnd::new(
                RunPhase::Cancelled,
                NOT_CONFINED,
                why.to_string(),
            ));
        }
        if self
            .ready_until(seen)
            .is_some_and(|until| has_come(now, until))
        {
            let why = seen.newest().and_then(jobs::obstacle);
            let why = why.map(|why| why.to_string());
            let prompt = run.spec.prompt_from.as_ref().map(|_| prompt_source(run));
            let why = why
                .or(prompt)
                .unwrap_or_else(|| "its containers did not start".to_owned());
            let message = format!(
                "its pod did not start within {:#} of getting a node: {why}",
                self.pod_ready_timeout
            );
            return Some(RunEnd::new(RunPhase::Failed, "PodNotStarted", message));
        }
        None
    }

    /// Returns the decision with which a run would begin.
    fn undecided(
        &self,
        now: Timestamp,
        run: &StoredObject<'_, HarnessRun>,
        facts: &Facts,
    ) -> Result<(Decided, Rendered), Otherwise> {
        let proposal = RunProposal::new(self, now, run, facts);
        let mut passed = Passed::default();
        let decided = rules::before_grant(&proposal, &mut passed);
        if let Err(Stop::Wait(failure)) = &decided
            && failure.reason == approval::WAITING
            && let Some(asked) = proposal.asked()
        {
            return Err(State::Asking(failure.clone(), Box::new(asked)).into());
        }
        decided?;
        proposal.confirmed()?;
        self.offer(proposal, passed)
    }

    /// Returns the deadline for the start of the newest pod, if the pod has a node and has not started.
    fn ready_until(&self, seen: &Seen<'_>) -> Option<Timestamp> {
        let pod = seen.newest().filter(|pod| !jobs::has_started(pod))?;
        Some(after(existing::scheduled_at(pod)?, self.pod_ready_timeout))
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

/// Returns the description of a prompt in another object, for which a pod waits.
fn prompt_source(run: &HarnessRun) -> String {
    match prompt(run) {
        Prompt::ConfigMap(reference) => format!(
            "its prompt is in key {} of ConfigMap {}: check that both exist",
            reference.key, reference.name
        ),
        Prompt::Secret(reference) => format!(
            "its prompt is in key {} of Secret {}: check that both exist",
            reference.key, reference.name
        ),
        Prompt::Inline => String::new(),
    }
}

/// Returns the expiry of a run: it counts from the start of its Job, as the Job controller recorded it.
pub(super) fn until(decided: &Decided, seen: &Seen<'_>) -> Option<Timestamp> {
    let seconds = decided.timeout_seconds?;
    Some(after(
        seen.job_started()?,
        SignedDuration::from_secs(seconds),
    ))
}

/// Returns the deadline for the watch to show a pod that the Job counts: the watch selects pods by the labels that
/// confine them. A pod that has ended is counted as active for some time.
fn hidden_until(seen: &Seen<'_>) -> Option<Timestamp> {
    let (_, job) = seen.job.as_ref()?;
    let status = job.status.as_ref()?;
    let counts = [status.active, status.succeeded, status.failed];
    let counted = usize::try_from(counts.into_iter().flatten().sum::<i32>());
    let is_hidden = status.active.is_some_and(|active| active > 0)
        && counted.is_ok_and(|counted| seen.pods.len() < counted);
    is_hidden.then(|| {
        let started = seen.job_started();
        started.map_or(Timestamp::UNIX_EPOCH, |started| after(started, POD_WAIT))
    })
}

/// Returns the instant of the next search for a pod that the Job counts and the watch does not show, if there is such
/// a pod.
fn looked_for_at(now: Timestamp, seen: &Seen<'_>) -> Option<Timestamp> {
    let until = hidden_until(seen)?;
    Some(match has_come(now, until) {
        true => after(now, POD_WAIT),
        false => until,
    })
}

/// Checks whether the run has a pod that lost its labels. The count of the Job is not proof: watches of different
/// kinds are not synchronized.
fn has_hidden_pod(
    now: Timestamp,
    facts: &Facts,
    seen: &Seen<'_>,
) -> Result<Option<RunEnd>, Question> {
    if !hidden_until(seen).is_some_and(|until| has_come(now, until)) {
        return Ok(None);
    }
    let is_hidden = facts.hidden_pod.ok_or(Question::HiddenPod)?;
    Ok(is_hidden.then(|| drift("its pod lost the labels by which its NetworkPolicy confines it")))
}

fn drift(what: &str) -> RunEnd {
    RunEnd::new(RunPhase::Cancelled, "DriftDetected", what)
}

/// Returns the end that the status reports while the run's objects are deleted.
fn remembered(run: &HarnessRun) -> Option<RunEnd> {
    let conditions = &run.status.as_ref()?.conditions;
    let completed = conditions::find(conditions, existing::COMPLETED)?;
    let phase = match completed.reason.as_str() {
        "DriftDetected"
        | "JobDeleted"
        | existing::SEAL_RETIRED
        | NOT_CONFINED
        | LOCKED
        | TICKET_CLOSED
        | TICKET_UNANSWERED => RunPhase::Cancelled,
        "PodNotStarted" | existing::DEADLINE => RunPhase::Failed,
        _ => return None,
    };
    let message = completed.message.split_once(existing::NOT_OVER);
    let message = message.map_or(completed.message.as_str(), |(message, _)| message);
    Some(RunEnd::new(phase, &completed.reason, message))
}
