//! The attempts that oz's admission policies deny while no oz process runs and its webhooks are unregistered:
//! one list of attempts for each installation, by hand or by the chart, on a real node or without.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use http::{Request, header};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use oz_api::harness::HarnessTemplate;
use oz_api::{ExecAccessRequest, PodAccessRequest, labels};
use oz_testkit::{
    AuditEntries, AuditEntry, AuditMark, CONDITION_TIMEOUT, Cluster, eventually, fixtures,
};
use oz_trail::{AuditEvent, AuditKey, Chain, Writer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, to_value};

use crate::NAMESPACE;
use crate::access::{AccessRequest, exec_request, pod_request};
use crate::connections::refused;
use crate::scene::{Scene, TEMPLATE};
use crate::system::apply_as;

/// The name of the request of each kind that the attempts use.
const LOCK: &str = "lock";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Returns annotations that look like a stamp of this user.
#[must_use]
pub fn stamped(by: &str) -> BTreeMap<String, String> {
    [(labels::REQUESTED_BY, by), (labels::REQUESTER, "{}")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// Returns the first record of a chain of a writer that is not oz.
#[must_use]
pub fn forged_record() -> AuditEvent {
    let now = Timestamp::now();
    let writer = Writer::new("oz-operator", "oz-0", now, 1);
    let (_, entry) = Chain::begin(writer, now, &[], &AuditKey::new(&[1; 32]));
    AuditEvent::from(entry)
}

/// Returns the requests of oz's accounts that were forbidden since `since` and should have been permitted:
/// without the dry runs by which oz checks whether its policies are in force, and without events in a
/// namespace that is being deleted.
///
/// # Errors
/// When the log of the API server cannot be read.
pub fn forbidden(cluster: &Cluster, since: AuditMark, accounts: &[&str]) -> Result<AuditEntries> {
    let is_probe = |entry: &AuditEntry| {
        let probed = ["execaccessrequests", "roles", "rolebindings"];
        entry.dry_run && probed.contains(&entry.resource.as_str())
    };
    let users: Vec<String> = accounts
        .iter()
        .map(|account| format!("system:serviceaccount:{NAMESPACE}:{account}"))
        .collect();
    Ok(cluster.audit().since(since)?.filter(|entry| {
        users.contains(&entry.user)
            && entry.code == 403
            && !is_probe(entry)
            && entry.resource != "events"
    }))
}

/// Returns a Role with these rules.
///
/// # Errors
/// When the rules are not valid.
pub fn role(name: &str, rules: &Value) -> serde_json::Result<Role> {
    serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules}))
}

/// Returns a RoleBinding of a user to a Role.
///
/// # Errors
/// Never: the object is well formed.
pub fn binding(name: &str, role: &str, user: &str) -> serde_json::Result<RoleBinding> {
    serde_json::from_value(bound(name, role, user))
}

fn bound(name: &str, role: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    })
}

/// Returns a template of harness runs with a status that an attempt writes.
fn harness_template() -> serde_json::Result<HarnessTemplate> {
    serde_json::from_value(json!({
        "metadata": {"name": LOCK}, "spec": {"image": "example.test/agent:1", "command": ["run"]},
    }))
}

