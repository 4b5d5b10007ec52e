//! Emergencies: granted without approvals, and reviewed afterwards. Each test uses its own users, since unreviewed
//! emergencies count across all namespaces.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams};
use oz_api::{AccessReview, ExecAccessRequest, Finding, Phase, conditions, labels};
use oz_e2e::{
    NAMESPACE, Person, REVIEWS, Scene, alerts, conditions_line, emergency_template, found, refused,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::AuditEvent;
use serde_json::json;

use crate::{scene, system};

const ERIN: Person = Person::new("erin", &["security"]);
const FRANK: Person = Person::new("frank", &["security"]);

const fn on_call(user: &'static str) -> Person {
    Person::new(user, &["devs", "oncall"])
}

async fn with_emergencies(prefix: &str, within: &str, open: i32) -> Result<Scene> {
    let scene = scene(prefix).await?;
    scene.may_review("security").await?;
    scene
        .template(&emergency_template("guarded", within, open))
        .await?;
    Ok(scene)
}

/// Returns the audit records of this action about the request.
async fn on_record(scene: &Scene, action: &str, uid: &str) -> Result<Vec<AuditEvent>> {
    let events: kube::Api<AuditEvent> = kube::Api::all(scene.admin.clone());
    let selected = format!(
        "{}={action},{}={uid}",
        labels::AUDIT_KIND,
        labels::AUDIT_GRANT
    );
    let listed = events
        .list(&ListParams::default().labels(&selected))
        .await?;
    Ok(listed.items)
}

#[tokio::test]
async fn an_emergency_is_granted_without_approvals_and_reviewed_once() -> Result<()> {
    let scene = with_emergencies("emergency", "24h", 2).await?;
    let dana = on_call("dana-one");
    dana.has_emergency(&scene, "inc", "guarded").await?;
    let requests = scene.requests("admin").await?;
    let granted = requests.ready("inc").await?;
    let line = conditions_line(&granted.status());
    ensure!(
        line.contains("EMERGENCY: granted without an approval"),
        "{line}"
    );
    ensure!(!line.contains("Approved"), "{line}");
    let uid = granted.request.uid().context("no UID")?;
    let review = scene.review_of("inc").await?;
    let spec = &review.spec;
    assert_eq!(
        spec.access_request_ref.as_ref().map(|about| &about.uid),
        Some(&uid)
    );
    assert_eq!(spec.requester.user, "dana-one");
    assert_eq!(
        (spec.template.as_str(), spec.emergency.as_str()),
        ("guarded", "INC-42")
    );
    assert_eq!(spec.reviewers.groups, ["security"]);
    assert!(spec.records.count >= 1, "{:?}", spec.records);
    assert!(review.metadata.owner_references.is_none());
    let events = on_record(&scene, "EmergencyGranted", &uid).await?;
    assert_eq!(events.len(), 1);
    assert_eq!(on_record(&scene, "AccessGranted", &uid).await?.len(), 0);

    let name = review.name_any();
    ERIN.reviews(&scene, &name, &found(Finding::Justified))
        .await?;
    let reviews = scene.api::<AccessReview>();
    let written = reviews.get(&name).await?;
    assert_eq!(written.spec.finding, Some(Finding::Justified));
    assert_eq!(written.annotations()[labels::REVIEWED_BY], "erin");
    let why = refused(
        FRANK
            .reviews(&scene, &name, &found(Finding::Unjustified))
            .await,
    )?;
    ensure!(
        why.contains("written once") || why.contains("wrote review"),
        "{why}"
    );
    let given = on_record(&scene, "ReviewGiven", &uid).await?;
    assert_eq!(given.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_review_is_opened_although_the_request_is_deleted_at_once_and_outlives_it() -> Result<()>
{
    let scene = with_emergencies("deleted-at-once", "24h", 2).await?;
    on_call("dana-two")
        .has_emergency(&scene, "inc", "guarded")
        .await?;
    let requests = scene.requests("admin").await?;
    let granted = requests.ready("inc").await?;
    let own = scene.api::<ExecAccessRequest>();
    own.delete("inc", &DeleteParams::default()).await?;
    scene
        .gone::<ExecAccessRequest>("inc", CONDITION_TIMEOUT)
        .await?;
    let review = scene.review_of("inc").await?;
    assert_eq!(
        review.spec.access_request_ref.map(|about| about.uid),
        granted.request.uid()
    );
    Ok(())
}

#[tokio::test]
async fn unreviewed_emergency_is_overdue_until_reviewed() -> Result<()> {
    let scene = with_emergencies("overdue", "2s", 2).await?;
    on_call("dana-three")
        .has_emergency(&scene, "inc", "guarded")
        .await?;
    let review = scene.review_of("inc").await?;
    let name = review.name_any();
    let reviews = scene.api::<AccessReview>();
    let is_overdue = async |wanted: &str| {
        let what = format!("Overdue to be {wanted}");
        eventually(&what, CONDITION_TIMEOUT, async || {
            let now = reviews.get(&name).await?;
            let status = now.status.unwrap_or_default();
            let told = conditions::find(&status.conditions, conditions::OVERDUE);
            Ok(told.is_some_and(|told| told.status == wanted).then_some(()))
        })
        .await
    };
    is_overdue("True").await?;
    let about = review
        .spec
        .access_request_ref
        .as_ref()
        .context("about no request")?;
    let told = on_record(&scene, "ReviewOverdue", &about.uid).await?;
    assert_eq!(told.len(), 1);
    let gauge = async || {
        let metrics = system().await?.operator.metrics().await?;
        let mut lines = metrics.lines();
        let line = lines.find_map(|line| line.strip_prefix("oz_reviews_overdue "));
        anyhow::Ok(line.map(|count| count.parse::<f64>()).transpose()?)
    };
    eventually("the gauge to count it", CONDITION_TIMEOUT, async || {
        Ok(gauge().await?.filter(|count| *count >= 1.0))
    })
    .await?;
    let metrics = system().await?.operator.metrics().await?;
    ensure!(
        alerts::fires("reviews.yaml", "OzReviewsOverdue", &metrics)?,
        "{metrics}"
    );
    ERIN.reviews(&scene, &name, &found(Finding::FollowUp))
        .await?;
    is_overdue("False").await?;
    Ok(())
}

#[tokio::test]
async fn emergency_is_denied_while_too_many_are_unreviewed() -> Result<()> {
    let scene = with_emergencies("too-many", "24h", 1).await?;
    let dana = on_call("dana-four");
    let requests = scene.requests("admin").await?;
    // Both are created concurrently, before a review exists: the operator counts them one after the other.
    let (first, second) = tokio::join!(
        dana.has_emergency(&scene, "one", "guarded"),
        dana.has_emergency(&scene, "two", "guarded"),
    );
    first?;
    second?;
    let over = |status: &oz_api::RequestStatus| status.phase != Phase::Pending;
    let one = requests.until("one", "to be decided", over).await?;
    let two = requests.until("two", "to be decided", over).await?;
    let phases = [&one, &two].map(|request| request.status.clone().unwrap_or_default().phase);
    ensure!(
        phases.contains(&Phase::Active) && phases.contains(&Phase::Denied),
        "{phases:?}"
    );
    let (granted, denied) = if phases[0] == Phase::Active {
        (one, two)
    } else {
        (two, one)
    };
    let line = conditions_line(&denied.status.unwrap_or_default());
    ensure!(line.contains("have no review"), "{line}");
    let review = scene.review_of(&granted.name_any()).await?;
    // The webhook learns of the review from its watch.
    let mut names = (0..).map(|number| format!("next-{number}"));
    let mut ask = async || {
        let name = names.next().context("no more names")?;
        let answer = dana.has_emergency(&scene, &name, "guarded").await;
        anyhow::Ok((name, answer))
    };
    let told = eventually("admission to refuse it", CONDITION_TIMEOUT, async || {
        let (_, answer) = ask().await?;
        match answer {
            Ok(()) => Ok(None),
            refusal => Ok(Some(refused(refusal)?)),
        }
    })
    .await?;
    ensure!(told.contains("have no review"), "{told}");
    ERIN.reviews(&scene, &review.name_any(), &found(Finding::Justified))
        .await?;
    // The webhook and the operator learn of the review one after the other.
    eventually("the next to be let in", CONDITION_TIMEOUT, async || {
        let (name, answer) = ask().await?;
        answer?;
        let decided = requests.until(&name, "to be decided", over).await?;
        let phase = decided.status.unwrap_or_default().phase;
        Ok((phase == Phase::Active).then_some(()))
    })
    .await?;
    Ok(())
}

/// Permits the reviewers to review emergencies of deleted namespaces, whose reviews are in oz's own namespace.
async fn may_review_deleted(scene: &Scene) -> Result<()> {
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "reviewers"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "oz-review-access",
        },
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "security"},
        ],
    }))?;
    let bindings = kube::Api::<RoleBinding>::namespaced(scene.admin.clone(), NAMESPACE);
    bindings.create(&PostParams::default(), &binding).await?;
    Ok(())
}

