//! With every process of oz dead and its webhooks out of the path of requests: what its policies refuse
//! all the same. Carol is an administrator who is in no group that mends clusters; what she does
//! otherwise goes on.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt as _};
use oz_api::{ExecAccessRequest, PodAccessRequest, labels, names};
use oz_e2e::{
    Asked, Scene, System, TEMPLATE, binding, exec_request, forged_record, identity, install,
    pod_request, refused, role, stamped, unregister_hooks,
};
use oz_testkit::eventually;
use oz_trail::AuditEvent;
use serde_json::json;
use tokio::sync::RwLockWriteGuard;

use crate::SYSTEM;

/// What the policy says of names, and of a label, that are for Roles of grants.
const RESERVED: &str = "reserved for Roles that oz makes";
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A scene in a cluster where nothing of oz runs. As long as this is there, nothing of it is started.
pub(crate) struct Ruin {
    _stopped: RwLockWriteGuard<'static, Option<System>>,
    pub(crate) scene: Scene,
    pub(crate) carol: Client,
}

impl Ruin {
    pub(crate) async fn of(prefix: &str) -> Result<Self> {
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

    /// Objects of the scene, as carol.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.carol.clone(), self.scene.name())
    }

    /// A request of carol's with a stamp that only looks like one.
    async fn request(&self, name: &str) -> Result<Asked> {
        let mut request: ExecAccessRequest = exec_request(name, TEMPLATE, "5m");
        request.metadata.annotations = Some(stamped("carol"));
        let create = PostParams::default();
        let request = self.api().create(&create, &request).await?;
        Ok(Asked { request })
    }
}

/// Forging a record of the audit trail while nothing of oz runs: refused.
#[tokio::test]
async fn forged_audit_record_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::of("forged").await?;
    let forged = forged_record();
    for client in [&ruin.carol, &ruin.scene.admin] {
        let events: Api<AuditEvent> = Api::all(client.clone());
        let why = refused(events.create(&PostParams::default(), &forged).await)?;
        assert!(why.contains("by oz alone"), "{why}");
    }
    Ok(())
}

/// Deleting the records of the audit trail, one or all, or changing the labels of one, while nothing of
/// oz runs: refused.
#[tokio::test]
async fn deletion_of_audit_records_is_refused_while_oz_is_down() -> Result<()> {
    let stage = crate::Stage::set("recorded").await?;
    let alice = stage.requests("alice").await?;
    alice.granted(&exec_request("mine", TEMPLATE, "5m")).await?;
    drop(stage);
    let ruin = Ruin::of("deleted-record").await?;
    for client in [&ruin.carol, &ruin.scene.admin] {
        let events: Api<AuditEvent> = Api::all(client.clone());
        let one = events.list(&Default::default()).await?.items.pop();
        let name = one.context("no record")?.name_any();
        let delete = DeleteParams::default();
        let why = refused(events.delete(&name, &delete).await)?;
        assert!(why.contains("by oz alone"), "{why}");
        let all = events.delete_collection(&delete, &Default::default()).await;
        assert!(refused(all)?.contains("by oz alone"));
        let patch = Patch::Merge(json!({"metadata": {"labels": null}}));
        let merged = events.patch(&name, &PatchParams::default(), &patch).await;
        assert!(refused(merged)?.contains("by oz alone"));
    }
    Ok(())
}

/// Writing the status of a request, which says until when it lasts, while nothing of oz runs: refused.
#[tokio::test]
async fn status_change_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::of("ruin-status").await?;
    ruin.request("mine").await?;
    let merge = PatchParams::default();
    let edit = Patch::Merge(json!({"status": {"expiresAt": "2099-01-01T00:00:00Z"}}));
    for client in [&ruin.carol, &ruin.scene.admin] {
        let requests: Api<ExecAccessRequest> = Api::namespaced(client.clone(), ruin.scene.name());
        let why = refused(requests.patch_status("mine", &merge, &edit).await)?;
        assert!(why.contains("operator alone"), "{why}");
    }
    Ok(())
}

/// Changing the stamp of a request, or who it says asked, while nothing of oz runs: refused; other
/// annotations may be written, and the request may be deleted.
#[tokio::test]
async fn stamp_change_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::of("restamped").await?;
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

/// Creating a request while no webhook stamps it, without a stamp or with one that names somebody else:
/// refused.
#[tokio::test]
async fn unstamped_or_forged_request_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::of("brought").await?;
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

/// Binding somebody to the Role of a request's grant, by a new RoleBinding, while nothing of oz runs:
/// refused; another Role may be bound, whatever oz calls the other objects of the grant.
#[tokio::test]
async fn binding_to_role_of_grant_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::of("ruin-binding").await?;
    let asked = ruin.request("mine").await?;
    let (bindings, create) = (ruin.api::<RoleBinding>(), PostParams::default());
    let waits = binding("waits", &asked.role_name(), "mallory")?;
    let why = refused(bindings.create(&create, &waits).await)?;
    assert!(why.contains(RESERVED), "{why}");
    let like = binding("like", &asked.object_name(), "mallory")?;
    bindings.create(&create, &like).await?;
    Ok(())
}

/// Binding to the Role of a request's grant by a RoleBinding of 1.4 MB, six times as large in a review,
/// so that no webhook of a smaller limit ever sees it: refused.
#[tokio::test]
async fn a_binding_that_is_too_large_for_a_hook() -> Result<()> {
    let ruin = Ruin::of("large-binding").await?;
    let asked = ruin.request("mine").await?;
    let (bindings, create) = (ruin.api::<RoleBinding>(), PostParams::default());
    let large = binding("large", &asked.role_name(), &"<".repeat(1_410_000))?;
    let why = refused(bindings.create(&create, &large).await)?;
    assert!(why.contains(RESERVED), "{why}");
    Ok(())
}

/// Making a Role of the name that oz will use, or with the label that its Roles have, while nothing of oz runs:
/// refused; other Roles may be made, and are not given that label later.
#[tokio::test]
async fn role_with_name_or_label_of_grant_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::of("ruin-role").await?;
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

/// Adding somebody to the binding of a grant, or rules to its Role, while nothing of oz runs: refused;
/// both may be deleted, which ends the access.
#[tokio::test]
async fn widened_grant_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::of("widened").await?;
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

/// Changing the Role of a grant or its binding while a finalizer keeps it from being deleted, with every right on RBAC
/// objects: refused, also what takes off the marks of oz; anybody may take the finalizer off.
#[tokio::test]
async fn a_grant_that_is_being_deleted_is_changed() -> Result<()> {
    const HOLD: &str = "example.test/hold";
    let ruin = Ruin::of("terminating").await?;
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

/// Taking the enforcing label off a namespace while nothing of oz runs, by the namespace, its status or
/// its finalizers, with the right to change those alone: refused; other labels may be written, and an
/// administrator may take it off.
#[tokio::test]
async fn removal_of_enforcing_label_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = Ruin::of("ruin-label").await?;
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
        assert!(why.contains("may not take the label"), "{why}");
        let why = refused(namespaces.patch_status(name, &merge, &patch).await)?;
        assert!(why.contains("may not take the label"), "{why}");
    }
    let mut bare = namespaces.get(name).await?;
    bare.metadata.labels = None;
    bare.metadata.resource_version = None;
    let body = serde_json::to_vec(&bare)?;
    let path = format!("/api/v1/namespaces/{name}/finalize");
    let finalize = http::Request::put(path).body(body)?;
    let why = refused(mallory.request::<DynamicObject>(finalize).await)?;
    assert!(why.contains("may not take the label"), "{why}");
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
