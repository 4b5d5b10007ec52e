//! Hiding the objects of a grant from oz, so that it reports the end of access that continues. Most of these attempts
//! require only rights on RBAC objects in the namespace.

use std::fmt::Debug;

use anyhow::{Context as _, Result};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Api, Resource};
use oz_api::{
    ExecAccessRequest, Phase, TargetKind, TransientClusterRoleBinding, TransientRoleBinding,
    example_com, labels, names,
};
use oz_core::transient::Kind;
use oz_e2e::{
    GrantedRequest, NAMESPACE, Operator, Options, Scene, System, TEMPLATE, WORKLOAD, Webhook,
    conditions_line, established, exec_request, exec_template, install, pod_request, records_in,
    records_of, refused, repository, run, unregister,
};
use oz_testkit::{Cluster, eventually};
use oz_trail::{Action, Record};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::objects::SOON;
use crate::{SYSTEM, Stage};

/// Returns a change that removes all metadata by which oz could know a child, except its name.
fn all_marks() -> Value {
    json!({"labels": null, "annotations": null, "ownerReferences": null})
}

/// Changes the metadata of one object as an administrator.
async fn change<K>(api: &Api<K>, name: &str, metadata: &Value) -> Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    api.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Grants alice one hour of access in a scene.
async fn granted(scene: &Scene, name: &str) -> Result<GrantedRequest> {
    let alice = scene.requests("alice").await?;
    alice.granted(&exec_request(name, TEMPLATE, "1h")).await
}

/// Checks that the grant gives alice no access, at the time when oz reports it.
async fn gives_nothing(scene: &Scene, asked: &GrantedRequest) -> Result<()> {
    let (_, binding) = scene.grant(&asked.object_name()).await?;
    assert!(binding.is_none(), "{binding:?}");
    assert!(!scene.can("alice", "get", &format!("pods/{}", asked.pod()))?);
    Ok(())
}

/// Waits until neither the Role nor the RoleBinding exists.
async fn nothing_left(scene: &Scene, name: &str) -> Result<()> {
    eventually(&format!("nothing left of {name}"), SOON, async || {
        let (role, binding) = scene.grant(name).await?;
        Ok((role.is_none() && binding.is_none()).then_some(()))
    })
    .await
}

/// Grants access, changes the metadata of these objects, and checks that access has ended when oz reports the
/// revocation.
async fn revokes(prefix: &str, role: Option<Value>, binding: Option<Value>) -> Result<()> {
    let stage = Stage::set(prefix).await?;
    let asked = granted(&stage, "mine").await?;
    let name = asked.object_name();
    if let Some(metadata) = role {
        change(&stage.api::<Role>(), &asked.role_name(), &metadata).await?;
    }
    if let Some(metadata) = binding {
        change(&stage.api::<RoleBinding>(), &name, &metadata).await?;
    }
    let alice = stage.requests("alice").await?;
    let line = conditions_line(&alice.phase("mine", Phase::Revoked).await?);
    assert!(line.contains("DriftDetected"), "{line}");
    gives_nothing(&stage, &asked).await?;
    nothing_left(&stage, &name).await
}

/// Removing the labels of the RoleBinding, by which oz watches it: the operator revokes the grant, and deletes the
/// RoleBinding before it reports the revocation.
#[tokio::test]
async fn labels_taken_off_the_binding() -> Result<()> {
    revokes("unseen", None, Some(json!({"labels": null}))).await
}

/// Removing labels, seal and owner reference of the RoleBinding, and the labels of the Role: the operator revokes the
/// grant and deletes both, because it knows them by their names and by the Role that the RoleBinding names.
#[tokio::test]
async fn every_mark_taken_off() -> Result<()> {
    revokes("unmarked", Some(json!({"labels": null})), Some(all_marks())).await
}

/// Changing the label of the RoleBinding to the UID of another owner: the operator revokes the grant of the original
/// owner.
#[tokio::test]
async fn a_label_that_names_another_owner() -> Result<()> {
    let other = json!({"labels": {labels::OWNER_UID: "00000000-0000-0000-0000-000000000000"}});
    revokes("moved", None, Some(other)).await
}

