//! The cluster in memory for pods: a pod starts when a test starts it, and ends some time after its deletion.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::DynamicObject;
use oz_api::{AccessConfig, PodAccessRequestSpec, PodAccessTemplateSpec, RequestStatus};
use serde_json::{Value, json};

use super::super::*;
use crate::access::kind::KeepFinished;
use crate::access::testing::{self, InMemory};
pub(super) use crate::access::testing::{NANOSECOND, keys, timestamp};

pub(super) type World = testing::World<PodAccess>;
pub(super) const NAME: &str = "mine-0a1b2c3d";

impl InMemory for PodAccess {
    fn set_status(request: &mut PodAccessRequest, status: RequestStatus) {
        request.status = Some(status);
    }

    fn config_mut(template: &mut PodAccessTemplate) -> &mut AccessConfig {
        &mut template.spec.access_config
    }

    fn keys_mut(&mut self) -> &mut Keys {
        &mut self.keys
    }

    fn appear(object: &mut DynamicObject, number: usize) {
        object.metadata.uid = Some(format!("uid-{number}"));
        if object.data["spec"]["containers"].is_array() {
            object.data["spec"]["nodeName"] = json!("node");
            object.data["status"] = json!({"phase": "Pending"});
        }
    }

    fn vanish(mut live: Live) -> Option<Live> {
        (live.resource.kind == "Pod").then(|| {
            live.object.metadata.deletion_timestamp = Some(Time(timestamp(300)));
            live.object.metadata.deletion_grace_period_seconds = Some(1);
            live
        })
    }
}

pub(super) fn template(more: Value) -> PodAccessTemplate {
    let mut spec = json!({
        "accessConfig": {"allowedGroups": ["devs"]},
        "controllerTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let spec: PodAccessTemplateSpec = serde_json::from_value(spec).unwrap();
    let mut template = PodAccessTemplate::new("pod", spec);
    template.metadata.namespace = Some("shop".into());
    template.metadata.uid = Some("template-uid".into());
    template
}

pub(super) fn model() -> Model {
    Model {
        title: "Deployment web".into(),
        template: json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{
                "name": "app",
                "image": "app:1",
                "ports": [{"containerPort": 80, "hostPort": 80}],
                "resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
            }]},
        }),
        claims: Vec::new(),
        access_modes: BTreeMap::new(),
        version: None,
    }
}

impl World {
    /// Creates a request of alice, of the devs, for a pod for five minutes.
    pub(super) fn new() -> Self {
        Self::by(template(json!({})))
    }

    pub(super) fn by(template: PodAccessTemplate) -> Self {
        let spec = PodAccessRequestSpec {
            template_name: "pod".into(),
            duration: Some("5m".into()),
            ..PodAccessRequestSpec::default()
        };
        Self::from_parts(
            PodAccess {
                keys: keys(),
                keep_finished: KeepFinished::all(SignedDuration::from_hours(1)),
                gate: None,
                ready_timeout: SignedDuration::from_secs(60),
                rendered: RenderCache::default(),
                name_servers: vec![NameServer::usual()],
                as_author: false,
            },
            PodAccessRequest::new("mine", spec),
            template,
            Ok(model()),
        )
    }

    /// Creates a grant with a Ready pod.
    pub(super) fn ready() -> Self {
        let mut world = Self::new();
        world.settle(timestamp(1));
        world.start(timestamp(1));
        world.settle(timestamp(2));
        world
    }

    pub(super) fn pod(&self) -> &DynamicObject {
        let mut pods = self.live.iter().filter(|live| live.resource.kind == "Pod");
        &pods.next().unwrap().object
    }

    /// Sets the status that the kubelet reports when all containers run.
    pub(super) fn start(&mut self, now: Timestamp) {
        self.becomes(json!({
            "phase": "Running",
            "startTime": now,
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "app", "image": "app:1", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {}},
            }],
        }));
    }

    pub(super) fn becomes(&mut self, status: Value) {
        self.edit("Pod", |pod| pod.data["status"] = status);
    }

    /// Returns the condition as status, reason and message.
    pub(super) fn condition(&self, type_: &str) -> (String, String, String) {
        let status = self.status();
        let found = oz_api::conditions::find(&status.conditions, type_).unwrap();
        (
            found.status.clone(),
            found.reason.clone(),
            found.message.clone(),
        )
    }
}
