//! Getting in without those who have to agree.

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use oz_core::api::{AccessRequestApproval, ExecAccessRequest, Phase};
use oz_core::labels;
use oz_e2e::{
    Person, answer_to, approval_rule, approved_template, conditions_line, exec_request, refused,
};
use serde_json::json;

use crate::Stage;

const ANSWERS: &str = "accessrequestapprovals";
const REQUESTS: &str = "execaccessrequests";

/// Alice, and whoever else she is.
const ALICE: Person = Person {
    user: "alice",
    uid: "u-alice",
    groups: &["devs", "approvers"],
};
const ALTER: Person = Person {
    user: "alter",
    uid: "u-alice",
    groups: &["approvers"],
};
const BOB: Person = Person::named("bob", &["approvers"]);
const CAROL: Person = Person::named("carol", &["approvers"]);

/// A stage with a template by which one of the approvers has to agree under each of so many rules.
async fn stage(prefix: &str, rules: usize, timeout: &str) -> Result<Stage> {
    let stage = Stage::set(prefix).await?;
    stage.may_approve("approvers").await?;
    let rule = |number: usize| approval_rule(&format!("r{number}"), &[], &["approvers"], 1);
    let rules = (0..rules).map(rule).collect();
    stage
        .template(&approved_template("asked", rules, timeout))
        .await?;
    Ok(stage)
}

/// A request of alice's, with her UID, that waits for others.
async fn waiting(stage: &Stage) -> Result<ExecAccessRequest> {
    let request = exec_request("mine", "asked", "5m");
    ALICE
        .create(&stage.admin, stage.name(), REQUESTS, &request)
        .await?;
    let requests = stage.requests("admin").await?;
    requests
        .until("mine", "to wait for others", |status| {
            status.approval.is_some()
        })
        .await
}

async fn answer(stage: &Stage, by: Person, answer: &AccessRequestApproval) -> kube::Result<()> {
    by.create(&stage.admin, stage.name(), ANSWERS, answer)
        .await?;
    Ok(())
}

/// Approving one's own request: refused.
#[tokio::test]
async fn ones_own_request() -> Result<()> {
    let stage = stage("own", 1, "10m").await?;
    let request = waiting(&stage).await?;
    let why = refused(answer(&stage, ALICE, &answer_to(&request, "yes", true)?).await)?;
    assert!(
        why.contains("asked for ExecAccessRequest mine themselves"),
        "{why}"
    );
    Ok(())
}

/// Approving one's own under another user name that has the same UID: refused.
#[tokio::test]
async fn ones_own_request_under_another_name() -> Result<()> {
    let stage = stage("alter", 1, "10m").await?;
    let request = waiting(&stage).await?;
    let why = refused(answer(&stage, ALTER, &answer_to(&request, "yes", true)?).await)?;
    assert!(why.contains("somebody else has to answer"), "{why}");
    Ok(())
}

/// Answering twice to count for two rules: the second answer is refused, and the request waits.
#[tokio::test]
async fn once_for_two_rules() -> Result<()> {
    let stage = stage("twice", 2, "10m").await?;
    let request = waiting(&stage).await?;
    answer(&stage, BOB, &answer_to(&request, "one", true)?).await?;
    let why = refused(answer(&stage, BOB, &answer_to(&request, "two", true)?).await)?;
    assert!(
        why.contains("bob answered ExecAccessRequest mine already, by one"),
        "{why}"
    );
    let requests = stage.requests("admin").await?;
    let waits = requests.until("mine", "to wait for one more", |status| {
        conditions_line(status).contains("waiting for r1: group approvers may")
    });
    assert_eq!(
        waits.await?.status.context("no status")?.phase,
        Phase::Pending
    );
    Ok(())
}

/// Having an approval count for a request of the same name that was made anew: it names the UID of the one
/// before, and one given anew with it is refused.
#[tokio::test]
async fn a_request_that_was_made_anew() -> Result<()> {
    let stage = stage("anew", 1, "10m").await?;
    let before = waiting(&stage).await?;
    let requests = stage.requests("admin").await?;
    requests
        .api()
        .delete("mine", &DeleteParams::default())
        .await?;
    stage
        .gone::<ExecAccessRequest>("mine", crate::requests::SOON)
        .await?;
    let now = waiting(&stage).await?;
    assert_ne!(before.metadata.uid, now.metadata.uid);
    let why = refused(answer(&stage, BOB, &answer_to(&before, "yes", true)?).await)?;
    assert!(why.contains("it was made anew"), "{why}");
    Ok(())
}

