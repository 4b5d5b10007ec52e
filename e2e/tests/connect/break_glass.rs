//! Connections by break-glass groups in enforcing namespaces, and their reviews.

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::ListParams;
use oz_api::{AccessReview, Finding, conditions, labels};
use oz_e2e::{Options, Person, Scene, System, found, refusal, refused};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::AuditEvent;

use crate::alone;

const ERIN: Person = Person::new("erin", &["security"]);
/// The user who connected, with all rights.
const ADMIN: Person = Person::new("admin", &["system:masters"]);

/// Returns all reviews in the scene of connections by break-glass.
async fn reviews(scene: &Scene) -> Result<Vec<AccessReview>> {
    let all = scene
        .api::<AccessReview>()
        .list(&ListParams::default())
        .await?;
    let mut all = all.items;
    all.retain(|review| review.spec.break_glass.is_some());
    Ok(all)
}

async fn opened(scene: &Scene) -> Result<()> {
    let output = scene
        .exec("admin", &[&scene.pod()?, "--", "true"])
        .output()?;
    ensure!(refusal(&output).is_none(), "{:?}", refusal(&output));
    Ok(())
}

/// Connects until the webhook has seen a connection, and returns its review: the API server learns with a delay that a
/// namespace is enforcing.
async fn opened_and_told_of(scene: &Scene) -> Result<AccessReview> {
    eventually("a review of it", CONDITION_TIMEOUT, async || {
        opened(scene).await?;
        Ok(reviews(scene).await?.into_iter().next())
    })
    .await
}

#[tokio::test]
async fn break_glass_is_reviewed_by_another_user_after_window() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let webhook = Options::default().set("webhook.breakGlassReview.window", "20s");
    let operator = Options::default().set("webhook.breakGlassReview.deadline", "1s");
    let system = System::start_as(cluster, &webhook, &operator).await?;
    let scene = Scene::set(cluster, "glass").await?;
    scene.may_review("security").await?;
    scene.enforce().await?;
    let review = opened_and_told_of(&scene).await?;
    let spec = &review.spec;
    assert_eq!(spec.requester.user, "admin");
    ensure!(
        spec.emergency.contains("as break-glass"),
        "{}",
        spec.emergency
    );
    ensure!(spec.records.count >= 1, "{:?}", spec.records);
    let name = review.name_any();
    // The user who connected may not review, and other users may only after the window is over.
    let reviewed = async |who: Person| {
        who.reviews(&scene, &name, &found(Finding::Unjustified))
            .await
    };
    refused(reviewed(ADMIN).await)?;
    let early = reviewed(ERIN).await;
    if let Ok(written) = &early {
        // On a slow machine the window was over by then.
        ensure!(written["spec"]["finding"] == "Unjustified", "{written}");
    }
    let written = eventually("erin to be let write", CONDITION_TIMEOUT, async || {
        let _ = reviewed(ERIN).await;
        let now = scene.api::<AccessReview>().get(&name).await?;
        Ok(now.spec.finding.is_some().then_some(now))
    })
    .await?;
    assert_eq!(written.annotations()[labels::REVIEWED_BY], "erin");
    let otherwise = found(Finding::Justified);
    let why = refused(ADMIN.reviews(&scene, &name, &otherwise).await)?;
    ensure!(
        why.contains("written once") || why.contains("wrote review"),
        "{why}"
    );
    // A connection in another window has another review, and an alert fires if no user writes it in time.
    let another = eventually("another review", CONDITION_TIMEOUT, async || {
        opened(&scene).await?;
        let all = reviews(&scene).await?;
        Ok(all.into_iter().find(|one| one.name_any() != name))
    })
    .await?;
    eventually("it to be overdue", CONDITION_TIMEOUT, async || {
        let now = scene.api::<AccessReview>().get(&another.name_any()).await?;
        let status = now.status.unwrap_or_default();
        Ok(conditions::is_true(&status.conditions, conditions::OVERDUE).then_some(()))
    })
    .await?;
    let metrics = system.operator.metrics().await?;
    let overdue = metrics
        .lines()
        .find_map(|line| line.strip_prefix("oz_reviews_overdue "));
    let overdue: f64 = overdue.context("no gauge")?.parse()?;
    ensure!(overdue >= 1.0, "{overdue}");
    let events: kube::Api<AuditEvent> = kube::Api::all(scene.admin.clone());
    let selected = format!("{}=BreakGlassOpened", labels::AUDIT_KIND);
    let listed = events
        .list(&ListParams::default().labels(&selected))
        .await?;
    ensure!(listed.items.len() >= 2, "{}", listed.items.len());
    Ok(())
}
