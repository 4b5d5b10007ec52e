//! The assessment of a run: the only place that decides about its state. Plan and status follow from it.

use std::sync::Arc;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use oz_api::harness::{
    BrokerPolicy, ClusterHarnessTemplate, HarnessRun, HarnessTemplate, HarnessTemplateSpec,
    RunMode, RunPhase, TemplateKind, Workspace, WorkspacePhase,
};
use oz_api::{AccessLock, IdentityError, Name, Requester, Uid, conditions, encode};
use oz_core::access::lock::{self, Access, LOCKED, Locks, NotAdmitted};
use oz_core::access::stamp::{self, StampError};
use oz_core::controller::Failure;
use oz_core::lifecycle::seal::Keys;
use oz_core::lifecycle::window::{after, has_come};
use oz_core::validate::Violation;
use serde_json::Value;

use super::Runs;
use super::decided::{Decided, HeldWorkspace};
use super::drift::lasting;
use super::existing::{self, RunEnd, Seen, deadline_exceeded, deleted};
use super::grants::{Granted, Verified};
use crate::authority::Endpoint;
use crate::credential::DecidedCredential;
use crate::isolation::{Isolation, NOT_CONFINED, pod_labels};
use crate::objects::{self, KIND, policy_name};
use crate::pod::{self, Parts, Prompt, deadline_seconds};
use crate::policy::{Matching, Mode, PodSecurity};
use crate::reach::Reach;
use crate::stored::StoredObject;
use crate::template::{self, Resolved, Unresolved};
use crate::{admission, jobs, requires, voucher};

/// Time for which a run waits for a template that does not exist yet.
const TEMPLATE_WAIT: SignedDuration = SignedDuration::from_secs(60);

/// Time after the start of a run's Job for which its pod may be unknown, and the interval between later searches for
/// it.
const POD_WAIT: SignedDuration = SignedDuration::from_secs(10);

/// The data that an assessment requires in addition to the run and its objects.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The HarnessTemplate of the run, in its namespace.
    pub template: Option<Arc<HarnessTemplate>>,
    /// The ClusterHarnessTemplate of the run.
    pub cluster_template: Option<Arc<ClusterHarnessTemplate>>,
    /// The template from which the run's template inherits.
    pub base: Option<Arc<ClusterHarnessTemplate>>,
    /// All broker policies of the run's namespace.
    pub policies: Vec<Arc<BrokerPolicy>>,
    /// Whether the policies are complete: after a start of the process, a run that has begun does not wait for their
    /// list.
    pub has_policies: bool,
    /// The workspace that the run names, or that was created for it.
    pub workspace: Option<Arc<Workspace>>,
    /// Number of runs before this one in the queue of its workspace, without the holder.
    pub ahead: usize,
    /// Number of active runs of the namespace that have begun or were created earlier, with templates to which the
    /// policies with a limit apply.
    pub older: usize,
    /// Address of the broker; `None` until it has an address and a certificate.
    pub broker: Option<Arc<Endpoint>>,
    /// The existing locks, from the watch.
    pub locks: Locks,
    /// The NetworkPolicies of the run's namespace that may select its pods.
    pub network_policies: Vec<Arc<NetworkPolicy>>,
    /// Whether this process created the run's Job, and the status does not report that yet.
    pub job_made: bool,
    /// The response to [`Question::SameStamp`]: the name of another object with the same stamp, if there is one.
    pub same_stamp: Option<Option<String>>,
    /// The response to [`Question::HiddenPod`].
    pub hidden_pod: Option<bool>,
    /// The response to [`Question::PodSecurity`].
    pub pod_security: Option<Result<PodSecurity, Failure>>,
}

/// The data that a decision about a run requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Name of another object with the same stamp.
    SameStamp,
    /// Whether a pod of its Job runs that [`is_hidden`](existing::is_hidden): the Job counts a pod that the watch
    /// does not show.
    HiddenPod,
    /// The level of Pod Security that the namespace of the run enforces; required for a run with intercepted
    /// connections.
    PodSecurity,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// The run has ended.
    Over,
    /// The run cannot begin yet.
    Waiting(Failure),
    /// The run requires its own workspace.
    Lacking,
    /// The run is the next holder of its workspace.
    Next,
    /// The run can begin; its NetworkPolicy is created first.
    Confinable(Box<Decided>, Isolation),
    /// The run is confined; its Job is created next.
    Startable(Box<Decided>, Box<Value>, Isolation),
    /// The Job exists, with the current grants; `None` if they are unknown.
    Begun(Box<Decided>, Pending, Isolation, Option<Box<Granted>>),
    /// The run is being ended.
    Ending(RunEnd, Option<Box<Decided>>),
    /// No process of the run is active.
    Ended(RunEnd, Option<Timestamp>, Option<Box<Decided>>),
}

