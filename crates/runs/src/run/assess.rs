//! Where a run stands: the one place that decides. Everything else follows from it.

use std::sync::Arc;

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
use crate::authority::Endpoint;
use crate::isolation::{Isolation, NOT_CONFINED, pod_labels};
use crate::objects::{self, KIND, policy_name};
use crate::pod::{self, Parts, Prompt, deadline_seconds};
use crate::policy::Matching;
use crate::stored::StoredObject;
use crate::template::{self, Resolved, Unresolved};
use crate::{admission, jobs, requires, voucher};

/// How long a run waits for a template that is not there yet.
const TEMPLATE_WAIT: SignedDuration = SignedDuration::from_secs(60);

/// How long after the start of its Job a run's pod may be unknown, and how often it is looked for after that.
const POD_WAIT: SignedDuration = SignedDuration::from_secs(10);

/// What is known besides the run and its objects.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The template of its name in its namespace.
    pub template: Option<Arc<HarnessTemplate>>,
    /// The template of its name in the cluster.
    pub cluster_template: Option<Arc<ClusterHarnessTemplate>>,
    /// The template that its own inherits from.
    pub base: Option<Arc<ClusterHarnessTemplate>>,
    /// All policies of its namespace.
    pub policies: Vec<Arc<BrokerPolicy>>,
    /// The workspace that it names, or that was made for it.
    pub workspace: Option<Arc<Workspace>>,
    /// How many runs come before it on its workspace, that which holds it not counted.
    pub ahead: usize,
    /// How many runs of its namespace that are not over have begun, or were created before it, of templates that the
    /// policies with a limit speak for.
    pub older: usize,
    /// Where the broker is; `None` before it has an address and a certificate.
    pub broker: Option<Arc<Endpoint>>,
    /// The locks that there are, as the watch has shown them.
    pub locks: Locks,
    /// The NetworkPolicies of its namespace that may be about its pods.
    pub network_policies: Vec<Arc<NetworkPolicy>>,
    /// Whether this process made its Job, of which its status does not tell yet.
    pub job_made: bool,
    /// The answer to [`Question::SameStamp`]: the name of another object, if there is one.
    pub same_stamp: Option<Option<String>>,
    /// The answer to [`Question::HiddenPod`].
    pub hidden_pod: Option<bool>,
}

/// What must be found out before it is decided about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Which other object carries the very same stamp?
    SameStamp,
    /// Does a pod of its Job run that [`is_hidden`](existing::is_hidden)? The Job counts one that is not seen.
    HiddenPod,
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// It is over.
    Over,
    /// It cannot begin yet.
    Waiting(Failure),
    /// It needs a workspace of its own.
    Lacking,
    /// Its workspace is about to be its.
    Next,
    /// It can begin: it is to be confined first.
    Confinable(Box<Decided>, Isolation),
    /// It is confined, and its Job is to be made.
    Startable(Box<Decided>, Box<Value>, Isolation),
    /// Its Job is there.
    Begun(Box<Decided>, Pending, Isolation),
    /// It is being ended.
    Ending(RunEnd, Option<Box<Decided>>),
    /// Nothing of it runs any more.
    Ended(RunEnd, Option<Timestamp>, Option<Box<Decided>>),
}

/// Until when a run that has begun waits for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// When its timeout is over.
    pub until: Option<Timestamp>,
    /// When its pod must have started.
    pub ready_until: Option<Timestamp>,
    /// From when on it is told why its pod has not started.
    pub told_from: Option<Timestamp>,
    /// Until when nothing is told of it before its pod starts: one status then tells of all.
    pub quiet_until: Option<Timestamp>,
}

