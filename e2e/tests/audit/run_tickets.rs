//! A harness run that waits for an approval, is approved by another user, begins, and ends early because its change ticket
//! was closed.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use oz_api::conditions::{self, TICKET_ACCEPTED};
use oz_api::harness::{HarnessRun, HarnessTemplate, RunPhase};
use oz_e2e::{
    Auditor, Options, Person, Scene, System, TicketAnswer, TicketServer, agent_running,
    announce_broker, apply, apply_as, by_hand_overlay, install_harness, node_by_hand, records_in,
    ticket_checks,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use oz_trail::{Action, Record};
use serde_json::{Value, json};

use crate::alone;
use crate::support::clean;

const BOB: Person = Person::new("bob", &["approvers"]);

/// Prepares the cluster for harness runs, except for the processes.
pub(crate) async fn prepare(cluster: &Cluster) -> Result<()> {
    clean(cluster).await?;
    install_harness(cluster)?;
    let admin = cluster.client("admin").await?;
    announce_broker(&admin).await?;
    node_by_hand(&admin).await
}

/// Creates a template whose pods the test runs and ends, with these fields.
pub(crate) async fn template(scene: &Scene, name: &str, fields: Value) -> Result<()> {
    let mut spec = json!({
        "image": "registry.test/echo:1", "command": ["/echo"],
        "defaults": {"timeout": "10m"}, "workspace": {"required": false},
        "podTemplateOverlay": by_hand_overlay(),
    });
    for (field, value) in fields.as_object().context("no fields")? {
        spec[field] = value.clone();
    }
    let template = json!({"metadata": {"name": name}, "spec": spec});
    apply_as(&scene.api::<HarnessTemplate>(), template).await?;
    Ok(())
}

/// Waits until a condition holds for a run.
pub(crate) async fn until(
    scene: &Scene,
    name: &str,
    what: &str,
    holds: impl Fn(&HarnessRun) -> bool,
) -> Result<HarnessRun> {
    let runs = scene.api::<HarnessRun>();
    eventually(
        &format!("run {name} {what}"),
        CONDITION_TIMEOUT,
        async || {
            let run = runs.get(name).await?;
            let text = serde_json::to_string(&run.status)?;
            ensure!(holds(&run), "its status is {text}");
            Ok(Some(run))
        },
    )
    .await
}

pub(crate) fn phase(run: &HarnessRun) -> Option<RunPhase> {
    run.status.as_ref()?.phase
}

/// Returns the reason of a condition of a run.
pub(crate) fn reason<'a>(run: &'a HarnessRun, type_: &str) -> &'a str {
    let status = run.status.as_ref();
    let found = status.and_then(|status| conditions::find(&status.conditions, type_));
    found.map_or("", |found| found.reason.as_str())
}

/// Reports that the agent of a run runs, as its kubelet would, and waits until the run reports it.
pub(crate) async fn agent_runs(scene: &Scene, run: &str) -> Result<Pod> {
    let pods = scene.api::<Pod>();
    let selection = ListParams::default().labels(&format!("job-name={run}"));
    let what = format!("the pod of {run}");
    let pod = eventually(&what, CONDITION_TIMEOUT, async || {
        Ok(pods.list(&selection).await?.items.into_iter().next_back())
    })
    .await?;
    let status = Patch::Merge(json!({"status": agent_running()}));
    let parameters = PatchParams::default();
    pods.patch_status(&pod.name_any(), &parameters, &status)
        .await?;
    until(scene, run, "to be Running", |run| {
        phase(run) == Some(RunPhase::Running)
    })
    .await?;
    Ok(pod)
}

/// Submits the run `fix` by the template `guarded`, first without its change ticket, and waits until its approvers are
/// asked. No object of the run exists before.
async fn submitted(scene: &Scene) -> Result<HarnessRun> {
    let runs = scene.api::<HarnessRun>();
    let spec = json!({"templateRef": {"name": "guarded"}, "prompt": "hi"});
    let run = json!({"metadata": {"name": "fix"}, "spec": spec});
    let mut run: HarnessRun = serde_json::from_value(run)?;
    let refused = runs.create(&PostParams::default(), &run).await;
    let refused = format!("{:?}", refused.err().context("a run without a ticket")?);
    ensure!(
        refused.contains("requires a ticket that matches"),
        "{refused}"
    );
    run.spec.ticket = Some("INC-42".to_owned());
    runs.create(&PostParams::default(), &run).await?;
    let asks = |run: &HarnessRun| {
        let status = run.status.as_ref();
        status.is_some_and(|status| status.approval.is_some())
    };
    let waiting = until(scene, "fix", "to wait for an approval", asks).await?;
    let policies = scene.api::<NetworkPolicy>();
    let made = policies.list(&ListParams::default()).await?.items;
    ensure!(made.is_empty(), "{made:?}");
    Ok(waiting)
}

