//! The phases of a run, from its submission to its end.

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use oz_api::conditions;
use oz_api::harness::{HarnessRun, RunPhase, Workspace, WorkspacePhase};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::{Action, Decision};
use serde_json::{Value, json};

use crate::support::{BY_HAND, World, phase_of, reason};

#[tokio::test]
async fn run_gets_new_workspace_and_ends_with_its_agent() -> Result<()> {
    let world = World::new("plain").await?;
    let mark = world.cluster.audit().mark()?;
    let pod = world.running("hello", json!({})).await?;

    let policy = world
        .confined("hello")
        .await?
        .context("it is not confined")?;
    assert!(policy.metadata.owner_references.is_none());
    let result = json!({"summary": "done", "filesChanged": 2, "pullRequests": ["https://x/1"]});
    world.agent_ends(&pod, 0, &result.to_string()).await?;

    let run = world.phase("hello", RunPhase::Succeeded).await?;
    let status = run.status.unwrap_or_default();
    assert_eq!(status.workspace_ref.as_deref(), Some("hello-ws"));
    assert!(status.start_time.is_some() && status.completion_time.is_some());
    let outputs = status.outputs.unwrap_or_default();
    assert_eq!(outputs.summary.as_deref(), Some("done"));
    assert_eq!(
        (outputs.files_changed, outputs.pull_requests.len()),
        (Some(2), 1)
    );
    assert!(conditions::is_true(&status.conditions, "Completed"));
    world.let_out("hello").await?;
    let free = |workspace: &Workspace| {
        let status = workspace.status.clone().unwrap_or_default();
        status.active_run_ref.is_none() && status.total_runs == 1
    };
    world.workspace_until("hello-ws", "is free", free).await?;

    let records = world.records("hello").await?;
    let actions: Vec<Action> = records.iter().map(|record| record.action).collect();
    assert_eq!(actions, [Action::RunStarted, Action::RunEnded]);
    assert!(records.iter().all(|record| record.user.is_some()));

    let writes = world.cluster.audit().since(mark)?;
    let writes = writes.writes().in_namespace(world.name());
    let ours = writes.by_user("system:serviceaccount:oz-system:oz-operator");
    let ours =
        ours.filter(|entry| !["events", "harnesstemplates"].contains(&entry.resource.as_str()));
    let counts = ours.counts();
    let all: usize = counts.values().sum();
    assert!(all <= 11, "{counts:#?}");
    Ok(())
}

#[tokio::test]
async fn a_workspace_that_is_deleted_waits_for_the_run_that_holds_it() -> Result<()> {
    let world = World::new("going").await?;
    world.workspace("data", json!({})).await?;
    let pod = world
        .running("works", json!({"workspaceRef": "data"}))
        .await?;

    world
        .api::<Workspace>()
        .delete("data", &DeleteParams::default())
        .await?;
    let phase = |workspace: &Workspace| {
        let status = workspace.status.clone().unwrap_or_default();
        status.phase == Some(WorkspacePhase::Terminating)
    };
    world.workspace_until("data", "waits", phase).await?;
    assert_eq!(
        phase_of(&world.api::<HarnessRun>().get("works").await?),
        Some(RunPhase::Running)
    );

    world.agent_ends(&pod, 0, "").await?;
    let workspaces = world.api::<Workspace>();
    eventually("the workspace is gone", CONDITION_TIMEOUT, async || {
        Ok(workspaces.get_opt("data").await?.is_none().then_some(()))
    })
    .await
}

/// Claims of the original have no such labels.
#[tokio::test]
async fn a_claim_without_our_labels_gets_them_and_is_not_lost() -> Result<()> {
    let world = World::new("claim").await?;
    world.workspace("kept", json!({})).await?;
    let told = |workspace: &Workspace| {
        let status = workspace.status.clone().unwrap_or_default();
        status.pvc_name.is_some()
    };
    world.workspace_until("kept", "has a claim", told).await?;
    let claims = world.api::<PersistentVolumeClaim>();
    let before = claims.get("ws-kept").await?;
    let without = Patch::Merge(json!({"metadata": {"labels": null}}));
    claims
        .patch("ws-kept", &PatchParams::default(), &without)
        .await?;
    eventually("the labels are back", CONDITION_TIMEOUT, async || {
        let now = claims.get("ws-kept").await?;
        Ok((now.labels() == before.labels()).then_some(now))
    })
    .await
    .map(|now| assert_eq!(now.uid(), before.uid()))?;
    let workspace = world.api::<Workspace>().get("kept").await?;
    let status = workspace.status.unwrap_or_default();
    assert_eq!(status.phase, Some(WorkspacePhase::Active));
    Ok(())
}