/// Bringing the stamp of somebody's answer along with one's own: it is overwritten with who really answers,
/// who may not.
#[tokio::test]
async fn a_stamp_that_was_copied() -> Result<()> {
    let stage = stage("copied", 2, "10m").await?;
    let request = waiting(&stage).await?;
    answer(&stage, BOB, &answer_to(&request, "one", true)?).await?;
    let answers = Api::<AccessRequestApproval>::namespaced(stage.admin.clone(), stage.name());
    let given = answers.get("one").await?;
    let mut copy = answer_to(&request, "two", true)?;
    copy.metadata.annotations = given.metadata.annotations;
    let why = refused(answer(&stage, ALICE, &copy).await)?;
    assert!(why.contains("themselves"), "{why}");
    Ok(())
}

/// Turning a denial into an approval, or having it not found, as an administrator: refused.
#[tokio::test]
async fn an_answer_that_is_edited() -> Result<()> {
    let stage = stage("edited", 2, "10m").await?;
    let request = waiting(&stage).await?;
    answer(&stage, BOB, &answer_to(&request, "one", true)?).await?;
    let answers = Api::<AccessRequestApproval>::namespaced(stage.admin.clone(), stage.name());
    for edit in [
        json!({ "spec": { "approval": false } }),
        json!({ "metadata": { "labels": { labels::REQUEST_UID: "other" } } }),
        json!({ "metadata": { "annotations": { labels::REQUESTER: "other" } } }),
        json!({ "metadata": { "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u",
        }] } }),
    ] {
        let patch = Patch::Merge(&edit);
        let answer = answers.patch("one", &PatchParams::default(), &patch).await;
        refused(answer).with_context(|| edit.to_string())?;
    }
    Ok(())
}

/// Approving through a service account of a group that may: refused, since accounts are named one by one.
#[tokio::test]
async fn a_service_account_of_a_group() -> Result<()> {
    let stage = stage("account", 1, "10m").await?;
    let request = waiting(&stage).await?;
    let account = Person::named("system:serviceaccount:ci:gate", &["approvers"]);
    let why = refused(answer(&stage, account, &answer_to(&request, "yes", true)?).await)?;
    assert!(why.contains("in no approval rule"), "{why}");
    Ok(())
}

/// Approving as somebody in no rule, with every right to create answers: refused.
#[tokio::test]
async fn an_administrator_in_no_rule() -> Result<()> {
    let stage = stage("nobody", 1, "10m").await?;
    let request = waiting(&stage).await?;
    let answers = Api::<AccessRequestApproval>::namespaced(stage.admin.clone(), stage.name());
    let yes = answer_to(&request, "yes", true)?;
    let why = refused(answers.create(&PostParams::default(), &yes).await)?;
    assert!(why.contains("in no approval rule"), "{why}");
    Ok(())
}

/// Answering after the time is over: the request is over, and the answer is refused.
#[tokio::test]
async fn after_the_timeout() -> Result<()> {
    let stage = stage("late", 1, "3s").await?;
    let request = waiting(&stage).await?;
    let requests = stage.requests("admin").await?;
    requests.phase("mine", Phase::Expired).await?;
    let why = refused(answer(&stage, BOB, &answer_to(&request, "yes", true)?).await)?;
    assert!(why.contains("Expired already"), "{why}");
    Ok(())
}

/// Deleting somebody else's denial before it counts, with the right to delete answers: refused.
#[tokio::test]
async fn somebody_elses_answer_that_is_deleted() -> Result<()> {
    let stage = stage("others", 2, "10m").await?;
    let request = waiting(&stage).await?;
    answer(&stage, BOB, &answer_to(&request, "one", true)?).await?;
    let deleted = CAROL
        .delete(&stage.admin, stage.name(), ANSWERS, "one")
        .await;
    let why = refused(deleted)?;
    assert!(
        why.contains("withdrawn by nobody else") || why.contains("somebody else's"),
        "{why}"
    );
    Ok(())
}
