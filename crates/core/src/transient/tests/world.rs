//! A cluster in memory: one transient binding, the data that its lookups return, and the results of plans.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oz_api::{
    AccessRequestApproval, BindingStatus, Requester, TransientClusterRoleBinding,
    TransientRoleBinding, example_com, labels,
};
use oz_trail::Record;
use serde_json::{Value, json};

use crate::access::lock::Locks;
use crate::access::policy::Judgement;
use crate::access::stamp::Stamp;
use crate::access::testing::reword;
use crate::controller::{Answers, Child, Controller, Decision, Failure, Live, Outcome, Plan, Step};
use crate::lifecycle::seal::Keys;
use crate::tickets::Tickets;
use crate::transient::{
    Assessment, BindableRoles, FINALIZER, Facts, Kind, Lookup, Policy, Question, Transient,
    WaitingWindow, Want,
};

pub(crate) const UID: &str = "0a1b2c3d-0000-4000-8000-000000000001";
pub(crate) const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

/// Returns the instant so many seconds after the creation of all objects, at noon.
pub(crate) fn timestamp(seconds: i64) -> Timestamp {
    "2026-01-01T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

pub(crate) fn keys() -> Keys {
    Keys::with_every_owner([[3; 32]])
}

pub(crate) fn policy(roles: &[&str]) -> Policy {
    Policy {
        roles: BindableRoles(roles.iter().map(|role| role.parse().unwrap()).collect()),
        longest: SignedDuration::from_hours(2),
        longest_in: BTreeMap::from([("prod".to_owned(), SignedDuration::from_mins(10))]),
        longest_lead: SignedDuration::from_hours(168),
        most_waiting: 20,
        own_namespace: "oz-system".to_owned(),
    }
}

/// The part of a kind that a test writes.
pub(crate) trait InMemory: Kind {
    fn set_status(&mut self, status: BindingStatus);
}

impl InMemory for TransientRoleBinding {
    fn set_status(&mut self, status: BindingStatus) {
        self.status = Some(status);
    }
}

impl InMemory for TransientClusterRoleBinding {
    fn set_status(&mut self, status: BindingStatus) {
        self.status = Some(status);
    }
}

impl InMemory for example_com::RoleBinding {
    fn set_status(&mut self, status: BindingStatus) {
        self.status = Some(status);
    }
}

impl InMemory for example_com::ClusterRoleBinding {
    fn set_status(&mut self, status: BindingStatus) {
        self.status = Some(status);
    }
}

/// A cluster in memory, and the events in it.
#[derive(Clone)]
pub(crate) struct World<K: InMemory> {
    pub(crate) controller: Transient<K>,
    pub(crate) object: K,
    pub(crate) lookup: Lookup,
    pub(crate) same_stamp: Option<String>,
    /// The bindings of the requester that wait for their windows, from the watch.
    pub(crate) waiting: Vec<WaitingWindow>,
    /// The locks in the cluster.
    pub(crate) locks: Locks,
    /// The judgement of the access policies in the stamp.
    pub(crate) judgement: Option<Judgement>,
    /// The approvals and denials that the watch has shown, and those that it has not shown yet.
    pub(crate) approvals: Vec<AccessRequestApproval>,
    pub(crate) unseen_approvals: Vec<AccessRequestApproval>,
    /// The responses of the servers about the change ticket.
    pub(crate) tickets: Tickets,
    /// The other unreviewed emergencies of the requester.
    pub(crate) unreviewed: Result<Vec<String>, Failure>,
    pub(crate) live: Vec<Live>,
    pub(crate) records: Vec<Record>,
    pub(crate) records_fail: bool,
    /// Whether another object has the name of the binding.
    pub(crate) taken: bool,
    /// The number of writes.
    pub(crate) writes: usize,
    /// The number of writes that still succeed before the process dies.
    pub(crate) writes_left: usize,
    pub(crate) status_fails: bool,
    /// Whether the messages of all conditions are changed before the status is stored.
    pub(crate) reworded: bool,
    /// The number of lookups.
    pub(crate) looks: usize,
    pub(crate) gone: bool,
    /// Live objects that no watch shows before a lookup.
    pub(crate) hidden: Vec<Live>,
    stale: bool,
    next_uid: usize,
}

/// Creates a binding of alice to `view`, from 60 to 360 seconds after noon; `change` edits its JSON.
pub(crate) fn namespaced(change: impl FnOnce(&mut Value)) -> World<TransientRoleBinding> {
    let mut object = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "TransientRoleBinding",
        "metadata": {"name": "on-call", "namespace": "shop"},
        "spec": {
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "alice"}],
            "validFrom": timestamp(60), "validUntil": timestamp(360),
        },
    });
    change(&mut object);
    World::from_object(object)
}

