//! Denials by the admission policies while all processes of oz are stopped and its webhooks are unregistered. Carol is
//! an administrator who is in no group that repairs clusters; the policies permit her other actions.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt as _};
use oz_api::{ExecAccessRequest, PodAccessRequest, labels, names};
use oz_e2e::{
    GrantedRequest, Scene, System, TEMPLATE, binding, exec_request, forged_record, identity,
    install, pod_request, refused, role, stamped, unregister_hooks,
};
use oz_testkit::eventually;
use oz_trail::AuditEvent;
use serde_json::json;
use tokio::sync::RwLockWriteGuard;

use crate::SYSTEM;

/// The message of the admission policy about names, and a label, that are reserved for Roles of grants.
const RESERVED: &str = "reserved for Roles that oz creates";
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A scene in a cluster without processes of oz. No test starts one while this value exists.
pub(crate) struct Ruin {
    _stopped: RwLockWriteGuard<'static, Option<System>>,
    pub(crate) scene: Scene,
    pub(crate) carol: Client,
}

impl Ruin {
    pub(crate) async fn set_up(prefix: &str) -> Result<Self> {
        let mut system = SYSTEM.write().await;
        drop(system.take());
        let cluster = crate::cluster().await?;
        install(cluster).await?;
        unregister_hooks(cluster)?;
        let scene = Scene::empty(cluster, prefix).await?;
        let carol = scene.administrator("carol").await?;
        let ruin = Self {
            _stopped: system,
            scene,
            carol,
        };
        eventually("the policies to be in force", SOON, async || {
            let mut unstamped: ExecAccessRequest = exec_request("probe", TEMPLATE, "5m");
            unstamped.metadata.namespace = Some(ruin.scene.name().to_owned());
            let dry_run = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            let answer = ruin.api().create(&dry_run, &unstamped).await;
            let refused = answer.is_err_and(|why| why.to_string().contains("not stamped"));
            Ok(refused.then_some(()))
        })
        .await?;
        Ok(ruin)
    }

    /// Returns the API for objects of the scene, as carol.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.carol.clone(), self.scene.name())
    }

    /// Creates a request of carol with a stamp that has the right form and no valid seal.
    async fn request(&self, name: &str) -> Result<GrantedRequest> {
        let mut request: ExecAccessRequest = exec_request(name, TEMPLATE, "5m");
        request.metadata.annotations = Some(stamped("carol"));
        let create = PostParams::default();
        let request = self.api().create(&create, &request).await?;
        Ok(GrantedRequest { request })
    }
}

/// Forging an audit record while oz is down: the admission policy denies it.
#[tokio::test]
async fn forged_audit_record_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::set_up("forged").await?;
    let forged = forged_record();
    for client in [&ruin.carol, &ruin.scene.admin] {
        let events: Api<AuditEvent> = Api::all(client.clone());
        let why = refused(events.create(&PostParams::default(), &forged).await)?;
        assert!(
            why.contains("only oz writes and deletes AuditEvents"),
            "{why}"
        );
    }
    Ok(())
}

/// Deleting one audit record or all of them, or changing the labels of one, while oz is down: the admission policy
/// denies it.
#[tokio::test]
async fn deletion_of_audit_records_is_refused_while_oz_is_down() -> Result<()> {
    let stage = crate::Stage::set("recorded").await?;
    let alice = stage.requests("alice").await?;
    alice.granted(&exec_request("mine", TEMPLATE, "5m")).await?;
    drop(stage);
    let ruin = Ruin::set_up("deleted-record").await?;
    for client in [&ruin.carol, &ruin.scene.admin] {
        let events: Api<AuditEvent> = Api::all(client.clone());
        let one = events.list(&Default::default()).await?.items.pop();
        let name = one.context("no record")?.name_any();
        let delete = DeleteParams::default();
        let why = refused(events.delete(&name, &delete).await)?;
        assert!(
            why.contains("only oz writes and deletes AuditEvents"),
            "{why}"
        );
        let all = events.delete_collection(&delete, &Default::default()).await;
        assert!(refused(all)?.contains("only oz writes and deletes AuditEvents"));
        let patch = Patch::Merge(json!({"metadata": {"labels": null}}));
        let merged = events.patch(&name, &PatchParams::default(), &patch).await;
        assert!(refused(merged)?.contains("only oz writes and deletes AuditEvents"));
    }
    Ok(())
}

