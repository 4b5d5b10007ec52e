//! The prerequisites of these tests in addition to oz: a kind of parent, and an account that may reconcile it.

use std::marker::PhantomData;

use anyhow::Result;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use oz_api::composite::{CompositeController, CompositeControllerStatus};
use oz_api::conditions;
use oz_api::names::REGISTRATION;
use oz_composites::Source;
use oz_e2e::install_composites;
use oz_testkit::{CONDITION_TIMEOUT, Cluster, cargo_binary, eventually};
use serde_json::{Value, json};

use super::hooks::HOST;
use crate::support::*;

/// The namespace of policies.
pub(crate) const POLICIES: &str = "oz-policies";
/// Another namespace of policies, since all policies of a namespace are one bundle, which one test breaks.
pub(crate) const OTHER_POLICIES: &str = "oz-other-policies";

/// An account in addition to that of composites that name none.
pub(crate) const OTHER_ACCOUNT: &str = "oz-others";
/// A third namespace, of policies that lend rights.
pub(crate) const LENDING_POLICIES: &str = "oz-lending-policies";
/// The namespace of policies that examples name.
pub(crate) const EXAMPLE_POLICIES: &str = "policies";

/// Installs the kinds and the account, and lets the operator impersonate it.
pub(crate) async fn install(cluster: &Cluster) -> Result<()> {
    install_composites(cluster)?;
    let admin = cluster.client("admin").await?;
    for namespace in [POLICIES, OTHER_POLICIES, LENDING_POLICIES, EXAMPLE_POLICIES] {
        create(&admin, &policies(namespace)).await?;
    }
    let manifests = json!({"apiVersion": "v1", "kind": "List", "items": [
        fleets(),
        role("composites", &json!([
            {"apiGroups": ["test.example.org"], "resources": ["fleets"], "verbs": ["get", "list", "watch", "patch"]},
            {"apiGroups": ["test.example.org"], "resources": ["fleets/status"], "verbs": ["patch"]},
            {"apiGroups": [""], "resources": ["configmaps"],
             "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
        ])),
        bound("composites", "oz-composites"),
        system_object("ServiceAccount", OTHER_ACCOUNT, &json!({})),
        system_object("Role", "oz-operator-be-others", &json!({"rules": [{
            "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [OTHER_ACCOUNT],
            "verbs": ["impersonate"],
        }]})),
        system_object("RoleBinding", "oz-operator-be-others", &json!({
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
                "name": "oz-operator-be-others",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "oz-operator", "namespace": "oz-system"}],
        })),
    ]});
    create(&admin, &manifests).await
}

/// Returns a namespace of policies, which the operator may read.
fn policies(name: &str) -> Value {
    let metadata = json!({"name": "oz-policies", "namespace": name});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "oz-policies"},
            "subjects": [{"kind": "ServiceAccount", "name": "oz-operator", "namespace": "oz-system"}],
        },
    ]})
}

/// Returns an object in oz's namespace.
fn system_object(kind: &str, name: &str, rest: &Value) -> Value {
    let mut object = rest.clone();
    let version = match kind {
        "ServiceAccount" => "v1",
        _ => "rbac.authorization.k8s.io/v1",
    };
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    object["metadata"] = json!({"name": name, "namespace": "oz-system"});
    object
}

pub(super) async fn create(admin: &Client, list: &Value) -> Result<()> {
    for item in list["items"].as_array().into_iter().flatten() {
        let object: DynamicObject = serde_json::from_value(item.clone())?;
        let types = object.types.clone().unwrap_or_default();
        let gvk = kube::core::GroupVersionKind::try_from(&types)?;
        let resource = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(admin.clone(), namespace, &resource),
            None => Api::all_with(admin.clone(), &resource),
        };
        let name = object.metadata.name.clone().unwrap_or_default();
        let apply = PatchParams::apply("test").force();
        api.patch(&name, &apply, &Patch::Apply(&object)).await?;
    }
    Ok(())
}

pub(crate) fn role(name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules,
    })
}

pub(crate) fn bound(role: &str, account: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "oz-system"}],
    })
}

fn fleets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "fleets.test.example.org"},
        "spec": {
            "group": "test.example.org", "scope": "Namespaced",
            "names": {"kind": "Fleet", "plural": "fleets", "singular": "fleet", "listKind": "FleetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// Waits until parents of this kind are stamped: the webhook's registration has them.
pub(crate) async fn stamps(admin: &Client, plural: &str) -> Result<()> {
    let registered = Api::<MutatingWebhookConfiguration>::all(admin.clone());
    let what = format!("{plural} to be stamped");
    eventually(&what, CONDITION_TIMEOUT, async || {
        let found = registered.get(REGISTRATION).await?;
        let hooks = found.webhooks.into_iter().flatten();
        let mut rules = hooks.flat_map(|hook| hook.rules.unwrap_or_default());
        let is_it = rules.any(|rule| rule.resources.iter().flatten().any(|it| it == plural));
        Ok(is_it.then_some(()))
    })
    .await
}

/// Returns a composite with Fleets of this label as parents, and with a function at this path.
pub(crate) fn composite(name: &str, method: &str) -> Value {
    json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": {"name": name},
        "spec": {
            "parentResource": {
                "apiVersion": "test.example.org/v1", "resource": "fleets",
                "labelSelector": {"matchLabels": {"fleet": name}},
            },
            "childResources": [{
                "apiVersion": "v1", "resource": "configmaps", "updateStrategy": {"method": method},
            }],
            "generateSelector": true,
            "hooks": {"sync": {"webhook": {"url": format!("http://{HOST}/{name}")}}},
        },
    })
}