impl Scene {
    /// Makes `user` an administrator who is in no group that repairs clusters.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn administrator(&self, user: &str) -> Result<Client> {
        self.cluster.issue_kubeconfig(user, &["mortals"])?;
        let rights: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": administrator(self, user)},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
        }))?;
        Api::all(self.admin.clone())
            .create(&PostParams::default(), &rights)
            .await?;
        self.cluster.client(user).await
    }

    /// Tries all requests that a policy is to deny, as users with the permission in RBAC, in a scene with a
    /// pod. The policies are named `prefix-…`; each denies, and each has an attempt.
    ///
    /// # Errors
    /// When the intended policy does not deny an attempt, or a policy has no attempt; the error names it.
    pub async fn locks_hold(&self, prefix: &str) -> Result<()> {
        let carol = self.administrator("carol").await?;
        let common = [
            ("namespace", self.name().to_owned()),
            ("own", NAMESPACE.to_owned()),
            ("installation", prefix.to_owned()),
            ("pod", self.pod()?),
            ("container", fixtures::CONTAINER.to_owned()),
            ("record", serde_json::to_string(&forged_record())?),
        ];
        self.prepare(&carol).await?;
        let of = |kind: &str| {
            let requests = format!("{}s", kind.to_lowercase());
            let names = [("requests", requests), ("kind", kind.to_owned())];
            let names: Vec<_> = common.iter().cloned().chain(names).collect();
            Locks::read(&names)
        };
        let (exec, pod) = (of("ExecAccessRequest")?, of("PodAccessRequest")?);
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.admin.clone());
        let there = policies.list(&ListParams::default()).await?.items;
        let ours: BTreeSet<_> = there
            .iter()
            .map(|policy| policy.name_any())
            .filter(|name| name.starts_with(&format!("{prefix}-")))
            .collect();
        let all = exec.once.iter();
        let all = all.chain(&exec.of_each_kind).chain(&pod.of_each_kind);
        let of_runs = exec.harness.iter();
        let templates: Api<HarnessTemplate> = Api::namespaced(carol.clone(), self.name());
        let are_runs = ours.iter().any(|name| name.contains("-harness-"));
        if are_runs {
            templates
                .create(&PostParams::default(), &harness_template()?)
                .await?;
        }
        let mut tried = BTreeSet::new();
        for lock in all.chain(of_runs.filter(|lock| ours.contains(&lock.name(prefix)))) {
            tried.insert(self.holds(prefix, lock).await?);
        }
        ensure!(ours == tried, "there are {ours:?}, tried were {tried:?}");
        if are_runs {
            templates.delete(LOCK, &DeleteParams::default()).await?;
        }
        self.tidy().await
    }

    /// Retries until the policy denies, and returns its name.
    async fn holds(&self, prefix: &str, lock: &Lock) -> Result<String> {
        let policy = lock.name(prefix);
        let sign = format!("ValidatingAdmissionPolicy '{policy}'");
        let client = self.cluster.client(&lock.by).await?;
        let wanted = format!("{policy} to refuse {}", lock.what);
        eventually(&wanted, CONDITION_TIMEOUT, async || {
            let why = refused(client.request_text(lock.request()?).await)?;
            ensure!(why.contains(&sign), "{why}");
            Ok(Some(()))
        })
        .await?;
        Ok(policy)
    }

    /// Prepares the attempts: permissions, an enforcing namespace, a request of each kind.
    async fn prepare(&self, carol: &Client) -> Result<()> {
        let namespaces = json!({
            "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "patch"],
        });
        let rbac = json!({
            "apiGroups": [RBAC], "resources": ["roles", "rolebindings"], "verbs": ["create"],
        });
        let into = into(&self.pod()?);
        let deletions = json!({
            "apiGroups": ["crds.wizardofoz.co"], "verbs": ["delete"],
            "resources": ["execaccessrequests", "podaccessrequests"],
        });
        self.allow("lock-mallory", "mallory", &[namespaces, deletions])
            .await?;
        self.allow("lock-alice", "alice", &[rbac, into.clone()])
            .await?;
        let on_call = role("lock-on-call", &json!([into]))?;
        let create = PostParams::default();
        self.api::<Role>().create(&create, &on_call).await?;
        let config_maps = json!([{
            "apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"],
        }]);
        let name = administrator(self, "mallory");
        apply_as(&self.own::<Role>(), to_value(role(&name, &config_maps)?)?).await?;
        apply_as(&self.own::<RoleBinding>(), bound(&name, &name, "mallory")).await?;
        self.enforce().await?;
        self.store(carol, exec_request(LOCK, TEMPLATE, "5m"))
            .await?;
        self.store(carol, pod_request(LOCK, TEMPLATE, "5m")).await
    }

    /// Creates a request with a stamp that only looks like one.
    async fn store<K>(&self, carol: &Client, mut request: K) -> Result<()>
    where
        K: AccessRequest + Serialize + DeserializeOwned,
    {
        *request.annotations_mut() = stamped("carol");
        let requests: Api<K> = Api::namespaced(carol.clone(), self.name());
        requests.create(&PostParams::default(), &request).await?;
        Ok(())
    }

    /// Returns the objects of a kind in oz's namespace.
    fn own<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    /// Restores the previous state. (Objects of the namespace are deleted with it.)
    async fn tidy(&self) -> Result<()> {
        let (delete, merge) = (DeleteParams::default(), PatchParams::default());
        self.api::<ExecAccessRequest>()
            .delete(LOCK, &delete)
            .await?;
        self.api::<PodAccessRequest>().delete(LOCK, &delete).await?;
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        let off = Patch::Merge(labelled(Value::Null));
        namespaces.patch(self.name(), &merge, &off).await?;
        let rights: Api<ClusterRoleBinding> = Api::all(self.admin.clone());
        rights
            .delete(&administrator(self, "carol"), &delete)
            .await?;
        let name = administrator(self, "mallory");
        self.own::<RoleBinding>().delete(&name, &delete).await?;
        self.own::<Role>().delete(&name, &delete).await?;
        Ok(())
    }
}

fn administrator(scene: &Scene, user: &str) -> String {
    format!("{}-{user}", scene.name())
}

/// Returns a namespace with the enforcing label.
fn labelled(value: Value) -> Value {
    json!({"metadata": {"labels": {labels::ENFORCE: value}}})
}

/// Returns the permissions of a grant's own Role.
fn into(pod: &str) -> Value {
    json!({
        "apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"],
        "resourceNames": [pod],
    })
}

/// The list of attempts in its file.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Locks {
    once: Vec<Lock>,
    harness: Vec<Lock>,
    of_each_kind: Vec<Lock>,
}

/// An attempt that a policy denies. It has no effect if the policy does not deny it, either.
#[derive(Deserialize)]
struct Lock {
    what: String,
    policy: String,
    by: String,
    method: String,
    path: String,
    #[serde(default)]
    body: Value,
}

impl Lock {
    /// Returns the name of its policy.
    fn name(&self, prefix: &str) -> String {
        format!("{prefix}-{}", self.policy)
    }
}

impl Locks {
    /// Reads the list, and replaces the names in braces by these values.
    fn read(names: &[(&str, String)]) -> Result<Self> {
        let list = names.iter().fold(
            include_str!("locks.yaml").to_owned(),
            |list, (name, value)| list.replace(&format!("{{{name}}}"), value),
        );
        Ok(serde_saphyr::from_str(&list)?)
    }
}

impl Lock {
    fn request(&self) -> Result<Request<Vec<u8>>> {
        let content = match self.path.starts_with("/api/") {
            true if self.method == "PATCH" => "application/strategic-merge-patch+json",
            false if self.method == "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        // A proxied request has no dry run.
        let (query, body) = match self.method.as_str() {
            "GET" => ("", Vec::new()),
            _ => ("?dryRun=All", serde_json::to_vec(&self.body)?),
        };
        let request = Request::builder()
            .method(self.method.as_str())
            .uri(format!("{}{query}", self.path))
            .header(header::CONTENT_TYPE, content);
        Ok(request.body(body)?)
    }
}