/// Approves a run as bob.
async fn approve(scene: &Scene, run: &HarnessRun) -> Result<()> {
    let status = run.status.clone().unwrap_or_default();
    let digest = status.approval.context("no approver is asked")?.digest;
    let approval = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "AccessRequestApproval",
        "metadata": {"name": "one"},
        "spec": {
            "accessRequestRef": {"kind": "HarnessRun", "name": "fix", "uid": run.uid()},
            "approval": true, "digest": digest,
        },
    });
    let plural = "accessrequestapprovals";
    let (admin, namespace) = (&scene.admin, scene.name());
    BOB.create(admin, namespace, plural, &approval).await?;
    Ok(())
}

/// Waits until the operator deletes a pod, and ends its containers, as its kubelet would.
async fn ends(scene: &Scene, pod: &str) -> Result<()> {
    let pods = scene.api::<Pod>();
    let what = format!("pod {pod} to be deleted");
    eventually(&what, CONDITION_TIMEOUT, async || {
        let leaves = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
        let found = pods.get_opt(pod).await?;
        Ok(found.as_ref().is_none_or(leaves).then_some(()))
    })
    .await?;
    let at_once = DeleteParams::default().grace_period(0);
    match pods.delete(pod, &at_once).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => drop(other?),
    }
    Ok(())
}

/// Checks the audit records of the run that began with an approval, and ended because of its change ticket.
fn is_recorded(scene: &Scene, records: &[Record]) -> Result<()> {
    let of = |action: Action| {
        let mut found = records.iter();
        let found = found.find(|it| it.request.namespace == scene.name() && it.action == action);
        found.with_context(|| format!("no {action}"))
    };
    let started = of(Action::RunStarted)?;
    for (detail, value) in [
        ("approvedBy", "bob (security)"),
        ("ticket", "INC-42"),
        ("ticketChecks", "jira"),
    ] {
        ensure!(started.details[detail] == value, "{started:?}");
    }
    ensure!(of(Action::RunEnded)?.reason == "TicketClosed");
    Ok(())
}

#[tokio::test]
async fn approved_run_ends_early_when_its_ticket_is_closed() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    prepare(cluster).await?;
    let server = TicketServer::start(TicketAnswer::Open).await?;
    let mut check = server.check("Fail");
    // A server that answers late on a busy machine is not unavailable.
    check["timeout"] = json!("10s");
    let operator = ticket_checks(&json!({"jira": check})).harness();
    let webhook = Options::default().harness();
    let system = System::start_as(cluster, &webhook, &operator).await?;
    apply(cluster, "deploy/policies/harness")?;
    let scene = Scene::empty(cluster, "run-tickets").await?;
    scene.may_approve("approvers").await?;
    let mut auditor = Auditor::pinning(&scene.admin).await?;
    auditor.log(&system.webhook.process);
    auditor.log(&system.operator.process);
    let rules = json!([{"name": "security", "users": ["bob"]}]);
    let ticket = json!({"pattern": "INC-[0-9]+", "check": "jira"});
    let fields = json!({"approval": {"rules": rules, "timeout": "10m"}, "ticket": ticket});
    template(&scene, "guarded", fields).await?;

    let waiting = submitted(&scene).await?;
    approve(&scene, &waiting).await?;
    let pod = agent_runs(&scene, "fix").await?;
    let running = scene.api::<HarnessRun>().get("fix").await?;
    ensure!(
        reason(&running, TICKET_ACCEPTED) == "Success",
        "{running:?}"
    );

    server.answer(TicketAnswer::Closed);
    ends(&scene, &pod.name_any()).await?;
    let ended = until(&scene, "fix", "to be Cancelled", |run| {
        phase(run) == Some(RunPhase::Cancelled)
    })
    .await?;
    for type_ in ["Completed", TICKET_ACCEPTED] {
        ensure!(reason(&ended, type_) == "TicketClosed", "{ended:?}");
    }
    let (policies, jobs) = (scene.api::<NetworkPolicy>(), scene.api::<Job>());
    eventually("its objects to be gone", CONDITION_TIMEOUT, async || {
        let policy = policies.get_opt("fix-egress").await?;
        let job = jobs.get_opt("fix").await?;
        Ok((policy.is_none() && job.is_none()).then_some(()))
    })
    .await?;
    is_recorded(&scene, &records_in(&system.operator.process)?)?;
    let report = auditor.report().await?;
    ensure!(report.is_whole(), "{:#?}", report.problems);
    Ok(())
}