/// Removing labels and owner references of Role and RoleBinding and deleting the request at the same time, so that the
/// garbage collector ignores them: the operator deletes both, and records the revocation.
#[tokio::test]
async fn marks_taken_off_and_the_request_deleted() -> Result<()> {
    let stage = Stage::set("orphans").await?;
    let asked = granted(&stage, "mine").await?;
    let (name, role) = (asked.object_name(), asked.role_name());
    let marks = json!({"labels": null, "ownerReferences": null});
    let (roles, bindings) = (stage.api::<Role>(), stage.api::<RoleBinding>());
    let requests = stage.api::<ExecAccessRequest>();
    let orphaning = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    let (one, two, three) = tokio::join!(
        change(&bindings, &name, &marks),
        change(&roles, &role, &marks),
        requests.delete("mine", &orphaning),
    );
    // A change that is too late finds no object, because oz may be faster.
    drop((one, two));
    three?;
    nothing_left(&stage, &name).await?;
    let process = &stage.oz()?.operator.process;
    eventually("the record of the end", SOON, async || {
        let records = records_of(process, stage.name(), "mine")?;
        Ok(records.contains(&Action::AccessRevoked).then_some(()))
    })
    .await
}

/// Takes exclusive use of oz.
async fn alone() -> Result<(
    tokio::sync::RwLockWriteGuard<'static, Option<System>>,
    System,
    &'static Cluster,
)> {
    let mut place = SYSTEM.write().await;
    let cluster = crate::cluster().await?;
    let system = match place.take() {
        Some(system) => system,
        None => crate::smaller::start(cluster).await?,
    };
    Ok((place, system, cluster))
}

/// Removing labels and owner references of Role and RoleBinding while the operator is down, for a request that is
/// deleted and for one that remains, and the seal of the latter's RoleBinding: the restarted operator ends the access
/// by both, and revokes the remaining request.
#[tokio::test]
async fn marks_taken_off_while_the_operator_is_down() -> Result<()> {
    let (mut place, mut system, cluster) = alone().await?;
    let scene = Scene::set(cluster, "away").await?;
    let (gone, stays) = (
        granted(&scene, "gone").await?,
        granted(&scene, "stays").await?,
    );
    system.operator.process.kill9();
    let marks = json!({"labels": null, "ownerReferences": null});
    let (roles, bindings) = (scene.api::<Role>(), scene.api::<RoleBinding>());
    for asked in [&gone, &stays] {
        change(&roles, &asked.role_name(), &marks).await?;
        change(&bindings, &asked.object_name(), &marks).await?;
    }
    // This RoleBinding loses its seal too.
    change(&bindings, &stays.object_name(), &all_marks()).await?;
    let alice = scene.requests("alice").await?;
    let parameters = DeleteParams::default();
    alice.api().delete("gone", &parameters).await?;

    system.operator = Operator::start(cluster, &Options::default()).await?;
    alice.phase("stays", Phase::Revoked).await?;
    gives_nothing(&scene, &stays).await?;
    nothing_left(&scene, &gone.object_name()).await?;
    nothing_left(&scene, &stays.object_name()).await?;
    let records = records_of(&system.operator.process, scene.name(), "gone")?;
    assert_eq!(records, [Action::AccessRevoked]);
    *place = Some(system);
    Ok(())
}

/// Creating a RoleBinding to the Role that oz will create, after an administrator removed the webhook and the admission
/// policies: the operator creates no Role while the RoleBinding exists, and names it in a condition and an audit
/// record.
#[tokio::test]
async fn a_binding_that_waits_without_the_webhook() -> Result<()> {
    let (_place, mut system, cluster) = alone().await?;
    let scene = Scene::set(cluster, "waiting").await?;
    let alice = scene.requests("alice").await?;
    let request = alice.create(&exec_request("mine", "later", "1h")).await?;
    let role = GrantedRequest { request }.role_name();
    system.webhook.process.kill9();
    unregister(cluster)?;
    // An operator that has seen the admission policies relies on them for a while.
    system.operator.process.kill9();
    system.operator = Operator::start(cluster, &Options::default()).await?;
    let bindings = scene.api::<RoleBinding>();
    let innocent = bound("innocent", &role)?;
    bindings.create(&PostParams::default(), &innocent).await?;
    let template = exec_template("later", TargetKind::Deployment, WORKLOAD);
    scene.template(&template).await?;

    let pending = alice
        .until("mine", "to say what waits", |status| {
            conditions_line(status).contains("RoleBinding innocent")
        })
        .await?;
    let status = pending.status.unwrap_or_default();
    assert_eq!(status.phase, Phase::Pending);
    assert!(conditions_line(&status).contains("NameConflict"));
    assert!(scene.api::<Role>().get_opt(&role).await?.is_none());
    let records = records_in(&system.operator.process)?;
    let alarm =
        |one: &Record| one.action == Action::ForeignAccess && one.message.contains("innocent");
    assert!(records.iter().any(alarm), "{records:?}");
    // The request itself is valid.
    bindings
        .delete("innocent", &DeleteParams::default())
        .await?;
    alice.ready("mine").await?;
    Ok(())
}