/// Creates the same binding with a duration from its activation, which may be immediate.
pub(crate) fn lasting(duration: &str) -> World<TransientRoleBinding> {
    let duration = duration.to_owned();
    namespaced(|object| {
        let spec = object["spec"].as_object_mut().unwrap();
        spec.remove("validFrom");
        spec.remove("validUntil");
        spec.insert("duration".to_owned(), duration.into());
    })
}

impl<K: InMemory> World<K> {
    /// Creates a world with an object as admission returns it: stamped for bob, with the finalizer of oz.
    pub(crate) fn from_object(object: Value) -> Self {
        let mut object: K = serde_json::from_value(object).unwrap();
        let metadata = object.meta_mut();
        metadata.uid = Some(UID.to_owned());
        metadata.generation = Some(1);
        metadata.creation_timestamp = Some(Time(timestamp(0)));
        metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        let mut world = Self {
            controller: Transient::new(keys(), Arc::new(policy(&["view", "shop/deployer"]))),
            object,
            lookup: Lookup {
                role: Ok(Some(vec![PolicyRule {
                    api_groups: Some(vec![String::new()]),
                    resources: Some(vec!["pods".to_owned()]),
                    verbs: vec!["get".to_owned()],
                    ..PolicyRule::default()
                }])),
                may_bind: Ok(true),
                taken: Ok(false),
            },
            same_stamp: None,
            waiting: Vec::new(),
            locks: Locks::default(),
            judgement: None,
            approvals: Vec::new(),
            unseen_approvals: Vec::new(),
            tickets: Tickets::default(),
            unreviewed: Ok(Vec::new()),
            live: Vec::new(),
            records: Vec::new(),
            records_fail: false,
            taken: false,
            writes: 0,
            writes_left: usize::MAX,
            status_fails: false,
            reworded: false,
            looks: 0,
            gone: false,
            hidden: Vec::new(),
            stale: false,
            next_uid: 0,
        };
        world.stamp();
        world
    }

    pub(crate) fn stamp(&mut self) {
        let view = self.object.stored().unwrap();
        let stamp = Stamp {
            requester: Requester {
                user: "bob".to_owned(),
                uid: String::new(),
                groups: vec!["leads".to_owned()],
            },
            kind: view.kind.to_owned(),
            namespace: view.namespace().unwrap_or_default().to_owned(),
            name: view.name().to_owned(),
            generate_name: String::new(),
            spec_digest: view.spec_digest.clone(),
            at: timestamp(0),
            nonce: "nonce".to_owned(),
            judgement: self.judgement.clone(),
            ..Stamp::default()
        };
        let sealed = stamp.seal(&keys()).unwrap();
        self.object.meta_mut().annotations =
            Some(BTreeMap::from([(labels::REQUESTER.to_owned(), sealed)]));
    }

    pub(crate) fn allow(&mut self, roles: &[&str]) {
        self.controller.policy = Arc::new(policy(roles));
    }

    /// Returns the question of an assessment at this instant, with these facts.
    fn question(&self, now: Timestamp, facts: &Facts) -> Option<Question> {
        let verdict = self.controller.decide(now, &self.object, facts, &self.live);
        verdict.question()
    }

    fn initial_facts(&self) -> Facts {
        Facts {
            locks: self.locks.clone(),
            approvals: self.approvals.clone(),
            waiting: Some(self.waiting.clone()),
            same_stamp: Some(None),
            tickets: self.tickets.clone(),
            unreviewed: Some(self.unreviewed.clone()),
            ..Facts::default()
        }
    }

    /// Returns the lookup of an assessment at this instant.
    pub(crate) fn wants(&self, now: Timestamp) -> Option<Want> {
        match self.question(now, &self.initial_facts())? {
            Question::Lookup(want) => Some(*want),
            Question::Waiting(_)
            | Question::SameStamp
            | Question::Approvals
            | Question::Emergencies(_) => None,
        }
    }

    pub(crate) fn facts(&self, now: Timestamp) -> Facts {
        let lookup = self.wants(now).map(|_| {
            let mut lookup = self.lookup.clone();
            if self.taken {
                lookup.taken = Ok(true);
            }
            lookup
        });
        let facts = Facts {
            same_stamp: Some(self.same_stamp.clone()),
            lookup,
            ..self.initial_facts()
        };
        let confirmed = match self.question(now, &facts) {
            Some(Question::Approvals) => {
                let unseen = self.unseen_approvals.iter();
                Some(Ok(self.approvals.iter().chain(unseen).cloned().collect()))
            }
            _ => None,
        };
        Facts { confirmed, ..facts }
    }

    pub(crate) fn decide(&self, now: Timestamp) -> Decision<Assessment> {
        let facts = self.facts(now);
        let verdict = self
            .controller
            .decide(now, &self.object, &facts, &self.live);
        verdict.decided().unwrap()
    }

