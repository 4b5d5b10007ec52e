//! Harness runs, while no process of oz runs and its webhooks are out of the path of requests: who they are from, and
//! whose pods they are. Carol is an administrator who is in no group that mends clusters.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use oz_core::api::harness::{HarnessRun, Workspace};
use oz_core::labels;
use oz_e2e::{apply, install_harness, refused, stamped};
use oz_testkit::eventually;
use serde_json::{Value, json};

use crate::locks::{Ruin, SOON};

async fn ruin(prefix: &str) -> Result<Ruin> {
    let ruin = Ruin::of(prefix).await?;
    let cluster = crate::cluster().await?;
    install_harness(cluster)?;
    apply(cluster, "deploy/policies/harness")?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually("the policies of runs to be in force", SOON, async || {
        let answer = ruin.api().create(&dry_run, &run("probe", None)?).await;
        let of_runs = answer.is_err_and(|why| why.to_string().contains("not stamped"));
        let answer = ruin
            .api()
            .create(&dry_run, &pod("probe", &marks("x"))?)
            .await;
        let of_pods = answer.is_err_and(|why| why.to_string().contains("Jobs of oz alone"));
        let answer = ruin
            .api()
            .create(&dry_run, &workspace("probe", None)?)
            .await;
        let of_workspaces = answer.is_err_and(|why| why.to_string().contains("not stamped"));
        Ok((of_runs && of_pods && of_workspaces).then_some(()))
    })
    .await?;
    Ok(ruin)
}

fn run(name: &str, stamped_by: Option<&str>) -> Result<HarnessRun> {
    let mut run: HarnessRun = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"templateRef": {"name": "echo"}, "prompt": "hello"},
    }))?;
    run.metadata.annotations = stamped_by.map(stamped);
    Ok(run)
}

fn marks(uid: &str) -> Value {
    json!({labels::OWNER_KIND: "HarnessRun", labels::OWNER_UID: uid})
}

fn pod(name: &str, labels: &Value) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "example.test/other:1"}]},
    }))?)
}

fn labelled(labels: &Value) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"labels": labels}}))
}

/// Submitting a harness run while no webhook stamps it, without a stamp or with one that names somebody else, and
/// changing the stamp of one: refused; a run may be labelled and deleted.
#[tokio::test]
async fn a_run_is_submitted_with_nobody_there() -> Result<()> {
    let ruin = ruin("ruin-runs").await?;
    let (runs, create, merge) = (
        ruin.api::<HarnessRun>(),
        PostParams::default(),
        PatchParams::default(),
    );
    for by in [None, Some("alice")] {
        let why = refused(runs.create(&create, &run("mine", by)?).await)?;
        assert!(why.contains("not stamped"), "{why}");
    }
    runs.create(&create, &run("mine", Some("carol"))?).await?;
    for name in [labels::REQUESTER, labels::REQUESTED_BY] {
        for value in [json!("mallory"), json!(null)] {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {name: value}}}));
            let why = refused(runs.patch("mine", &merge, &patch).await)?;
            assert!(why.contains("immutable"), "{why}");
        }
    }
    runs.patch("mine", &merge, &labelled(&json!({"team": "shop"})))
        .await?;
    runs.delete("mine", &DeleteParams::default()).await?;
    Ok(())
}

fn workspace(name: &str, stamped_by: Option<&str>) -> Result<Workspace> {
    let repository =
        json!({"url": "https://git.test/a.git", "credentialsSecretRef": {"name": "key"}});
    let mut workspace: Workspace = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"storage": {"size": "1Gi"}, "seed": {"repos": [repository]}},
    }))?;
    workspace.metadata.annotations = stamped_by.map(stamped);
    Ok(workspace)
}

