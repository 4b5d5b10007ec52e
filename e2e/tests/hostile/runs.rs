//! Harness runs while no process of oz runs and its webhooks are unregistered: the requester of a run, and the owner of
//! its pods. Carol is an administrator who is in no group that repairs clusters. Two tests start the processes that
//! they need.

use anyhow::{Context as _, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use oz_api::harness::{HarnessRun, HarnessTemplate, RunPhase, Workspace};
use oz_api::{conditions, labels};
use oz_e2e::{
    Operator, Options, Webhook, allow_dns, announce_broker, apply, apply_as, install_harness,
    refused, stamped,
};
use oz_testkit::eventually;
use serde_json::{Value, json};

use crate::locks::{Ruin, SOON};

async fn ruin(prefix: &str) -> Result<Ruin> {
    let ruin = Ruin::set_up(prefix).await?;
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
        let of_pods = answer.is_err_and(|why| why.to_string().contains("only Jobs of oz create"));
        let answer = ruin
            .api()
            .create(&dry_run, &workspace("probe", None)?)
            .await;
        let of_workspaces = answer.is_err_and(|why| why.to_string().contains("not stamped"));
        let answer = ruin
            .api()
            .create(&dry_run, &job("probe", &marks("x"))?)
            .await;
        let of_jobs = answer.is_err_and(|why| why.to_string().contains("only Jobs of oz create"));
        Ok((of_runs && of_pods && of_workspaces && of_jobs).then_some(()))
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

fn job(name: &str, labels: &Value) -> Result<Job> {
    let spec = json!({
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "example.test/other:1"}],
    });
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": spec}},
    }))?)
}

fn labelled(labels: &Value) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"labels": labels}}))
}

