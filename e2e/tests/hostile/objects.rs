//! Changing the objects that oz writes for a grant, before, during and after the grant.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use oz_api::{Phase, TargetKind, labels, names};
use oz_e2e::{
    GrantedRequest, TEMPLATE, WORKLOAD, conditions_line, exec_request, exec_template, records_in,
    refusal, refused,
};
use oz_testkit::eventually;
use oz_trail::{Action, AuditEvent};
use serde_json::{Value, json};

use crate::Stage;

pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Grants access, changes the Role or the RoleBinding as an administrator, and checks that the operator revokes the
/// grant and mallory has no access.
async fn revokes<K>(prefix: &str, change: Value) -> Result<()>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let stage = Stage::set(prefix).await?;
    let alice = stage.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("mine", TEMPLATE, "10m"))
        .await?;
    let patch = Patch::Merge(&change);
    let name = match K::kind(&()).as_ref() {
        "Role" => asked.role_name(),
        _ => asked.object_name(),
    };
    stage
        .api::<K>()
        .patch(&name, &PatchParams::default(), &patch)
        .await?;
    let status = alice.phase("mine", Phase::Revoked).await?;
    let line = conditions_line(&status);
    assert!(line.contains("DriftDetected"), "{line}");
    worthless(&stage, &asked).await
}

/// Waits until the grant gives access to no user.
async fn worthless(stage: &Stage, asked: &GrantedRequest) -> Result<()> {
    eventually("the grant to be worth nothing", SOON, async || {
        let (role, binding) = stage.grant(&asked.object_name()).await?;
        let nobody = binding.is_none_or(|one| one.subjects.unwrap_or_default().is_empty());
        let nothing = role.is_none_or(|one| one.rules.unwrap_or_default().is_empty());
        Ok((nobody && nothing).then_some(()))
    })
    .await?;
    for user in ["alice", "mallory"] {
        assert!(!stage.can(user, "get", &format!("pods/{}", asked.pod()))?);
    }
    Ok(())
}

/// Adding mallory to the subjects of the RoleBinding: the operator revokes the grant because of drift.
#[tokio::test]
async fn a_subject_that_is_added() -> Result<()> {
    let user =
        |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
    revokes::<RoleBinding>(
        "subject",
        json!({"subjects": [user("alice"), user("mallory")]}),
    )
    .await
}

/// Extending the rules of the Role to every pod: the operator revokes the grant.
#[tokio::test]
async fn rules_that_are_widened() -> Result<()> {
    let rule = json!({"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": ["*"]});
    revokes::<Role>("rules", json!({"rules": [rule]})).await
}

/// Adding a finalizer to the RoleBinding, so that it outlives its deletion: the operator revokes the grant, and empties
/// the RoleBinding so that it binds no user.
#[tokio::test]
async fn a_finalizer_on_the_binding() -> Result<()> {
    revokes::<RoleBinding>(
        "finalizer",
        json!({"metadata": {"finalizers": ["example.com/stay"]}}),
    )
    .await
}

/// Removing the owner reference of the RoleBinding, so that it outlives the request: the operator revokes the grant.
#[tokio::test]
async fn an_owner_that_is_taken_off() -> Result<()> {
    revokes::<RoleBinding>("owner", json!({"metadata": {"ownerReferences": null}})).await
}

/// Writing a later expiry into the sealed decision: the seal does not match, and the operator revokes the grant.
#[tokio::test]
async fn a_decision_that_is_rewritten() -> Result<()> {
    let grant = json!({"until": "2099-01-01T00:00:00Z", "sig": "AAAA"}).to_string();
    revokes::<Role>(
        "decision",
        json!({"metadata": {"annotations": {labels::GRANT: grant}}}),
    )
    .await
}

/// Deleting the Role, and the decision with it: the operator revokes the grant, and the audit record names the pod,
/// which the RoleBinding states too.
#[tokio::test]
async fn a_role_that_is_deleted() -> Result<()> {
    let stage = Stage::set("deleted").await?;
    let alice = stage.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("mine", TEMPLATE, "10m"))
        .await?;
    stage
        .api::<Role>()
        .delete(&asked.role_name(), &DeleteParams::default())
        .await?;
    alice.phase("mine", Phase::Revoked).await?;
    worthless(&stage, &asked).await?;
    let records = records_in(&stage.oz()?.operator.process)?;
    let mut revoked = records
        .iter()
        .filter(|one| one.action == Action::AccessRevoked && one.request.namespace == stage.name());
    let pod = revoked.next().and_then(|one| one.pod.as_ref());
    assert_eq!(pod.map(|pod| &pod.name), Some(&asked.pod()));
    Ok(())
}