    pub(crate) fn plan(&self, now: Timestamp) -> Plan {
        self.decide(now).plan
    }

    /// Runs one pass, as the engine does.
    pub(crate) fn pass(&mut self, now: Timestamp) -> Plan {
        self.looks += usize::from(self.wants(now).is_some());
        let decision = self.decide(now);
        let plan = &decision.plan;
        let failure = self.carry_out(plan).or_else(|| plan.obstacle.clone());
        if std::mem::take(&mut self.stale) {
            return self.pass(now);
        }
        if self.gone {
            return decision.plan;
        }
        let outcome = Outcome {
            live: self.live.clone(),
            failure,
            answers: Answers::default(),
        };
        let mut status = self
            .controller
            .status(now, &self.object, &decision, &outcome);
        if self.reworded {
            reword(&mut status.conditions);
        }
        let changed = self.controller.current_status(&self.object).as_ref() != Some(&status);
        if changed && self.write() && !self.status_fails {
            self.object.set_status(status);
        }
        decision.plan
    }

    /// Runs passes until nothing changes.
    pub(crate) fn settle(&mut self, now: Timestamp) -> BindingStatus {
        for _ in 0..10 {
            let before = (self.live.clone(), self.status());
            self.pass(now);
            if self.gone || before == (self.live.clone(), self.status()) {
                return self.status();
            }
        }
        panic!("the plan does not converge: {:?}", self.plan(now));
    }

    fn carry_out(&mut self, plan: &Plan) -> Option<Failure> {
        for stage in &plan.stages {
            let failures: Vec<_> = stage.iter().filter_map(|step| self.step(step)).collect();
            if let Some(failure) = failures.into_iter().next() {
                return Some(failure);
            }
            if self.stale {
                return None;
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
        // A query about a change ticket, of which a test sets the response.
        if let Step::Effect(_) = step {
            return None;
        }
        if !self.write() {
            return Some(Failure::transient("Dead", "the process was killed"));
        }
        match step {
            Step::Apply(child) => self.apply(child),
            Step::Delete(gone) => {
                for live in &mut self.live {
                    if live.reference().uid == gone.uid {
                        live.object.metadata.deletion_timestamp = Some(Time(timestamp(0)));
                    }
                }
                self.live.retain(|live| {
                    live.object.metadata.deletion_timestamp.is_none()
                        || live.object.metadata.finalizers.is_some()
                });
            }
            Step::Release(name) => {
                let finalizers = self.object.meta_mut().finalizers.get_or_insert_default();
                finalizers.retain(|known| known != name);
                self.gone = finalizers.is_empty();
            }
            other => panic!("no step of a transient binding: {other:?}"),
        }
        None
    }

    fn apply(&mut self, child: &Child) {
        if let Some(known) = self.live.iter_mut().find(|live| live.key() == child.key()) {
            for (field, value) in child.object.data.as_object().unwrap() {
                known.object.data[field] = value.clone();
            }
            return;
        }
        self.next_uid += 1;
        let mut object = child.object.clone();
        object.metadata.uid = Some(format!("uid-{}", self.next_uid));
        self.live.push(Live {
            resource: child.resource.clone(),
            object,
        });
    }

    fn write(&mut self) -> bool {
        let alive = self.writes_left > 0;
        self.writes += usize::from(alive);
        self.writes_left = self.writes_left.saturating_sub(1);
        alive
    }

    pub(crate) fn status(&self) -> BindingStatus {
        self.object.status().cloned().unwrap_or_default()
    }

    /// Returns the subjects of the existing bindings.
    pub(crate) fn bound(&self) -> Vec<String> {
        let subjects = self.live.iter().filter_map(|live| {
            let subjects = live.object.data.get("subjects")?.as_array()?;
            Some(
                subjects
                    .iter()
                    .map(|subject| subject["name"].as_str().unwrap().to_owned()),
            )
        });
        subjects.flatten().collect()
    }

    pub(crate) fn actions(&self) -> Vec<String> {
        let actions = self.records.iter().map(|record| record.action.to_string());
        actions.collect()
    }

    /// `True (Reason)`.
    pub(crate) fn condition(&self, type_: &str) -> String {
        let status = self.status();
        let found: Vec<_> = status
            .conditions
            .iter()
            .filter(|condition| condition.type_ == type_)
            .collect();
        match found[..] {
            [one] => format!("{} ({})", one.status, one.reason),
            ref other => panic!("{type_} is there {} times", other.len()),
        }
    }

    pub(crate) fn delete(&mut self) {
        self.object.meta_mut().deletion_timestamp = Some(Time(timestamp(0)));
    }
}