/// Creating a workspace that is filled by a Secret while no webhook asks whether its author may read it, without a
/// stamp or with one that names somebody else, and changing the stamp of one: refused. By its URL the Secret would go
/// anywhere. A workspace that names none needs no stamp.
#[tokio::test]
async fn a_secret_is_fetched_by_a_seed_with_nobody_there() -> Result<()> {
    let ruin = ruin("ruin-seeds").await?;
    let (workspaces, create, merge) = (
        ruin.api::<Workspace>(),
        PostParams::default(),
        PatchParams::default(),
    );
    for by in [None, Some("alice")] {
        let why = refused(workspaces.create(&create, &workspace("mine", by)?).await)?;
        assert!(why.contains("not stamped"), "{why}");
    }
    workspaces
        .create(&create, &workspace("mine", Some("carol"))?)
        .await?;
    for name in [labels::REQUESTER, labels::REQUESTED_BY] {
        for value in [json!("mallory"), json!(null)] {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {name: value}}}));
            let why = refused(workspaces.patch("mine", &merge, &patch).await)?;
            assert!(why.contains("immutable"), "{why}");
        }
    }
    let mut plain = workspace("plain", None)?;
    let seed = plain.spec.seed.as_mut().context("no seed")?;
    seed.repos[0].credentials_secret_ref = None;
    workspaces.create(&create, &plain).await?;
    workspaces.delete("mine", &DeleteParams::default()).await?;
    Ok(())
}

/// Making a pod that bears the labels of a harness run's, or giving a pod of one's own these labels: refused. By them
/// and by its owner the broker would take it for the run's.
#[tokio::test]
async fn a_pod_that_is_to_be_taken_for_a_runs() -> Result<()> {
    let ruin = ruin("ruin-pods").await?;
    let (pods, create, merge) = (
        ruin.api::<Pod>(),
        PostParams::default(),
        PatchParams::default(),
    );
    let why = refused(pods.create(&create, &pod("forged", &marks("uid-1"))?).await)?;
    assert!(why.contains("submit a HarnessRun"), "{why}");
    pods.create(&create, &pod("mine", &json!({}))?).await?;
    let why = refused(pods.patch("mine", &merge, &labelled(&marks("uid-1"))).await)?;
    assert!(why.contains("stay as they are"), "{why}");
    Ok(())
}

/// Taking the labels off a pod of a harness run by which its NetworkPolicy confines it, by any way that leads to a
/// pod, or naming another owner: refused; other labels may be written, and the pod may be deleted.
#[tokio::test]
async fn a_runs_pod_is_let_out_with_nobody_there() -> Result<()> {
    let ruin = ruin("ruin-out").await?;
    let submitted = ruin.api::<HarnessRun>();
    let submitted = submitted
        .create(&PostParams::default(), &run("mine", Some("carol"))?)
        .await?;
    // The Job controller may make it.
    let pod = ruin.scene.pod_of_job("mine", &submitted).await?;
    let (name, pods, merge) = (pod.name_any(), ruin.api::<Pod>(), PatchParams::default());
    assert_eq!(
        labels::owner_uid(&pod.metadata),
        submitted.metadata.uid.as_deref()
    );
    for key in [labels::OWNER_UID, labels::OWNER_KIND] {
        for value in [json!("another"), json!(null)] {
            let patch = labelled(&json!({key: value}));
            for answer in [
                pods.patch(&name, &merge, &patch).await,
                pods.patch_status(&name, &merge, &patch).await,
                pods.patch_subresource("ephemeralcontainers", &name, &merge, &patch)
                    .await,
                pods.patch_subresource("resize", &name, &merge, &patch)
                    .await,
            ] {
                // Some ways do not lead to labels.
                match answer {
                    Ok(after) => assert_eq!(after.labels(), pod.labels()),
                    refusal => {
                        let why = refused(refusal)?;
                        assert!(why.contains("stay as they are"), "{why}");
                    }
                }
            }
        }
    }
    let nobodys = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    let why = refused(pods.patch(&name, &merge, &nobodys).await)?;
    assert!(why.contains("keeps its owner"), "{why}");
    let after = pods
        .patch(&name, &merge, &labelled(&json!({"team": "shop"})))
        .await?;
    let before = pod.labels().get(labels::OWNER_UID).context("no label")?;
    assert_eq!(after.labels().get(labels::OWNER_UID), Some(before));
    pods.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}