/// A composite with its namespace, declared by an object of kind `K`.
pub(crate) struct World<K = CompositeController> {
    pub(crate) fixture: Fixture,
    pub(crate) name: String,
    kind: PhantomData<fn() -> K>,
}

impl World {
    /// Creates a namespace, and the composite after `change`.
    pub(crate) async fn set(
        name: &str,
        method: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<Self> {
        Self::declare(name, composite(name, method), change).await
    }
}

impl<K: Source> World<K> {
    /// Returns the JSON output of `ozctl` for an administrator in this namespace, and its exit code.
    pub(crate) fn ozctl(&self, words: &[&str]) -> Result<(Option<i32>, Value)> {
        let done = std::process::Command::new(cargo_binary("ozctl")?)
            .args(words)
            .args(["-o", "json", "-n", self.fixture.name(), "--kubeconfig"])
            .arg(self.fixture.cluster.kubeconfig("admin"))
            .output()?;
        let told = serde_json::from_slice(&done.stdout);
        let told = told.map_err(|error| anyhow::anyhow!("{error}: {done:?}"))?;
        Ok((done.status.code(), told))
    }

    /// Creates a namespace, and this declaration after `change`.
    pub(crate) async fn declare(
        name: &str,
        mut object: Value,
        change: impl FnOnce(&mut Value),
    ) -> Result<Self> {
        let fixture = Fixture::set(name).await?;
        change(&mut object);
        let world = Self {
            fixture,
            name: name.to_owned(),
            kind: PhantomData,
        };
        let object = serde_json::from_value(object)?;
        let parameters = PostParams::default();
        world.composites().create(&parameters, &object).await?;
        Ok(world)
    }

    pub(crate) fn composites(&self) -> Api<K> {
        Api::all(self.fixture.admin.clone())
    }

    /// Waits until the status is as wanted.
    pub(crate) async fn status(
        &self,
        what: &str,
        wanted: impl Fn(&CompositeControllerStatus) -> bool,
    ) -> Result<CompositeControllerStatus> {
        let what = format!("{}: {what}", self.name);
        eventually(&what, CONDITION_TIMEOUT, async || {
            let found = self.composites().get(&self.name).await?;
            let status = found.standing().cloned().unwrap_or_default();
            anyhow::ensure!(wanted(&status), "{status:?}");
            Ok(Some(status))
        })
        .await
    }

    /// Waits until a condition has this status, and returns its message.
    pub(crate) async fn condition(&self, type_: &str, status: &str) -> Result<String> {
        self.condition_that(type_, |known| known.status == status)
            .await
    }

    /// Waits like [`World::condition`], for this reason.
    pub(crate) async fn condition_because(
        &self,
        type_: &str,
        status: &str,
        reason: &str,
    ) -> Result<String> {
        let is = |known: &Condition| known.status == status && known.reason == reason;
        self.condition_that(type_, is).await
    }

    async fn condition_that(
        &self,
        type_: &str,
        wanted: impl Fn(&Condition) -> bool,
    ) -> Result<String> {
        let message = |status: &CompositeControllerStatus| {
            let found = conditions::find(&status.conditions, type_);
            let found = found.filter(|known| wanted(known));
            found.map(|found| found.message.clone())
        };
        let what = format!("condition {type_}");
        let found = self
            .status(&what, |status| message(status).is_some())
            .await?;
        Ok(message(&found).unwrap_or_default())
    }

    /// Waits until Fleets are stamped.
    pub(crate) async fn stamps(&self) -> Result<()> {
        stamps(&self.fixture.admin, "fleets").await
    }

    pub(crate) fn fleets(&self) -> Api<DynamicObject> {
        self.fleets_as(self.fixture.admin.clone())
    }