#[tokio::test]
async fn r28_a_deleted_run_stays_confined_until_its_pod_has_ended() -> Result<()> {
    let world = World::new("deleted").await?;
    let pod = world.running("ends", json!({})).await?;

    world
        .api::<HarnessRun>()
        .delete("ends", &DeleteParams::default())
        .await?;
    world.told_to_end(&pod).await?;
    let jobs = world.api::<Job>();
    eventually("the Job is gone", CONDITION_TIMEOUT, async || {
        Ok(jobs.get_opt("ends").await?.is_none().then_some(()))
    })
    .await?;
    assert!(
        world.confined("ends").await?.is_some(),
        "nothing confines a pod that runs"
    );

    world.kubelet_lets_go(&pod).await?;
    world.let_out("ends").await?;
    let records = world.records("ends").await?;
    let last = records.last().context("there is no record")?;
    assert_eq!(
        (last.action, last.reason.as_str()),
        (Action::RunEnded, "Deleted")
    );
    Ok(())
}

#[tokio::test]
async fn run_is_terminated_at_timeout_with_reason() -> Result<()> {
    let world = World::new("timeout").await?;
    let pod = world.running("slow", json!({"timeout": "8s"})).await?;

    let told = world.told_to_end(&pod).await?;
    let job = world.api::<Job>().get("slow").await?;
    let started = job
        .status
        .and_then(|status| status.start_time)
        .context("no start")?
        .0;
    let told = told.metadata.deletion_timestamp.context("not told")?.0;
    let grace = SignedDuration::from_secs(5);
    assert!(
        told - grace >= started + SignedDuration::from_secs(8),
        "{told} {started}"
    );
    assert!(world.confined("slow").await?.is_some());

    world.kubelet_lets_go(&pod).await?;
    let run = world.phase("slow", RunPhase::Failed).await?;
    // R9: how it ended is told whatever it ended by.
    assert_eq!(reason(&run, "Completed"), Some("DeadlineExceeded"));
    assert!(run.status.unwrap_or_default().completion_time.is_some());
    world.let_out("slow").await
}

#[tokio::test]
async fn r3_a_run_is_removed_when_its_time_after_the_end_is_over() -> Result<()> {
    let world = World::new("ttl").await?;
    let pod = world
        .running("short", json!({"ttlSecondsAfterFinished": 10}))
        .await?;
    world.agent_ends(&pod, 0, "").await?;
    let run = world.phase("short", RunPhase::Succeeded).await?;
    let completed = run
        .status
        .and_then(|status| status.completion_time)
        .context("no end")?;
    let runs = world.api::<HarnessRun>();
    eventually("the run is gone", CONDITION_TIMEOUT, async || {
        Ok(runs.get_opt("short").await?.is_none().then_some(()))
    })
    .await?;
    assert!(Timestamp::now() >= completed + SignedDuration::from_secs(10));
    Ok(())
}

#[tokio::test]
async fn pod_that_does_not_start_ends_run_with_missing_part() -> Result<()> {
    let world = World::new("stuck").await?;
    let waiting = |reason: &str| {
        json!({"phase": "Pending", "containerStatuses": [{
            "name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": "no such image"}},
        }]})
    };
    for (name, more, says, expected) in [
        (
            "image",
            json!({}),
            Some("ImagePullBackOff"),
            "ImagePullBackOff: no such image",
        ),
        (
            "prompt",
            json!({"prompt": null, "promptFrom": {"configMapKeyRef": {"name": "texts", "key": "ask"}}}),
            None,
            "key ask of ConfigMap texts",
        ),
    ] {
        let mut spec = json!({"templateRef": {"name": BY_HAND}});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        world.submit(name, spec).await?;
        let pod = world.pod(name).await?;
        if let Some(says) = says {
            world.kubelet_says(&pod.name_any(), waiting(says)).await?;
        }
        let pod = world.told_to_end(&pod).await?;
        world.kubelet_lets_go(&pod).await?;
        let run = world.phase(name, RunPhase::Failed).await?;
        let status = run.status.clone().unwrap_or_default();
        let completed = conditions::find(&status.conditions, "Completed").context("not told")?;
        assert_eq!(completed.reason, "PodNotStarted");
        assert!(
            completed.message.contains(expected),
            "{}",
            completed.message
        );
    }
    Ok(())
}

