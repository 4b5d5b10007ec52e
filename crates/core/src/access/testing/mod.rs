//! A cluster in memory, for tests of every kind of access: one request, one template, the data of one workload, and the
//! results of plans.

mod asked;
pub(crate) mod judgements;
pub(crate) mod order;
pub(crate) mod rules;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};
use oz_api::{AccessConfig, AccessRequestApproval, RequestStatus, Requester, SessionProbe, labels};
use oz_trail::Record;
use serde_json::Value;

use super::continued::Continued;
use super::grant::Grant;
use super::kind::{Assessment, FactsOf, Kind, PodMade, PodSeen, Question, RoleName};
use super::lock::Locks;
use super::policy::Judgement;
use super::stamp::Stamp;
use crate::controller::{
    Answers, Child, Controller, Decision, Failure, FailureClass, Live, Outcome, Plan, Step,
};
use crate::kinds::AccessRequest as _;
use crate::lifecycle::seal::Keys;
use crate::sessions::{Sessions, SessionsEnded};
use crate::tickets::{self, Tickets};

pub(crate) const CREATED: &str = "2026-01-01T12:00:00Z";
pub(crate) const UID: &str = "0a1b2c3d-0000-4000-8000-000000000001";
pub(crate) const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

pub(crate) fn timestamp(seconds: i64) -> Timestamp {
    CREATED.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

pub(crate) fn keys() -> Keys {
    Keys::with_every_owner([[3; 32]])
}

/// The operations of a kind that only tests need.
pub(crate) trait InMemory: Kind<Template: Clone, Workload: Clone> + Clone {
    fn set_status(request: &mut Self::Request, status: RequestStatus);

    fn config_mut(template: &mut Self::Template) -> &mut AccessConfig;

    fn keys_mut(&mut self) -> &mut Keys;

    /// Changes an object as the API server, its admission and the component that runs the object do. `number` is
    /// different for each object.
    fn appear(object: &mut DynamicObject, number: usize) {
        object.metadata.uid = Some(format!("uid-{number}"));
    }

    /// Returns the rest of an object after its deletion.
    fn vanish(live: Live) -> Option<Live> {
        drop(live);
        None
    }
}

/// The content of a cluster, and the record of its changes.
#[derive(Clone)]
pub(crate) struct World<K: InMemory> {
    pub(crate) controller: K,
    pub(crate) request: K::Request,
    pub(crate) template: Option<K::Template>,
    pub(crate) workload: Result<K::Workload, Failure>,
    pub(crate) same_stamp: Option<String>,
    /// The results of session probes of the containers.
    pub(crate) probes: Vec<SessionProbe>,
    /// The data about the request that the request continues.
    pub(crate) continued: Option<Continued>,
    /// The approvals and denials of the request, as the watch shows them.
    pub(crate) approvals: Vec<AccessRequestApproval>,
    /// The approvals and denials that the watch has not shown yet.
    pub(crate) unseen_approvals: Vec<AccessRequestApproval>,
    /// The judgement of the access policies when the request was stamped.
    pub(crate) judgement: Option<Judgement>,
    /// The other unreviewed emergencies of the requester, by the UIDs of their requests.
    pub(crate) unreviewed: Option<Result<Vec<String>, Failure>>,
    /// The NetworkPolicies of other authors.
    pub(crate) policies: Option<Result<Vec<NetworkPolicy>, Failure>>,
    /// The result of the trial of the pod as its template's author.
    pub(crate) tried: Option<Result<(), Failure>>,
    pub(crate) live: Vec<Live>,
    /// The objects of another program.
    pub(crate) left: Option<Result<Vec<Live>, Failure>>,
    pub(crate) records: Vec<Record>,
    pub(crate) records_fail: bool,
    /// The number of writes so far.
    pub(crate) writes: usize,
    /// The number of further writes that succeed before the process dies.
    pub(crate) writes_left: usize,
    pub(crate) deleted: bool,
    /// All locks.
    pub(crate) locks: Locks,
    /// The responses of the servers about the change ticket.
    pub(crate) tickets: Tickets,
    /// The state of the pod's name.
    pub(crate) pod: Option<PodSeen>,
    /// The sessions that were ended.
    pub(crate) ended: Vec<String>,
    pub(crate) sessions_fail: Option<Failure>,
    /// The result of ending the sessions.
    pub(crate) sessions_came: Option<SessionsEnded>,
    /// Replaces every message of a condition after the decision.
    pub(crate) reworded: bool,
    /// The objects that exist without any watch showing them, until a step looks for them.
    pub(crate) hidden: Vec<Live>,
    /// The pod that this process created.
    pub(crate) made: Option<PodMade>,
    /// The reserved name that the Role gets.
    pub(crate) role_name: Option<String>,
    /// An admission policy prevents other users from binding to the Role, although the name is not reserved.
    pub(crate) kept: bool,
    stale: bool,
    next_uid: usize,
}

impl<K: InMemory> World<K> {
    /// Creates a request by alice, of the devs, with a stamp as the webhook makes it.
    pub(crate) fn from_parts(
        controller: K,
        mut request: K::Request,
        template: K::Template,
        workload: Result<K::Workload, Failure>,
    ) -> Self {
        let metadata = request.meta_mut();
        metadata.namespace = Some("shop".into());
        metadata.uid = Some(UID.into());
        metadata.generation = Some(1);
        metadata.creation_timestamp = Some(Time(timestamp(0)));
        let mut world = Self {
            controller,
            request,
            template: Some(template),
            workload,
            same_stamp: None,
            probes: Vec::new(),
            continued: None,
            approvals: Vec::new(),
            unseen_approvals: Vec::new(),
            judgement: None,
            unreviewed: Some(Ok(Vec::new())),
            policies: None,
            tried: None,
            live: Vec::new(),
            left: None,
            records: Vec::new(),
            records_fail: false,
            writes: 0,
            writes_left: usize::MAX,
            deleted: false,
            locks: Locks::default(),
            tickets: Tickets::default(),
            pod: None,
            ended: Vec::new(),
            sessions_fail: None,
            sessions_came: None,
            reworded: false,
            hidden: Vec::new(),
            made: None,
            role_name: None,
            kept: false,
            stale: false,
            next_uid: 0,
        };
        world.stamp("alice", &["devs"]);
        world
    }

    pub(crate) fn stamp(&mut self, user: &str, groups: &[&str]) {
        let stamp = Stamp {
            requester: Requester {
                user: user.into(),
                uid: String::new(),
                groups: groups.iter().map(|&group| group.to_owned()).collect(),
            },
            kind: self.request.view().kind.into(),
            namespace: "shop".into(),
            name: self.request.name_any(),
            generate_name: String::new(),
            spec_digest: self.request.view().spec.digest(),
            at: timestamp(0),
            nonce: "nonce".into(),
            judgement: self.judgement.clone(),
            ..Stamp::default()
        };
        self.request.meta_mut().annotations = Some(BTreeMap::from([(
            labels::REQUESTER.to_owned(),
            stamp.seal(&keys()).unwrap(),
        )]));
    }

    /// Returns the answers to all questions.
    pub(crate) fn facts(&self) -> FactsOf<K> {
        FactsOf::<K> {
            template: self.template.clone().map(Arc::new),
            continued: self.continued.clone(),
            approvals: self.approvals.clone(),
            confirmed: Some(Ok([&*self.approvals, &*self.unseen_approvals].concat())),
            locks: self.locks.clone(),
            tickets: self.tickets.clone(),
            unreviewed: self.unreviewed.clone(),
            pod: self.pod.clone(),
            made: self.made.clone(),
            is_deleted: Some(false),
            same_stamp: Some(self.same_stamp.clone()),
            workload: Some(self.workload.clone()),
            probes: Some(self.probes.clone()),
            policies: Some(self.policies.clone().unwrap_or(Ok(Vec::new()))),
            tried: self.tried.clone(),
            role_name: Some(RoleName {
                number: self.role_name.clone(),
                kept: self.kept || self.role_name.is_some(),
            }),
            predecessor: Some(self.left.clone().unwrap_or(Ok(Vec::new()))),
        }
    }

    /// Returns the question that is asked with these facts.
    pub(crate) fn asks(&self, now: Timestamp, known: &FactsOf<K>) -> Option<Question> {
        self.controller
            .decide(now, &self.request, known, &self.live)
            .question()
    }

    /// Returns the decision; none if it requires more facts.
    pub(crate) fn decide(&self, now: Timestamp) -> Option<Decision<Assessment>> {
        self.controller
            .decide(now, &self.request, &self.facts(), &self.live)
            .decided()
    }

    pub(crate) fn plan(&self, now: Timestamp) -> Plan {
        self.decide(now)
            .map(|decision| decision.plan)
            .unwrap_or_default()
    }

    /// Carries out one pass as the engine does, and returns its plan.
    pub(crate) fn pass(&mut self, now: Timestamp) -> Plan {
        let Some(decision) = self.decide(now) else {
            return Plan::default();
        };
        let plan = &decision.plan;
        let failure = self.carry_out(plan).or_else(|| plan.obstacle.clone());
        if std::mem::take(&mut self.stale) {
            return self.pass(now);
        }
        let mut answers = Answers::default();
        for step in plan.steps() {
            if let (Step::Effect(effect), None, Some(ended)) = (step, &failure, &self.sessions_came)
            {
                answers.insert(effect, SessionsEnded::to_answer(Some(ended)));
            }
        }
        let outcome = Outcome {
            live: self.live.clone(),
            failure,
            answers,
        };
        let mut status = self
            .controller
            .status(now, &self.request, &decision, &outcome);
        if self.reworded {
            reword(&mut status.conditions);
        }
        let current = self.controller.current_status(&self.request);
        if current.as_ref() != Some(&status) && self.write() {
            K::set_status(&mut self.request, status);
        }
        decision.plan
    }

    /// Repeats passes until the state is stable.
    pub(crate) fn settle(&mut self, now: Timestamp) -> RequestStatus {
        for _ in 0..10 {
            let before = (self.live.clone(), self.status());
            self.pass(now);
            if before == (self.live.clone(), self.status()) {
                return self.status();
            }
        }
        panic!("the plan does not converge: {:?}", self.plan(now));
    }

    /// Returns the decisions of the passes at these instants, without any message; `happens` precedes each pass.
    pub(crate) fn decides(
        &mut self,
        seconds: &[i64],
        mut happens: impl FnMut(&mut Self, i64),
    ) -> Vec<String> {
        let mut decided = Vec::new();
        for &second in seconds {
            happens(self, second);
            let done = done_by(&self.pass(timestamp(second)));
            let status = self.status();
            let conditions: Vec<String> = status
                .conditions
                .iter()
                .map(|one| format!("{}={} {}", one.type_, one.status, one.reason))
                .collect();
            let (phase, ending) = (status.phase, &status.ending);
            decided.push(format!(
                "{second}: {done:?} {phase} {conditions:?} {ending:?}"
            ));
        }
        decided
    }

    pub(crate) fn carry_out(&mut self, plan: &Plan) -> Option<Failure> {
        self.stale = false;
        for stage in &plan.stages {
            let mut failed = None;
            for step in stage {
                failed = failed.or(self.step(step));
            }
            if failed.is_some() || self.stale {
                return failed;
            }
        }
        None
    }

    fn step(&mut self, step: &Step) -> Option<Failure> {
        if let Step::Record(record) = step {
            if self.records_fail {
                return Some(Failure::transient("RecordFailed", "no receiver"));
            }
            self.records.push(record.clone());
            return None;
        }
        if let Step::Look(sought) = step {
            let found: Vec<Live> = self.hidden.extract_if(.., |live| sought.is(live)).collect();
            self.stale |= !found.is_empty();
            self.live.extend(found);
            return None;
        }
        if !self.write() {
            return Some(Failure::transient("Dead", "the process was killed"));
        }
        match step {
            Step::Apply(child) => self.apply(child),
            Step::Delete(reference) => {
                let (gone, rest) = std::mem::take(&mut self.live)
                    .into_iter()
                    .partition(|live: &Live| live.reference().uid == reference.uid);
                self.live = rest;
                let gone: Vec<Live> = gone;
                self.live.extend(gone.into_iter().filter_map(|live| {
                    // An object with a finalizer stays, with all its content.
                    if live.object.metadata.finalizers.is_some() {
                        return Some(leaving(live));
                    }
                    K::vanish(live)
                }));
                None
            }
            // A test reads the plan to check which server is asked about the change ticket.
            Step::Effect(effect) if effect.port == tickets::PORT => None,
            Step::Effect(effect) => {
                self.ended.push(Sessions::try_from(effect).unwrap().mark);
                self.sessions_fail.clone()
            }
            Step::Own(owner) => {
                self.request
                    .meta_mut()
                    .owner_references
                    .get_or_insert_default()
                    .push(owner.clone());
                None
            }
            Step::DeleteSelf => {
                self.deleted = true;
                None
            }
            Step::Record(_) | Step::Look(_) => None,
            Step::Hold(_) | Step::Release(_) | Step::Adopt(..) | Step::Disown(_) => {
                panic!("no plan for access has {step:?}")
            }
        }
    }

    fn apply(&mut self, child: &Child) -> Option<Failure> {
        if let Some(known) = self.live.iter_mut().find(|live| live.key() == child.key()) {
            merge(&mut known.object.data, &child.object.data);
            let told = child.object.metadata.annotations.clone();
            let annotations = &mut known.object.metadata.annotations;
            annotations
                .get_or_insert_default()
                .extend(told.into_iter().flatten());
            return None;
        }
        self.next_uid += 1;
        let mut object: DynamicObject = child.object.clone();
        K::appear(&mut object, self.next_uid);
        self.live.push(Live {
            resource: child.resource.clone(),
            object,
        });
        None
    }

    fn write(&mut self) -> bool {
        let alive = self.writes_left > 0;
        self.writes += usize::from(alive);
        self.writes_left = self.writes_left.saturating_sub(1);
        alive
    }

    pub(crate) fn kinds(&self) -> Vec<&str> {
        self.live
            .iter()
            .map(|live| live.resource.kind.as_str())
            .collect()
    }

    pub(crate) fn actions(&self) -> Vec<String> {
        self.records
            .iter()
            .map(|record| record.action.to_string())
            .collect()
    }

    pub(crate) fn status(&self) -> RequestStatus {
        self.request.view().status.cloned().unwrap_or_default()
    }

    /// Changes the one live object of this kind, as a user with `kubectl edit` does.
    pub(crate) fn edit(&mut self, kind: &str, change: impl FnOnce(&mut DynamicObject)) {
        let live = self
            .live
            .iter_mut()
            .find(|live| live.resource.kind == kind)
            .unwrap();
        change(&mut live.object);
    }

    /// Returns the decision that the live object of this kind carries.
    pub(crate) fn decision(&self, kind: &str) -> Grant {
        let live = self.live.iter().find(|live| live.resource.kind == kind);
        Grant::open(self.controller.keys(), &live.unwrap().object.metadata, UID).unwrap()
    }

    /// Removes data of the live object of this kind with `marks`, so that no watch shows it.
    pub(crate) fn hide(&mut self, kind: &str, marks: impl FnOnce(&mut ObjectMeta)) {
        let place = self.live.iter().position(|live| live.resource.kind == kind);
        let mut live = self.live.remove(place.unwrap());
        marks(&mut live.object.metadata);
        self.hidden.push(live);
    }

    pub(crate) fn remove(&mut self, kind: &str) {
        self.live.retain(|live| live.resource.kind != kind);
    }
}

/// Replaces the messages, as another release might.
pub(crate) fn reword(conditions: &mut [Condition]) {
    for condition in conditions {
        condition.message = "reworded".to_owned();
    }
}

/// Returns the actions of a plan, without any message.
pub(crate) fn done_by(plan: &Plan) -> Vec<String> {
    let steps = plan.steps().map(|step| match step {
        Step::Record(record) => format!("{} {}", record.action, record.reason),
        Step::Apply(child) => format!("apply {}", child.key()),
        Step::Look(sought) => format!("look for {:?}", sought.which),
        Step::Effect(effect) => {
            let sessions = Sessions::try_from(effect).unwrap();
            format!("end {} {}", sessions.mark, sessions.record.reason)
        }
        Step::Delete(gone) => format!(
            "delete {} {}",
            gone.resource.kind,
            gone.name.as_deref().unwrap()
        ),
        Step::Own(owner) => format!("own {}", owner.uid),
        Step::Hold(finalizer) => format!("hold {finalizer}"),
        Step::Release(finalizer) => format!("release {finalizer}"),
        Step::Adopt(child, _) => format!(
            "adopt {} {}",
            child.resource.kind,
            child.name.as_deref().unwrap()
        ),
        Step::Disown(child) => format!(
            "disown {} {}",
            child.resource.kind,
            child.name.as_deref().unwrap()
        ),
        Step::DeleteSelf => "delete itself".to_owned(),
    });
    let wake = plan.wake.map(|wake| format!("wake {wake}"));
    let waits = plan
        .obstacle
        .as_ref()
        .map(|why| format!("waits: {}", why.reason));
    steps.chain(wake).chain(waits).collect()
}

pub(crate) fn applies(plan: &Plan) -> bool {
    plan.steps().any(|step| matches!(step, Step::Apply(_)))
}

pub(crate) fn is_transient(plan: &Plan) -> bool {
    plan.obstacle
        .as_ref()
        .is_some_and(|failure| failure.class == FailureClass::Transient)
}

/// Merges like an apply that names single fields.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn leaving(mut live: Live) -> Live {
    let metadata = &mut live.object.metadata;
    metadata.deletion_timestamp = Some(Time(timestamp(0)));
    metadata.deletion_grace_period_seconds = Some(0);
    live
}
