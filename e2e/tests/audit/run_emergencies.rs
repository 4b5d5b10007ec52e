//! An emergency of a harness run: it begins without an approval, is announced and reviewed, and a user with too many
//! unreviewed ones is refused.

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use oz_api::conditions::EMERGENCY;
use oz_api::harness::{HarnessRun, RunPhase};
use oz_api::{ApprovedKind, Finding};
use oz_e2e::receiver::{Answers, Server};
use oz_e2e::{Auditor, Options, Person, Scene, System, apply, found, records_in};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;
use serde_json::{Value, json};

use crate::alone;
use crate::run_tickets::{agent_runs, phase, prepare, reason, template, until};

const ERIN: Person = Person::new("erin", &["security"]);

/// Submits an emergency of dana, whom the administrator impersonates.
async fn declares(scene: &Scene, name: &str) -> kube::Result<Value> {
    let namespace = scene.name();
    let uri = format!("/apis/paddock.dev/v1alpha1/namespaces/{namespace}/harnessruns");
    let run = json!({
        "apiVersion": "paddock.dev/v1alpha1", "kind": "HarnessRun", "metadata": {"name": name},
        "spec": {
            "templateRef": {"name": "guarded"}, "prompt": "hi",
            "emergency": true, "reason": "INC-42: nothing works",
        },
    });
    let body = serde_json::to_vec(&run).map_err(kube::Error::SerdeError)?;
    let request = http::Request::post(uri)
        .header("content-type", "application/json")
        .header("Impersonate-User", "dana-of-runs")
        .header("Impersonate-Group", "system:masters");
    let request = request.body(body).map_err(kube::Error::HttpError)?;
    scene.admin.request(request).await
}

/// Declares emergencies until admission refuses one; until the webhook's watch has shown the review of the first, the
/// operator refuses the run. Returns the refusal.
async fn refused(scene: &Scene) -> Result<String> {
    let mut names = (0..).map(|number| format!("next-{number}"));
    let what = "admission to refuse another emergency";
    eventually(what, CONDITION_TIMEOUT, async || {
        let name = names.next().context("no more names")?;
        if let Err(refusal) = declares(scene, &name).await {
            return Ok(Some(format!("{refusal:?}")));
        }
        let over = |run: &HarnessRun| phase(run) == Some(RunPhase::Failed);
        let run = until(scene, &name, "to be refused", over).await?;
        ensure!(reason(&run, EMERGENCY) == "TooManyOpenReviews", "{run:?}");
        Ok(None)
    })
    .await
}

/// Declares emergencies until one begins: the webhook and the operator learn of the finding one after the other.
async fn begins(scene: &Scene) -> Result<HarnessRun> {
    let mut names = (0..).map(|number| format!("later-{number}"));
    eventually(
        "the next emergency to begin",
        CONDITION_TIMEOUT,
        async || {
            let name = names.next().context("no more names")?;
            declares(scene, &name).await?;
            let decided = |run: &HarnessRun| {
                let status = run.status.as_ref();
                phase(run) == Some(RunPhase::Failed)
                    || status.is_some_and(|status| status.job_name.is_some())
            };
            let run = until(scene, &name, "to be decided", decided).await?;
            Ok((phase(&run) != Some(RunPhase::Failed)).then_some(run))
        },
    )
    .await
}

#[tokio::test]
async fn emergency_run_begins_without_approval_and_its_review_makes_room() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    prepare(cluster).await?;
    let announced = Server::start(Answers::With(200)).await?;
    let route = json!({
        "name": "events", "url": announced.url("/"), "events": ["EmergencyGranted"],
    });
    let told = json!({"routes": [route], "allowedHosts": ["127.0.0.1"]});
    let operator = Options::default().set("notifications", told).harness();
    let webhook = Options::default().harness();
    let system = System::start_as(cluster, &webhook, &operator).await?;
    apply(cluster, "deploy/policies/harness")?;
    let scene = Scene::empty(cluster, "run-emergencies").await?;
    scene.may_review("security").await?;
    let mut auditor = Auditor::pinning(&scene.admin).await?;
    auditor.log(&system.webhook.process);
    auditor.log(&system.operator.process);
    let rules = json!([{"name": "security", "users": ["bob"]}]);
    let review = json!({"deadline": "24h", "groups": ["security"]});
    let fields = json!({
        "approval": {"rules": rules, "timeout": "10m"},
        "emergency": {"users": ["dana-of-runs"], "openReviews": 1, "review": review},
    });
    template(&scene, "guarded", fields).await?;

    declares(&scene, "fix").await?;
    agent_runs(&scene, "fix").await?;
    let run = until(&scene, "fix", "to be an emergency", |run| {
        reason(run, EMERGENCY) == "GrantedWithoutApproval"
    })
    .await?;
    let records = records_in(&system.operator.process)?;
    let mut of_emergencies = records.iter().filter(|it| {
        it.action == Action::EmergencyGranted && run.uid().as_ref() == Some(&it.request.uid)
    });
    let granted = of_emergencies
        .next()
        .context("no record of the emergency")?;
    ensure!(
        granted.details["reason"] == "INC-42: nothing works",
        "{granted:?}"
    );
    eventually("the notification", CONDITION_TIMEOUT, async || {
        let taken = announced.taken();
        let is_told = taken.iter().any(|it| it.raw.contains("EMERGENCY"));
        Ok(is_told.then_some(()))
    })
    .await?;
    has_room_after_review(&scene).await?;
    let report = auditor.report().await?;
    ensure!(report.is_whole(), "{:#?}", report.problems);
    Ok(())
}

/// Checks that another emergency is refused until the first is reviewed.
async fn has_room_after_review(scene: &Scene) -> Result<()> {
    let review = scene.review_of("fix").await?;
    let about = review.spec.access_request_ref.as_ref();
    let kind = about.map(|about| about.kind);
    ensure!(kind == Some(ApprovedKind::HarnessRun), "{review:?}");
    let refusal = refused(scene).await?;
    ensure!(refusal.contains("have no review"), "{refusal}");
    let change = found(Finding::Justified);
    ERIN.reviews(scene, &review.name_any(), &change).await?;
    begins(scene).await?;
    Ok(())
}
