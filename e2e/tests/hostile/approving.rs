//! Obtaining access without the required approvals.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use oz_api::{AccessRequestApproval, ExecAccessRequest, ExecAccessTemplate, Phase, labels};
use oz_e2e::{
    Person, answer_to, approval_rule, approved_template, conditions_line, exec_request, refused,
};
use oz_trail::AuditEvent;
use serde_json::json;

use crate::Stage;

const ANSWERS: &str = "accessrequestapprovals";
const REQUESTS: &str = "execaccessrequests";

/// The requester, who is in the group of approvers as well.
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
const BOB: Person = Person::new("bob", &["approvers"]);
const CAROL: Person = Person::new("carol", &["approvers"]);

/// Creates a stage with a template that requires one approval of the group `approvers` under each of `rules` rules.
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

/// Creates a request of alice, with her UID, and waits until it requires approvals.
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

/// Returns the audit records of grants for the request with this UID.
async fn granted(stage: &Stage, uid: &str) -> Result<Vec<AuditEvent>> {
    let events: Api<AuditEvent> = Api::all(stage.admin.clone());
    let selected = format!(
        "{}=AccessGranted,{}={uid}",
        labels::AUDIT_KIND,
        labels::AUDIT_GRANT
    );
    let selected = ListParams::default().labels(&selected);
    Ok(events.list(&selected).await?.items)
}

async fn answer(stage: &Stage, by: Person, answer: &AccessRequestApproval) -> kube::Result<()> {
    by.create(&stage.admin, stage.name(), ANSWERS, answer)
        .await?;
    Ok(())
}

/// Approving one's own request: the webhook denies it.
#[tokio::test]
async fn ones_own_request() -> Result<()> {
    let stage = stage("own", 1, "10m").await?;
    let request = waiting(&stage).await?;
    let why = refused(answer(&stage, ALICE, &answer_to(&request, "yes", true)?).await)?;
    assert!(
        why.contains("created ExecAccessRequest mine themselves"),
        "{why}"
    );
    Ok(())
}

/// Approving one's own request under another user name that has the same UID: the webhook denies it.
#[tokio::test]
async fn ones_own_request_under_another_name() -> Result<()> {
    let stage = stage("alter", 1, "10m").await?;
    let request = waiting(&stage).await?;
    let why = refused(answer(&stage, ALTER, &answer_to(&request, "yes", true)?).await)?;
    assert!(
        why.contains("an approval by another user is required"),
        "{why}"
    );
    Ok(())
}

