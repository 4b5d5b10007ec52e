//! A cluster in memory: one request, one template, one workload, and what plans made of them.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::core::DynamicObject;

use super::super::*;
use crate::access::stamp::{Requester, Stamp};
use crate::api::{
    AccessConfig, ExecAccessRequestSpec, ExecAccessTemplateSpec, TargetApiVersion, TargetKind,
};
use crate::audit::Record;
use crate::controller::{Child, FailureClass, Step};
use crate::{encode, labels};

pub(super) const CREATED: &str = "2026-01-01T12:00:00Z";
pub(super) const UID: &str = "0a1b2c3d-0000-4000-8000-000000000001";

pub(super) fn at(seconds: i64) -> Timestamp {
    CREATED.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

pub(super) const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

pub(super) fn keys() -> Keys {
    Keys::new(vec![vec![3; 32]]).unwrap()
}

pub(super) fn template() -> ExecAccessTemplate {
    let mut template = ExecAccessTemplate::new(
        "shell",
        ExecAccessTemplateSpec {
            access_config: AccessConfig {
                allowed_groups: vec!["devs".into()],
                ..AccessConfig::default()
            },
            controller_target_ref: CrossVersionObjectReference {
                api_version: TargetApiVersion::AppsV1,
                kind: TargetKind::StatefulSet,
                name: "db".into(),
            },
        },
    );
    template.metadata.namespace = Some("shop".into());
    template.metadata.uid = Some("template-uid".into());
    template
}

pub(super) fn pod(name: &str) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("shop".into()),
            uid: Some(format!("uid-{name}")),
            owner_references: Some(vec![OwnerReference {
                uid: "db-uid".into(),
                controller: Some(true),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        status: Some(PodStatus {
            phase: Some("Running".into()),
            conditions: Some(vec![PodCondition {
                type_: "Ready".into(),
                status: "True".into(),
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        }),
        ..Pod::default()
    }
}

pub(super) fn workload(pods: &[&str]) -> Workload {
    Workload {
        kind: "StatefulSet".into(),
        name: "db".into(),
        uid: "db-uid".into(),
        replica_sets: Vec::new(),
        pods: pods.iter().map(|name| pod(name)).collect(),
    }
}

/// What a cluster holds, and what happened to it.
#[derive(Clone)]
pub(super) struct World {
    pub(super) controller: ExecAccess,
    pub(super) request: ExecAccessRequest,
    pub(super) template: Option<ExecAccessTemplate>,
    pub(super) workload: Result<Workload, Failure>,
    pub(super) same_stamp: Option<String>,
    pub(super) live: Vec<Live>,
    pub(super) records: Vec<Record>,
    pub(super) records_fail: bool,
    /// How many more writes succeed before the process dies.
    pub(super) writes_left: usize,
    pub(super) deleted: bool,
    next_uid: usize,
}

impl World {
    /// Alice, of the devs, asks for five minutes, stamped as the webhook would.
    pub(super) fn new() -> Self {
        Self::asking(ExecAccessRequestSpec {
            template_name: "shell".into(),
            duration: Some("5m".into()),
            ..ExecAccessRequestSpec::default()
        })
    }

    pub(super) fn asking(spec: ExecAccessRequestSpec) -> Self {
        let mut request = ExecAccessRequest::new("debug", spec);
        request.metadata.namespace = Some("shop".into());
        request.metadata.uid = Some(UID.into());
        request.metadata.generation = Some(1);
        request.metadata.creation_timestamp = Some(Time(at(0)));
        let mut world = Self {
            controller: ExecAccess {
                keys: keys(),
                keep_finished: SignedDuration::from_hours(1),
            },
            request,
            template: Some(template()),
            workload: Ok(workload(&["db-0", "db-1", "db-2"])),
            same_stamp: None,
            live: Vec::new(),
            records: Vec::new(),
            records_fail: false,
            writes_left: usize::MAX,
            deleted: false,
            next_uid: 0,
        };
        world.stamp("alice", &["devs"]);
        world
    }

    pub(super) fn stamp(&mut self, user: &str, groups: &[&str]) {
        let stamp = Stamp {
            requester: Requester {
                user: user.into(),
                uid: String::new(),
                groups: groups.iter().map(|&group| group.to_owned()).collect(),
            },
            kind: "ExecAccessRequest".into(),
            namespace: "shop".into(),
            name: "debug".into(),
            generate_name: String::new(),
            spec_digest: encode::digest(&self.request.spec),
            at: at(0),
            nonce: "nonce".into(),
        };
        self.request.metadata.annotations = Some(BTreeMap::from([(
            labels::REQUESTER.to_owned(),
            stamp.seal(&keys()).unwrap(),
        )]));
    }

    pub(super) fn observed(&self) -> Observed {
        Observed {
            template: self.template.clone().map(Arc::new),
            same_stamp: self.same_stamp.clone(),
            workload: Some(self.workload.clone()),
        }
    }

    pub(super) fn plan(&self, now: Timestamp) -> Plan {
        self.controller
            .plan(now, &self.request, &self.observed(), &self.live)
    }

    /// One pass, as the engine makes it; returns its plan.
    pub(super) fn pass(&mut self, now: Timestamp) -> Plan {
        let plan = self.plan(now);
        let failure = self.carry_out(&plan).or_else(|| plan.obstacle.clone());
        let outcome = Outcome {
            live: self.live.clone(),
            failure,
        };
        let status = self
            .controller
            .status(now, &self.request, &self.observed(), &outcome);
        if self.request.status.as_ref() != Some(&status) && self.write() {
            self.request.status = Some(status);
        }
        plan
    }

    /// Passes until nothing changes.
    pub(super) fn settle(&mut self, now: Timestamp) -> &RequestStatus {
        for _ in 0..10 {
            let before = (self.live.clone(), self.request.status.clone());
            self.pass(now);
            if before == (self.live.clone(), self.request.status.clone()) {
                return self.request.status.as_ref().unwrap();
            }
        }
        panic!("the plan never comes to rest: {:?}", self.plan(now));
    }

    pub(super) fn carry_out(&mut self, plan: &Plan) -> Option<Failure> {
        for stage in &plan.stages {
            let mut failed = None;
            for step in stage {
                failed = failed.or(self.step(step));
            }
            if failed.is_some() {
                return failed;
            }
        }
        None
    }

    fn step(&mut self, step: &Step) -> Option<Failure> {
        if let Step::Record(record) = step {
            if self.records_fail {
                return Some(Failure::transient("RecordFailed", "nobody listens"));
            }
            self.records.push(record.clone());
            return None;
        }
        if !self.write() {
            return Some(Failure::transient("Dead", "the process was killed"));
        }
        match step {
            Step::Apply(child) => self.apply(child),
            Step::Delete(reference) => {
                self.live
                    .retain(|live| live.reference().uid != reference.uid);
                None
            }
            Step::Own(owner) => {
                self.request
                    .metadata
                    .owner_references
                    .get_or_insert_default()
                    .push(owner.clone());
                None
            }
            Step::DeleteSelf => {
                self.deleted = true;
                None
            }
            Step::Record(_) => None,
        }
    }

    fn apply(&mut self, child: &Child) -> Option<Failure> {
        if self.live.iter().any(|live| live.key() == child.key()) {
            return None;
        }
        self.next_uid += 1;
        let mut object: DynamicObject = child.object.clone();
        object.metadata.uid = Some(format!("uid-{}", self.next_uid));
        self.live.push(Live {
            resource: child.resource.clone(),
            object,
        });
        None
    }

    fn write(&mut self) -> bool {
        let alive = self.writes_left > 0;
        self.writes_left = self.writes_left.saturating_sub(1);
        alive
    }

    pub(super) fn kinds(&self) -> Vec<&str> {
        self.live
            .iter()
            .map(|live| live.resource.kind.as_str())
            .collect()
    }

    pub(super) fn actions(&self) -> Vec<String> {
        self.records
            .iter()
            .map(|record| record.action.to_string())
            .collect()
    }

    pub(super) fn status(&self) -> RequestStatus {
        self.request.status.clone().unwrap_or_default()
    }

    /// Changes the one live object of this kind, as somebody with `kubectl edit` would.
    pub(super) fn edit(&mut self, kind: &str, change: impl FnOnce(&mut DynamicObject)) {
        let live = self
            .live
            .iter_mut()
            .find(|live| live.resource.kind == kind)
            .unwrap();
        change(&mut live.object);
    }

    pub(super) fn remove(&mut self, kind: &str) {
        self.live.retain(|live| live.resource.kind != kind);
    }
}

pub(super) fn applies(plan: &Plan) -> bool {
    plan.steps().any(|step| matches!(step, Step::Apply(_)))
}

pub(super) fn is_transient(plan: &Plan) -> bool {
    plan.obstacle
        .as_ref()
        .is_some_and(|failure| failure.class == FailureClass::Transient)
}
