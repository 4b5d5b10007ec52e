//! The objects of bindings and runs as the release before wrote them, with the keys that an upgrade keeps.

use std::collections::BTreeMap;
use std::fmt::Debug;

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt as _};
use oz_api::harness::HarnessRun;
use oz_api::{encode, labels};
use oz_core::access::seal::{Keys, Owner};
use oz_core::lifecycle::seal::{self, Purpose};
use oz_core::transient::FINALIZER;
use oz_e2e::{NAMESPACE, Scene, by_hand_overlay, private_key};
use oz_runs::run::spec_digest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::every_kind::grants;

const VERSION: &str = "crds.wizardofoz.co/v1alpha1";
const RBAC: &str = "rbac.authorization.k8s.io";
/// The time until the expiries, in seconds: oz starts within it, unless the machine is very busy.
pub(super) const LASTS: i64 = 40;

/// The writer of objects as the release before left them.
pub(super) struct Earlier<'a> {
    pub(super) scene: &'a Scene,
    operator: Keys,
    webhook: Keys,
    /// The expiry of all bindings.
    pub(super) until: Timestamp,
}

impl<'a> Earlier<'a> {
    /// Reads the keys, which an upgrade keeps.
    pub(super) async fn new(scene: &'a Scene) -> Result<Self> {
        let operator = private_key(&scene.admin, Owner::Operator).await?;
        let webhook = private_key(&scene.admin, Owner::Webhook).await?;
        Ok(Self {
            scene,
            operator: Keys::new(Owner::Operator, &[operator])?,
            webhook: Keys::new(Owner::Webhook, &[webhook])?,
            until: Timestamp::from_second(Timestamp::now().as_second() + LASTS)?,
        })
    }

    /// Returns the annotations of an object that lea requested.
    fn stamped(&self, (kind, namespace, name): (&str, &str, &str), digest: &str) -> Result<Value> {
        let stamp = json!({
            "user": "lea", "groups": ["leads"], "kind": kind, "namespace": namespace, "name": name,
            "specDigest": digest, "at": Timestamp::now(), "nonce": name,
        });
        let sealed = seal::seal(&self.webhook, Purpose::Stamp, &stamp)?;
        Ok(json!({ labels::REQUESTER: sealed }))
    }

    /// Stores a transient binding with this status, and returns its UID.
    pub(super) async fn binding<K>(&self, api: &Api<K>, name: &str, status: Value) -> Result<String>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
    {
        let (kind, spec) = (K::kind(&()).into_owned(), self.spec());
        let place = (kind.as_str(), self.namespace(&kind), name);
        let object = json!({
            "apiVersion": VERSION, "kind": kind,
            "metadata": {
                "name": name, "finalizers": [FINALIZER],
                "annotations": self.stamped(place, &encode::digest(&spec))?,
            },
            "spec": spec,
        });
        let object: K = serde_json::from_value(object)?;
        let created = api.create(&PostParams::default(), &object).await?;
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status(name, &PatchParams::default(), &patch)
            .await?;
        created.meta().uid.clone().context("no UID")
    }

