//! The existing objects of a run: its NetworkPolicy with the decision, its Job, and the pods of the Job.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use oz_api::harness::{HarnessRun, RunOutputs, RunPhase};
use oz_api::{EndReason, labels};
use oz_core::controller::Live;
use oz_core::lifecycle::seal::{self, Keys};
use oz_core::lifecycle::{End, drift};

use super::decided::Decided;
use super::spec::has_begun;
use crate::jobs::{condition, interception_failure, is_active};
use crate::objects::policy_name;
use crate::reserved;
use crate::stored::StoredObject;

/// Phase, reason and message of the end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// Succeeded, Failed or Cancelled.
    pub phase: RunPhase,
    /// Reason in CamelCase.
    pub reason: String,
    /// Message for users.
    pub message: String,
}

impl RunEnd {
    pub(super) fn new(phase: RunPhase, reason: &str, message: impl Into<String>) -> Self {
        Self {
            phase,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

/// The status of a run has a specific reason and message for some ends.
impl From<&End> for RunEnd {
    fn from(end: &End) -> Self {
        let detail = |default: &str| end.detail.clone().unwrap_or_else(|| default.to_owned());
        match end.reason {
            EndReason::Expired => Self::new(RunPhase::Failed, DEADLINE, detail(EXPIRED)),
            EndReason::PodNotReady => Self::new(RunPhase::Failed, NOT_STARTED, end.detail()),
            EndReason::Deleted => deleted(),
            reason => {
                let message = detail("its Job was deleted");
                Self::new(RunPhase::Cancelled, reason.into(), message)
            }
        }
    }
}

/// The existing objects of one run.
#[derive(Default)]
pub(super) struct Seen<'a> {
    /// The NetworkPolicy with its name, if it was created for the run.
    pub(super) policy: Option<&'a Live>,
    /// Whether that NetworkPolicy carries a decision of oz.
    pub(super) is_confined: bool,
    /// Whether another object has its name.
    pub(super) is_displaced: bool,
    /// The Job of the run.
    pub(super) job: Option<(&'a Live, Box<Job>)>,
    /// The pods of the run.
    pub(super) pods: Vec<(&'a Live, Pod)>,
    /// The decision, from either object.
    pub(super) decided: Option<Decided>,
    /// The sealed text of the decision.
    pub(super) sealed: &'a str,
    /// Whether an object carries a decision that an earlier release sealed.
    pub(super) is_retired: bool,
}

impl<'a> Seen<'a> {
    pub(super) fn of(keys: &Keys, run: &StoredObject<'_, HarnessRun>, live: &'a [Live]) -> Self {
        let mut seen = Self::default();
        let (name, uid) = (run.name(), run.uid());
        for one in live {
            if let Some(pod) = one.parse::<Pod>() {
                if is_of_job(&pod, name) {
                    seen.pods.push((one, pod));
                }
            } else if let Some(job) = one.parse::<Job>() {
                let is_owned = drift::is_owned(&job.metadata, uid);
                let is_ours = is_owned || Decided::open(keys, one, run).is_some();
                if is_ours && job.metadata.name.as_deref() == Some(name) {
                    seen.job = Some((one, Box::new(job)));
                }
            } else if one.parse::<NetworkPolicy>().is_some()
                && one.object.metadata.name.as_ref() == Some(&policy_name(name))
            {
                seen.take(keys, one, run);
                seen.is_confined = seen.decided.is_some();
                let is_marked = labels::owner_uid(&one.object.metadata) == Some(uid);
                match seen.is_confined || is_marked {
                    true => seen.policy = Some(one),
                    false => seen.is_displaced = true,
                }
            }
        }
        if seen.decided.is_none()
            && let Some((job, _)) = &seen.job
        {
            let job: &'a Live = job;
            seen.take(keys, job, run);
        }
        seen
    }

    fn take(&mut self, keys: &Keys, live: &'a Live, run: &StoredObject<'_, HarnessRun>) {
        let Some(sealed) = Decided::sealed(live) else {
            return;
        };
        if let Some(decided) = Decided::open(keys, live, run) {
            self.sealed = sealed;
            self.decided = Some(decided);
        } else {
            self.is_retired |= seal::is_retired(sealed);
        }
    }

    /// Checks whether the run has started a process, as far as the objects and the status show.
    pub(super) fn has_begun(&self, run: &HarnessRun) -> bool {
        has_begun(run) || self.job.is_some() || !self.pods.is_empty()
    }

    /// Returns the pods in which a process may still run.
    pub(super) fn active(&self) -> impl Iterator<Item = &(&'a Live, Pod)> {
        self.pods.iter().filter(|(_, pod)| is_active(pod))
    }

    /// Returns the pod with the latest creation time.
    pub(super) fn newest(&self) -> Option<&Pod> {
        let created = |pod: &&Pod| pod.metadata.creation_timestamp.clone();
        self.pods.iter().map(|(_, pod)| pod).max_by_key(created)
    }

    /// Returns the start time of the Job; a Job that resumes after a suspension starts again.
    pub(super) fn job_started(&self) -> Option<Timestamp> {
        let (_, job) = self.job.as_ref()?;
        let started = job.status.as_ref()?.start_time.as_ref()?;
        Some(started.0)
    }

    /// Returns the end of the Job; `None` while it is active.
    pub(super) fn job_end(&self) -> Option<(RunEnd, Option<Timestamp>)> {
        let (_, job) = self.job.as_ref()?;
        if let Some(complete) = condition(job, "Complete") {
            let at = job.status.as_ref()?.completion_time.as_ref();
            let at = at.or(complete.last_transition_time.as_ref());
            let end = RunEnd::new(
                RunPhase::Succeeded,
                "Succeeded",
                "the agent ended with exit code 0",
            );
            return Some((end, at.map(|at| at.0)));
        }
        let failed = condition(job, "Failed")?;
        let at = failed.last_transition_time.as_ref().map(|at| at.0);
        let timed_out = failed.reason.as_deref() == Some(DEADLINE)
            || self
                .newest()
                .is_some_and(|pod| pod_reason(pod) == Some(DEADLINE));
        let not_intercepted = self.newest().and_then(interception_failure);
        let end = match (timed_out, not_intercepted) {
            (true, _) => deadline_exceeded(),
            (false, Some(why)) => RunEnd::new(RunPhase::Failed, "InterceptionFailed", why),
            (false, None) => RunEnd::new(RunPhase::Failed, "AgentFailed", self.why_it_failed()),
        };
        Some((end, at))
    }

    fn why_it_failed(&self) -> String {
        let Some(pod) = self.newest() else {
            return "the agent's pod failed, and does not exist any more".to_owned();
        };
        let agent = container(pod, reserved::AGENT);
        let ended = agent.and_then(|agent| agent.state.as_ref()?.terminated.as_ref());
        match (ended, pod_reason(pod)) {
            (Some(ended), _) if ended.reason.as_deref() == Some("OOMKilled") => {
                "the agent used more memory than it may (OOMKilled, exit code 137)".to_owned()
            }
            (Some(ended), _) => format!("the agent ended with exit code {}", ended.exit_code),
            (None, Some(reason)) => format!("the agent's pod failed: {reason}"),
            (None, None) => "the agent's pod failed before the agent started".to_owned(),
        }
    }

    /// Returns the outputs of the run, as the container of oz reported them at its end.
    pub(super) fn outputs(&self) -> Option<RunOutputs> {
        let status = self.newest()?.status.as_ref()?;
        let sidecars = status.init_container_statuses.iter().flatten();
        let ours = sidecars
            .filter(|one| [reserved::RUNTIME, reserved::REPORTER].contains(&one.name.as_str()));
        let mut said =
            ours.filter_map(|one| one.state.as_ref()?.terminated.as_ref()?.message.as_ref());
        said.find_map(|message| serde_json::from_str(message).ok())
    }
}

/// The reason of a run that waits for other runs, by the limits of broker policies.
pub(crate) const TOO_MANY_RUNS: &str = "TooManyRuns";
/// Condition: the run has ended.
pub const COMPLETED: &str = "Completed";
/// The end reason of a run with a decision that an earlier release sealed.
pub(super) const SEAL_RETIRED: &str = "SealRetired";
/// The separator between the reason for the end of a run and the cause of its delay.
pub(super) const NOT_OVER: &str = "; not over yet: ";
pub(super) const DEADLINE: &str = "DeadlineExceeded";
/// The end reason of a run with a pod that does not start in time.
pub(super) const NOT_STARTED: &str = "PodNotStarted";
/// The message of a run that exceeded its maximum duration.
const EXPIRED: &str = "the run's timeout has expired";

/// Returns the end of a run that exceeded its maximum duration.
pub(super) fn deadline_exceeded() -> RunEnd {
    RunEnd::new(RunPhase::Failed, DEADLINE, EXPIRED)
}

/// Checks whether a pod was created by the Job of a run: labels are no proof, as other clients can write them.
fn is_of_job(pod: &Pod, run: &str) -> bool {
    let controller = labels::controller(&pod.metadata);
    controller.is_some_and(|job| job.kind == "Job" && job.name == run)
}

/// Checks whether a pod of a run's Job runs without the label by which its NetworkPolicy selects it.
#[must_use]
pub fn is_hidden(pod: &Pod, run: &HarnessRun) -> bool {
    let metadata = &run.metadata;
    let name = metadata.name.as_deref();
    name.is_some_and(|name| is_of_job(pod, name))
        && is_active(pod)
        && labels::owner_uid(&pod.metadata)
            .is_none_or(|owner| Some(owner) != metadata.uid.as_deref())
}

/// Returns the end of a run that was deleted.
pub(super) fn deleted() -> RunEnd {
    RunEnd::new(RunPhase::Cancelled, "Deleted", "the run was deleted")
}

fn pod_reason(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.reason.as_deref()
}

/// Returns the status of one container of a pod.
pub(super) fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let ordinary = status.container_statuses.iter().flatten();
    let mut all = ordinary.chain(status.init_container_statuses.iter().flatten());
    all.find(|one| one.name == name)
}

/// Returns the time at which a pod was scheduled to its node.
pub(super) fn scheduled_at(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions
        .iter()
        .find(|known| known.type_ == "PodScheduled" && known.status == "True")?;
    Some(scheduled.last_transition_time.as_ref()?.0)
}