/// Writing the expiry into the status of a request while oz is down: the admission policy denies it.
#[tokio::test]
async fn status_change_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::set_up("ruin-status").await?;
    ruin.request("mine").await?;
    let merge = PatchParams::default();
    let edit = Patch::Merge(json!({"status": {"expiresAt": "2099-01-01T00:00:00Z"}}));
    for client in [&ruin.carol, &ruin.scene.admin] {
        let requests: Api<ExecAccessRequest> = Api::namespaced(client.clone(), ruin.scene.name());
        let why = refused(requests.patch_status("mine", &merge, &edit).await)?;
        assert!(
            why.contains("only oz's operator writes the status"),
            "{why}"
        );
    }
    Ok(())
}

/// Changing the stamp of a request or its annotation with the requester, while oz is down: the admission policy denies
/// it; other annotations may be written, and the request may be deleted.
#[tokio::test]
async fn stamp_change_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::set_up("restamped").await?;
    ruin.request("mine").await?;
    let requests = ruin.api::<ExecAccessRequest>();
    let merge = PatchParams::default();
    for name in [labels::REQUESTER, labels::REQUESTED_BY] {
        for value in [json!("mallory"), json!(null)] {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {name: value}}}));
            let why = refused(requests.patch("mine", &merge, &patch).await)?;
            assert!(why.contains("immutable"), "{why}");
        }
    }
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"example.com/mine": "yes"}}}));
    requests.patch("mine", &merge, &patch).await?;
    requests.delete("mine", &DeleteParams::default()).await?;
    Ok(())
}

/// Creating a request without a stamp, or with a stamp that names another user, while oz is down: the admission policy
/// denies it.
#[tokio::test]
async fn unstamped_or_forged_request_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::set_up("brought").await?;
    let create = PostParams::default();
    for annotations in [None, Some(stamped("alice"))] {
        let mut exec: ExecAccessRequest = exec_request("mine", TEMPLATE, "5m");
        exec.metadata.annotations.clone_from(&annotations);
        let why = refused(ruin.api().create(&create, &exec).await)?;
        assert!(why.contains("not stamped"), "{why}");
        let mut pod: PodAccessRequest = pod_request("mine", TEMPLATE, "5m");
        pod.metadata.annotations = annotations;
        let why = refused(ruin.api().create(&create, &pod).await)?;
        assert!(why.contains("not stamped"), "{why}");
    }
    Ok(())
}

/// Binding another user to the Role of a request's grant with a new RoleBinding, while oz is down: the admission policy
/// denies it; a Role with the name of the grant's other objects may be bound.
#[tokio::test]
async fn binding_to_role_of_grant_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::set_up("ruin-binding").await?;
    let asked = ruin.request("mine").await?;
    let (bindings, create) = (ruin.api::<RoleBinding>(), PostParams::default());
    let waits = binding("waits", &asked.role_name(), "mallory")?;
    let why = refused(bindings.create(&create, &waits).await)?;
    assert!(why.contains(RESERVED), "{why}");
    let like = binding("like", &asked.object_name(), "mallory")?;
    bindings.create(&create, &like).await?;
    Ok(())
}

/// Binding to the Role of a request's grant with a RoleBinding of 1.4 MB, which is six times as large in a review and
/// exceeds the size limit of webhooks: the admission policy denies it.
#[tokio::test]
async fn a_binding_that_is_too_large_for_a_hook() -> Result<()> {
    let ruin = Ruin::set_up("large-binding").await?;
    let asked = ruin.request("mine").await?;
    let (bindings, create) = (ruin.api::<RoleBinding>(), PostParams::default());
    let large = binding("large", &asked.role_name(), &"<".repeat(1_410_000))?;
    let why = refused(bindings.create(&create, &large).await)?;
    assert!(why.contains(RESERVED), "{why}");
    Ok(())
}

