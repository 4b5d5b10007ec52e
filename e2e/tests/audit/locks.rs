//! One lock ends many grants, and only those of its user, also if the operator is killed in between. Each end is
//! recorded once, with the lock's name.
//!
//! Sixty grants; 200 in the long form (`OZ_LONG=1`).

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context as _, Result};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use oz_api::{AccessLock, EndReason, ExecAccessRequest, Phase};
use oz_e2e::{Auditor, Operator, Options, Scene, System, TEMPLATE, exec_request, records_in};
use oz_testkit::{CONDITION_TIMEOUT, eventually, scaled};
use oz_trail::{Action, Record};
use serde_json::json;

use crate::alone;
use crate::support::clean;

/// Creates this number of grants of alice.
async fn granted(scene: &Scene, grants: usize) -> Result<BTreeSet<String>> {
    let alice = scene.requests("alice").await?;
    for number in 0..grants {
        let request = exec_request(&format!("grant-{number}"), TEMPLATE, "3h");
        alice.create(&request).await?;
    }
    let mut uids = BTreeSet::new();
    for number in 0..grants {
        let ready = alice.ready(&format!("grant-{number}")).await?;
        uids.insert(ready.request.uid().unwrap_or_default());
    }
    Ok(uids)
}

/// Returns the number of requests that are over.
async fn over(scene: &Scene) -> Result<usize> {
    let requests = scene.api::<ExecAccessRequest>();
    let all = requests.list(&ListParams::default()).await?;
    let revoked = |request: &&ExecAccessRequest| {
        let status = request.status.as_ref();
        status.is_some_and(|status| status.phase == Phase::Revoked)
    };
    Ok(all.iter().filter(revoked).count())
}

async fn bindings(scene: &Scene) -> Result<usize> {
    let bindings = scene.api::<RoleBinding>();
    let all = bindings.list(&ListParams::default()).await?;
    let of_grant = |binding: &&RoleBinding| binding.name_any().starts_with("grant-");
    Ok(all.iter().filter(of_grant).count())
}

/// Checks that the end of each of these is recorded once, by the lock: in the logs, where the record appears first.
fn on_record(records: &[Record], uids: &BTreeSet<String>, lock: &str) {
    for uid in uids {
        let ends = records
            .iter()
            .filter(|record| record.request.uid == *uid && record.action == Action::AccessRevoked);
        let ends: Vec<_> = ends.collect();
        let ids: BTreeSet<_> = ends.iter().map(|end| &end.id).collect();
        assert_eq!(ids.len(), 1, "{uid}: {ends:?}");
        let by = format!("AccessLock {lock}: INC-42");
        let told = |end: &&Record| end.reason == "Locked" && end.message.contains(&by);
        assert!(ends.iter().all(told), "{uid}: {ends:?}");
    }
    for action in [Action::AccessLocked, Action::AccessUnlocked] {
        let count = records.iter().filter(|record| record.action == action);
        assert_eq!(count.count(), 1, "{action}");
    }
}

#[tokio::test]
async fn lock_ends_matching_grants_only_although_operator_is_killed() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let grants = scaled(60, 200);
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "locked").await?;
    let others = Scene::set(cluster, "others").await?;
    let mut auditor = Auditor::pinning(&scene.admin).await?;
    let uids = granted(&scene, grants).await?;
    granted(&others, 3).await?;
    let kept = others.api::<ExecAccessRequest>();
    let before = kept.list(&ListParams::default()).await?;

    let locks = Api::<AccessLock>::all(scene.admin.clone());
    let lock: AccessLock = serde_json::from_value(json!({
        "metadata": {"name": "incident-42"},
        "spec": {"target": {"namespace": scene.name()}, "reason": "INC-42"},
    }))?;
    let began = Instant::now();
    locks.create(&PostParams::default(), &lock).await?;
    eventually("the first to end", CONDITION_TIMEOUT, async || {
        Ok((over(&scene).await? > 0).then_some(()))
    })
    .await?;
    system.operator.process.kill9();
    auditor.log(&system.operator.process);
    let mut records = records_in(&system.operator.process)?;
    let at_kill = over(&scene).await?;
    system.operator = Operator::start(cluster, &Options::default()).await?;
    eventually("all to end", CONDITION_TIMEOUT, async || {
        let left = bindings(&scene).await?;
        Ok((over(&scene).await? == grants && left == 0).then_some(()))
    })
    .await?;
    eprintln!(
        "{grants} grants ended in {:?}, {at_kill} before the kill",
        began.elapsed()
    );
    for request in scene
        .api::<ExecAccessRequest>()
        .list(&ListParams::default())
        .await?
    {
        let ending = request.status.and_then(|status| status.ending);
        assert_eq!(ending.context("no ending")?.reason, EndReason::Locked);
    }
    // The grants of other users stay, and nothing was written for them.
    let after = kept.list(&ListParams::default()).await?;
    let versions = |all: &kube::core::ObjectList<ExecAccessRequest>| {
        let versions = all.iter().map(|one| one.resource_version());
        versions.collect::<BTreeSet<_>>()
    };
    assert_eq!(versions(&before), versions(&after));

    locks
        .delete("incident-42", &DeleteParams::default())
        .await?;
    let alice = scene.requests("alice").await?;
    let again = exec_request("again", TEMPLATE, "30m");
    eventually(
        "the webhook to see that it is unlocked",
        CONDITION_TIMEOUT,
        async || Ok(alice.create(&again).await.ok()),
    )
    .await?;
    alice.ready("again").await?;
    assert_eq!(over(&scene).await?, grants);

    auditor.log(&system.operator.process);
    auditor.log(&system.webhook.process);
    records.extend(records_in(&system.operator.process)?);
    records.extend(records_in(&system.webhook.process)?);
    on_record(&records, &uids, "incident-42");
    let report = auditor.report().await?;
    assert!(report.is_whole(), "{:#?}", report.problems);
    Ok(())
}
