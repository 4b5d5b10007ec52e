//! Binding a role without the required approvals.

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use oz_api::{Phase, labels};
use oz_e2e::Person;
use serde_json::{Value, json};

use crate::approving::{Stage, answer_to, refusal};
use crate::support::*;

const CAROL: Person = Person::new("carol", &["approvers"]);
const LEA: Person = Person::new("lea", &["leads", "approvers"]);

fn approvers() -> Value {
    json!({"approval": {"rules": [{"name": "security", "groups": ["approvers"]}]}})
}

/// Approving one's own transient binding: the webhook denies it.
#[tokio::test]
async fn ones_own_binding() -> Result<()> {
    let stage = Stage::set("own", &approvers()).await?;
    let waiting = stage.waiting("on-call").await?;
    let told = refusal(stage.answer(LEA, &answer_to(&waiting, "mine", true)?).await)?;
    ensure!(
        told.contains("created TransientRoleBinding on-call themselves"),
        "{told}"
    );
    stage.forget().await
}

/// Reusing the name of an approved transient binding for another one: the approval counts for the deleted one only.
#[tokio::test]
async fn another_binding_of_the_same_name() -> Result<()> {
    let stage = Stage::set(
        "anew",
        &json!({"approval": {"rules": [
            {"name": "one", "users": ["carol"]}, {"name": "two", "users": ["dave"]},
        ]}}),
    )
    .await?;
    let first = stage.waiting("on-call").await?;
    let answer = answer_to(&first, "yes", true)?;
    stage.answer(CAROL, &answer).await?;
    let api = stage.fixture.bindings();
    api.delete("on-call", &DeleteParams::default()).await?;
    oz_testkit::eventually(
        "the first to be gone",
        oz_testkit::CONDITION_TIMEOUT,
        async || Ok(api.get_opt("on-call").await?.is_none().then_some(())),
    )
    .await?;
    let anew = stage.waiting("on-call").await?;
    let mut again = answer.clone();
    again.metadata.name = Some("again".into());
    let told = refusal(stage.answer(CAROL, &again).await)?;
    ensure!(
        told.contains("is another request than the one with UID"),
        "{told}"
    );
    let dave = Person::new("dave", &["approvers"]);
    stage.answer(dave, &answer_to(&anew, "two", true)?).await?;
    let line = |status: &oz_api::BindingStatus| format!("{:?}", status.conditions);
    oz_testkit::eventually(
        "one to be waited for",
        oz_testkit::CONDITION_TIMEOUT,
        async || {
            let status = api.get("on-call").await?.status.context("no status")?;
            Ok(
                (!line(&status).contains("two: ") && line(&status).contains("/one: carol may"))
                    .then_some(()),
            )
        },
    )
    .await?;
    ensure!(stage.fixture.made().get_opt("on-call").await?.is_none());
    stage.forget().await
}

/// Changing the spec of a waiting transient binding, or the judgement in its stamp, as an administrator: the API server
/// denies it.
#[tokio::test]
async fn an_edit_while_others_are_asked() -> Result<()> {
    let stage = Stage::set("edited", &approvers()).await?;
    let waiting = stage.waiting("on-call").await?;
    let api = stage.fixture.bindings();
    let stamp = waiting
        .annotations()
        .get(labels::REQUESTER)
        .context("no stamp")?;
    let mut open: Value = serde_json::from_str(stamp)?;
    open.as_object_mut()
        .context("no object")?
        .remove("judgement");
    for change in [
        json!({"spec": {"subjects": [{"kind": "Group", "name": "system:authenticated"}]}}),
        json!({"spec": {"roleRef": {"name": "cluster-admin"}}}),
        json!({"spec": {"duration": "1h"}}),
        json!({"metadata": {"annotations": {labels::REQUESTER: open.to_string()}}}),
        json!({"metadata": {"annotations": {labels::REQUESTER: null}}}),
    ] {
        let admin = kube::Api::<oz_api::TransientRoleBinding>::namespaced(
            stage.fixture.admin.clone(),
            stage.fixture.name(),
        );
        let (merge, parameters) = (Patch::Merge(&change), PatchParams::default());
        let changed = admin.patch("on-call", &parameters, &merge).await;
        refusal(changed).with_context(|| change.to_string())?;
    }
    ensure!(api.get("on-call").await?.status.context("no status")?.phase == Phase::Pending);
    stage.forget().await
}

/// Deleting the access policy while a transient binding waits: the binding still requires the sealed approvals.
#[tokio::test]
async fn a_policy_that_is_deleted_while_others_are_asked() -> Result<()> {
    let stage = Stage::set("gone", &approvers()).await?;
    let waiting = stage.waiting("on-call").await?;
    stage.forget().await?;
    stage.forgotten().await?;
    // A later transient binding shows that the webhook and the operator have seen the deletion.
    stage
        .fixture
        .create(&binding("after", &json!({"duration": "10m"})))
        .await?;
    let told = stage.fixture.phase("after", Phase::Active).await;
    let status = stage
        .fixture
        .bindings()
        .get("on-call")
        .await?
        .status
        .context("no status")?;
    ensure!(status.phase == Phase::Pending, "{status:?}");
    ensure!(stage.fixture.made().get_opt("on-call").await?.is_none());
    told?;
    stage
        .answer(CAROL, &answer_to(&waiting, "yes", true)?)
        .await?;
    stage.fixture.phase("on-call", Phase::Active).await?;
    Ok(())
}

/// Requesting a binding of the published kind, which has no approvals, where an access policy requires approvals: the
/// webhook denies it.
#[tokio::test]
async fn published_kind_is_refused_if_approval_is_required() -> Result<()> {
    let stage = Stage::set("flat", &approvers()).await?;
    stage.waiting("on-call").await?;
    let object: oz_api::example_com::RoleBinding = serde_json::from_value(json!({
        "apiVersion": "example.com/v1", "kind": "TransientRoleBinding",
        "metadata": {"name": "flat"},
        "validFrom": from_now(0), "validUntil": from_now(600),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "alison"}],
    }))?;
    let api = kube::Api::<oz_api::example_com::RoleBinding>::namespaced(
        stage.fixture.admin.clone(),
        stage.fixture.name(),
    );
    let told = refusal(api.create(&kube::api::PostParams::default(), &object).await)?;
    ensure!(told.contains("cannot wait for them"), "{told}");
    stage.forget().await
}