async fn delete_namespace(scene: &Scene) -> Result<()> {
    let namespaces: kube::Api<Namespace> = kube::Api::all(scene.admin.clone());
    namespaces
        .delete(scene.name(), &DeleteParams::default())
        .await?;
    let what = format!("namespace {} to be deleted", scene.name());
    eventually(&what, CONDITION_TIMEOUT, async || {
        let found = namespaces.get_opt(scene.name()).await?;
        Ok(found.is_none().then_some(()))
    })
    .await
}

#[tokio::test]
async fn emergencies_of_deleted_namespaces_count_until_reviewed() -> Result<()> {
    let dana = on_call("dana-five");
    // Reviewed, then deleted.
    let reviewed = with_emergencies("reviewed-gone", "24h", 1).await?;
    dana.has_emergency(&reviewed, "inc", "guarded").await?;
    let review = reviewed.review_of("inc").await?;
    ERIN.reviews(&reviewed, &review.name_any(), &found(Finding::Justified))
        .await?;
    delete_namespace(&reviewed).await?;
    // Deleted, then reviewed.
    let open = with_emergencies("open-gone", "24h", 1).await?;
    dana.has_emergency(&open, "inc", "guarded").await?;
    let granted = open.requests("admin").await?.ready("inc").await?;
    let uid = granted.request.uid().context("no UID")?;
    let name = open.review_of("inc").await?.name_any();
    delete_namespace(&open).await?;
    let moved = kube::Api::<AccessReview>::namespaced(open.admin.clone(), NAMESPACE);
    eventually(
        "its review in oz's own namespace",
        CONDITION_TIMEOUT,
        async || Ok(moved.get_opt(&name).await?),
    )
    .await?;
    let scene = with_emergencies("after-gone", "24h", 1).await?;
    let mut names = (0..).map(|number| format!("next-{number}"));
    let mut ask = async || {
        let name = names.next().context("no more names")?;
        let answer = dana.has_emergency(&scene, &name, "guarded").await;
        anyhow::Ok((name, answer))
    };
    let told = eventually("admission to refuse it", CONDITION_TIMEOUT, async || {
        let (_, answer) = ask().await?;
        match answer {
            Ok(()) => Ok(None),
            refusal => Ok(Some(refused(refusal)?)),
        }
    })
    .await?;
    ensure!(told.contains(&uid), "{told}");
    may_review_deleted(&open).await?;
    let finding = found(Finding::Justified);
    eventually("the finding", CONDITION_TIMEOUT, async || {
        let written = ERIN.patch(&open.admin, NAMESPACE, REVIEWS, &name, &finding);
        // RBAC learns of the binding in a moment.
        Ok(written.await.ok())
    })
    .await?;
    let given = on_record(&open, "ReviewGiven", &uid).await?;
    let places: Vec<_> = given
        .iter()
        .map(|event| event.spec.record.request.namespace.as_str())
        .collect();
    assert_eq!(places, [open.name()]);
    let requests = scene.requests("admin").await?;
    let over = |status: &oz_api::RequestStatus| status.phase != Phase::Pending;
    eventually("the next to be granted", CONDITION_TIMEOUT, async || {
        let (name, answer) = ask().await?;
        answer?;
        let decided = requests.until(&name, "to be decided", over).await?;
        let phase = decided.status.unwrap_or_default().phase;
        Ok((phase == Phase::Active).then_some(()))
    })
    .await
}