/// Copying the sealed decision to another Role, to connect in an enforcing namespace: the webhook denies the
/// connections, because the seal is valid for its own Role and for alice only.
#[tokio::test]
async fn a_decision_that_is_copied() -> Result<()> {
    let stage = Stage::set("copied").await?;
    let alice = stage.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("mine", TEMPLATE, "10m"))
        .await?;
    let mut role = stage.api::<Role>().get(&asked.role_name()).await?;
    // The admission policy denies a Role with the label of Roles of grants.
    role.labels_mut().remove(labels::GRANT_ROLE);
    role.metadata = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        name: Some("another".to_owned()),
        labels: role.metadata.labels,
        annotations: role.metadata.annotations,
        ..Default::default()
    };
    stage
        .api::<Role>()
        .create(&PostParams::default(), &role)
        .await?;
    stage
        .standing("mallory", "pods/exec", &["get", "create"])
        .await?;
    stage.enforce().await?;
    alice.api().delete("mine", &DeleteParams::default()).await?;
    let pod = asked.pod();
    for user in ["mallory", "alice"] {
        let refused = eventually(&format!("{user} to be refused"), SOON, async || {
            Ok(refusal(&stage.exec(user, &[&pod, "--", "true"]).output()?))
        })
        .await?;
        assert!(!refused.is_empty());
    }
    Ok(())
}

/// Creating a Role with the name of the grant's other objects first: oz does not take it over, and its own Role has a
/// reserved name that no other user can take.
#[tokio::test]
async fn a_role_that_is_there_first() -> Result<()> {
    let stage = Stage::set("first").await?;
    let asked = waiting(&stage, "mine").await?;
    let role = json!({"metadata": {"name": asked.object_name()}, "rules": []});
    let role: Role = serde_json::from_value(role)?;
    let foreign = stage
        .api::<Role>()
        .create(&PostParams::default(), &role)
        .await?;
    comes(&stage).await?;
    let granted = stage.requests("alice").await?.ready("mine").await?;
    assert!(names::is_grant_role(&granted.role_name()));
    let there = stage.api::<Role>().get(&asked.object_name()).await?;
    assert_eq!(there.metadata.uid, foreign.metadata.uid);
    assert!(there.rules.unwrap_or_default().is_empty());
    Ok(())
}

/// Creating a Role with a reserved name, or a RoleBinding to such a name, with every right on RBAC objects or as an
/// administrator: the admission policy denies it, also for the Role of an existing grant and for users with the verb
/// `bind`.
#[tokio::test]
async fn a_binding_that_waits_for_a_reserved_name() -> Result<()> {
    let stage = Stage::set("reserved").await?;
    stage.oz()?.operator.reserves().await?;
    let rule = json!({
        "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"],
    });
    stage.allow("rbac", "mallory", &[rule]).await?;
    let alice = stage.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("mine", TEMPLATE, "10m"))
        .await?;
    // The name has a number, unless the operator has not seen the admission policy in effect for a while.
    let taken = asked.role_name();
    assert!(names::is_grant_role(&taken), "{taken}");
    let create = PostParams::default();
    for user in ["mallory", "admin"] {
        let client = stage.cluster.client(user).await?;
        let roles: Api<Role> = Api::namespaced(client.clone(), stage.name());
        let bindings: Api<RoleBinding> = Api::namespaced(client, stage.name());
        for name in [&taken, &names::grant_role(250), &names::grant_role(999)] {
            let role: Role =
                serde_json::from_value(json!({"metadata": {"name": name}, "rules": []}))?;
            let why = refused(roles.create(&create, &role).await)?;
            let reserved = "reserved for Roles that oz creates";
            assert!(why.contains(reserved), "{user} {name}: {why}");
            for called in [name.as_str(), "innocent"] {
                let why = refused(bindings.create(&create, &binding(called, name)?).await)?;
                assert!(why.contains(reserved), "{user} {called} {name}: {why}");
            }
        }
        let marked = json!({"metadata": {"name": "oz-grant-251", "labels": {
            labels::OWNER_UID: "00000000-0000-0000-0000-000000000000", labels::MANAGED_BY: labels::OZ,
        }}, "rules": []});
        refused(
            roles
                .create(&create, &serde_json::from_value(marked)?)
                .await,
        )?;
    }
    assert!(!stage.can("mallory", "get", &format!("pods/{}", asked.pod()))?);
    assert_eq!(
        asked.request.metadata.uid,
        alice.ready("mine").await?.request.metadata.uid
    );
    Ok(())
}

