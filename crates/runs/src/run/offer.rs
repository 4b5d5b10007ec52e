//! What a run begins with, once all rules hold: its workspace, its access, and the pod of its Job.

use ipnet::IpNet;
use jiff::Timestamp;
use oz_api::harness::{HarnessRun, WorkspacePhase};
use oz_api::{IdentityError, Name, Uid, conditions, encode};
use oz_core::access::rules::Passed;
use oz_core::confine::deadline;
use oz_core::validate::Violation;
use serde_json::Value;

use super::Runs;
use super::conditions::WORKSPACE_FREE;
use super::decided::{Decided, HeldWorkspace};
use super::facts::{Facts, Otherwise, Question, State, refused, waiting};
use super::grants::Verified;
use super::proposal::{RunProposal, Template};
use super::spec::{prompt, spec_digest};
use crate::credential::DecidedCredential;
use crate::objects::KIND;
use crate::pod::{self, Parts};
use crate::policy::{Matching, Mode};
use crate::queue::has_place;
use crate::reach::Reach;
use crate::stored::StoredObject;
use crate::template::Resolved;
use crate::voucher;

impl Runs {
    /// Returns the decision with which a run would begin, and the parts of its Job.
    pub(super) fn offer(
        &self,
        proposal: RunProposal<'_>,
        passed: Passed,
    ) -> Result<(Decided, Rendered), Otherwise> {
        let RunProposal {
            now,
            run,
            facts,
            policies,
            ..
        } = proposal;
        let stamp = proposal.stamp;
        let stamp = stamp.map_err(|error| State::Waiting(error.failure()))?;
        let Template { chosen, resolved } = proposal.template?;
        let access = self.access(now, run, facts, &resolved, &policies)?;
        let held = workspace_of(run, &resolved, facts)?;
        access.may_be_intercepted(facts)?;
        let rendered = self.rendered(run, facts, resolved, held.as_ref(), &access)?;
        let template = &rendered.template;
        let specs: Vec<_> = policies.iter().map(|policy| &policy.spec).collect();
        let reference = run.reference(KIND);
        let voucher = voucher::sign(&self.keys, &reference)
            .map_err(|error| waiting("SealFailed", error.to_string()))?;
        let decided = Decided {
            run: reference,
            submitter: stamp.requester,
            spec_digest: spec_digest(run),
            template: format!("{}/{}", chosen.kind, run.spec.template_ref.name),
            template_digest: chosen.digest().to_owned(),
            policies_digest: encode::digest(&specs),
            workspace: held,
            image: template.image.clone(),
            timeout_seconds: Some(deadline::lasting(template.timeout)),
            egress: template.egress.clone(),
            intercepted: access.intercepted,
            reach: access.reach(&self.settings.denied),
            credentials: access.credentials,
            voucher,
            broker: self.broker.clone(),
            decided_at: now,
            reason: run.spec.reason.clone(),
            access_policies: stamp
                .judgement
                .into_iter()
                .flat_map(|judgement| judgement.policies)
                .collect(),
            approvals: passed.approvals,
            ticket: passed.ticket,
            emergency: passed.emergency.map(|terms| terms.granted(now)),
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
pub(super) struct Rendered {
    pub(super) template: Resolved,
    pub(super) pod: Value,
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
        (None, 0) if named.is_none() || has_place(run) => Err(State::Next.into()),
        // A run that names its workspace does not get it before the status shows that it waits for nothing else.
        (None, 0) => {
            let message = format!("Workspace {name} is free; the run is the next that holds it");
            Err(waiting(WORKSPACE_FREE, message))
        }
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