/// Creating a Role with a name or the label that is reserved for Roles of grants, or adding the label later, while oz
/// is down: the admission policy denies it; Roles with other names may be created.
#[tokio::test]
async fn role_with_name_or_label_of_grant_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::set_up("ruin-role").await?;
    let asked = ruin.request("mine").await?;
    let (roles, create) = (ruin.api::<Role>(), PostParams::default());
    let named = role(&asked.role_name(), &json!([]))?;
    let why = refused(roles.create(&create, &named).await)?;
    assert!(why.contains(RESERVED), "{why}");
    let like = role(&asked.object_name(), &json!([]))?;
    let mut like = roles.create(&create, &like).await?;
    let label = json!({"metadata": {"labels": {labels::GRANT_ROLE: "true"}}});
    let label = Patch::Merge(&label);
    let merge = PatchParams::default();
    let why = refused(roles.patch(&like.name_any(), &merge, &label).await)?;
    assert!(why.contains(RESERVED), "{why}");
    let labels = like.metadata.labels.get_or_insert_default();
    labels.insert(labels::GRANT_ROLE.to_owned(), String::new());
    like.metadata.name = Some("another".to_owned());
    like.metadata.resource_version = None;
    let why = refused(roles.create(&create, &like).await)?;
    assert!(why.contains(RESERVED), "{why}");
    Ok(())
}

/// Adding a subject to the RoleBinding of a grant, or rules to its Role, while oz is down: the admission policy denies
/// it; both may be deleted, which ends the access.
#[tokio::test]
async fn widened_grant_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::set_up("widened").await?;
    let asked = ruin.request("mine").await?;
    let (called, name, create) = (
        asked.role_name(),
        asked.object_name(),
        PostParams::default(),
    );
    let (operator, _) = identity(ruin.scene.cluster, names::OPERATOR)?;
    let operator = ruin.scene.cluster.client(&operator).await?;
    let mut empty = role(&called, &json!([]))?;
    let uid = asked.request.uid().context("no UID")?;
    empty.metadata.labels = Some([(labels::OWNER_UID.to_owned(), uid)].into());
    let mut mine = binding(&name, &called, "alice")?;
    mine.metadata.labels.clone_from(&empty.metadata.labels);
    let theirs: Api<Role> = Api::namespaced(operator.clone(), ruin.scene.name());
    theirs.create(&create, &empty).await?;
    let theirs: Api<RoleBinding> = Api::namespaced(operator, ruin.scene.name());
    theirs.create(&create, &mine).await?;
    let merge = PatchParams::default();
    let (roles, bindings) = (ruin.api::<Role>(), ruin.api::<RoleBinding>());
    let rules = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]});
    let subjects = json!({"subjects": binding("", "", "mallory")?.subjects});
    let why = refused(roles.patch(&called, &merge, &Patch::Merge(&rules)).await)?;
    assert!(why.contains(RESERVED), "{why}");
    let subjects = Patch::Merge(&subjects);
    let why = refused(bindings.patch(&name, &merge, &subjects).await)?;
    assert!(why.contains(RESERVED), "{why}");
    roles.delete(&called, &DeleteParams::default()).await?;
    bindings.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

