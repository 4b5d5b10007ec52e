//! The progress of the seed of a workspace, and its next steps.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::conditions;
use oz_api::harness::{Workspace, WorkspacePhase};
use oz_core::access::stamp;
use oz_core::controller::{Live, Step};
use oz_core::lifecycle::seal::Keys;
use oz_core::lifecycle::window::has_come;
use oz_core::validate::Violation;

use super::{KIND, Workspaces};
use crate::admission;
use crate::child::child;
use crate::isolation::{Isolation, NOT_CONFINED, pod_labels};
use crate::jobs::{self, NotStarted, condition, is_active};
use crate::seed::{
    DEADLINE_SECONDS, Settings, digest, job, job_name, names_secrets, network_policy, policy_name,
    repositories,
};
use crate::stored::StoredObject;

/// Condition: the workspace is seeded.
pub(super) const SEEDED: &str = "Seeded";
/// Its reason after the repositories were cloned.
pub(super) const SUCCEEDED: &str = "SeedJobSucceeded";
/// Its reason after a failure.
pub(super) const JOB_FAILED: &str = "SeedJobFailed";
/// Its reason while the repositories are being cloned.
pub(super) const SEEDING: &str = "Seeding";

/// The progress of the seed of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Seeding {
    /// The workspace has no repositories.
    #[default]
    Unneeded,
    /// The workspace cannot be seeded: reason and message.
    Refused(&'static str, String),
    /// The seed Job must be created, with this image.
    Wanted(String),
    /// The seed Job is active, with the delay of a pod that is late.
    Running(Option<Delay>),
    /// The seed Job is being deleted, since its pods are not confined: the message.
    Stopping(String),
    /// The seed Job has failed: the message.
    Failed(String),
    /// The seed Job has completed, and may have been deleted since.
    Done,
}

/// The reason why a pod that is late clones nothing yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Delay {
    /// The pod has not started.
    #[error(transparent)]
    Pod(#[from] NotStarted),
    /// Kubernetes does not say in a pod's status that a Secret is missing.
    #[error(
        "Pod {pod} has not started; check that these Secrets of its credentialsSecretRefs exist: \
            {secrets}"
    )]
    Secrets {
        /// Name of the pod.
        pod: String,
        /// Names of the Secrets.
        secrets: String,
    },
}

/// The reason why the seed of a workspace receives no Secrets: no check has shown that its author may read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "its seed names Secrets, and oz's admission webhook did not verify that its author may read \
     them ({reason}): check that the webhook is registered and running, then create the workspace \
     again"
)]
struct Unstamped {
    /// Reason for which its stamp proves nothing.
    reason: &'static str,
}

impl Seeding {
    pub(super) fn of(
        now: Timestamp,
        workspace: &StoredObject<'_, Workspace>,
        controller: &Workspaces,
        live: &[Live],
    ) -> Self {
        let repositories = repositories(workspace);
        if repositories.is_empty() {
            return Self::Unneeded;
        }
        if seeded(workspace).is_some_and(|seeded| seeded.reason == SUCCEEDED) {
            return Self::Done;
        }
        // Admission asks the same; it may have been away.
        let found = admission::workspace(workspace);
        if !found.is_empty() {
            return Self::Refused("SeedRejected", Violation::list(&found));
        }
        if let Some(one) = repositories
            .iter()
            .find(|it| it.broker_credential_ref.is_some())
        {
            let message = format!(
                "brokerCredentialRef of {}: credentials of brokers are not served yet; use credentialsSecretRef",
                one.url
            );
            return Self::Refused("CredentialsNotServed", message);
        }
        let name = job_name(workspace.name());
        let mut jobs = live.iter().filter_map(Live::parse::<Job>);
        let job = jobs.find(|job| job.metadata.name.as_deref() == Some(&name));
        let Some(job) = job else {
            if let Some(why) = unstamped(workspace, &controller.keys) {
                return Self::Refused("NotStamped", why.to_string());
            }
            let missing = "the operator has no image with git for the clone: set harness.gitImage \
                of its chart";
            return match &controller.seeds.image {
                Some(image) => Self::Wanted(image.clone()),
                None => Self::Refused("SeedImageMissing", missing.to_owned()),
            };
        };
        let holds = |type_| condition(&job, type_).is_some();
        match (holds("Complete"), holds("Failed")) {
            (true, _) => Self::Done,
            (_, true) => Self::Failed(format!(
                "Job {name} failed: {}. `kubectl delete job {name}` starts it again",
                why_it_failed(&job, live)
            )),
            _ => Self::Running(delay(now, workspace, live)),
        }
    }