#[tokio::test]
async fn changed_objects_of_run_are_restored_and_recorded() -> Result<()> {
    let world = World::new("drift").await?;
    world.running("kept", json!({})).await?;
    let policies = world.api::<NetworkPolicy>();
    let merge = |patch: Value| Patch::Merge(patch);
    let parameters = PatchParams::default();
    let name = "kept-egress";

    for patch in [
        json!({"spec": {"ingress": [{}]}}),
        json!({"spec": {"egress": [{}]}}),
        json!({"spec": {"policyTypes": ["Ingress"]}}),
        json!({"spec": {"podSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}}),
        json!({"metadata": {"annotations": {"oz.wizardofoz.co/grant": "forged"}}}),
        json!({"metadata": {"labels": {"oz.wizardofoz.co/owner-uid": "another"}}}),
    ] {
        let before = world.confined("kept").await?.context("not confined")?;
        policies
            .patch(name, &parameters, &merge(patch.clone()))
            .await?;
        let title = format!("{patch} is put back");
        eventually(&title, CONDITION_TIMEOUT, async || {
            let now = policies.get(name).await?;
            let same = now.spec == before.spec
                && now.uid() == before.uid()
                && now.labels() == before.labels()
                && now.annotations() == before.annotations();
            Ok(same.then_some(()))
        })
        .await?;
    }
    let uid = world
        .confined("kept")
        .await?
        .and_then(|policy| policy.uid());
    policies.delete(name, &DeleteParams::default()).await?;
    eventually(
        "another NetworkPolicy is there",
        CONDITION_TIMEOUT,
        async || {
            let now = policies.get_opt(name).await?;
            Ok(now.filter(|now| now.uid() != uid))
        },
    )
    .await?;

    let jobs = world.api::<Job>();
    for patch in [
        json!({"spec": {"suspend": true}}),
        json!({"spec": {"activeDeadlineSeconds": 99_999}}),
        json!({"spec": {"parallelism": 2}}),
    ] {
        let before = jobs.get("kept").await?.spec;
        jobs.patch("kept", &parameters, &merge(patch.clone()))
            .await?;
        let title = format!("{patch} is put back");
        eventually(&title, CONDITION_TIMEOUT, async || {
            // A pod that the job controller made meanwhile would be given up if it did not run.
            world.agents_run().await?;
            let now = jobs.get("kept").await?.spec;
            Ok((now == before).then_some(()))
        })
        .await?;
    }
    let records = world.records("kept").await?;
    let put_back = |record: &&oz_trail::Record| {
        (record.action, record.decision) == (Action::DriftDetected, Decision::Note)
    };
    assert_eq!(records.iter().filter(put_back).count(), 10, "{records:#?}");

    jobs.delete("kept", &DeleteParams::background()).await?;
    for pod in world
        .api::<Pod>()
        .list(&kube::api::ListParams::default())
        .await?
    {
        let pod = world.told_to_end(&pod).await?;
        world.kubelet_lets_go(&pod).await?;
    }
    let run = world.phase("kept", RunPhase::Cancelled).await?;
    assert_eq!(reason(&run, "Completed"), Some("JobDeleted"));
    world.let_out("kept").await
}

#[tokio::test]
async fn run_with_unrepairable_network_policy_ends() -> Result<()> {
    let world = World::new("lasting").await?;
    let pod = world.running("open", json!({})).await?;
    // Our pods do not have this label, and what others own is not taken off by writing our fields.
    let patch = json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}}});
    let policies = world.api::<NetworkPolicy>();
    policies
        .patch("open-egress", &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    let pod = world.told_to_end(&pod).await?;
    world.kubelet_lets_go(&pod).await?;
    let run = world.phase("open", RunPhase::Cancelled).await?;
    assert_eq!(reason(&run, "Completed"), Some("DriftDetected"));
    world.let_out("open").await
}