/// Creating a RoleBinding to every numbered name that is reserved for Roles of grants, while the admission policies and
/// the webhook are removed: the Role gets a name without a number, and also after the policies are restored the
/// operator uses no name that a RoleBinding names.
#[tokio::test]
async fn reserved_names_without_their_policy() -> Result<()> {
    let (_place, mut system, cluster) = alone().await?;
    let scene = Scene::set(cluster, "unlocked").await?;
    let alice = scene.requests("alice").await?;
    system.operator.reserves().await?;
    let with = granted(&scene, "with").await?;
    assert!(names::grant_role_number(&with.role_name()).is_some());
    // A RoleBinding to an existing Role would give its rights.
    let now = DeleteParams::default();
    alice.api().delete("with", &now).await?;
    nothing_left(&scene, &with.object_name()).await?;
    // The webhook reads the template of a request at its creation; after that, oz is not in the path of requests.
    alice
        .create(&exec_request("without", "later", "1h"))
        .await?;
    alice.create(&exec_request("again", "last", "1h")).await?;
    system.webhook.process.kill9();
    unregister(cluster)?;
    let bindings = scene.api::<RoleBinding>();
    let all = (0..names::GRANT_ROLES).map(names::grant_role);
    for role in all {
        let binding = bound(&format!("waits-for-{role}"), &role)?;
        bindings.create(&PostParams::default(), &binding).await?;
    }
    system.operator.process.kill9();
    system.operator = Operator::start(cluster, &Options::default()).await?;
    let template = |name| exec_template(name, TargetKind::Deployment, WORKLOAD);
    scene.template(&template("later")).await?;
    let without = alice.ready("without").await?;
    assert_eq!(
        without.role_name(),
        names::own_grant_role(&without.object_name())
    );

    // RoleBindings name all numbered names, so the operator uses none of them.
    install(cluster).await?;
    system.operator.reserves().await?;
    scene.template(&template("last")).await?;
    let again = alice.ready("again").await?;
    let pod = format!("pods/{}", again.pod());
    assert!(!scene.can("mallory", "get", &pod)?);
    assert_eq!(
        again.role_name(),
        names::own_grant_role(&again.object_name())
    );
    Ok(())
}

/// Returns a RoleBinding of mallory to a Role.
fn bound(name: &str, role: &str) -> serde_json::Result<RoleBinding> {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}],
    }))
}

