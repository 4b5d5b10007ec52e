//! A separate environment of a test: a namespace, users who may create requests, a workload and a template.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use oz_api::{ExecAccessTemplate, PodAccessTemplate, TargetKind, labels};
use oz_core::access::grant::object_name;
use oz_testkit::{Cluster, TestNamespace, eventually, fixtures};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::access::{ExecRequests, PodRequests, Requests, exec_template, pod_template};

/// The workload that every scene has.
pub const WORKLOAD: &str = "web";
/// The template that every scene has: it grants the group `devs` access to [`WORKLOAD`].
pub const TEMPLATE: &str = "shell";

/// A namespace with a Deployment, a template for it, and users who may create requests.
pub struct Scene {
    /// The cluster of the scene.
    pub cluster: &'static Cluster,
    /// A client of the administrator.
    pub admin: Client,
    /// The Deployment's pods.
    pub pods: Vec<Pod>,
    namespace: TestNamespace,
}

impl Scene {
    /// Creates the scene; `prefix` begins the namespace's name.
    ///
    /// # Errors
    /// When the API server refuses part of it.
    pub async fn set(cluster: &'static Cluster, prefix: &str) -> Result<Self> {
        let mut scene = Self::empty(cluster, prefix).await?;
        scene.pods = fixtures::deployment(&scene.admin, scene.name(), WORKLOAD, 2).await?;
        scene
            .template(&exec_template(TEMPLATE, TargetKind::Deployment, WORKLOAD))
            .await?;
        Ok(scene)
    }

    /// Creates only the namespace and the users.
    ///
    /// # Errors
    /// When the API server refuses part of it.
    pub async fn empty(cluster: &'static Cluster, prefix: &str) -> Result<Self> {
        let admin = cluster.client("admin").await?;
        let namespace = TestNamespace::create(cluster, prefix).await?;
        let scene = Self {
            cluster,
            admin,
            pods: Vec::new(),
            namespace,
        };
        scene
            .people_may("people-may-ask", "oz-request-access", "create")
            .await?;
        Ok(scene)
    }

