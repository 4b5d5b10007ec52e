//! Grants of every kind: their templates, their requests, and their ends.

use std::collections::BTreeMap;
use std::fmt::Debug;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{ListParams, PostParams};
use kube::{Api, Resource, ResourceExt as _};
use oz_api::harness::{HarnessRun, HarnessTemplate};
use oz_api::{
    ExecAccessRequest, PodAccessRequest, TransientClusterRoleBinding, TransientRoleBinding,
};
use oz_core::access::grant::object_name;
use oz_e2e::{
    ExecRequests, PodRequests, Scene, TEMPLATE, apply_as, by_hand_overlay, exec_request,
    pod_request,
};
use oz_trail::Action;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";
/// The template of dedicated pods.
const OWN_POD: &str = "own";
/// The template of runs, of which the test is the kubelet.
pub(crate) const RUNS: &str = "by-hand";
/// The user who may bind roles.
const LEAD: &str = "lea";
/// The shortest duration of a grant in seconds. It is longer than a lease, so that each grant can begin before it ends.
const SHORTEST: usize = 24;
/// The number of different durations, in steps of a second.
const STEPS: usize = 12;
/// The API server states the start of a Job in whole seconds.
const JOB_PRECISION: SignedDuration = SignedDuration::from_secs(1);

/// The kind of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GrantKind {
    Exec,
    Pod,
    Binding,
    ClusterBinding,
    Run,
}

impl GrantKind {
    pub(crate) const ALL: [Self; 5] = [
        Self::Exec,
        Self::Pod,
        Self::Binding,
        Self::ClusterBinding,
        Self::Run,
    ];

    /// Returns the kind of the grant with this number: one of twenty is a run.
    const fn new(number: usize) -> Self {
        match number % 20 {
            0 => Self::Run,
            1..=4 => Self::Pod,
            5..=9 => Self::Binding,
            10..=13 => Self::ClusterBinding,
            _ => Self::Exec,
        }
    }

    /// Returns the resource of the object that gives access, or of the process of a run.
    pub(crate) const fn resource(self) -> &'static str {
        match self {
            Self::Exec | Self::Pod | Self::Binding => "rolebindings",
            Self::ClusterBinding => "clusterrolebindings",
            Self::Run => "pods",
        }
    }

    /// Returns the time by which a grant may end before its expiry.
    pub(crate) const fn early(self) -> SignedDuration {
        match self {
            Self::Run => JOB_PRECISION,
            _ => SignedDuration::ZERO,
        }
    }

    /// Returns the actions of the audit records of a grant that expired.
    pub(crate) const fn actions(self) -> [Action; 2] {
        match self {
            Self::Run => [Action::RunStarted, Action::RunEnded],
            _ => [Action::AccessGranted, Action::AccessExpired],
        }
    }
}

/// A grant that has expired.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) kind: GrantKind,
    /// The UID of the request.
    pub(crate) uid: String,
    /// The name of the object that gave access, or of the Job.
    pub(crate) object: String,
    /// The expiry.
    pub(crate) until: Timestamp,
}

/// The APIs through which users create requests of every kind.
pub(crate) struct Requesters {
    scene: String,
    exec: ExecRequests,
    pods: PodRequests,
    bindings: Api<TransientRoleBinding>,
    cluster_bindings: Api<TransientClusterRoleBinding>,
    runs: Api<HarnessRun>,
}

impl Requesters {
    pub(crate) async fn new(scene: &Scene) -> Result<Self> {
        let lead = scene.cluster.client(LEAD).await?;
        Ok(Self {
            scene: scene.name().to_owned(),
            exec: scene.requests("alice").await?,
            pods: scene.pod_requests("alice").await?,
            bindings: Api::namespaced(lead.clone(), scene.name()),
            cluster_bindings: Api::all(lead),
            runs: scene.api(),
        })
    }

    /// Creates the request with this number.
    pub(crate) async fn create(&self, number: usize) -> Result<()> {
        let name = format!("{}-{number}", self.scene);
        let seconds = SHORTEST + number % STEPS;
        let lasts = format!("{seconds}s");
        let created = PostParams::default();
        match GrantKind::new(number) {
            GrantKind::Exec => {
                let request = exec_request(&name, TEMPLATE, &lasts);
                self.exec.create(&request).await.map(drop)?;
            }
            GrantKind::Pod => {
                let request = pod_request(&name, OWN_POD, &lasts);
                self.pods.create(&request).await.map(drop)?;
            }
            GrantKind::Binding => {
                let binding = serde_json::from_value(binding(&name, seconds)?)?;
                self.bindings.create(&created, &binding).await.map(drop)?;
            }
            GrantKind::ClusterBinding => {
                let binding = serde_json::from_value(binding(&name, seconds)?)?;
                let all = &self.cluster_bindings;
                all.create(&created, &binding).await.map(drop)?;
            }
            GrantKind::Run => {
                let spec = json!({"templateRef": {"name": RUNS}, "prompt": "hi", "timeout": lasts});
                let run = json!({"metadata": {"name": name}, "spec": spec});
                apply_as(&self.runs, run).await.map(drop)?;
            }
        }
        Ok(())
    }
}

/// Returns a binding with a window that ends this number of seconds from now, whenever it begins.
fn binding(name: &str, seconds: usize) -> Result<Value> {
    let until = Timestamp::now() + SignedDuration::from_secs(i64::try_from(seconds)?);
    Ok(json!({
        "metadata": {"name": name},
        "spec": {
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "alison"}],
            "validUntil": until.to_string(),
        },
    }))
}