    fn spec(&self) -> Value {
        json!({
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "alison"}],
            "validUntil": self.until,
        })
    }

    /// Returns the namespace of objects of a kind of binding; empty for one of the cluster.
    fn namespace(&self, kind: &str) -> &str {
        match kind {
            "TransientClusterRoleBinding" => "",
            _ => self.scene.name(),
        }
    }

    /// Returns the status of a binding in its window.
    pub(super) fn in_window(&self, name: &str) -> Value {
        json!({
            "phase": "Active", "requester": "lea", "bindingName": name,
            "activatedAt": self.activated(), "expiresAt": self.until,
            "nextTransitionTime": self.until, "observedGeneration": 1,
        })
    }

    pub(super) fn activated(&self) -> Timestamp {
        self.until - SignedDuration::from_secs(LASTS)
    }

    /// Creates the RoleBinding or ClusterRoleBinding of the transient binding with this UID.
    pub(super) async fn bind<K>(
        &self,
        api: &Api<K>,
        kind: &str,
        name: &str,
        uid: &str,
    ) -> Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
    {
        let subjects = json!([{"apiGroup": RBAC, "kind": "User", "name": "alison"}]);
        let role = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"});
        let grant = json!({
            "apiVersion": VERSION, "mark": kind,
            "request": {
                "kind": kind, "namespace": self.namespace(kind), "name": name, "uid": uid,
            },
            "requester": {"user": "lea", "groups": ["leads"]},
            "role": role, "subjects": subjects,
            "specDigest": encode::digest(&self.spec()),
            "activatedAt": self.activated(), "until": self.until,
        });
        let sealed = seal::seal(&self.operator, Purpose::TransientBinding, &grant)?;
        let annotations = [(labels::GRANT, sealed.as_str())];
        let object = json!({
            "metadata": marked(kind, name, (name, uid), Some(VERSION), &annotations),
            "roleRef": role, "subjects": subjects,
        });
        let object: K = serde_json::from_value(object)?;
        api.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    /// Stores a run with this timeout and status, and returns it.
    pub(super) async fn run(&self, name: &str, seconds: i64, status: Value) -> Result<HarnessRun> {
        let mut run: HarnessRun = serde_json::from_value(json!({
            "apiVersion": "paddock.dev/v1alpha1", "kind": "HarnessRun",
            "metadata": {"name": name},
            "spec": {
                "templateRef": {"name": grants::RUNS}, "prompt": "hi", "retries": 0,
                "timeout": format!("{seconds}s"),
            },
        }))?;
        let place = ("HarnessRun", self.scene.name(), name);
        let annotations = self.stamped(place, &spec_digest(&run))?;
        run.metadata.annotations = serde_json::from_value(annotations)?;
        let runs = self.scene.api::<HarnessRun>();
        let created = runs.create(&PostParams::default(), &run).await?;
        let patch = Patch::Merge(json!({ "status": status }));
        runs.patch_status(name, &PatchParams::default(), &patch)
            .await?;
        Ok(created)
    }

    /// Creates the NetworkPolicy and the Job of a run.
    pub(super) async fn begin(&self, run: &HarnessRun, seconds: i64) -> Result<()> {
        let (name, uid) = (run.name_any(), run.uid().context("no UID")?);
        let decided = json!({
            "run": {
                "kind": "HarnessRun", "namespace": self.scene.name(), "name": name, "uid": uid,
            },
            "submitter": {"user": "lea", "groups": ["leads"]},
            "specDigest": spec_digest(run),
            "template": format!("HarnessTemplate/{}", grants::RUNS),
            "templateDigest": "sha256:1", "policiesDigest": "sha256:2",
            "image": "echo:1", "timeoutSeconds": seconds, "voucher": "",
            "broker": {"namespace": NAMESPACE, "labels": {"app": "oz-broker"}, "port": 8443},
            "decidedAt": Timestamp::now(),
        });
        let sealed = seal::seal(&self.operator, Purpose::HarnessRun, &decided)?;
        let (owner, grant) = (
            (name.as_str(), uid.as_str()),
            (labels::GRANT, sealed.as_str()),
        );
        let policy_name = format!("{name}-egress");
        let policy: NetworkPolicy = serde_json::from_value(json!({
            "metadata": marked("HarnessRun", &policy_name, owner, None, &[grant]),
            "spec": {
                "podSelector": {"matchLabels": {labels::OWNER_UID: uid}},
                "policyTypes": ["Ingress", "Egress"],
                "egress": [{
                    "ports": [{"port": 8443, "protocol": "TCP"}],
                    "to": [{
                        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
                        "podSelector": {"matchLabels": {"app": "oz-broker"}},
                    }],
                }],
            },
        }))?;
        let version = Some("paddock.dev/v1alpha1");
        let annotations = [grant, (labels::VOUCHER, "")];
        let mut pod = by_hand_overlay();
        pod["metadata"] = json!({"labels": {
            labels::MANAGED_BY: labels::OZ, labels::OWNER_KIND: "HarnessRun",
            labels::OWNER_UID: uid, "paddock.dev/run": name,
        }});
        pod["spec"]["restartPolicy"] = json!("Never");
        pod["spec"]["containers"] = json!([{"name": "agent", "image": "echo:1"}]);
        let job: Job = serde_json::from_value(json!({
            "metadata": marked("HarnessRun", &name, owner, version, &annotations),
            "spec": {
                "backoffLimit": 0, "completions": 1, "parallelism": 1,
                "activeDeadlineSeconds": seconds, "template": pod,
            },
        }))?;
        let created = PostParams::default();
        self.scene.api().create(&created, &policy).await?;
        self.scene.api().create(&created, &job).await?;
        Ok(())
    }
}

/// Returns the metadata of an object of oz for the owner with this name and UID; with its API version, the object is
/// deleted with it.
fn marked(
    kind: &str,
    name: &str,
    (owner, uid): (&str, &str),
    owned: Option<&str>,
    annotations: &[(&str, &str)],
) -> Value {
    let mut all: BTreeMap<&str, &str> = annotations.iter().copied().collect();
    all.insert(labels::OWNER_NAME, owner);
    let mut metadata = json!({
        "name": name, "annotations": all,
        "labels": {
            labels::MANAGED_BY: labels::OZ, labels::OWNER_KIND: kind, labels::OWNER_UID: uid,
        },
    });
    if kind == "HarnessRun" {
        metadata["labels"]["paddock.dev/run"] = json!(owner);
    }
    if let Some(version) = owned {
        metadata["ownerReferences"] = json!([{
            "apiVersion": version, "kind": kind, "name": owner, "uid": uid, "controller": true,
        }]);
    }
    metadata
}
