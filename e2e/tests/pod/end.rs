//! The end of access: expiry at its second, revocation, and drift; the pod ends with it.

use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::Role;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use oz_api::Phase;
use oz_e2e::{NAMESPACE, conditions_line, records_about, records_of};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;
use serde_json::json;

use crate::support::{Requests, can_exec, grant_gone, pod_gone, pod_name, status, template};
use crate::{scene, system};

#[tokio::test]
async fn the_pod_goes_at_the_agreed_time_and_not_before() -> Result<()> {
    let scene = scene("pod-expiry").await?;
    template(&scene, "pod", json!({"network": {"egress": "None"}})).await?;
    let alice = Requests::new(&scene, "alice").await?;
    let request = alice.granted("brief", "pod", "10s").await?;
    let until = status(&request).expires_at.context("no end")?;
    let name = pod_name(&request);
    pod_gone(&scene, &name).await?;
    let gone = Timestamp::now();
    assert!(gone >= until, "{gone} is before {until}");
    let ended = alice.phase("brief", Phase::Expired).await?;
    assert!(!ended.ready);
    assert!(!can_exec(&scene, "alice", &name)?);
    grant_gone(&scene, &request).await?;
    eventually("the network policy to go", CONDITION_TIMEOUT, async || {
        let policy = scene.api::<NetworkPolicy>().get_opt(&name).await?;
        Ok(policy.is_none().then_some(()))
    })
    .await?;
    let operator = &system().await?.operator.process;
    assert_eq!(
        records_about(operator, &request)?,
        [Action::AccessGranted, Action::AccessExpired]
    );
    Ok(())
}

/// The audit log of the API server states the times of the deletions. `cargo xtask bench pods` measures their lateness.
#[tokio::test]
async fn many_pods_end_at_one_instant_each_by_one_deletion_and_none_before() -> Result<()> {
    let scene = scene("pod-lag").await?;
    template(&scene, "pod", json!({})).await?;
    let alice = Requests::new(&scene, "alice").await?;
    let mark = scene.cluster.audit().mark()?;
    let requests = try_join_all((0..30).map(async |number| {
        alice
            .granted(&format!("brief-{number}"), "pod", "12s")
            .await
    }))
    .await?;
    for request in &requests {
        pod_gone(&scene, &pod_name(request)).await?;
    }
    let operator = format!("system:serviceaccount:{NAMESPACE}:oz-operator");
    let deletions = scene
        .cluster
        .audit()
        .since(mark)?
        .by_user(&operator)
        .in_namespace(scene.name())
        .with_verb("delete")
        .on("", "pods");
    for request in &requests {
        let until = status(request).expires_at.context("no end")?;
        let name = pod_name(request);
        let of_it: Vec<_> = deletions
            .iter()
            .filter(|entry| entry.name == name)
            .collect();
        assert_eq!(of_it.len(), 1, "{name}");
        let late = of_it[0].stage_timestamp.duration_since(until);
        // The audit log uses another clock of the same machine.
        assert!(late.as_millis() > -100, "{name} was deleted {late:#} late");
    }
    Ok(())
}

#[tokio::test]
async fn deleting_a_request_revokes() -> Result<()> {
    let scene = scene("pod-delete").await?;
    template(&scene, "pod", json!({})).await?;
    let alice = Requests::new(&scene, "alice").await?;
    for (name, delete) in [
        ("background", DeleteParams::background()),
        ("foreground", DeleteParams::foreground()),
    ] {
        let request = alice.granted(name, "pod", "5m").await?;
        alice.api.delete(name, &delete).await?;
        pod_gone(&scene, &pod_name(&request)).await?;
        grant_gone(&scene, &request).await?;
        let operator = &system().await?.operator.process;
        eventually("the record of the end", CONDITION_TIMEOUT, async || {
            let records = records_of(operator, scene.name(), name)?;
            if records != [Action::AccessGranted, Action::AccessRevoked] {
                bail!("{name}: {records:?}");
            }
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn change_of_pod_objects_revokes_request() -> Result<()> {
    let scene = scene("pod-drift").await?;
    template(&scene, "pod", json!({"network": {"egress": "None"}})).await?;
    let alice = Requests::new(&scene, "alice").await?;
    let pods: Api<Pod> = scene.api();
    let plain = PatchParams::default();

    let request = alice.granted("deleted", "pod", "5m").await?;
    pods.delete(&pod_name(&request), &DeleteParams::default())
        .await?;
    let told = conditions_line(&alice.phase("deleted", Phase::Revoked).await?);
    assert!(told.contains("DriftDetected"), "{told}");
    grant_gone(&scene, &request).await?;

    let request = alice.granted("image", "pod", "5m").await?;
    let image = json!({"spec": {"containers": [{"name": "app", "image": "evil:1"}]}});
    let name = pod_name(&request);
    pods.patch(&name, &plain, &Patch::Strategic(image)).await?;
    let told = conditions_line(&alice.phase("image", Phase::Revoked).await?);
    assert!(told.contains("images or limits"), "{told}");
    pod_gone(&scene, &name).await?;

    let request = alice.granted("role", "pod", "5m").await?;
    let rules = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]});
    let name = pod_name(&request);
    let role = request
        .status
        .as_ref()
        .and_then(|one| one.role_name.clone());
    scene
        .api::<Role>()
        .patch(role.as_ref().unwrap_or(&name), &plain, &Patch::Merge(rules))
        .await?;
    alice.phase("role", Phase::Revoked).await?;
    pod_gone(&scene, &name).await?;

    let request = alice.granted("policy", "pod", "5m").await?;
    let name = pod_name(&request);
    let policies: Api<NetworkPolicy> = scene.api();
    policies.delete(&name, &DeleteParams::default()).await?;
    alice.phase("policy", Phase::Revoked).await?;
    pod_gone(&scene, &name).await
}