/// Creates the templates, and a user who may bind `view` and request transient bindings.
pub(crate) async fn templates(scene: &Scene) -> Result<()> {
    let closed = json!({"network": {"egress": "None"}});
    scene.pod_template(OWN_POD, &closed).await?;
    let template = json!({"metadata": {"name": RUNS}, "spec": {
        "harness": "echo", "image": "echo:1", "command": ["echo"],
        "defaults": {"timeout": "10m", "terminationGracePeriodSeconds": 1},
        "workspace": {"required": false},
        "podTemplateOverlay": by_hand_overlay(),
    }});
    apply_as(&scene.api::<HarnessTemplate>(), template).await?;

    scene.cluster.issue_kubeconfig(LEAD, &["leads"])?;
    let bind = json!({
        "metadata": {"name": "leads-bind"},
        "rules": [{
            "apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": ["bind"],
            "resourceNames": ["view"],
        }],
    });
    apply_as(&Api::<ClusterRole>::all(scene.admin.clone()), bind).await?;
    let bindings = Api::<ClusterRoleBinding>::all(scene.admin.clone());
    for (name, role) in [
        ("leads-bind", "leads-bind"),
        ("leads-ask", "oz-request-bindings"),
    ] {
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "Group", "name": "leads", "apiGroup": RBAC}],
        });
        apply_as(&bindings, binding).await?;
    }
    Ok(())
}

/// Returns the names of the scene's requests of a kind.
pub(crate) async fn names<K>(scene: &Scene) -> Result<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    let all = Api::<K>::all(scene.admin.clone());
    let all = all.list(&ListParams::default()).await?;
    let names = all.items.iter().map(|object| object.name_any());
    Ok(names
        .filter(|name| name.starts_with(scene.name()))
        .collect())
}

/// Returns the scene's requests of a kind.
async fn list<K>(scene: &Scene) -> Result<Vec<Value>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    let all = Api::<K>::all(scene.admin.clone());
    let all = all.list(&ListParams::default()).await?;
    let ours = all
        .items
        .iter()
        .filter(|object| object.name_any().starts_with(scene.name()));
    ours.map(|object| Ok(serde_json::to_value(object)?))
        .collect()
}

/// The requests that are over.
pub(crate) struct Ended {
    /// The grants of those that were granted.
    pub(crate) grants: Vec<Grant>,
    /// The number of those that expired before an operator granted them: on a slow machine, without a leader.
    pub(crate) never: usize,
}

/// Returns all requests, once all of them have expired.
///
/// # Errors
/// When one of them has not expired; the message contains its status.
pub(crate) async fn ended(scene: &Scene) -> Result<Ended> {
    let jobs = scene.api::<Job>().list(&ListParams::default()).await?;
    let started = jobs.items.iter().filter_map(|job| {
        let started = job.status.as_ref()?.start_time.as_ref()?;
        Some((job.name_any(), started.0))
    });
    let started: BTreeMap<String, Timestamp> = started.collect();
    let (mut grants, mut never) = (Vec::new(), 0);
    for kind in GrantKind::ALL {
        let objects = match kind {
            GrantKind::Exec => list::<ExecAccessRequest>(scene).await?,
            GrantKind::Pod => list::<PodAccessRequest>(scene).await?,
            GrantKind::Binding => list::<TransientRoleBinding>(scene).await?,
            GrantKind::ClusterBinding => list::<TransientClusterRoleBinding>(scene).await?,
            GrantKind::Run => list::<HarnessRun>(scene).await?,
        };
        for object in &objects {
            let status = &object["status"];
            let name = object["metadata"]["name"].as_str().context("no name")?;
            let uid = object["metadata"]["uid"].as_str().context("no UID")?;
            if was_never_granted(kind, status) {
                never += 1;
                continue;
            }
            let until = match kind {
                GrantKind::Run => expiry_of_run(object, started.get(name))?,
                _ => expiry(status).with_context(|| format!("{kind:?} {name}: {status}"))?,
            };
            grants.push(Grant {
                kind,
                uid: uid.to_owned(),
                object: match kind {
                    GrantKind::Exec | GrantKind::Pod => object_name(name, uid),
                    _ => name.to_owned(),
                },
                until,
            });
        }
    }
    Ok(Ended { grants, never })
}

/// Checks whether a request expired without a grant.
fn was_never_granted(kind: GrantKind, status: &Value) -> bool {
    let granted = match kind {
        GrantKind::Exec | GrantKind::Pod => "expiresAt",
        GrantKind::Binding | GrantKind::ClusterBinding => "activatedAt",
        GrantKind::Run => return false,
    };
    status["phase"] == "Expired" && status[granted].is_null()
}

/// Returns the expiry of access that has expired.
fn expiry(status: &Value) -> Result<Timestamp> {
    ensure!(status["phase"] == "Expired", "it has not expired");
    let until = status["expiresAt"].as_str().context("no expiry")?;
    Ok(until.parse()?)
}

/// Returns the expiry of a run that has exceeded its timeout. It counts from the start of the Job.
fn expiry_of_run(run: &Value, started: Option<&Timestamp>) -> Result<Timestamp> {
    let status = &run["status"];
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let is_over = conditions.any(|condition| {
        condition["type"] == "Completed"
            && condition["status"] == "True"
            && condition["reason"] == "DeadlineExceeded"
    });
    ensure!(is_over && status["phase"] == "Failed", "a run: {status}");
    let timeout = run["spec"]["timeout"].as_str();
    let timeout = timeout.and_then(|text| text.strip_suffix('s'));
    let seconds = timeout.context("no timeout in seconds")?.parse()?;
    let started = *started.context("its Job has not started")?;
    Ok(started + SignedDuration::from_secs(seconds))
}