    /// Finds the policies that open more connections to the pods of a seed; `None` without such pods, now or planned.
    pub(super) fn isolation(
        &self,
        workspace: &StoredObject<'_, Workspace>,
        controller: &Workspaces,
        policies: &[Arc<NetworkPolicy>],
        live: &[Live],
    ) -> Option<Isolation> {
        let name = workspace.name();
        let made = match self {
            Self::Wanted(image) => job(workspace, &controller.seeds, image)["spec"].take(),
            Self::Running(_) => {
                let mut jobs = live
                    .iter()
                    .filter(|live| Live::parse::<Job>(live).is_some());
                jobs.next().map(|job| job.object.data["spec"].clone())?
            }
            _ => return None,
        };
        let next = pod_labels(&job_name(name), &made["template"]["metadata"]);
        let pods = live.iter().filter_map(Live::parse::<Pod>).filter(is_active);
        let pods = pods.filter_map(|pod| pod.metadata.labels);
        let labels: Vec<_> = [next].into_iter().chain(pods).collect();
        Some(Isolation::find(&policy_name(name), &labels, policies))
    }

    /// Returns the progress of a seed with pods that are not confined, if such a seed is not permitted.
    pub(super) fn unconfined(self, why: String) -> Self {
        match self {
            Self::Wanted(_) => Self::Refused(NOT_CONFINED, why),
            Self::Running(_) => Self::Stopping(why),
            other => other,
        }
    }

    /// Returns the state that runs must wait for.
    pub(super) fn obstacle(&self) -> Option<(WorkspacePhase, &'static str, String)> {
        match self {
            Self::Unneeded | Self::Done => None,
            Self::Refused(reason, message) => {
                Some((WorkspacePhase::Failed, reason, message.clone()))
            }
            Self::Failed(message) => Some((WorkspacePhase::Failed, JOB_FAILED, message.clone())),
            Self::Stopping(message) => {
                Some((WorkspacePhase::Failed, NOT_CONFINED, message.clone()))
            }
            Self::Wanted(_) | Self::Running(None) => {
                let message = "its repositories are being cloned".to_owned();
                Some((WorkspacePhase::Seeding, SEEDING, message))
            }
            Self::Running(Some(delay)) => {
                let message = format!("its repositories are to be cloned: {delay}");
                Some((WorkspacePhase::Seeding, SEEDING, message))
            }
        }
    }
}

/// Returns the pod with the latest creation time.
fn newest_pod(live: &[Live]) -> Option<Pod> {
    let pods = live.iter().filter_map(Live::parse::<Pod>);
    pods.max_by_key(|pod| pod.metadata.creation_timestamp.clone())
}

/// Returns the instant from which on the status reports a late pod; `None` without a pod, or after its first clone
/// began.
pub(super) fn reported_from(live: &[Live]) -> Option<Timestamp> {
    let pod = newest_pod(live)?;
    let first = pod.status.as_ref().and_then(|status| {
        let first = status.init_container_statuses.as_ref()?.first()?;
        first.state.as_ref()
    });
    let has_begun = first.is_some_and(|state| state.waiting.is_none());
    jobs::reported_from(&pod).filter(|_| !has_begun)
}

/// Returns the reason why a late pod does not clone yet.
fn delay(now: Timestamp, workspace: &Workspace, live: &[Live]) -> Option<Delay> {
    reported_from(live).filter(|from| has_come(now, *from))?;
    let pod = newest_pod(live)?;
    let needed = repositories(workspace)
        .iter()
        .filter_map(|it| it.credentials_secret_ref.as_ref());
    let mut needed: Vec<&str> = needed.map(|secret| secret.name.as_str()).collect();
    needed.sort_unstable();
    needed.dedup();
    if let Some(obstacle) = jobs::obstacle(&pod) {
        return Some(obstacle.into());
    }
    if needed.is_empty() {
        return None;
    }
    Some(Delay::Secrets {
        pod: pod.metadata.name?,
        secrets: needed.join(", "),
    })
}