/// The deadlines of a run that has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Expiry of the run.
    pub until: Option<Timestamp>,
    /// Deadline for the start of its pod.
    pub ready_until: Option<Timestamp>,
    /// Instant from which the status reports why the pod has not started.
    pub told_from: Option<Timestamp>,
    /// Instant until which the status does not change before the pod starts, so that one update reports all changes.
    pub quiet_until: Option<Timestamp>,
}

/// The reason for which a run does not begin.
enum Otherwise {
    State(Box<State>),
    Need(Question),
}

impl From<State> for Otherwise {
    fn from(state: State) -> Self {
        Self::State(Box::new(state))
    }
}

fn refused(reason: &str, message: impl Into<String>) -> Otherwise {
    State::Ended(RunEnd::new(RunPhase::Failed, reason, message), None, None).into()
}

fn invalid(found: &[Violation]) -> Otherwise {
    refused("Invalid", Violation::list(found))
}

fn waiting(reason: &'static str, message: impl Into<String>) -> Otherwise {
    State::Waiting(Failure::invalid(reason, message)).into()
}

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

    /// Returns the deadline for the start of the newest pod, if the pod has a node and has not started.
    fn ready_until(&self, seen: &Seen<'_>) -> Option<Timestamp> {
        let pod = seen.newest().filter(|pod| !jobs::has_started(pod))?;
        Some(after(existing::scheduled_at(pod)?, self.pod_ready_timeout))
    }

    /// Returns the decision with which a run would begin.
    fn undecided(
        &self,
        now: Timestamp,
        run: &StoredObject<'_, HarnessRun>,
        facts: &Facts,
    ) -> Result<(Decided, Rendered), Otherwise> {
        let own = admission::run(run);
        if !own.is_empty() {
            return Err(invalid(&own));
        }
        if run.spec.mode == RunMode::Interactive {
            let message = "interactive runs are not served yet: submit it without mode Interactive";
            return Err(refused("InteractiveNotServed", message));
        }
        let submitter = self.submitter(run, facts)?;
        let admitted = facts.locks.admit(&access(&submitter, run), now);
        admitted.map_err(|not| match not {
            NotAdmitted::Locked(lock) => refused(LOCKED, lock.denial().message),
            NotAdmitted::Unreadable(failure) => State::Waiting(failure).into(),
        })?;
        let (kind, spec) = chosen(now, run, facts)?;
        let template = resolved(now, run, facts, spec)?;
        let policies = Matching::from_policies(
            facts.policies.iter().map(AsRef::as_ref),
            &run.spec.template_ref.name,
        );
        let name = &run.spec.template_ref.name;
        requires::admitted(name, run.namespace.as_str(), &template, &policies, now)
            .map_err(|lacking| refused("PolicyMissing", lacking.to_string()))?;
        let workspace = facts.workspace.as_deref();
        let found = admission::run_of_template(run, &template, &policies, workspace);
        if !found.is_empty() {
            return Err(invalid(&found));
        }
        if let Some(most) = policies.concurrent_runs()
            && !usize::try_from(most).is_ok_and(|most| facts.older < most)
        {
            let message = format!(
                "{most} runs, the maximum of a BrokerPolicy's limits.concurrentRuns, are before \
                 it; it begins when they have ended"
            );
            return Err(waiting("TooManyRuns", message));
        }
        let overlaid = pod::violations(&template);
        if !overlaid.is_empty() {
            return Err(refused("TemplateInvalid", Violation::list(&overlaid)));
        }
        let access = self.access(now, run, facts, &template, &policies)?;
        let held = workspace_of(run, &template, facts)?;
        access.may_be_intercepted(facts)?;
        let rendered = self.rendered(run, facts, template, held.as_ref(), &access)?;
        let template = &rendered.template;
        let specs: Vec<_> = policies.iter().map(|policy| &policy.spec).collect();
        let base = facts.base.as_ref().map(|base| &base.spec);
        let reference = run.reference(KIND);
        let voucher = voucher::sign(&self.keys, &reference)
            .map_err(|error| waiting("SealFailed", error.to_string()))?;
        let decided = Decided {
            run: reference,
            submitter,
            spec_digest: spec_digest(run),
            template: format!("{kind}/{name}"),
            template_digest: encode::digest(&(spec, base)),
            policies_digest: encode::digest(&specs),
            workspace: held,
            image: template.image.clone(),
            timeout_seconds: Some(deadline_seconds(template)),
            egress: template.egress.clone(),
            intercepted: access.intercepted,
            reach: access.reach(&self.settings.denied),
            credentials: access.credentials,
            voucher,
            broker: self.broker.clone(),
            decided_at: now,
            reason: run.spec.reason.clone(),
        };
        Ok((decided, rendered))
    }

    /// Returns the credentials and hosts of a run that begins.
    fn access<'a>(
        &self,
        now: Timestamp,
        run: &StoredObject<'_, HarnessRun>,
        facts: &Facts,
        template: &Resolved,
        policies: &Matching<'a>,
    ) -> Result<RunAccess<'a>, Otherwise> {
        let verified = Verified::new(&self.keys, policies);
        let (name, namespace) = (&run.spec.template_ref.name, run.namespace.as_str());
        let credentials = verified
            .credentials(name, namespace, template, now)
            .map_err(|why| match why.may_pass() {
                true => waiting(why.reason(), why.to_string()),
                false => refused(why.reason(), why.to_string()),
            })?;
        let injects = credentials.iter().any(DecidedCredential::is_injected);
        let access = RunAccess {
            verified,
            intercepted: injects || !template.egress.is_empty(),
            credentials,
        };
        // A run does not wait for a workspace first.
        if run.status.is_none() {
            access.may_be_intercepted(facts)?;
        }
        Ok(access)
    }

    /// Returns the pod of a run that may begin.
    fn rendered(
        &self,
        run: &StoredObject<'_, HarnessRun>,
        facts: &Facts,
        template: Resolved,
        held: Option<&HeldWorkspace>,
        access: &RunAccess<'_>,
    ) -> Result<Rendered, Otherwise> {
        let Some(broker) = &facts.broker else {
            let message = "the broker has no certificate (ConfigMap oz-broker-ca), or its Service \
                           has no address; the run begins when both exist";
            return Err(waiting("BrokerUnavailable", message));
        };
        let parts = Parts {
            namespace: run.namespace.as_str(),
            run: run.name(),
            uid: run.uid(),
            template_name: &run.spec.template_ref.name,
            template: &template,
            workspace: held.map(|held| held.name.as_str()),
            mode: run.spec.mode,
            prompt: prompt(run),
            extra_env: &run.spec.extra_env,
            credentials: &access.credentials,
            intercepted: access.intercepted,
            settings: &self.settings,
            broker,
        };
        let pod = pod::pod_template(&parts)
            .map_err(|found| refused("TemplateInvalid", Violation::list(&found)))?;
        Ok(Rendered { template, pod })
    }

    fn submitter(&self, run: &HarnessRun, facts: &Facts) -> Result<Requester, Otherwise> {
        let stamped = stamp::verify(&self.keys, KIND, &run.metadata, &spec_digest(run));
        let submitter = stamped.map_err(|error| match error {
            StampError::Unverified(_) => State::Waiting(error.failure()).into(),
            error => refused(error.reason(), error.to_string()),
        })?;
        match &facts.same_stamp {
            None => Err(Otherwise::Need(Question::SameStamp)),
            Some(None) => Ok(submitter),
            Some(Some(other)) => {
                let error = StampError::Replayed(other.clone());
                Err(refused(error.reason(), error.to_string()))
            }
        }
    }
}