/// Creating copies of a grant's Role and RoleBinding without labels after its end, with an additional RoleBinding to
/// the Role: the operator finds and deletes the copies by oz's seal, and names the additional RoleBinding in an alarm,
/// since oz did not create it.
#[tokio::test]
async fn a_grant_that_is_copied_and_brought_back() -> Result<()> {
    let (_place, mut system, cluster) = alone().await?;
    let scene = Scene::set(cluster, "copies").await?;
    system.operator.reserves().await?;
    let asked = granted(&scene, "mine").await?;
    let name = asked.object_name();
    let (roles, bindings) = (scene.api::<Role>(), scene.api::<RoleBinding>());
    let (mut role, mut binding) = (
        roles.get(&asked.role_name()).await?,
        bindings.get(&name).await?,
    );
    let alice = scene.requests("alice").await?;
    alice.api().delete("mine", &DeleteParams::default()).await?;
    nothing_left(&scene, &name).await?;
    for metadata in [&mut role.metadata, &mut binding.metadata] {
        (metadata.uid, metadata.resource_version) = (None, None);
        (metadata.labels, metadata.owner_references) = (None, None);
    }
    // While the admission policy is in effect, an administrator cannot create the copies.
    let why = refused(roles.create(&PostParams::default(), &role).await)?;
    assert!(why.contains("reserved for Roles that oz creates"), "{why}");
    let mine = bound("innocent", &asked.role_name())?;
    let why = refused(bindings.create(&PostParams::default(), &mine).await)?;
    assert!(why.contains("reserved for Roles that oz creates"), "{why}");
    system.webhook.process.kill9();
    unregister(cluster)?;
    roles.create(&PostParams::default(), &role).await?;
    bindings.create(&PostParams::default(), &binding).await?;
    bindings.create(&PostParams::default(), &mine).await?;
    assert!(scene.can("alice", "get", &format!("pods/{}", asked.pod()))?);

    // The operator searches for copies when it becomes the leader, and every ten minutes.
    system.operator.process.kill9();
    system.operator = Operator::start(cluster, &Options::default()).await?;
    nothing_left(&scene, &name).await?;
    for user in ["alice", "mallory"] {
        assert!(!scene.can(user, "get", &format!("pods/{}", asked.pod()))?);
    }
    let process = &system.operator.process;
    eventually("an alarm that names the binding", SOON, async || {
        let records = records_in(process)?;
        let named = records.iter().any(|one| {
            one.action == Action::ForeignAccess && one.message.contains("/innocent binds to")
        });
        Ok(named.then_some(()))
    })
    .await?;
    assert!(bindings.get_opt("innocent").await?.is_some(), "not oz's");
    let metrics = system.operator.metrics().await?;
    assert!(metrics.contains("oz_sweep_ended_total"), "{metrics}");
    // The next test starts oz with the admission policies again.
    Ok(())
}

/// Removes the marks of the RBAC binding of a transient binding, and checks that it is revoked and deleted.
async fn unmarked<K, B>(objects: &Api<K>, bindings: &Api<B>, object: Value) -> Result<()>
where
    K: Kind + Serialize,
    B: Resource + Clone + Debug + DeserializeOwned,
{
    let parameters = PostParams::default();
    for (name, marks) in [
        ("unlabelled", json!({"labels": null})),
        ("unmarked", all_marks()),
    ] {
        let mut object = object.clone();
        let name = format!(
            "{}-{name}",
            object["metadata"]["name"].as_str().unwrap_or("a")
        );
        object["metadata"]["name"] = name.as_str().into();
        object["apiVersion"] = K::api_version(&()).as_ref().into();
        object["kind"] = K::kind(&()).as_ref().into();
        objects
            .create(&parameters, &serde_json::from_value(object)?)
            .await?;
        let phase = async |phase: Phase| {
            eventually(&format!("{name} to be {phase}"), SOON, async || {
                let found = objects.get(&name).await?;
                let status = found.status().cloned().unwrap_or_default();
                Ok((status.phase == phase).then_some(()))
            })
            .await
        };
        phase(Phase::Active).await?;
        change(bindings, &name, &marks).await?;
        phase(Phase::Revoked).await?;
        assert!(bindings.get_opt(&name).await?.is_none(), "{name}");
    }
    Ok(())
}

fn in_scene<K>(scene: &Scene) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    scene.api()
}