    /// Returns the API of Fleets for another user.
    pub(crate) fn fleets_as(&self, client: Client) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: "test.example.org".to_owned(),
            version: "v1".to_owned(),
            api_version: "test.example.org/v1".to_owned(),
            kind: "Fleet".to_owned(),
            plural: "fleets".to_owned(),
        };
        Api::namespaced_with(client, self.fixture.name(), &resource)
    }

    /// Creates a Fleet that the composite reconciles.
    pub(crate) async fn fleet(&self, name: &str, spec: &Value) -> Result<DynamicObject> {
        let object = serde_json::from_value(json!({
            "apiVersion": "test.example.org/v1", "kind": "Fleet",
            "metadata": {"name": name, "labels": {"fleet": self.name}},
            "spec": spec,
        }))?;
        Ok(self
            .fleets()
            .create(&PostParams::default(), &object)
            .await?)
    }

    /// Returns the finalizers of a Fleet.
    pub(crate) async fn finalizers(&self, name: &str) -> Result<Vec<String>> {
        let fleet = self.fleets().get(name).await?;
        Ok(fleet.metadata.finalizers.unwrap_or_default())
    }

    pub(crate) async fn change(&self, name: &str, spec: &Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.fleets()
            .patch(name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    pub(crate) fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.fixture.admin.clone(), self.fixture.name())
    }

    /// Waits until a ConfigMap has this value.
    pub(crate) async fn value(&self, name: &str, value: &str) -> Result<ConfigMap> {
        let what = format!("ConfigMap {name} to hold {value}");
        eventually(&what, CONDITION_TIMEOUT, async || {
            let found = self.config_maps().get_opt(name).await?;
            let held = |map: &ConfigMap| {
                let data = map.data.as_ref();
                data.and_then(|data| data.get("value"))
                    .is_some_and(|held| held == value)
            };
            Ok(found.filter(held))
        })
        .await
    }

    /// Writes a ConfigMap that is not a child.
    pub(crate) async fn source(&self, name: &str, labels: &Value, value: &str) -> Result<()> {
        let map = json!({"metadata": {"name": name, "labels": labels}, "data": {"value": value}});
        apply_as(&self.config_maps(), map).await.map(drop)
    }

    /// Waits until there is a ConfigMap of this name.
    pub(crate) async fn child(&self, name: &str) -> Result<ConfigMap> {
        let what = format!("ConfigMap {name}");
        eventually(&what, CONDITION_TIMEOUT, async || {
            Ok(self.config_maps().get_opt(name).await?)
        })
        .await
    }

    /// Waits until no ConfigMap of this name exists.
    pub(crate) async fn gone(&self, name: &str) -> Result<()> {
        let what = format!("ConfigMap {name} to be gone");
        eventually(&what, CONDITION_TIMEOUT, async || {
            Ok(self
                .config_maps()
                .get_opt(name)
                .await?
                .is_none()
                .then_some(()))
        })
        .await
    }

    /// Waits for an event on a Fleet with this reason, and returns its note.
    pub(crate) async fn event(&self, reason: &str) -> Result<String> {
        self.event_that(reason, |_| true).await
    }

    /// Waits like [`World::event`], on the Fleet of this name.
    pub(crate) async fn event_on(&self, name: &str, reason: &str) -> Result<String> {
        self.event_that(reason, |on| on == name).await
    }

    async fn event_that(&self, reason: &str, on: impl Fn(&str) -> bool) -> Result<String> {
        let what = format!("an event {reason}");
        eventually(&what, CONDITION_TIMEOUT, async || {
            self.note(reason, &on).await
        })
        .await
    }

    /// Checks whether there is an event with this reason on the Fleet of this name.
    pub(crate) async fn is_told(&self, name: &str, reason: &str) -> Result<bool> {
        Ok(self.note(reason, |on| on == name).await?.is_some())
    }

    /// Returns the note of an event with this reason on one of these Fleets, if there is one.
    async fn note(&self, reason: &str, on: impl Fn(&str) -> bool) -> Result<Option<String>> {
        let events: Api<Event> = Api::namespaced(self.fixture.admin.clone(), self.fixture.name());
        let list = events.list(&kube::api::ListParams::default()).await?;
        let found = list.items.into_iter().find(|event| {
            let regarding = event.regarding.as_ref();
            let name = regarding.and_then(|regarding| regarding.name.as_deref());
            event.reason.as_deref() == Some(reason) && on(name.unwrap_or_default())
        });
        Ok(found.map(|event| event.note.unwrap_or_default()))
    }

    /// Waits until an event on a Fleet, or a condition of the composite, states why the Fleet has no children.
    pub(crate) async fn refusal(&self, name: &str) -> Result<String> {
        let what = format!("{}: a refusal", self.name);
        eventually(&what, CONDITION_TIMEOUT, async || {
            let found = self.composites().get(&self.name).await?;
            let status = found.standing().cloned().unwrap_or_default();
            let mut conditions = status.conditions.into_iter();
            if let Some(wrong) = conditions.find(|one| one.status == "False") {
                return Ok(Some(wrong.message));
            }
            self.note("SyncError", |on| on == name).await
        })
        .await
    }

    /// Waits until there is a child of this name, or an event on this Fleet instead.
    pub(crate) async fn child_or_event(
        &self,
        child: &str,
        fleet: &str,
    ) -> Result<Option<ConfigMap>> {
        let what = format!("ConfigMap {child}, or why there is none");
        eventually(&what, CONDITION_TIMEOUT, async || {
            if let Some(child) = self.config_maps().get_opt(child).await? {
                return Ok(Some(Some(child)));
            }
            let is_told = self.is_told(fleet, "SyncError").await?;
            Ok(is_told.then_some(None))
        })
        .await
    }
}
