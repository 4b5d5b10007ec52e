//! A binding exists inside its window only, and costs two writes at each end.

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use oz_api::Phase;
use oz_e2e::records_of;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn a_binding_exists_only_inside_its_window_for_two_writes_at_each_end() -> Result<()> {
    let fixture = Fixture::set("window").await?;
    let mark = fixture.cluster.audit().mark()?;
    let (from, until) = (from_now(6), from_now(20));
    fixture
        .create(&binding(
            "on-call",
            &json!({"validFrom": from, "validUntil": until}),
        ))
        .await?;
    let status = fixture.phase("on-call", Phase::Pending).await?;
    assert!(
        fixture.made().get_opt("on-call").await?.is_none() || Timestamp::now() >= from.parse()?
    );
    assert!(status.activated_at.is_none());

    let status = fixture.phase("on-call", Phase::Active).await?;
    assert_eq!(status.requester.as_deref(), Some("lea"));
    assert_eq!(status.expires_at, Some(until.parse()?));
    assert!(status.activated_at >= Some(from.parse()?));
    let made = fixture.made().get("on-call").await?;
    assert_eq!(made.role_ref.name, "view");
    assert!(fixture.alice_may()?);

    let status = fixture.phase("on-call", Phase::Expired).await?;
    assert!(Timestamp::now() >= until.parse()?);
    assert_eq!(condition(&status, "Effective"), "False (Expired)");
    assert!(fixture.made().get_opt("on-call").await?.is_none());
    assert!(!fixture.alice_may()?);

    let calls = fixture.cluster.audit().since(mark)?;
    let writes = calls
        .by_user(&operator())
        .in_namespace(fixture.name())
        .writes()
        .filter(|entry| entry.resource != "events");
    // Pending; the binding and Active; the binding and Expired. Where the API server of a busy machine did not take a
    // record in time, one more write says so.
    let counts = writes.counts();
    let waits = waits(&fixture).await?;
    assert!((5..=5 + waits).contains(&writes.len()), "{counts:?}");

    let oz = oz().await?;
    let actions = records_of(&oz.operator.process, fixture.name(), "on-call")?;
    let actions: Vec<String> = actions.iter().map(ToString::to_string).collect();
    assert_eq!(actions, ["AccessGranted", "AccessExpired"]);
    let actions = records_of(&oz.webhook.process, fixture.name(), "on-call")?;
    assert_eq!(actions.len(), 1, "{actions:?}");
    let metrics = oz.operator.metrics().await?;
    for reason in ["BindingActivated", "BindingExpired"] {
        let line = metrics.lines().find(|line| {
            line.starts_with("oz_transition_lag_seconds_count") && line.contains(reason)
        });
        assert!(line.is_some(), "no lag for {reason}:\n{metrics}");
    }
    wait_for_events(&fixture, &["BindingActivated", "BindingExpired"]).await
}

/// Returns the number of times that the operator reported that the binding waits.
async fn waits(fixture: &Fixture) -> Result<usize> {
    let events = Api::<Event>::namespaced(fixture.admin.clone(), fixture.name());
    let found = events.list(&ListParams::default()).await?;
    let waits = found
        .items
        .iter()
        .filter(|event| event.reason.as_deref() == Some("BindingWaiting"));
    let counts = waits.map(|event| event.series.as_ref().map_or(1, |series| series.count));
    Ok(usize::try_from(counts.sum::<i32>())?)
}

async fn wait_for_events(fixture: &Fixture, reasons: &[&str]) -> Result<()> {
    let events = Api::<Event>::namespaced(fixture.admin.clone(), fixture.name());
    for reason in reasons {
        eventually(
            &format!("the event {reason}"),
            CONDITION_TIMEOUT,
            async || {
                let found = events.list(&ListParams::default()).await?;
                let mut all = found.items.iter();
                Ok(all
                    .any(|event| event.reason.as_deref() == Some(reason))
                    .then_some(()))
            },
        )
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_duration_begins_at_once_and_ends_on_time() -> Result<()> {
    let fixture = Fixture::set("duration").await?;
    fixture
        .create(&binding("short", &json!({"duration": "3s"})))
        .await?;
    let status = fixture.phase("short", Phase::Active).await?;
    let (activated, expires) = (
        status.activated_at.context("not activated")?,
        status.expires_at.context("no end")?,
    );
    assert_eq!(expires.duration_since(activated).as_secs(), 3);
    fixture.phase("short", Phase::Expired).await?;
    Ok(())
}

#[tokio::test]
async fn two_subjects_of_one_name_are_two_and_nothing_is_written_twice() -> Result<()> {
    let fixture = Fixture::set("subjects").await?;
    let mut object = binding("both", &json!({"duration": "4s"}));
    object["spec"]["subjects"] = json!([
        {"kind": "ServiceAccount", "name": "default", "namespace": "a"},
        {"kind": "ServiceAccount", "name": "default", "namespace": "b"},
        {"kind": "User", "name": "bob"},
        {"kind": "Group", "name": "bob"},
    ]);
    let mark = fixture.cluster.audit().mark()?;
    fixture.create(&object).await?;
    fixture.phase("both", Phase::Active).await?;
    let made = fixture.made().get("both").await?;
    assert_eq!(made.subjects.as_ref().map(Vec::len), Some(4));
    // A user changes a label of both: the operator reads it again, and leaves it as it is.
    let label = kube::api::Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
    fixture
        .made()
        .patch("both", &kube::api::PatchParams::default(), &label)
        .await?;
    fixture.phase("both", Phase::Expired).await?;
    let writes = fixture
        .cluster
        .audit()
        .since(mark)?
        .by_user(&operator())
        .on("rbac.authorization.k8s.io", "rolebindings")
        .in_namespace(fixture.name())
        .writes();
    let counts = writes.counts();
    assert_eq!(writes.len(), 2, "one creation, one deletion: {counts:?}");
    assert_eq!(made.name_any(), "both");
    Ok(())
}
