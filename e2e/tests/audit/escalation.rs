//! The escalation of an approval rule: further approvers and one record after its time, and none before.

use anyhow::{Context as _, Result, ensure};
use oz_api::conditions::{self, APPROVED};
use oz_api::{Escalation, RequestStatus};
use oz_e2e::{
    Person, Scene, System, answer_to, approval_rule, approved_template, exec_request, records_in,
};
use oz_trail::Action;

use crate::alone;
use crate::support::clean;

const CAROL: Person = Person::new("carol", &["approvers", "leads"]);

fn message(status: &RequestStatus) -> String {
    let found = conditions::find(&status.conditions, APPROVED);
    found.map_or_else(String::new, |found| found.message.clone())
}

#[tokio::test]
async fn rule_without_approvals_gets_further_approvers_after_its_time() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "escalated").await?;
    scene.may_approve("approvers").await?;
    for (name, after) in [("soon", "10s"), ("later", "50m")] {
        let mut rule = approval_rule("security", &["bob"], &[], 1);
        rule.escalation = Some(Escalation {
            after: after.to_owned(),
            groups: vec!["leads".to_owned()],
            users: Vec::new(),
            notify: true,
        });
        scene
            .template(&approved_template(name, vec![rule], "1h"))
            .await?;
    }
    let alice = scene.requests("alice").await?;
    for name in ["later", "soon"] {
        alice.create(&exec_request(name, name, "1h")).await?;
    }
    let (admin, namespace) = (&scene.admin, scene.name());
    let plural = "accessrequestapprovals";

    // Before its time, the further approvers are none.
    let waiting = alice
        .until("later", "to wait for bob", |status| {
            status.approval.is_some()
        })
        .await?;
    let early = answer_to(&waiting, "early", true)?;
    let refused = CAROL.create(admin, namespace, plural, &early).await;
    let why = refused
        .err()
        .context("carol approved too early")?
        .to_string();
    ensure!(why.contains("is in no approval rule"), "{why}");

    let escalated = |status: &RequestStatus| {
        let approval = status.approval.as_ref();
        approval.is_some_and(|approval| approval.escalated == ["security"])
    };
    let waiting = alice.until("soon", "to be escalated", escalated).await?;
    let status = waiting.status.clone().unwrap_or_default();
    let expected = "waiting for security: bob, group leads may";
    ensure!(message(&status) == expected, "{}", message(&status));
    let approval = answer_to(&waiting, "approval", true)?;
    CAROL.create(admin, namespace, plural, &approval).await?;
    alice.ready("soon").await?;

    let records = records_in(&system.operator.process)?;
    let of = |name: &str, action: Action| {
        let found = records.iter();
        let found = found.filter(|it| it.request.name == name && it.action == action);
        found.count()
    };
    for (name, escalations) in [("soon", 1), ("later", 0)] {
        assert_eq!(of(name, Action::ApprovalRequested), 1, "{name}");
        assert_eq!(of(name, Action::ApprovalEscalated), escalations, "{name}");
    }
    assert_eq!(of("soon", Action::AccessGranted), 1);
    Ok(())
}