/// Approving a request twice, to count for two rules: the webhook denies the second approval, and the request stays
/// pending.
#[tokio::test]
async fn once_for_two_rules() -> Result<()> {
    let stage = stage("twice", 2, "10m").await?;
    let request = waiting(&stage).await?;
    answer(&stage, BOB, &answer_to(&request, "one", true)?).await?;
    let why = refused(answer(&stage, BOB, &answer_to(&request, "two", true)?).await)?;
    assert!(
        why.contains("bob decided about ExecAccessRequest mine already, by one"),
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

/// Approving a new request with the approval of a deleted request that had the same name: the approval names the UID
/// of the deleted request, and the webhook denies it.
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
    assert!(why.contains("it was created again"), "{why}");
    Ok(())
}

/// Approving one's own request with the stamp of another user's approval: the webhook overwrites the stamp with the
/// requester, and denies the approval.
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

/// Turning an approval into a denial, changing its stamp or the UID of its request, or adding an owner, as an
/// administrator: oz denies each edit.
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

/// Approving through a service account in a group that may approve: the webhook denies it, because a rule must name
/// service accounts individually.
#[tokio::test]
async fn a_service_account_of_a_group() -> Result<()> {
    let stage = stage("account", 1, "10m").await?;
    let request = waiting(&stage).await?;
    let account = Person::new("system:serviceaccount:ci:gate", &["approvers"]);
    let why = refused(answer(&stage, account, &answer_to(&request, "yes", true)?).await)?;
    assert!(why.contains("in no approval rule"), "{why}");
    Ok(())
}

/// Approving as an administrator who is in no approval rule, with every right to create approvals: the webhook denies
/// it.
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

/// Approving after the timeout of the request: the request is expired, and the webhook denies the approval.
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

/// Deleting another approver's approval while the request is pending, with the right to delete approvals: the webhook
/// denies it.
#[tokio::test]
async fn decision_of_another_approver_is_not_deleted() -> Result<()> {
    let stage = stage("others", 2, "10m").await?;
    let request = waiting(&stage).await?;
    answer(&stage, BOB, &answer_to(&request, "one", true)?).await?;
    let deleted = CAROL
        .delete(&stage.admin, stage.name(), ANSWERS, "one")
        .await;
    let why = refused(deleted)?;
    assert!(
        why.contains("only its author can withdraw it") || why.contains("somebody else's"),
        "{why}"
    );
    Ok(())
}

/// Approving content that the approver has not seen, by naming another digest: the webhook denies it.
#[tokio::test]
async fn a_digest_of_something_else() -> Result<()> {
    let stage = stage("digest", 1, "10m").await?;
    let request = waiting(&stage).await?;
    let mut yes = answer_to(&request, "yes", true)?;
    yes.spec.digest = format!("sha256:{}", "0".repeat(64));
    let why = refused(answer(&stage, BOB, &yes).await)?;
    assert!(why.contains("mine"), "{why}");
    Ok(())
}

/// Approving a request from another namespace, in which one may approve: the webhook denies it, and the request stays
/// pending.
#[tokio::test]
async fn an_answer_in_another_namespace() -> Result<()> {
    let (asked, elsewhere) = (
        stage("here", 1, "10m").await?,
        stage("there", 1, "10m").await?,
    );
    let request = waiting(&asked).await?;
    let yes = answer_to(&request, "yes", true)?;
    refused(answer(&elsewhere, BOB, &yes).await)?;
    let requests = asked.requests("admin").await?;
    let now = requests.api().get("mine").await?;
    assert_eq!(now.status.context("no status")?.phase, Phase::Pending);
    Ok(())
}

/// Replaying a withdrawn approval with its stamp, under another user name that has the requester's UID: the webhook
/// denies it.
#[tokio::test]
async fn an_answer_that_is_replayed() -> Result<()> {
    let stage = stage("replayed", 2, "10m").await?;
    let request = waiting(&stage).await?;
    answer(&stage, BOB, &answer_to(&request, "one", true)?).await?;
    let answers = Api::<AccessRequestApproval>::namespaced(stage.admin.clone(), stage.name());
    let given = answers.get("one").await?;
    BOB.delete(&stage.admin, stage.name(), ANSWERS, "one")
        .await?;
    let mut again = answer_to(&request, "one", true)?;
    again.metadata.annotations = given.metadata.annotations;
    let why = refused(answer(&stage, ALTER, &again).await)?;
    assert!(
        why.contains("an approval by another user is required"),
        "{why}"
    );
    Ok(())
}

/// Approving a request that is already granted, to be recorded as its approver: the webhook denies it.
#[tokio::test]
async fn a_request_that_is_granted() -> Result<()> {
    let stage = stage("granted", 1, "10m").await?;
    let request = waiting(&stage).await?;
    answer(&stage, BOB, &answer_to(&request, "one", true)?).await?;
    stage.requests("admin").await?.ready("mine").await?;
    let late = answer(&stage, CAROL, &answer_to(&request, "two", true)?).await;
    refused(late)?;
    Ok(())
}

/// Returns the users of the audit records of one kind in the stage's namespace.
async fn on_record(stage: &Stage, action: &str) -> Result<Vec<String>> {
    let events: Api<AuditEvent> = Api::all(stage.admin.clone());
    let selected = ListParams::default().labels(&format!("{}={action}", labels::AUDIT_KIND));
    let records = events.list(&selected).await?.items.into_iter();
    let records = records.map(|event| event.spec.record);
    let here = records.filter(|record| record.request.namespace == stage.name());
    let users = here.filter_map(|record| Some(record.user?.user));
    Ok(users.collect())
}

/// Approving and denying a request in the same second: the denial wins, and the audit trail records both.
#[tokio::test]
async fn an_approval_and_a_denial_at_once() -> Result<()> {
    let stage = stage("both", 2, "10m").await?;
    let request = waiting(&stage).await?;
    let (yes, no) = (
        answer_to(&request, "yes", true)?,
        answer_to(&request, "no", false)?,
    );
    let both = tokio::join!(answer(&stage, BOB, &yes), answer(&stage, CAROL, &no));
    // The later decision fails if the request has ended by then.
    ensure!(both.1.is_ok() || both.0.is_ok(), "{both:?}");
    let requests = stage.requests("admin").await?;
    let over = requests.phase("mine", Phase::Denied).await?;
    let line = conditions_line(&over);
    ensure!(line.contains("carol"), "{line}");
    let uid = request.metadata.uid.context("no UID")?;
    ensure!(granted(&stage, &uid).await?.is_empty(), "it was granted");
    // The audit trail records a late decision as denied.
    for (user, answered, given) in [
        ("bob", &both.0, "ApprovalGiven"),
        ("carol", &both.1, "ApprovalDenied"),
    ] {
        let action = match answered {
            Ok(()) => given,
            Err(_) => "ApprovalRefused",
        };
        let by = on_record(&stage, action).await?;
        ensure!(by == [user], "{action}: {by:?}");
    }
    Ok(())
}

/// Giving the last two approvals at the same time, to obtain two grants: the operator grants the request once.
#[tokio::test]
async fn two_last_approvals_at_once() -> Result<()> {
    let stage = stage("last", 2, "10m").await?;
    let request = waiting(&stage).await?;
    let (one, two) = (
        answer_to(&request, "one", true)?,
        answer_to(&request, "two", true)?,
    );
    let both = tokio::join!(answer(&stage, BOB, &one), answer(&stage, CAROL, &two));
    both.0?;
    both.1?;
    stage.requests("admin").await?.ready("mine").await?;
    let uid = request.metadata.uid.context("no UID")?;
    let listed = granted(&stage, &uid).await?;
    assert_eq!(listed.len(), 1);
    let approved = &listed[0].spec.record.details["approvedBy"];
    ensure!(
        approved.contains("bob") && approved.contains("carol"),
        "{approved}"
    );
    Ok(())
}

/// Writing the approval of one's request into its status, as an administrator: the webhook denies it.
#[tokio::test]
async fn a_status_that_says_approved() -> Result<()> {
    let stage = stage("status", 1, "10m").await?;
    waiting(&stage).await?;
    let requests = stage.requests("admin").await?;
    let patch = json!({ "status": { "phase": "Active", "approval": null, "ready": true } });
    let patch = Patch::Merge(&patch);
    let parameters = PatchParams::default();
    let patched = requests.api().patch_status("mine", &parameters, &patch);
    let why = refused(patched.await)?;
    assert!(why.contains("status"), "{why}");
    Ok(())
}

/// Approving with a reason that contains a bidirectional or a terminal control character, or has 1 MiB: oz denies it.
#[tokio::test]
async fn a_reason_that_deceives() -> Result<()> {
    let stage = stage("reason", 1, "10m").await?;
    let request = waiting(&stage).await?;
    for reason in [
        "\u{202e}tfel".to_owned(),
        "\u{1b}[2J".to_owned(),
        "x".repeat(1 << 20),
    ] {
        let mut yes = answer_to(&request, "yes", true)?;
        yes.spec.reason = Some(reason);
        refused(answer(&stage, BOB, &yes).await)?;
    }
    Ok(())
}

/// Loosening the approval rules of a template while a request is pending, to approve the request oneself: the webhook
/// denies an approval with the digest from before the change.
#[tokio::test]
async fn approval_after_loosened_rules_is_refused() -> Result<()> {
    let stage = stage("loosened", 1, "10m").await?;
    let request = waiting(&stage).await?;
    let yes = answer_to(&request, "yes", true)?;
    let templates = Api::<ExecAccessTemplate>::namespaced(stage.admin.clone(), stage.name());
    let patch = json!({ "spec": { "accessConfig": { "approval": { "rules": [
        { "name": "r0", "users": ["mallory"] },
    ] } } } });
    let patch = Patch::Merge(&patch);
    templates
        .patch("asked", &PatchParams::default(), &patch)
        .await?;
    let mallory = Person::new("mallory", &["system:masters"]);
    // The approval has the digest from before the change.
    let why = refused(answer(&stage, mallory, &yes).await)?;
    assert!(!why.is_empty());
    Ok(())
}