/// Creating a RoleBinding to the Role that oz will create, or an empty Role of that name, by the name that oz uses when
/// all numbers are taken (Kubernetes checks the rights of a RoleBinding when it is written, and an empty Role has
/// none): the API server denies it, for every name of the RoleBinding and for administrators.
#[tokio::test]
async fn a_binding_that_waits_for_the_role() -> Result<()> {
    let stage = Stage::set("waits").await?;
    let rule = json!({
        "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"],
        "verbs": ["create", "delete", "bind"],
    });
    stage.allow("rbac", "mallory", &[rule]).await?;
    let asked = waiting(&stage, "mine").await?;
    let role = asked.role_name();
    let empty: Role = serde_json::from_value(json!({"metadata": {"name": role}, "rules": []}))?;
    let reserved = "reserved for Roles that oz creates";
    for user in ["mallory", "admin"] {
        let client = stage.cluster.client(user).await?;
        let roles: Api<Role> = Api::namespaced(client.clone(), stage.name());
        let why = refused(roles.create(&PostParams::default(), &empty).await)?;
        assert!(why.contains(reserved), "{user}: {why}");
        let bindings: Api<RoleBinding> = Api::namespaced(client, stage.name());
        for name in [&role, "innocent"] {
            let binding = binding(name, &role)?;
            let why = refused(bindings.create(&PostParams::default(), &binding).await)?;
            assert!(why.contains(reserved), "{user} {name}: {why}");
        }
    }
    comes(&stage).await?;
    let asked = stage.requests("alice").await?.ready("mine").await?;
    assert!(!stage.can("mallory", "get", &format!("pods/{}", asked.pod()))?);
    Ok(())
}

/// Returns a RoleBinding of mallory to a Role.
fn binding(name: &str, role: &str) -> serde_json::Result<RoleBinding> {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}],
    }))
}

/// Creates a request of alice for a template that does not exist yet: its name and UID are known, and its Role does not
/// exist.
async fn waiting(stage: &Stage, name: &str) -> Result<GrantedRequest> {
    let alice = stage.requests("alice").await?;
    let request = alice.create(&exec_request(name, "later", "5m")).await?;
    Ok(GrantedRequest { request })
}

/// Creates the template.
async fn comes(stage: &Stage) -> Result<()> {
    let template = exec_template("later", TargetKind::Deployment, WORKLOAD);
    stage.template(&template).await?;
    Ok(())
}

/// Binding another user to the Role of an existing grant without its rights: the escalation check of Kubernetes denies
/// it before an admission policy is evaluated.
#[tokio::test]
async fn a_second_binding_to_the_role() -> Result<()> {
    let stage = Stage::set("second").await?;
    let rule = json!({
        "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"], "verbs": ["create"],
    });
    stage.allow("rbac", "mallory", &[rule]).await?;
    let alice = stage.requests("alice").await?;
    let asked = alice.granted(&exec_request("mine", TEMPLATE, "5m")).await?;
    let binding = binding("second", &asked.role_name())?;
    let bindings: Api<RoleBinding> =
        Api::namespaced(stage.cluster.client("mallory").await?, stage.name());
    let why = refused(bindings.create(&PostParams::default(), &binding).await)?;
    assert!(
        why.contains("attempting to grant RBAC permissions not currently held"),
        "{why}"
    );
    Ok(())
}

/// Writing, changing or deleting audit records as an administrator: the API server denies it.
#[tokio::test]
async fn records_that_are_forged_or_deleted() -> Result<()> {
    let stage = Stage::set("records").await?;
    let alice = stage.requests("alice").await?;
    alice.granted(&exec_request("mine", TEMPLATE, "5m")).await?;
    let events: Api<AuditEvent> = Api::all(stage.admin.clone());
    let one = eventually("a record", SOON, async || {
        Ok(events.list(&Default::default()).await?.items.pop())
    })
    .await?;
    let name = one.metadata.name.clone().unwrap_or_default();
    let mut forged = one.clone();
    forged.metadata = Default::default();
    forged.metadata.name = Some(format!("{name}0"));
    let alone = "only oz writes and deletes AuditEvents";
    assert!(refused(events.create(&PostParams::default(), &forged).await)?.contains(alone));
    assert!(refused(events.delete(&name, &DeleteParams::default()).await)?.contains(alone));
    let rewrite = Patch::Merge(json!({"spec": {"message": "nothing to see"}}));
    refused(events.patch(&name, &PatchParams::default(), &rewrite).await)?;
    Ok(())
}