    /// Permits the users to list templates and requests, as for users of ozctl.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn people_may_look(&self) -> Result<()> {
        self.people_may("people-may-look", "oz-view-access", "list")
            .await
    }

    /// Permits a group to approve and deny requests, in RBAC.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn may_approve(&self, group: &str) -> Result<()> {
        let right = ("crds.wizardofoz.co", "accessrequestapprovals", "create");
        self.group_may(group, "oz-approve-access", right).await
    }

    /// Permits a group to review emergencies, in RBAC.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn may_review(&self, group: &str) -> Result<()> {
        let right = ("crds.wizardofoz.co", "accessreviews", "patch");
        self.group_may(group, "oz-review-access", right).await
    }

    /// Permits a group to play recordings of sessions.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn may_view_recordings(&self, group: &str) -> Result<()> {
        let right = ("gate.oz.wizardofoz.co", "gates/recordings", "get");
        self.group_may(group, "oz-recording-viewer", right).await
    }

    /// Permits a group to list, watch and end open sessions.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn may_moderate_sessions(&self, group: &str) -> Result<()> {
        let right = ("gate.oz.wizardofoz.co", "gates/sessions", "get");
        self.group_may(group, "oz-session-moderator", right).await
    }

    /// Binds a ClusterRole of oz to a group, and waits until the API server applies the permission.
    async fn group_may(
        &self,
        group: &str,
        role: &str,
        (api_group, plural, verb): (&str, &str, &str),
    ) -> Result<()> {
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": format!("{group}-{role}")},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role,
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group},
            ],
        }))?;
        let bindings = self.api::<RoleBinding>();
        bindings.create(&PostParams::default(), &binding).await?;
        let right = json!({
            "apiGroups": [api_group], "resources": [plural], "verbs": [verb],
        });
        let somebody = format!("{}-{group}", self.name());
        self.cluster.issue_kubeconfig(&somebody, &[group])?;
        self.wait_for_rules(&somebody, &[right]).await
    }

    async fn people_may(&self, name: &str, role: &str, verb: &str) -> Result<()> {
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role,
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs"},
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "interns"},
            ],
        }))?;
        let bindings = self.api::<RoleBinding>();
        bindings.create(&PostParams::default(), &binding).await?;
        let roles: Api<ClusterRole> = Api::all(self.admin.clone());
        if roles.get_opt(role).await?.is_none() {
            // oz is installed later, and its roles with it.
            return Ok(());
        }
        let right = json!({
            "apiGroups": ["crds.wizardofoz.co"], "resources": ["execaccessrequests"], "verbs": [verb],
        });
        self.wait_for_rules("alice", &[right]).await
    }

    /// Returns the namespace's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// Returns the API of objects of a kind in the scene, as the administrator.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.admin.clone(), self.name())
    }

    /// Makes the namespace an enforcing one, in which a connection to a pod requires a grant.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn enforce(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        let label = json!({ "metadata": { "labels": { labels::ENFORCE: "true" } } });
        let patch = Patch::Merge(label);
        namespaces
            .patch(self.name(), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Creates a template.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn template(
        &self,
        template: &ExecAccessTemplate,
    ) -> kube::Result<ExecAccessTemplate> {
        self.api().create(&PostParams::default(), template).await
    }

    /// Creates a template for pods like those of [`WORKLOAD`], for the group `devs`, with `more` fields
    /// of the spec.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn pod_template(&self, name: &str, more: &Value) -> Result<PodAccessTemplate> {
        let template = pod_template(name, WORKLOAD, more)?;
        Ok(self.api().create(&PostParams::default(), &template).await?)
    }

    /// Returns the requests for exec of one of the users.
    ///
    /// # Errors
    /// When the user does not exist.
    pub async fn requests(&self, user: &str) -> Result<ExecRequests> {
        Ok(Requests::new(self.client(user).await?, self.name()))
    }

    /// Returns the requests for pods of one of the users.
    ///
    /// # Errors
    /// When the user does not exist.
    pub async fn pod_requests(&self, user: &str) -> Result<PodRequests> {
        Ok(Requests::new(self.client(user).await?, self.name()))
    }

    async fn client(&self, user: &str) -> Result<Client> {
        let client = self.cluster.client(user).await;
        client.with_context(|| format!("no user {user}"))
    }

    /// Checks whether `user` has a permission, by `kubectl auth can-i`.
    ///
    /// # Errors
    /// When kubectl cannot be run.
    pub fn can(&self, user: &str, verb: &str, what: &str) -> Result<bool> {
        let output = self
            .cluster
            .kubectl(user)
            .args(["auth", "can-i", verb, what, "-n", self.name()])
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim() == "yes")
    }

    /// Returns the Role and RoleBinding of this name, if they exist.
    ///
    /// # Errors
    /// When the API server does not respond.
    pub async fn grant(&self, name: &str) -> Result<(Option<Role>, Option<RoleBinding>)> {
        let binding: Option<RoleBinding> = self.api().get_opt(name).await?;
        if let Some(role) = self.api::<Role>().get_opt(name).await? {
            return Ok((Some(role), binding));
        }
        // A Role with a reserved name is found by its owner.
        let roles = self.api::<Role>().list(&ListParams::default()).await?;
        let is_of_grant = |role: &Role| {
            let uid = role.labels().get(labels::OWNER_UID);
            let of = role.annotations().get(labels::OWNER_NAME);
            uid.zip(of)
                .is_some_and(|(uid, of)| object_name(of, uid) == name)
        };
        Ok((roles.items.into_iter().find(is_of_grant), binding))
    }

    /// Waits until the scene has no object of this kind and name.
    ///
    /// # Errors
    /// When it exists after `within`, or the API server does not respond.
    pub async fn gone<K>(&self, name: &str, within: Duration) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let objects = self.api::<K>();
        let what = format!("{} {name} to go", K::kind(&()));
        eventually(&what, within, async || {
            Ok(objects.get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }
}