/// Why a run does not begin.
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

    /// The state of a run whose Job was made.
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
                        "its decision was sealed by an earlier release, whose key counts no more",
                    ),
                    false => drift(
                        "the decision on its NetworkPolicy and its Job was changed or taken away",
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
            return Ok(State::Begun(decided, pending, isolation));
        };
        Ok(match seen.job.is_none() && !runs_still {
            true => State::Ended(end, None, decided),
            false => State::Ending(end, decided),
        })
    }

    /// Why a run that has begun must not go on.
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
            return Some(drift("what was asked for was changed past admission"));
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

    /// When the newest pod must have started, if it has a node and has not.
    fn ready_until(&self, seen: &Seen<'_>) -> Option<Timestamp> {
        let pod = seen.newest().filter(|pod| !jobs::has_started(pod))?;
        Some(after(existing::scheduled_at(pod)?, self.pod_ready_timeout))
    }

    /// What a run would begin with.
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
        let policies = Matching::of(
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
                "as many runs as a BrokerPolicy's limits.concurrentRuns lets ({most}) came before it; it begins \
                 when they are over"
            );
            return Err(waiting("TooManyRuns", message));
        }
        let overlaid = pod::violations(&template);
        if !overlaid.is_empty() {
            return Err(refused("TemplateInvalid", Violation::list(&overlaid)));
        }
        let held = workspace_of(run, &template, facts)?;
        let rendered = self.rendered(run, facts, template, held.as_ref())?;
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
            credentials: template.credentials.clone(),
            hosts: template
                .egress
                .iter()
                .map(|need| need.host.clone())
                .collect(),
            voucher,
            broker: self.broker.clone(),
            decided_at: now,
            reason: run.spec.reason.clone(),
        };
        Ok((decided, rendered))
    }

    /// The pod of a run that may begin.
    fn rendered(
        &self,
        run: &StoredObject<'_, HarnessRun>,
        facts: &Facts,
        template: Resolved,
        held: Option<&HeldWorkspace>,
    ) -> Result<Rendered, Otherwise> {
        let Some(broker) = &facts.broker else {
            let message = "the broker has no certificate (ConfigMap oz-broker-ca), or its Service has no address; the \
                           run begins once there are both";
            return Err(waiting("BrokerUnavailable", message));
        };
        let parts = Parts {
            namespace: run.namespace.as_str(),
            run: run.name(),
            template_name: &run.spec.template_ref.name,
            template: &template,
            workspace: held.map(|held| held.name.as_str()),
            mode: run.spec.mode,
            prompt: prompt(run),
            extra_env: &run.spec.extra_env,
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

/// What a run's Job is made of.
struct Rendered {
    template: Resolved,
    pod: Value,
}

/// Finds what opens more to the pods of a run: to those that exist, and to those that its Job makes next.
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

/// What a lock goes by.
fn access<'a>(submitter: &'a Requester, run: &'a HarnessRun) -> Access<'a> {
    let namespace = run.metadata.namespace.as_deref();
    Access::run(submitter, namespace, &run.spec.template_ref.name)
}

/// Whether a run has to be looked at when this lock was made, changed or removed. One of which it cannot be told who
/// submitted it is.
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

/// Digest of everything that says what is asked for.
#[must_use]
pub fn spec_digest(run: &HarnessRun) -> String {
    encode::digest(&run.spec)
}

/// Whether a run is over, by its status.
#[must_use]
pub fn is_over(run: &HarnessRun) -> bool {
    let phase = run.status.as_ref().and_then(|status| status.phase);
    phase.is_some_and(RunPhase::is_terminal)
}

/// The template of a run; one that is not there is waited for.
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

/// It may come with the next file that somebody applies.
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

/// Until when a run waits for its template.
pub(super) fn waits_until(run: &StoredObject<'_, HarnessRun>) -> Timestamp {
    after(run.identity.created, TEMPLATE_WAIT)
}

/// The workspace of a run that may begin; `None` if it has none.
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
                format!("Workspace {name} does not exist; the run begins once it does"),
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
            let message = format!("Workspace {name} is being made ready");
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
                format!("is held by {holder}")
            });
            let message = format!("Workspace {name} {held}; {} it", place(ahead));
            Err(waiting("WorkspaceBusy", message))
        }
    }
}

fn unheld(error: &IdentityError) -> Otherwise {
    State::Waiting(error.clone().into()).into()
}

/// How many may be before a run that is told of each of them.
const NEARLY_THERE: usize = 5;

/// How many wait before a run, in steps.
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

/// What a pod waits for that has its prompt from elsewhere.
fn prompt_source(run: &HarnessRun) -> String {
    match prompt(run) {
        Prompt::ConfigMap(reference) => format!(
            "its prompt is in key {} of ConfigMap {}: see that both exist",
            reference.key, reference.name
        ),
        Prompt::Secret(reference) => format!(
            "its prompt is in key {} of Secret {}: see that both exist",
            reference.key, reference.name
        ),
        Prompt::Inline => String::new(),
    }
}

/// When the time of a run is over: it counts from the start of its Job, as the Job controller has it.
pub(super) fn until(decided: &Decided, seen: &Seen<'_>) -> Option<Timestamp> {
    let seconds = decided.timeout_seconds?;
    Some(after(
        seen.job_started()?,
        SignedDuration::from_secs(seconds),
    ))
}

/// When a pod must have been seen that the Job counts: the labels by which pods are seen are those by which they are
/// confined. One that has ended is counted as active for a while.
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

/// When a pod that the Job counts and that is not seen is looked for, if there is one.
fn looked_for_at(now: Timestamp, seen: &Seen<'_>) -> Option<Timestamp> {
    let until = hidden_until(seen)?;
    Some(match has_come(now, until) {
        true => after(now, POD_WAIT),
        false => until,
    })
}

/// The end of a run whose pod lost its labels. What the Job counts is not proof: watches of different kinds do not
/// keep in step.
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

/// The end that the status speaks of, while what there is of the run goes.
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
