//! Requests that require approvals, while parts of oz are missing or cannot write audit records.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use kube::Api;
use kube::api::{ListParams, PostParams};
use oz_api::{EndReason, ExecAccessRequest, Phase, labels};
use oz_e2e::{
    NAMESPACE, Operator, Options, Person, Scene, System, answer_to, approval_rule,
    approved_template, conditions_line, exec_request, install, refused,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use oz_trail::AuditEvent;

use crate::alone;

const BOB: Person = Person::new("bob", &["approvers"]);
const CAROL: Person = Person::new("carol", &["approvers"]);

/// Sets up a scene with a template that requires the approvals of bob and carol.
async fn scene(cluster: &'static Cluster, prefix: &str, timeout: &str) -> Result<Scene> {
    let scene = Scene::set(cluster, prefix).await?;
    scene.may_approve("approvers").await?;
    let rules = vec![
        approval_rule("security", &["bob"], &[], 1),
        approval_rule("sre", &["carol"], &[], 1),
    ];
    scene
        .template(&approved_template("asked", rules, timeout))
        .await?;
    Ok(scene)
}

/// Creates a request of alice that waits for both.
async fn waiting(scene: &Scene) -> Result<ExecAccessRequest> {
    let alice = scene.requests("alice").await?;
    alice.create(&exec_request("mine", "asked", "1h")).await?;
    alice
        .until("mine", "to wait for others", |status| {
            status.approval.is_some()
        })
        .await
}

async fn approves(scene: &Scene, by: Person, request: &ExecAccessRequest) -> Result<()> {
    let answer = answer_to(request, by.user, true)?;
    let answers = "accessrequestapprovals";
    by.create(&scene.admin, scene.name(), answers, &answer)
        .await?;
    Ok(())
}

/// Returns the numbers of Roles, of RoleBindings to them, and of records of a grant of this request.
async fn grants(scene: &Scene, request: &ExecAccessRequest) -> Result<(usize, usize, usize)> {
    let uid = request.metadata.uid.as_deref().context("no UID")?;
    let of = ListParams::default().labels(&format!("{}={uid}", labels::OWNER_UID));
    let roles = scene.api::<Role>().list(&of).await?;
    let bindings = scene.api::<RoleBinding>().list(&of).await?;
    let granted = format!(
        "{}=AccessGranted,{}={uid}",
        labels::AUDIT_KIND,
        labels::AUDIT_GRANT
    );
    let events = Api::<AuditEvent>::all(scene.admin.clone());
    let events = events.list(&ListParams::default().labels(&granted)).await?;
    Ok((roles.items.len(), bindings.items.len(), events.items.len()))
}

#[tokio::test]
async fn approval_is_impossible_while_webhook_is_down_and_request_expires() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = scene(cluster, "unanswered", "15s").await?;
    let request = waiting(&scene).await?;
    approves(&scene, BOB, &request).await?;
    system.webhook.process.kill9();
    let answer = answer_to(&request, "carol", true)?;
    let answers = "accessrequestapprovals";
    let given = CAROL
        .create(&scene.admin, scene.name(), answers, &answer)
        .await;
    let why = refused(given)?;
    ensure!(why.contains("failed calling webhook"), "{why}");
    let alice = scene.requests("alice").await?;
    let over = alice.phase("mine", Phase::Expired).await?;
    let ending = over.ending.context("no ending")?;
    assert_eq!(ending.reason, EndReason::ApprovalTimedOut);
    assert_eq!(grants(&scene, &request).await?, (0, 0, 0));
    Ok(())
}

#[tokio::test]
async fn while_the_operator_is_down_approvals_wait_and_then_there_is_one_grant() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = scene(cluster, "undecided", "1h").await?;
    let request = waiting(&scene).await?;
    system.operator.process.kill9();
    approves(&scene, BOB, &request).await?;
    approves(&scene, CAROL, &request).await?;
    let alice = scene.requests("alice").await?;
    let status = alice.api().get("mine").await?.status.context("no status")?;
    assert_eq!(status.phase, Phase::Pending);
    assert_eq!(grants(&scene, &request).await?, (0, 0, 0));

    let _operator = Operator::start(cluster, &Options::default()).await?;
    let asked = alice.ready("mine").await?;
    assert_eq!(grants(&scene, &request).await?, (1, 1, 1));
    let line = conditions_line(&asked.status());
    ensure!(
        line.contains("Approved by bob (security), carol (sre)"),
        "{line}"
    );
    Ok(())
}

/// Takes the right to write events away from the operator.
async fn nothing_is_written_down(cluster: &Cluster) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(cluster.client("admin").await?);
    let mut role = roles.get("oz-operator").await?;
    let rules = role.rules.as_mut().context("no rules")?;
    for rule in rules.iter_mut() {
        if let Some(resources) = &mut rule.resources {
            resources.retain(|resource| resource != "auditevents");
        }
    }
    rules.retain(|rule| {
        rule.resources
            .as_ref()
            .is_some_and(|named| !named.is_empty())
    });
    roles
        .replace("oz-operator", &PostParams::default(), &role)
        .await?;
    eventually(
        "the operator to be refused",
        CONDITION_TIMEOUT,
        async || {
            let mut kubectl = cluster.kubectl("admin");
            let operator = format!("--as=system:serviceaccount:{NAMESPACE}:oz-operator");
            let resource = "auditevents.crds.wizardofoz.co";
            kubectl.args(["auth", "can-i", "create", resource, &operator]);
            Ok((kubectl.output()?.stdout == b"no\n").then_some(()))
        },
    )
    .await
}

#[tokio::test]
async fn approved_request_is_not_granted_before_audit_record() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let _system = System::start(cluster).await?;
    let scene = scene(cluster, "unwritten", "1h").await?;
    let request = waiting(&scene).await?;
    approves(&scene, BOB, &request).await?;
    nothing_is_written_down(cluster).await?;
    approves(&scene, CAROL, &request).await?;
    let alice = scene.requests("alice").await?;
    let says = alice.until("mine", "to say that nothing is written", |status| {
        conditions_line(status).contains("failed to write the audit record")
    });
    says.await?;
    let (_, bindings, records) = grants(&scene, &request).await?;
    assert_eq!((bindings, records), (0, 0));

    install(cluster).await?;
    alice.ready("mine").await?;
    assert_eq!(grants(&scene, &request).await?, (1, 1, 1));
    Ok(())
}