#[tokio::test]
async fn r5_a_run_that_is_over_acquires_nothing_again() -> Result<()> {
    let world = World::new("over").await?;
    world.workspace("quiet", json!({})).await?;
    let ready = |workspace: &Workspace| {
        let status = workspace.status.clone().unwrap_or_default();
        conditions::is_true(&status.conditions, "PVCBound")
    };
    world.workspace_until("quiet", "is ready", ready).await?;
    let mark = world.cluster.audit().mark()?;
    let pod = world
        .running("once", json!({"workspaceRef": "quiet"}))
        .await?;
    world.agent_ends(&pod, 0, "").await?;
    world.phase("once", RunPhase::Succeeded).await?;
    let free = |workspace: &Workspace| {
        let status = workspace.status.clone().unwrap_or_default();
        status.active_run_ref.is_none() && workspace.finalizers().is_empty()
    };
    let free = world.workspace_until("quiet", "is free", free).await?;

    let writes = world
        .cluster
        .audit()
        .since(mark)?
        .writes()
        .in_namespace(world.name());
    let ours = writes.by_user("system:serviceaccount:oz-system:oz-operator");
    let counts = ours.filter(|entry| entry.resource != "events").counts();
    assert!(counts.values().sum::<usize>() <= 11, "{counts:#?}");

    // Each of these has it looked at again; the last is seen to have been.
    let label = Patch::Merge(json!({"metadata": {"labels": {"looked": "at"}}}));
    world
        .api::<HarnessRun>()
        .patch("once", &PatchParams::default(), &label)
        .await?;
    world
        .api::<Pod>()
        .delete(&pod.name_any(), &DeleteParams::default().grace_period(0))
        .await?;
    let next = world.running("next", json!({})).await?;
    world.agent_ends(&next, 0, "").await?;
    world.phase("next", RunPhase::Succeeded).await?;

    let after = world.api::<Workspace>().get("quiet").await?;
    assert_eq!(after.resource_version(), free.resource_version());
    assert!(world.confined("once").await?.is_none());
    let run = world.api::<HarnessRun>().get("once").await?;
    assert_eq!(phase_of(&run), Some(RunPhase::Succeeded));
    Ok(())
}

#[tokio::test]
async fn a_template_that_is_not_there_yet_is_waited_for() -> Result<()> {
    let world = World::new("early").await?;
    world
        .submit("early", json!({"templateRef": {"name": "late"}}))
        .await?;
    let waits = |run: &HarnessRun| reason(run, "TemplateResolved") == Some("TemplateNotFound");
    world
        .until("early", "waits for its template", waits)
        .await?;
    world.template("late", json!({})).await?;
    world.pod("early").await?;
    let resolved = |run: &HarnessRun| {
        let status = run.status.clone().unwrap_or_default();
        conditions::is_true(&status.conditions, "TemplateResolved")
    };
    world.until("early", "has its template", resolved).await?;
    Ok(())
}

#[tokio::test]
async fn a_template_that_never_comes_fails_its_run_when_the_minute_is_over() -> Result<()> {
    let world = World::new("never").await?;
    let run = world
        .submit("never", json!({"templateRef": {"name": "nowhere"}}))
        .await?;
    let created = run.metadata.creation_timestamp.context("no creation")?.0;
    let run = world.phase("never", RunPhase::Failed).await?;
    ensure!(
        reason(&run, "Completed") == Some("TemplateNotFound"),
        "{run:?}"
    );
    let ended = run.status.and_then(|status| status.completion_time);
    let waited = ended.context("no end")?.duration_since(created);
    ensure!(waited >= SignedDuration::from_mins(1), "{waited}");
    Ok(())
}

#[tokio::test]
async fn no_more_runs_are_live_than_a_policy_lets() -> Result<()> {
    let world = World::new("limit").await?;
    let policy = serde_json::from_value(json!({
        "apiVersion": "paddock.dev/v1alpha1", "kind": "BrokerPolicy",
        "metadata": {"name": "few"},
        "spec": {
            "appliesToTemplates": ["*"], "grants": {}, "limits": {"concurrentRuns": 1},
        },
    }))?;
    let policies = world.api::<oz_api::harness::BrokerPolicy>();
    policies.create(&PostParams::default(), &policy).await?;
    let first = world.running("first", json!({})).await?;
    world
        .submit("second", json!({"templateRef": {"name": BY_HAND}}))
        .await?;
    let waits = |run: &HarnessRun| reason(run, "JobCreated") == Some("TooManyRuns");
    world.until("second", "waits for the first", waits).await?;
    world.agent_ends(&first, 0, "").await?;
    world.pod("second").await?;
    Ok(())
}

#[tokio::test]
async fn finalizers_of_original_are_released() -> Result<()> {
    let world = World::new("left").await?;
    let pod = world.running("old", json!({})).await?;
    let held = Patch::Merge(json!({"metadata": {"finalizers": [
        "paddock.dev/harnessrun-finalizer", "paddock.dev/broker-leases-finalizer",
    ]}}));
    let runs = world.api::<HarnessRun>();
    runs.patch("old", &PatchParams::default(), &held).await?;
    runs.delete("old", &DeleteParams::default()).await?;
    let pod = world.told_to_end(&pod).await?;
    assert!(runs.get_opt("old").await?.is_some());
    world.kubelet_lets_go(&pod).await?;
    eventually("the run is gone", CONDITION_TIMEOUT, async || {
        Ok(runs.get_opt("old").await?.is_none().then_some(()))
    })
    .await
}