/// The access that verified policies grant to a run that begins.
struct RunAccess<'a> {
    verified: Verified<'a>,
    credentials: Vec<DecidedCredential>,
    intercepted: bool,
}

impl RunAccess<'_> {
    /// Checks whether the namespace admits the pod that intercepts connections. Interception is never replaced by a weaker
    /// mode where it is possible.
    fn may_be_intercepted(&self, facts: &Facts) -> Result<(), Otherwise> {
        if !self.intercepted {
            return Ok(());
        }
        let level = match &facts.pod_security {
            None => return Err(Otherwise::Need(Question::PodSecurity)),
            Some(Err(failure)) => return Err(State::Waiting(failure.clone()).into()),
            Some(Ok(level)) => *level,
        };
        let Err(unavailable) = Mode::Transparent.available(level) else {
            return Ok(());
        };
        let unavailable = unavailable.to_string();
        match self.verified.policies.interception() {
            Mode::Transparent => Err(refused("InterceptionUnavailable", unavailable)),
            Mode::Cooperative(_) => Err(refused(
                "CooperativeNotServed",
                format!("cooperative interception is not served yet, and {unavailable}"),
            )),
        }
    }

    /// Returns the addresses and ports that its NetworkPolicy opens.
    fn reach(&self, denied: &[IpNet]) -> Option<Reach> {
        let policies = &self.verified.policies;
        self.intercepted.then(|| Reach::new(policies, denied))
    }
}

