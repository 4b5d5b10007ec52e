//! A grant with a successor: its pod is replaced, and it gives access again, to the successor alone.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::rbac::v1::Role;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use oz_api::{OnPodReplacement, TargetKind};
use oz_e2e::{Scene, System, exec_request, exec_template, records_in, refusal};
use oz_testkit::{CONDITION_TIMEOUT, eventually, fixtures};
use oz_trail::Action;

use crate::alone;

/// Creates a template with `onPodReplacement: Follow`.
async fn following(scene: &Scene, kind: TargetKind, workload: &str) -> Result<()> {
    let mut template = exec_template(workload, kind, workload);
    template.spec.access_config.on_pod_replacement = OnPodReplacement::Follow;
    scene.template(&template).await?;
    Ok(())
}

#[tokio::test]
async fn following_grant_admits_user_to_successor_only() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let system = System::start(cluster).await?;
    let scene = Scene::empty(cluster, "follow").await?;
    fixtures::stateful_set(&scene.admin, scene.name(), "db", 1).await?;
    fixtures::deployment(&scene.admin, scene.name(), "api", 1).await?;
    following(&scene, TargetKind::StatefulSet, "db").await?;
    following(&scene, TargetKind::Deployment, "api").await?;
    scene.enforce().await?;
    let alice = scene.requests("alice").await?;
    let enter = |pod: &str| {
        let output = scene.exec("alice", &[pod, "--", "true"]).output()?;
        anyhow::Ok(refusal(&output))
    };
    for name in ["db", "api"] {
        let asked = alice.granted(&exec_request(name, name, "10m")).await?;
        let (before, pod) = (asked.status(), asked.pod());
        assert_eq!(enter(&pod)?, None);

        let at_once = DeleteParams::default().grace_period(0);
        scene.api::<Pod>().delete(&pod, &at_once).await?;
        let uid = before.pod_uid.clone();
        alice
            .until(name, "to move", |status| {
                status.pod_uid != uid && status.ready
            })
            .await?;
        let after = alice.ready(name).await?;
        let (moved, status) = (after.pod(), after.status());
        assert_eq!(status.expires_at, before.expires_at);
        assert_eq!(moved == pod, name == "db", "{moved}");
        let there = scene.api::<Pod>().get(&moved).await?;
        assert_eq!(there.metadata.uid, status.pod_uid);
        eventually("alice to be let in", CONDITION_TIMEOUT, async || {
            Ok(enter(&moved)?.is_none().then_some(()))
        })
        .await?;
        let role = scene.api::<Role>().get(&after.role_name()).await?;
        for rule in role.rules.context("no rules")? {
            assert_eq!(rule.resource_names, Some(vec![moved.clone()]));
        }

        let records = records_in(&system.operator.process)?;
        let mut records = records.iter().filter(|record| record.request.name == name);
        let pinned = records.find(|record| record.action == Action::TargetPinned);
        let pinned = pinned
            .and_then(|record| record.pod.as_ref())
            .context("not on record")?;
        assert_eq!(Some(&pinned.uid), status.pod_uid.as_ref());
    }
    let events: Api<Event> = scene.api();
    eventually(
        "the events on the requests",
        CONDITION_TIMEOUT,
        async || {
            let events = events.list(&ListParams::default()).await?.items;
            let moves = events
                .iter()
                .filter(|event| event.reason.as_deref() == Some("AccessMoved"));
            Ok((moves.count() == 2).then_some(()))
        },
    )
    .await
}