/// Removing labels, or labels, seal and owner reference, of the RBAC binding of a transient binding, in a namespace and
/// in the whole cluster, for oz's own kinds and the published ones: the operator revokes the transient binding, and
/// deletes the RBAC binding before it reports the revocation.
#[tokio::test]
async fn marks_taken_off_a_transient_binding() -> Result<()> {
    let mut place = SYSTEM.write().await;
    drop(place.take());
    let cluster = crate::cluster().await?;
    install(cluster).await?;
    for part in ["deploy/rbac/transient", "deploy/example-com"] {
        let mut kubectl = cluster.kubectl("admin");
        kubectl.args(["apply", "--server-side", "--force-conflicts", "-f"]);
        kubectl.arg(repository().join(part));
        run(kubectl).with_context(|| format!("failed to apply {part} for {NAMESPACE}"))?;
    }
    established(cluster)?;
    let options = Options::default()
        .set("transient.bindableRoles", "[view]")
        .set("transient.serveExampleCom", true);
    let (_webhook, _operator) = tokio::try_join!(
        Webhook::start(cluster, &options),
        Operator::start(cluster, &options)
    )?;
    let scene = Scene::empty(cluster, "bound").await?;
    let spec = json!({
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "mallory"}],
        "duration": "1h",
    });
    let own = json!({"metadata": {"name": scene.name()}, "spec": spec});
    let window = |seconds: i64| {
        (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).to_string()
    };
    let published = json!({
        "metadata": {"name": format!("{}-published", scene.name())},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"},
        ],
        "validFrom": window(-10), "validUntil": window(3_600),
    });
    let in_cluster = Api::<ClusterRoleBinding>::all(scene.admin.clone());
    unmarked(
        &in_scene::<TransientRoleBinding>(&scene),
        &in_scene::<RoleBinding>(&scene),
        own.clone(),
    )
    .await?;
    unmarked(
        &Api::<TransientClusterRoleBinding>::all(scene.admin.clone()),
        &in_cluster,
        own,
    )
    .await?;
    unmarked(
        &in_scene::<example_com::RoleBinding>(&scene),
        &in_scene::<RoleBinding>(&scene),
        published.clone(),
    )
    .await?;
    unmarked(
        &Api::<example_com::ClusterRoleBinding>::all(scene.admin.clone()),
        &in_cluster,
        published,
    )
    .await
}

/// Replacing a dedicated pod between its creation and that of its Role, while the operator is down, with oz's seal and
/// marks on the new pod: the operator revokes the grant, and the requester gets no access to the new pod.
#[tokio::test]
async fn a_pod_that_is_exchanged_before_its_role() -> Result<()> {
    let (mut place, mut system, cluster) = alone().await?;
    let scene = Scene::set(cluster, "swapped").await?;
    scene.pod_template("pod", &json!({})).await?;
    // While a quota prevents Roles, the grant remains between the two steps.
    let quota = json!({
        "metadata": {"name": "no-roles"},
        "spec": {"hard": {"count/roles.rbac.authorization.k8s.io": "0"}},
    });
    let quotas = scene.api::<ResourceQuota>();
    let quota = serde_json::from_value(quota)?;
    quotas.create(&PostParams::default(), &quota).await?;
    eventually("the quota to count", SOON, async || {
        let status = quotas.get("no-roles").await?.status.unwrap_or_default();
        let counts = status.used.is_some_and(|used| !used.is_empty());
        Ok(counts.then_some(()))
    })
    .await?;
    let alice = scene.pod_requests("alice").await?;
    let request = alice.create(&pod_request("mine", "pod", "1h")).await?;
    let name = GrantedRequest { request }.object_name();
    let pods = scene.api::<Pod>();
    alice
        .until("mine", "to wait for its Role", |status| {
            conditions_line(status).contains("no-roles")
        })
        .await?;
    system.operator.process.kill9();
    let mut pod = pods.get(&name).await?;
    let now = DeleteParams::default().grace_period(0);
    pods.delete(&name, &now).await?;
    eventually("the name to be free", SOON, async || {
        Ok(pods.get_opt(&name).await?.is_none().then_some(()))
    })
    .await?;
    (pod.metadata.uid, pod.metadata.resource_version, pod.status) = (None, None, None);
    let spec = pod.spec.as_mut().context("no spec")?;
    spec.node_name = None;
    spec.containers[0].image = Some("registry.example.com/mallorys:1".to_owned());
    pods.create(&PostParams::default(), &pod).await?;
    quotas.delete("no-roles", &DeleteParams::default()).await?;

    system.operator = Operator::start(cluster, &Options::default()).await?;
    let line = conditions_line(&alice.phase("mine", Phase::Revoked).await?);
    assert!(line.contains("DriftDetected"), "{line}");
    assert!(!scene.can("alice", "get", &format!("pods/{name}"))?);
    nothing_left(&scene, &name).await?;
    *place = Some(system);
    Ok(())
}