/// Submitting a harness run without a stamp or with a stamp that names another user, or changing the stamp of a run,
/// while oz is down: the admission policy denies it; a run may be labelled and deleted.
#[tokio::test]
async fn unstamped_run_is_refused_while_oz_is_down() -> Result<()> {
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

/// Creating a workspace with a Secret as the credentials of its seed, without a stamp or with a stamp that names
/// another user, or changing the stamp of a workspace, while no webhook checks the author's right to read the Secret:
/// the admission policy denies it, because the URL could send the Secret to any server; a workspace without a Secret
/// requires no stamp.
#[tokio::test]
async fn unstamped_seed_with_secret_is_refused_while_oz_is_down() -> Result<()> {
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

/// Creating a pod with the labels of a harness run's pod, or adding these labels to another pod, by which the broker
/// would accept it as the run's pod: the admission policy denies it.
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
    assert!(why.contains("and are immutable"), "{why}");
    Ok(())
}

/// Creating a workload of any kind with the labels of a harness run's pods in its pod template, or adding these labels
/// to a pod template, so that the controllers of Kubernetes create such pods: the admission policy denies it.
#[tokio::test]
async fn workload_with_the_labels_of_a_runs_pods_is_refused() -> Result<()> {
    let ruin = ruin("ruin-workloads").await?;
    let labels = |marks: &Value| {
        let mut labels = marks.clone();
        labels["app"] = json!("mine");
        labels
    };
    let template = |marks: &Value, restart: &str| {
        let containers = json!([{"name": "main", "image": "example.test/other:1"}]);
        let spec = json!({"restartPolicy": restart, "containers": containers});
        json!({"metadata": {"labels": labels(marks)}, "spec": spec})
    };
    let spec = |kind: &str, marks: &Value| {
        let always = template(marks, "Always");
        let once = json!({"template": template(marks, "Never")});
        let selected = json!({"selector": {"matchLabels": {"app": "mine"}}, "template": always});
        match kind {
            "Job" => once,
            "CronJob" => json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": once}}),
            "ReplicationController" => json!({"selector": {"app": "mine"}, "template": always}),
            "StatefulSet" => {
                let mut spec = selected;
                spec["serviceName"] = json!("mine");
                spec
            }
            _ => selected,
        }
    };
    for (group, kind) in [
        ("batch", "Job"),
        ("batch", "CronJob"),
        ("apps", "Deployment"),
        ("apps", "StatefulSet"),
        ("apps", "DaemonSet"),
        ("apps", "ReplicaSet"),
        ("", "ReplicationController"),
    ] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let space = ruin.scene.name();
        let api = Api::<DynamicObject>::namespaced_with(ruin.carol.clone(), space, &resource);
        let object = |marks: &Value| {
            let mut object = DynamicObject::new("mine", &resource);
            object.data = json!({"spec": spec(kind, marks)});
            object
        };
        for owner in ["HarnessRun", "Workspace"] {
            let marks = json!({labels::OWNER_KIND: owner, labels::OWNER_UID: "uid-1"});
            let why = refused(api.create(&PostParams::default(), &object(&marks)).await)?;
            assert!(why.contains("only Jobs of oz create"), "{kind}: {why}");
        }
        api.create(&PostParams::default(), &object(&json!({})))
            .await?;
        // The template of an existing Job is immutable.
        if kind != "Job" {
            let patch = Patch::Merge(json!({"spec": spec(kind, &marks("uid-1"))}));
            let merged = api.patch("mine", &PatchParams::default(), &patch).await;
            let why = refused(merged)?;
            assert!(why.contains("only oz sets them"), "{kind}: {why}");
        }
        let touched = Patch::Merge(json!({"metadata": {"labels": {"team": "shop"}}}));
        api.patch("mine", &PatchParams::default(), &touched).await?;
        api.delete("mine", &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Adding an ephemeral container to a pod of a harness run as an administrator, or, as a member of a break-glass group,
/// one that mounts a token or the key of the proxy, shares the processes of the proxy, or has its user: the admission
/// policy denies it.
#[tokio::test]
async fn ephemeral_container_in_a_runs_pod_is_refused() -> Result<()> {
    let ruin = ruin("ruin-ephemeral").await?;
    let submitted = ruin.api::<HarnessRun>();
    let submitted = submitted
        .create(&PostParams::default(), &run("mine", Some("carol"))?)
        .await?;
    let pod = ruin.scene.pod_of_job("mine", &submitted).await?;
    let added = |fields: Value| {
        let mut container = fields;
        container["name"] = json!("debug");
        container["image"] = json!("example.test/other:1");
        Patch::Strategic(json!({"spec": {"ephemeralContainers": [container]}}))
    };
    let mounts = |volume: &str| json!({"volumeMounts": [{"name": volume, "mountPath": "/token"}]});
    let admin = &ruin.scene.admin;
    let shares = "must not share the processes";
    for (client, fields, why_not) in [
        (&ruin.carol, json!({}), "cannot have an ephemeral container"),
        (
            &ruin.carol,
            mounts("oz-token"),
            "cannot have an ephemeral container",
        ),
        (admin, mounts("oz-token"), "must not mount the token"),
        (admin, mounts("oz-proxy-token"), "must not mount the token"),
        (admin, mounts("oz-authority"), "must not mount the token"),
        (admin, json!({"targetContainerName": "proxy"}), shares),
        (admin, json!({"targetContainerName": "oz"}), shares),
        (
            admin,
            json!({"securityContext": {"runAsUser": 1337}}),
            shares,
        ),
    ] {
        let pods = Api::<Pod>::namespaced(client.clone(), ruin.scene.name());
        let (name, how) = (pod.name_any(), PatchParams::default());
        let patch = added(fields);
        let answer = pods
            .patch_subresource("ephemeralcontainers", &name, &how, &patch)
            .await;
        let why = refused(answer)?;
        assert!(why.contains(why_not), "{why}");
    }
    Ok(())
}

/// Removing the labels by which a NetworkPolicy confines a pod of a harness run, through the pod or its subresources,
/// or removing its owner: the admission policy denies it; other labels may be written, and the pod may be deleted.
#[tokio::test]
async fn removal_of_pod_labels_of_run_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = ruin("ruin-out").await?;
    let submitted = ruin.api::<HarnessRun>();
    let submitted = submitted
        .create(&PostParams::default(), &run("mine", Some("carol"))?)
        .await?;
    // The Job controller may create it.
    let pod = ruin.scene.pod_of_job("mine", &submitted).await?;
    let (name, pods, merge) = (pod.name_any(), ruin.api::<Pod>(), PatchParams::default());
    assert_eq!(
        labels::owner_uid(&pod.metadata),
        submitted.metadata.uid.as_deref()
    );
    for key in [labels::OWNER_UID, labels::OWNER_KIND] {
        for value in [json!("another"), json!(null)] {
            let patch = labelled(&json!({key: value}));
            let mut answers = vec![
                pods.patch(&name, &merge, &patch).await,
                pods.patch_status(&name, &merge, &patch).await,
                pods.patch_subresource("ephemeralcontainers", &name, &merge, &patch)
                    .await,
            ];
            if ruin.scene.cluster.resizes_pods()? {
                let resized = pods.patch_subresource("resize", &name, &merge, &patch);
                answers.push(resized.await);
            }
            for answer in answers {
                // Some subresources do not change labels.
                match answer {
                    Ok(after) => assert_eq!(after.labels(), pod.labels()),
                    refusal => {
                        let why = refused(refusal)?;
                        assert!(why.contains("and are immutable"), "{why}");
                    }
                }
            }
        }
    }
    let nobodys = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    let why = refused(pods.patch(&name, &merge, &nobodys).await)?;
    assert!(
        why.contains("the owner of a harness run's pod is immutable"),
        "{why}"
    );
    let after = pods
        .patch(&name, &merge, &labelled(&json!({"team": "shop"})))
        .await?;
    let before = pod.labels().get(labels::OWNER_UID).context("no label")?;
    assert_eq!(after.labels().get(labels::OWNER_UID), Some(before));
    pods.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

/// Creating a NetworkPolicy that permits DNS for the pods of harness runs, before or during a run, where runs must be
/// confined: a new run fails, a running one is cancelled, and both name the policy.
#[tokio::test]
async fn policy_that_opens_a_run_that_must_be_confined_ends_it() -> Result<()> {
    let ruin = ruin("opened-runs").await?;
    let cluster = crate::cluster().await?;
    announce_broker(&ruin.scene.admin).await?;
    let webhook = Options::default().harness();
    let operator = Options::default()
        .harness()
        .set("harness.requireConfined", true);
    let _oz = tokio::try_join!(
        Webhook::start(cluster, &webhook),
        Operator::start(cluster, &operator)
    )?;
    let template = json!({
        "metadata": {"name": "echo"},
        "spec": {
            "image": "registry.test/echo:1", "command": ["/echo"], "workspace": {"required": false},
            "podTemplateOverlay": {"spec": {"nodeSelector": {"node": "nowhere"}}},
        },
    });
    apply_as(&ruin.api::<HarnessTemplate>(), template).await?;
    let (runs, policies, create) = (
        ruin.api::<HarnessRun>(),
        ruin.api::<NetworkPolicy>(),
        PostParams::default(),
    );
    let ends = async |name: &str, phase: RunPhase| {
        let run = eventually("the end of the run", SOON, async || {
            let run = runs.get(name).await?;
            let ended = run.status.as_ref().and_then(|status| status.phase);
            Ok(ended.filter(|it| it.is_terminal()).map(|_| run))
        })
        .await?;
        let status = run.status.unwrap_or_default();
        let completed = conditions::find(&status.conditions, "Completed");
        let completed = completed.context("it does not say why")?;
        assert_eq!(
            (status.phase, completed.reason.as_str()),
            (Some(phase), "NotConfined"),
            "{completed:?}"
        );
        assert!(completed.message.contains("allow-dns"), "{completed:?}");
        anyhow::Ok(())
    };

    runs.create(&create, &run("running", None)?).await?;
    eventually("the Job of the run", SOON, async || {
        let status = runs.get("running").await?.status.unwrap_or_default();
        Ok(status.job_name)
    })
    .await?;
    let allow_dns = allow_dns()?;
    policies.create(&create, &allow_dns).await?;
    ends("running", RunPhase::Cancelled).await?;
    runs.create(&create, &run("late", None)?).await?;
    ends("late", RunPhase::Failed).await
}

/// Changing the image of a pod of a harness run as an administrator, so that another program receives the token by
/// which the broker knows the pod: the admission policy denies it.
#[tokio::test]
async fn image_change_of_run_pod_is_refused_while_oz_is_down() -> Result<()> {
    let ruin = ruin("ruin-image").await?;
    let submitted = ruin.api::<HarnessRun>();
    let submitted = submitted
        .create(&PostParams::default(), &run("mine", Some("carol"))?)
        .await?;
    let pod = ruin.scene.pod_of_job("mine", &submitted).await?;
    let container = pod.spec.as_ref().context("no spec")?;
    let container = &container.containers.first().context("no container")?.name;
    let other =
        json!({"spec": {"containers": [{"name": container, "image": "evil.test/other:1"}]}});
    let pods = ruin.api::<Pod>();
    let (parameters, patch) = (PatchParams::default(), Patch::Strategic(other));
    let why = refused(pods.patch(&pod.name_any(), &parameters, &patch).await)?;
    assert!(
        why.contains("the images of a harness run's pod are immutable"),
        "{why}"
    );
    Ok(())
}

/// Mounting a volume over a directory of the harness or of the system in a template of harness runs, by another
/// spelling of the path (`//paddock`, `/./paddock`, `/etc//passwd`): the webhook denies the template and names the
/// field.
#[tokio::test]
async fn overlay_that_spells_a_path_otherwise_is_refused() -> Result<()> {
    let ruin = ruin("spelled").await?;
    let webhook = Options::default().harness();
    let _oz = Webhook::start(crate::cluster().await?, &webhook).await?;
    let templates = ruin.api::<HarnessTemplate>();
    let mounted = |path: &str| {
        let mount = json!({"name": "more", "mountPath": path});
        json!({"spec": {
            "volumes": [{"name": "more", "emptyDir": {}}],
            "containers": [{"name": "harness", "volumeMounts": [mount]}],
        }})
    };
    let template = |workspace: &str, overlay: Value| {
        serde_json::from_value::<HarnessTemplate>(json!({
            "apiVersion": "paddock.dev/v1alpha1", "kind": "HarnessTemplate",
            "metadata": {"name": "spelled"},
            "spec": {
                "image": "registry.test/echo:1", "command": ["/echo"],
                "workspace": {"mountPath": workspace}, "podTemplateOverlay": overlay,
            },
        }))
    };
    let told = async |template: HarnessTemplate| {
        let create = PostParams::default();
        refused(templates.create(&create, &template).await)
    };
    for path in [
        "//paddock",
        "/./paddock/prompt",
        "/paddock//raw",
        "/a/../paddock",
        "//",
    ] {
        let told = told(template("/src", mounted(path))?).await?;
        assert!(told.contains("volumeMounts[0].mountPath"), "{path}: {told}");
    }
    for path in ["//etc", "/./etc", "/etc//passwd", "/.//paddock/."] {
        let told = told(template(path, json!({}))?).await?;
        assert!(told.contains("spec.workspace.mountPath"), "{path}: {told}");
    }
    Ok(())
}