/// The parts of a run's Job.
struct Rendered {
    template: Resolved,
    pod: Value,
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

/// Returns the access of a run, as locks select it.
fn access<'a>(submitter: &'a Requester, run: &'a HarnessRun) -> Access<'a> {
    let namespace = run.metadata.namespace.as_deref();
    Access::run(submitter, namespace, &run.spec.template_ref.name)
}

/// Checks whether a change of this lock affects a run. A run with an unknown submitter is affected.
#[must_use]
pub fn is_concerned_by(run: &HarnessRun, lock: &AccessLock, keys: &Keys) -> bool {
    if is_over(run) {
        return false;
    }
    let submitter = stamp::verify(keys, KIND, &run.metadata, &spec_digest(run));
    submitter.map_or(true, |submitter| {
        lock::is_about(lock, &access(&submitter, run))
    })
}

/// Returns the digest of all fields that define what the run requests.
#[must_use]
pub fn spec_digest(run: &HarnessRun) -> String {
    encode::digest(&run.spec)
}

/// Checks whether a run has ended, by its status.
#[must_use]
pub fn is_over(run: &HarnessRun) -> bool {
    let phase = run.status.as_ref().and_then(|status| status.phase);
    phase.is_some_and(RunPhase::is_terminal)
}

/// Returns the template of a run; a run waits for a template that does not exist.
fn chosen<'a>(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    facts: &'a Facts,
) -> Result<(TemplateKind, &'a HarnessTemplateSpec), Otherwise> {
    let own = facts.template.as_ref().map(|template| &template.spec);
    let cluster = facts
        .cluster_template
        .as_ref()
        .map(|template| &template.spec.0);
    template::chosen(&run.spec.template_ref, own, cluster).ok_or_else(|| {
        let name = &run.spec.template_ref.name;
        let message = match run.spec.template_ref.kind {
            Some(kind) => format!("{kind} {name} does not exist"),
            None => format!("there is no HarnessTemplate and no ClusterHarnessTemplate {name}"),
        };
        not_there_yet(now, run, "TemplateNotFound", message)
    })
}

fn resolved(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    facts: &Facts,
    spec: &HarnessTemplateSpec,
) -> Result<Resolved, Otherwise> {
    let base = facts.base.as_ref().map(|base| &base.spec.0);
    let template = template::resolve(spec, base).map_err(|error| match error {
        Unresolved::NoBase(_) => not_there_yet(now, run, "TemplateNotFound", error.to_string()),
        error => refused("TemplateInvalid", error.to_string()),
    })?;
    template.for_run(&run.spec).map_err(|found| invalid(&found))
}

/// Returns the state of a run without its template, which a user may create soon after the run.
fn not_there_yet(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    reason: &'static str,
    message: String,
) -> Otherwise {
    match has_come(now, waits_until(run)) {
        true => refused(
            reason,
            format!("{message}; create it and submit the run again"),
        ),
        false => waiting(reason, format!("{message}; the run waits a minute for it")),
    }
}

/// Returns the instant until which a run waits for its template.
pub(super) fn waits_until(run: &StoredObject<'_, HarnessRun>) -> Timestamp {
    after(run.identity.created, TEMPLATE_WAIT)
}