fn unstamped(workspace: &Workspace, keys: &Keys) -> Option<Unstamped> {
    if !names_secrets(workspace) {
        return None;
    }
    let stamped = stamp::verify(keys, KIND, &workspace.metadata, &digest(workspace));
    let reason = stamped.err()?.reason();
    Some(Unstamped { reason })
}

fn why_it_failed(job: &Job, live: &[Live]) -> String {
    let failed = condition(job, "Failed").and_then(|it| it.reason.as_deref());
    // Its pods are gone then.
    if failed == Some("DeadlineExceeded") {
        let minutes = DEADLINE_SECONDS / 60;
        return format!(
            "its repositories were not cloned within {minutes} minutes; a depth and a branch \
                reduce the size of a clone"
        );
    }
    said(live).unwrap_or_else(|| "the logs of its pods are empty".to_owned())
}

/// Returns the last message of the newest pod.
fn said(live: &[Live]) -> Option<String> {
    let status = newest_pod(live)?.status?;
    let inits = status.init_container_statuses.into_iter().flatten();
    let all = inits.chain(status.container_statuses.into_iter().flatten());
    let mut ends = all.filter_map(|one| one.state?.terminated);
    let end = ends.find(|end| end.exit_code != 0);
    let message = end.and_then(|end| end.message).or(status.message)?;
    let message: String = message.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(message.chars().take(512).collect())
}

/// The existing objects of a seed.
pub(super) struct Parts<'a> {
    job: Option<&'a Live>,
    policy: Option<&'a Live>,
    pods: Vec<&'a Live>,
}

impl<'a> Parts<'a> {
    pub(super) fn of(live: &'a [Live]) -> Self {
        let is_active = |live: &&Live| Live::parse::<Pod>(live).is_some_and(|pod| is_active(&pod));
        Self {
            job: live.iter().find(|live| Live::parse::<Job>(live).is_some()),
            policy: live
                .iter()
                .find(|live| Live::parse::<NetworkPolicy>(live).is_some()),
            pods: live.iter().filter(is_active).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.job.is_none() && self.policy.is_none() && self.pods.is_empty()
    }

    /// Returns the stages that seed a workspace, or those that delete its objects: the pods before their NetworkPolicy.
    pub(super) fn steps(
        &self,
        workspace: &StoredObject<'_, Workspace>,
        seeding: &Seeding,
        phase: WorkspacePhase,
        settings: &Settings,
    ) -> Vec<Vec<Step>> {
        let policy =
            || child::<NetworkPolicy>(network_policy(workspace, settings)).map(Step::Apply);
        match seeding {
            _ if is_to_go(workspace, seeding) => {
                let stays = |live: &&Live| live.object.metadata.deletion_timestamp.is_none();
                let all = self.job.into_iter().chain(self.pods.iter().copied());
                let ends = all.filter(stays).map(|live| Step::Delete(live.reference()));
                let is_over = self.job.is_none() && self.pods.is_empty();
                let policy = self.policy.filter(|_| is_over);
                let policy = policy.map(|live| Step::Delete(live.reference()));
                vec![ends.collect(), policy.into_iter().collect()]
            }
            // There is nothing that could be filled.
            Seeding::Wanted(_) if phase == WorkspacePhase::Failed => Vec::new(),
            Seeding::Wanted(image) => {
                let job = child::<Job>(job(workspace, settings, image)).map(Step::Apply);
                vec![policy().into_iter().collect(), job.into_iter().collect()]
            }
            // What somebody changes of it is put back.
            Seeding::Running(_) => vec![policy().into_iter().collect()],
            Seeding::Unneeded
            | Seeding::Refused(..)
            | Seeding::Stopping(_)
            | Seeding::Failed(_)
            | Seeding::Done => Vec::new(),
        }
    }
}

/// Checks whether the objects of a seed must be deleted: it has completed and the status reports that, the workspace is
/// being deleted, or it must not be seeded.
pub(super) fn is_to_go(workspace: &Workspace, seeding: &Seeding) -> bool {
    let is_refused = matches!(seeding, Seeding::Refused(..) | Seeding::Stopping(_));
    is_refused || workspace.metadata.deletion_timestamp.is_some() || seeded(workspace).is_some()
}

/// Returns the condition of a workspace that is seeded.
fn seeded(workspace: &Workspace) -> Option<&Condition> {
    let seeded = conditions::find(&workspace.status.as_ref()?.conditions, SEEDED);
    seeded.filter(|seeded| seeded.status == "True")
}
