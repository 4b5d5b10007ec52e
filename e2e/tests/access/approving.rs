//! Requests that require approvals.

use anyhow::{Context as _, Result};
use jiff::SignedDuration;
use kube::ResourceExt as _;
use oz_api::{AccessRequestApproval, EndReason, ExecAccessRequest, Phase};
use oz_e2e::{
    Person, Scene, answer_to, approval_rule, approved_template, conditions_line, exec_request,
};

use crate::scene;

const BOB: Person = Person::new("bob", &["approvers"]);
const CAROL: Person = Person::new("carol", &["approvers"]);
const ANSWERS: &str = "accessrequestapprovals";

/// Sets up a scene with a template that requires the approvals of bob and carol, each under a rule.
async fn with_rules(prefix: &str, timeout: &str) -> Result<Scene> {
    let scene = scene(prefix).await?;
    scene.may_approve("approvers").await?;
    let rules = vec![
        approval_rule("security", &["bob"], &[], 1),
        approval_rule("sre", &[], &["approvers"], 1),
    ];
    scene
        .template(&approved_template("asked", rules, timeout))
        .await?;
    Ok(scene)
}

/// Creates a request of alice and waits until it requires approvals.
async fn waiting(scene: &Scene, name: &str) -> Result<ExecAccessRequest> {
    let alice = scene.requests("alice").await?;
    alice.create(&exec_request(name, "asked", "5m")).await?;
    let asked = |status: &oz_api::RequestStatus| status.approval.is_some();
    alice.until(name, "to wait for others", asked).await
}

async fn give(scene: &Scene, by: Person, answer: &AccessRequestApproval) -> Result<()> {
    by.create(&scene.admin, scene.name(), ANSWERS, answer)
        .await?;
    Ok(())
}

#[tokio::test]
async fn access_is_given_when_all_rules_hold_and_its_time_counts_from_then() -> Result<()> {
    let scene = with_rules("approved", "10m").await?;
    let request = waiting(&scene, "mine").await?;
    let status = request.status.clone().context("no status")?;
    let line = conditions_line(&status);
    assert!(
        line.contains("waiting for security: bob may; sre: group approvers may"),
        "{line}"
    );
    give(&scene, BOB, &answer_to(&request, "one", true)?).await?;
    let alice = scene.requests("alice").await?;
    let half = alice.until("mine", "to count one", |status| {
        conditions_line(status).contains("waiting for sre: group approvers may")
    });
    assert_eq!(
        half.await?.status.context("no status")?.phase,
        Phase::Pending
    );
    give(&scene, CAROL, &answer_to(&request, "two", true)?).await?;
    let granted = alice.ready("mine").await?.status();
    let (from, until) = (granted.granted_at.context("no grant")?, granted.expires_at);
    let length = until.context("no end")?.duration_since(from);
    assert!(length <= SignedDuration::from_mins(5), "{length}");
    assert!(length > SignedDuration::from_secs(298), "{length}");
    let line = conditions_line(&granted);
    assert!(
        line.contains("Approved by bob (security), carol (sre)"),
        "{line}"
    );
    Ok(())
}

#[tokio::test]
async fn a_denial_ends_the_request() -> Result<()> {
    let scene = with_rules("denied", "10m").await?;
    let request = waiting(&scene, "mine").await?;
    give(&scene, BOB, &answer_to(&request, "one", true)?).await?;
    let mut no = answer_to(&request, "two", false)?;
    no.spec.reason = Some("the freeze".to_owned());
    give(&scene, CAROL, &no).await?;
    let alice = scene.requests("alice").await?;
    let status = alice.phase("mine", Phase::Denied).await?;
    let line = conditions_line(&status);
    assert!(line.contains("carol denied it: the freeze"), "{line}");
    Ok(())
}

#[tokio::test]
async fn an_approval_that_is_withdrawn_does_not_count() -> Result<()> {
    let scene = with_rules("withdrawn", "10m").await?;
    let request = waiting(&scene, "mine").await?;
    give(&scene, BOB, &answer_to(&request, "one", true)?).await?;
    BOB.delete(&scene.admin, scene.name(), ANSWERS, "one")
        .await?;
    give(&scene, CAROL, &answer_to(&request, "two", true)?).await?;
    let alice = scene.requests("alice").await?;
    let status = alice.until("mine", "to wait for bob alone", |status| {
        conditions_line(status).contains("waiting for security: bob may)")
    });
    assert_eq!(
        status.await?.status.context("no status")?.phase,
        Phase::Pending
    );
    Ok(())
}

#[tokio::test]
async fn request_without_approval_expires() -> Result<()> {
    let scene = with_rules("timeout", "2s").await?;
    let alice = scene.requests("alice").await?;
    alice.create(&exec_request("mine", "asked", "5m")).await?;
    let status = alice.phase("mine", Phase::Expired).await?;
    let ending = status.ending.context("no ending")?;
    assert_eq!(ending.reason, EndReason::ApprovalTimedOut);
    Ok(())
}

#[tokio::test]
async fn template_change_voids_approval() -> Result<()> {
    let scene = with_rules("voided", "10m").await?;
    let request = waiting(&scene, "mine").await?;
    give(&scene, BOB, &answer_to(&request, "one", true)?).await?;
    let templates = scene.api::<oz_api::ExecAccessTemplate>();
    let mut template = templates.get("asked").await?;
    template.spec.access_config.max_duration = "2h".to_owned();
    templates
        .replace("asked", &Default::default(), &template)
        .await?;
    let alice = scene.requests("alice").await?;
    let voided = alice.until("mine", "to void the approval", |status| {
        conditions_line(status)
            .contains("1 given for an earlier content of the request or its template")
    });
    let request = voided.await?;
    BOB.delete(&scene.admin, scene.name(), ANSWERS, "one")
        .await?;
    give(&scene, BOB, &answer_to(&request, "anew", true)?).await?;
    give(&scene, CAROL, &answer_to(&request, "two", true)?).await?;
    let asked = alice.ready("mine").await?;
    assert_eq!(asked.request.name_any(), "mine");
    Ok(())
}
