//! The plan for each state of a workspace.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use oz_api::harness::{Workspace, WorkspacePhase, WorkspaceStatus};
use oz_core::controller::{
    Controller, Decision, Live, Outcome, Plan, Sought, Step, Transition, Verdict,
};
use oz_core::lifecycle::drift::{has_finalizer, is_owned};
use oz_core::lifecycle::window::has_come;
use oz_trail::Record;

use super::assess::{Facts, Holder, Question, State, again, assess};
use super::seeding::{Parts, Seeding, is_to_go, reported_from};
use super::{FINALIZER, KIND, Workspaces, claim, report};
use crate::child::child;
use crate::isolation::LOOK_AGAIN;
use crate::stored::StoredObject;

impl Controller for Workspaces {
    type Object = Workspace;
    type Facts = Facts;
    type Question = Question;
    type State = State;
    type Status = WorkspaceStatus;

    fn name(&self) -> &'static str {
        "workspace"
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, workspace: &Workspace) -> Option<WorkspaceStatus> {
        Some(workspace.status.clone().unwrap_or_default())
    }

    fn decide(
        &self,
        now: Timestamp,
        workspace: &Workspace,
        facts: &Facts,
        live: &[Live],
    ) -> Verdict<Question, Decision<State>> {
        let stored = match StoredObject::new(workspace) {
            Ok(stored) => stored,
            Err(error) => {
                let plan = Plan::default().because(error.into());
                let state = State::default();
                return Verdict::Decided(Decision { plan, state });
            }
        };
        let workspace = &stored;
        let state = match assess(now, self, workspace, facts, live) {
            Ok(state) => state,
            Err(question) => {
                return Verdict::Need {
                    question,
                    until: None,
                };
            }
        };
        let is_held = has_finalizer(&workspace.metadata, FINALIZER);
        let parts = Parts::of(live);
        // Whatever fills it ends before it does, and so does the run that has it. One that ends with its run need not
        // wait for that: the run is gone then, and ours with it.
        let is_wanted =
            state.phase == WorkspacePhase::Seeding && matches!(state.seeding, Seeding::Wanted(_));
        let is_filled = is_wanted || !parts.is_empty();
        let is_free = state.holder == Holder::Nobody && !is_filled;
        let opened = opened(now, workspace, &state);
        let plan = match opened {
            Some(_) => Plan::default().wake_at(now + LOOK_AGAIN),
            None => Plan::default(),
        };
        let plan = plan.then(opened).then(claimed(workspace, &state, live));
        let plan = match (is_free, is_held) {
            (false, false) if !workspace.spec.ephemeral || is_filled => {
                plan.then([Step::Hold(FINALIZER.to_owned())])
            }
            (true, true) => plan.then([Step::Release(FINALIZER.to_owned())]),
            _ => plan,
        };
        let plan = parts
            .steps(workspace, &state.seeding, state.phase, &self.seeds)
            .into_iter()
            .fold(plan, Plan::then);
        // What we delete ourselves tells nobody that it is gone.
        let plan = match is_to_go(workspace, &state.seeding) && !parts.is_empty() {
            true => plan.wake_at(now + SignedDuration::from_secs(1)),
            false => plan,
        };
        let reported_from = reported_from(live).filter(|from| !has_come(now, *from));
        let plan = reported_from.into_iter().fold(plan, Plan::wake_at);
        let plan = again(now, facts).into_iter().fold(plan, Plan::wake_at);
        Verdict::Decided(Decision { plan, state })
    }

    fn status(
        &self,
        now: Timestamp,
        workspace: &Workspace,
        decision: &Decision<State>,
        outcome: &Outcome,
    ) -> WorkspaceStatus {
        report::report(now, workspace, &decision.state, outcome)
    }

    /// Returns an empty plan: the garbage collector deletes the claim when no pod uses it.
    fn orphaned(&self, _: Timestamp, _: Option<&Workspace>, _: &[Live]) -> Plan {
        Plan::default()
    }

    fn transitions(
        &self,
        _: &Workspace,
        before: Option<&WorkspaceStatus>,
        after: &WorkspaceStatus,
    ) -> Vec<Transition> {
        report::transitions(before, after)
    }
}

/// Returns the audit record of NetworkPolicies that permit more connections to the seeding pods, which is written
/// once.
fn opened(now: Timestamp, workspace: &StoredObject<'_, Workspace>, state: &State) -> Option<Step> {
    let uid = workspace.uid();
    let isolation = state.isolation.as_ref()?;
    let record = isolation.record(uid, |action, decision, reason, message| Record {
        request: workspace.reference(KIND),
        ..Record::about(now, action, decision, uid, reason, message)
    });
    record.map(Step::Record)
}

/// Returns the step that creates the claim, or that adds oz's labels to a claim of Paddock. The spec of an existing
/// claim is not changed: a user may have increased its size.
fn claimed(workspace: &StoredObject<'_, Workspace>, state: &State, live: &[Live]) -> Option<Step> {
    if state.phase == WorkspacePhase::Terminating {
        return None;
    }
    let mut claim = child::<PersistentVolumeClaim>(claim(workspace))?;
    let there = live.iter().find(|live| live.key() == claim.key());
    let status = workspace.status.as_ref();
    match there {
        Some(there) => {
            claim
                .object
                .metadata
                .uid
                .clone_from(&there.object.metadata.uid);
            claim.object.data = serde_json::json!({});
            is_owned(&there.object.metadata, workspace.uid()).then_some(Step::Apply(claim))
        }
        // It is lost, or its labels are: then it is not watched.
        None if status.is_some_and(|status| status.pvc_name.is_some()) => {
            let (name, namespace) = (
                claim.object.metadata.name?,
                Some(workspace.namespace.as_str()),
            );
            Some(Step::Look(Sought::with_name::<PersistentVolumeClaim>(
                namespace, name,
            )))
        }
        None => Some(Step::Apply(claim)),
    }
}