/// Returns the workspace of a run that may begin; `None` if it has none.
fn workspace_of(
    run: &StoredObject<'_, HarnessRun>,
    template: &Resolved,
    facts: &Facts,
) -> Result<Option<HeldWorkspace>, Otherwise> {
    let named = run.spec.workspace_ref.as_deref();
    if named.is_none() && !template.workspace.required {
        return Ok(None);
    }
    let Some(workspace) = &facts.workspace else {
        return Err(match named {
            None => State::Lacking.into(),
            Some(name) => waiting(
                "WorkspaceNotFound",
                format!("Workspace {name} does not exist; the run begins when it exists"),
            ),
        });
    };
    let metadata = &workspace.metadata;
    let name = Name::from_metadata(metadata).map_err(|error| unheld(&error))?;
    let uid = Uid::from_metadata(metadata).map_err(|error| unheld(&error))?;
    let status = workspace.status.clone().unwrap_or_default();
    if workspace.metadata.deletion_timestamp.is_some() {
        let message = format!("Workspace {name} is being deleted: name another");
        return Err(refused("WorkspaceEnding", message));
    }
    match status.phase {
        Some(WorkspacePhase::Failed) => {
            let why = conditions::find(&status.conditions, "Ready");
            let mut message = format!("Workspace {name} cannot be used");
            message.extend(why.map(|ready| format!(": {}", ready.message)));
            return Err(refused("WorkspaceFailed", message));
        }
        Some(WorkspacePhase::Active) => {}
        _ if named.is_none() => return Err(State::Next.into()),
        _ => {
            let message = format!("Workspace {name} is being prepared");
            return Err(waiting("WorkspaceSeeding", message));
        }
    }
    if status.active_run_uid.as_deref() == Some(run.uid()) {
        return Ok(Some(HeldWorkspace {
            name: name.to_string(),
            uid: uid.to_string(),
        }));
    }
    match (status.active_run_ref, facts.ahead) {
        (None, 0) => Err(State::Next.into()),
        (holder, ahead) => {
            // Of many that wait, only those that are nearly there are told of each that begins.
            let holder = holder.filter(|_| ahead <= NEARLY_THERE);
            let held = holder.map_or("is in use".to_owned(), |holder| {
                format!("is used by {holder}")
            });
            let message = format!("Workspace {name} {held}; {} it", place(ahead));
            Err(waiting("WorkspaceBusy", message))
        }
    }
}

fn unheld(error: &IdentityError) -> Otherwise {
    State::Waiting(error.clone().into()).into()
}

/// Maximum number of runs before a run that reports the start of each of them.
const NEARLY_THERE: usize = 5;

/// Formats the number of runs before a run, in steps.
fn place(ahead: usize) -> String {
    match ahead {
        0 => "no other run waits before".to_owned(),
        1 => "1 run waits before".to_owned(),
        2..=NEARLY_THERE => format!("{ahead} runs wait before"),
        6..=10 => "6 to 10 runs wait before".to_owned(),
        11..=50 => "11 to 50 runs wait before".to_owned(),
        51..=250 => "51 to 250 runs wait before".to_owned(),
        _ => "more than 250 runs wait before".to_owned(),
    }
}

fn prompt(run: &HarnessRun) -> Prompt<'_> {
    let source = run.spec.prompt_from.as_ref();
    let config = source.and_then(|source| source.config_map_key_ref.as_ref());
    let secret = source.and_then(|source| source.secret_key_ref.as_ref());
    match (config, secret) {
        (Some(reference), _) => Prompt::ConfigMap(reference),
        (None, Some(reference)) => Prompt::Secret(reference),
        (None, None) => Prompt::Inline,
    }
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
        "DriftDetected" | "JobDeleted" | existing::SEAL_RETIRED | NOT_CONFINED | LOCKED => {
            RunPhase::Cancelled
        }
        "PodNotStarted" | existing::DEADLINE => RunPhase::Failed,
        _ => return None,
    };
    let message = completed.message.split_once(existing::NOT_OVER);
    let message = message.map_or(completed.message.as_str(), |(message, _)| message);
    Some(RunEnd::new(phase, &completed.reason, message))
}
