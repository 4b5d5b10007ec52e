//! An upgrade: transient bindings and harness runs that the release before stored end at their second under this one, and
//! their ends are recorded. Their statements are literal, without the fields of change tickets and emergencies.

mod objects;

use std::fmt::Debug;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::Api;
use oz_api::harness::HarnessRun;
use oz_api::{TransientClusterRoleBinding, TransientRoleBinding};
use oz_e2e::{LEASE_AND_TURNS, Scene, System, records_of, unregister};
use oz_testkit::{AuditEntries, CONDITION_TIMEOUT, eventually};
use oz_trail::Action;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use self::objects::{Earlier, LASTS};
use crate::alone;
use crate::every_kind::{install, options};

/// The API server states the start of a Job in whole seconds, so that its pod may end earlier by one.
const JOB_PRECISION: SignedDuration = SignedDuration::from_secs(1);

/// Stores bindings and runs in every state in which they can still end.
async fn store(earlier: &Earlier<'_>) -> Result<()> {
    let scene = earlier.scene;
    let (kind, all) = ("TransientRoleBinding", scene.api::<TransientRoleBinding>());
    let roles = scene.api::<RoleBinding>();
    let mut ending = earlier.in_window("ending");
    ending["ending"] = json!({
        "reason": "Locked", "detail": "AccessLock incident-7: stolen laptop",
        "since": earlier.activated(),
    });
    let pending = json!({"phase": "Pending", "observedGeneration": 1});
    for (name, status, is_bound) in [
        ("active", earlier.in_window("active"), true),
        ("unreported", pending.clone(), true),
        ("ending", ending, true),
        ("waiting", pending, false),
    ] {
        let uid = earlier.binding(&all, name, status).await?;
        if is_bound {
            earlier.bind(&roles, kind, name, &uid).await?;
        }
    }
    let (kind, name) = ("TransientClusterRoleBinding", scene.name());
    let all = Api::<TransientClusterRoleBinding>::all(scene.admin.clone());
    let roles = Api::<ClusterRoleBinding>::all(scene.admin.clone());
    let status = earlier.in_window(name);
    let uid = earlier.binding(&all, name, status).await?;
    earlier.bind(&roles, kind, name, &uid).await?;

    let status = json!({"phase": "Pending", "jobName": "running", "observedGeneration": 1});
    let run = earlier.run("running", LASTS, status).await?;
    earlier.begin(&run, LASTS).await?;
    let pending = json!({"phase": "Pending", "observedGeneration": 1});
    earlier.run("queued", 5, pending).await?;
    Ok(())
}

/// Waits until an object is in this phase.
async fn ended<K>(api: &Api<K>, name: &str, phase: &str) -> Result<()>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    let what = format!("{name} to be {phase}");
    eventually(&what, CONDITION_TIMEOUT, async || {
        let object = serde_json::to_value(api.get(name).await?)?;
        let status = &object["status"];
        ensure!(status["phase"] == phase, "{status}");
        Ok(Some(()))
    })
    .await
}

/// Waits until all objects have ended.
async fn all_ended(scene: &Scene) -> Result<()> {
    let bindings = scene.api::<TransientRoleBinding>();
    for name in ["active", "unreported", "waiting"] {
        ended(&bindings, name, "Expired").await?;
    }
    ended(&bindings, "ending", "Revoked").await?;
    let cluster = Api::<TransientClusterRoleBinding>::all(scene.admin.clone());
    ended(&cluster, scene.name(), "Expired").await?;
    let runs = scene.api::<HarnessRun>();
    for name in ["running", "queued"] {
        ended(&runs, name, "Failed").await?;
    }
    Ok(())
}

/// Returns the time at which an object was deleted first; `begins` is its name, or the beginning of it.
fn deleted(log: &AuditEntries, resource: &str, begins: &str) -> Result<Timestamp> {
    let mut deletions = log
        .iter()
        .filter(|entry| entry.verb == "delete" && entry.resource == resource && entry.succeeded());
    let found = deletions.find(|entry| entry.name.starts_with(begins));
    let found = found.with_context(|| format!("{resource} {begins} was not deleted"))?;
    Ok(found.stage_timestamp)
}

/// Checks that each object ended at its second, or after `ready` if it had expired by then.
async fn in_time(earlier: &Earlier<'_>, log: &AuditEntries, ready: Timestamp) -> Result<()> {
    let (scene, until) = (earlier.scene, earlier.until);
    let here = log.clone().in_namespace(scene.name());
    let binding = |name: &str| deleted(&here, "rolebindings", name);
    let job = scene.api::<Job>().get("running").await?;
    let started = job.status.and_then(|status| status.start_time);
    let started = started.context("the Job has no start")?.0;
    let timed_out = started + SignedDuration::from_secs(LASTS);
    for (name, gone, due) in [
        ("active", binding("active")?, until),
        ("unreported", binding("unreported")?, until),
        ("waiting", binding("waiting")?, until),
        (
            "the one of the cluster",
            deleted(log, "clusterrolebindings", scene.name())?,
            until,
        ),
        // It was ending already.
        ("ending", binding("ending")?, earlier.activated()),
        (
            "running",
            deleted(&here, "pods", "running-")?,
            timed_out - JOB_PRECISION,
        ),
    ] {
        ensure!(gone >= due, "{name} ended at {gone}, before {due}");
        let late = gone.duration_since(due.max(ready));
        ensure!(late <= LEASE_AND_TURNS, "{name} ended {late:#} late");
    }
    Ok(())
}

#[tokio::test]
async fn objects_of_release_before_end_at_their_second() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let scene = install(cluster, "earlier").await?;
    // The first start creates the keys.
    drop(System::start_as(cluster, &options(), &options()).await?);
    unregister(cluster)?;
    let earlier = Earlier::new(&scene).await?;
    let mark = cluster.audit().mark()?;
    store(&earlier).await?;

    let system = System::start_as(cluster, &options(), &options()).await?;
    let ready = Timestamp::now();
    tokio::select! {
        ended = all_ended(&scene) => ended?,
        failed = scene.kubelet_by_hand() => return failed.context("the kubelet ended"),
    }
    in_time(&earlier, &cluster.audit().since(mark)?, ready).await?;

    let (process, here) = (&system.operator.process, scene.name());
    for (namespace, name, expected) in [
        (here, "active", vec![Action::AccessExpired]),
        (here, "unreported", vec![Action::AccessExpired]),
        (
            here,
            "waiting",
            vec![Action::AccessGranted, Action::AccessExpired],
        ),
        (here, "ending", vec![Action::AccessRevoked]),
        ("", here, vec![Action::AccessExpired]),
        (here, "running", vec![Action::RunEnded]),
        (here, "queued", vec![Action::RunStarted, Action::RunEnded]),
    ] {
        assert_eq!(records_of(process, namespace, name)?, expected, "{name}");
    }
    Ok(())
}