/// Changing the Role or RoleBinding of a grant while a finalizer delays its deletion, with every right on RBAC objects:
/// the admission policy denies it, including changes of oz's labels, annotations and owner references; the same user
/// may remove the finalizer.
#[tokio::test]
async fn a_grant_that_is_being_deleted_is_changed() -> Result<()> {
    const HOLD: &str = "example.test/hold";
    let ruin = Ruin::set_up("terminating").await?;
    let asked = ruin.request("mine").await?;
    let (called, name) = (asked.role_name(), asked.object_name());
    let all = json!({
        "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"],
    });
    ruin.scene.allow("rbac", "mallory", &[all]).await?;
    let (operator, _) = identity(ruin.scene.cluster, names::OPERATOR)?;
    let operator = ruin.scene.cluster.client(&operator).await?;
    let create = PostParams::default();
    let mut held = role(&called, &json!([]))?;
    let uid = asked.request.uid().context("no UID")?;
    held.metadata.labels = Some(
        [
            (labels::OWNER_UID.to_owned(), uid),
            (labels::GRANT_ROLE.to_owned(), String::new()),
        ]
        .into(),
    );
    held.metadata.finalizers = Some(vec![HOLD.to_owned()]);
    let mut bound = binding(&name, &called, "alice")?;
    bound.metadata.labels.clone_from(&held.metadata.labels);
    bound
        .metadata
        .finalizers
        .clone_from(&held.metadata.finalizers);
    let theirs: Api<Role> = Api::namespaced(operator.clone(), ruin.scene.name());
    theirs.create(&create, &held).await?;
    let theirs: Api<RoleBinding> = Api::namespaced(operator, ruin.scene.name());
    theirs.create(&create, &bound).await?;
    let (roles, bindings) = (ruin.api::<Role>(), ruin.api::<RoleBinding>());
    roles.delete(&called, &DeleteParams::default()).await?;
    bindings.delete(&name, &DeleteParams::default()).await?;

    let mallory = ruin.scene.cluster.client("mallory").await?;
    let theirs: Api<Role> = Api::namespaced(mallory.clone(), ruin.scene.name());
    let merge = PatchParams::default();
    let rules = json!([{"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": ["*"]}]);
    let marks = [
        json!({"labels": null}),
        json!({"annotations": {labels::GRANT: "{}"}}),
        json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}]}),
    ];
    let marks = marks.map(|metadata| json!({"metadata": metadata}));
    let both = json!({"metadata": {"finalizers": null}, "rules": rules});
    for patch in marks.iter().chain([&json!({"rules": rules}), &both]) {
        let why = refused(theirs.patch(&called, &merge, &Patch::Merge(patch)).await)?;
        assert!(why.contains(RESERVED), "{patch}: {why}");
    }
    let bound: Api<RoleBinding> = Api::namespaced(mallory, ruin.scene.name());
    let subjects = json!({"subjects": binding("", "", "mallory")?.subjects});
    for patch in marks.iter().chain([&subjects]) {
        let why = refused(bound.patch(&name, &merge, &Patch::Merge(patch)).await)?;
        assert!(why.contains(RESERVED), "{patch}: {why}");
    }
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    theirs.patch(&called, &merge, &free).await?;
    bound.patch(&name, &merge, &free).await?;
    assert!(roles.get_opt(&called).await?.is_none());
    assert!(bindings.get_opt(&name).await?.is_none());
    Ok(())
}

/// Removing the enforcing label of a namespace while oz is down, through the namespace, its status or its finalizers,
/// with rights on these alone: the admission policy denies it; other labels may be written, and an administrator may
/// remove the label.
#[tokio::test]
async fn removal_of_enforcing_label_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::set_up("ruin-label").await?;
    ruin.scene.enforce().await?;
    let (name, admin) = (ruin.scene.name(), ruin.scene.admin.clone());
    let rule = json!({"apiGroups": [""], "verbs": ["get", "patch", "update"],
        "resources": ["namespaces", "namespaces/status", "namespaces/finalize"]});
    ruin.scene.allow("namespace", "mallory", &[rule]).await?;
    let mallory = ruin.scene.cluster.client("mallory").await?;
    let namespaces: Api<Namespace> = Api::all(mallory.clone());
    let merge = PatchParams::default();
    for patch in [
        json!({"metadata": {"labels": null}}),
        json!({"metadata": {"labels": {labels::ENFORCE: "True"}}}),
    ] {
        let patch = Patch::Merge(&patch);
        let why = refused(namespaces.patch(name, &merge, &patch).await)?;
        assert!(why.contains("may not remove the label"), "{why}");
        let why = refused(namespaces.patch_status(name, &merge, &patch).await)?;
        assert!(why.contains("may not remove the label"), "{why}");
    }
    let mut bare = namespaces.get(name).await?;
    bare.metadata.labels = None;
    bare.metadata.resource_version = None;
    let body = serde_json::to_vec(&bare)?;
    let path = format!("/api/v1/namespaces/{name}/finalize");
    let finalize = http::Request::put(path).body(body)?;
    let why = refused(mallory.request::<DynamicObject>(finalize).await)?;
    assert!(why.contains("may not remove the label"), "{why}");
    let patch = Patch::Merge(json!({"metadata": {"labels": {"mine": "yes"}}}));
    namespaces.patch(name, &merge, &patch).await?;
    let off = Patch::Merge(json!({"metadata": {"labels": {labels::ENFORCE: null}}}));
    let namespaces: Api<Namespace> = Api::all(ruin.carol.clone());
    namespaces.patch(name, &merge, &off).await?;
    let maps: Api<ConfigMap> = Api::namespaced(admin, name);
    maps.create(
        &PostParams::default(),
        &serde_json::from_value(json!({"metadata": {"name": "others"}}))?,
    )
    .await?;
    Ok(())
}
