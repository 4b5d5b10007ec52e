//! Denied requests, and the reasons that their requesters see.

use anyhow::{Context, Result};
use kube::api::{Patch, PatchParams};
use oz_api::{ExecAccessRequest, Phase, TargetKind, labels};
use oz_core::access::stamp;
use oz_e2e::{TEMPLATE, WORKLOAD, conditions_line, exec_request, exec_template, refused};
use serde_json::{Value, json};

use crate::scene;

#[tokio::test]
async fn requester_outside_groups_is_refused_at_once() -> Result<()> {
    let scene = scene("groups").await?;
    let mallory = scene.requests("mallory").await?;
    let message = refused(
        mallory
            .create(&exec_request("please", TEMPLATE, "5m"))
            .await,
    )?;
    assert!(
        message.contains("mallory is in none of the groups that template shell allows (devs)"),
        "{message}"
    );
    assert!(mallory.api().get_opt("please").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_duration_that_means_nothing_is_refused_with_its_field() -> Result<()> {
    let scene = scene("durations").await?;
    let alice = scene.requests("alice").await?;
    for duration in ["soon", "1d", "-5m", "5", "99999999999h"] {
        let message = refused(alice.create(&exec_request("odd", TEMPLATE, duration)).await)?;
        assert!(message.contains("spec.duration"), "{duration}: {message}");
    }
    Ok(())
}

#[tokio::test]
async fn more_than_the_maximum_gets_the_maximum_and_says_so() -> Result<()> {
    let scene = scene("maximum").await?;
    let mut template = exec_template("brief", TargetKind::Deployment, WORKLOAD);
    template.spec.access_config.default_duration = "1m".into();
    template.spec.access_config.max_duration = "2m".into();
    scene.template(&template).await?;
    let alice = scene.requests("alice").await?;
    let asked = alice.granted(&exec_request("long", "brief", "48h")).await?;
    let status = asked.status();
    let created = asked
        .request
        .metadata
        .creation_timestamp
        .clone()
        .context("no creation time")?
        .0;
    assert_eq!(
        status.expires_at,
        Some(created + jiff::SignedDuration::from_mins(2))
    );
    assert!(conditions_line(&status).contains(
        "Access requested duration (48h0m0s) larger than template maximum duration (2m0s)"
    ));
    Ok(())
}

#[tokio::test]
async fn a_pod_that_is_not_there_is_waited_for_and_those_that_are_are_named() -> Result<()> {
    let scene = scene("nopod").await?;
    let alice = scene.requests("alice").await?;
    let mut request = exec_request("nopod", TEMPLATE, "5m");
    request.spec.target_pod = Some("web-gone".into());
    alice.create(&request).await?;
    let status = alice
        .until("nopod", "to say why it waits", |status| {
            !status.conditions.is_empty()
        })
        .await?
        .status
        .context("no status")?;
    let line = conditions_line(&status);
    assert_eq!(status.phase, Phase::Pending);
    assert!(line.contains("pod named web-gone not found"), "{line}");
    for pod in &scene.pods {
        assert!(
            line.contains(pod.metadata.name.as_deref().unwrap_or_default()),
            "{line}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_request_cannot_be_edited_into_another() -> Result<()> {
    let scene = scene("edit").await?;
    let alice = scene.requests("alice").await?;
    let admin: kube::Api<ExecAccessRequest> = scene.api();
    alice
        .granted(&exec_request("fixed", TEMPLATE, "5m"))
        .await?;
    let before = admin.get("fixed").await?;
    let stamp = stamp::read(&before.metadata)
        .context("no stamp")?
        .to_owned();
    let edits: [(Value, &str); 6] = [
        (json!({"spec": {"duration": "24h"}}), "spec"),
        (json!({"spec": {"templateName": "other"}}), "spec"),
        (
            json!({"spec": {"targetPod": "web-x"}}),
            "Spec.TargetPod is an immutable field",
        ),
        (json!({"spec": null}), "spec"),
        (
            json!({"metadata": {"annotations": {labels::REQUESTED_BY: "mallory"}}}),
            "immutable",
        ),
        (
            json!({"metadata": {"annotations": {labels::REQUESTER: stamp.replace("alice", "mallory")}}}),
            "immutable",
        ),
    ];
    for (edit, expected) in edits {
        let answer = admin
            .patch("fixed", &PatchParams::default(), &Patch::Merge(&edit))
            .await;
        let message = refused(answer).with_context(|| edit.to_string())?;
        assert!(message.contains(expected), "{edit}: {message}");
    }
    let after = admin.get("fixed").await?;
    assert_eq!(
        (after.spec, after.metadata.annotations),
        (before.spec, before.metadata.annotations)
    );
    Ok(())
}

#[tokio::test]
async fn a_stamp_that_the_user_brings_is_overwritten() -> Result<()> {
    let scene = scene("forged").await?;
    let alice = scene.requests("alice").await?;
    let mallory = scene.requests("mallory").await?;
    let first = alice
        .granted(&exec_request("first", TEMPLATE, "5m"))
        .await?;
    // Mallory is in no group with access, so the copied stamp would give mallory access.
    let mut copied = exec_request("first-again", "unknown", "5m");
    copied.metadata.annotations = first.request.metadata.annotations.clone();
    let created = mallory.create(&copied).await?;
    let annotations = created.metadata.annotations.context("no annotations")?;
    assert_eq!(
        annotations.get(labels::REQUESTED_BY).map(String::as_str),
        Some("mallory")
    );
    let stamp = annotations.get(labels::REQUESTER).context("no stamp")?;
    assert!(
        stamp.contains("\"mallory\"") && !stamp.contains("\"alice\""),
        "{stamp}"
    );
    Ok(())
}

#[tokio::test]
async fn membership_is_asked_again_when_the_template_comes_later() -> Result<()> {
    let scene = scene("again").await?;
    let mallory = scene.requests("mallory").await?;
    mallory
        .create(&exec_request("sneak", "later", "5m"))
        .await?;
    scene
        .template(&exec_template("later", TargetKind::Deployment, WORKLOAD))
        .await?;
    let status = mallory.phase("sneak", Phase::Denied).await?;
    assert!(conditions_line(&status).contains("RequesterVerified=False (NotAllowed"));
    Ok(())
}

#[tokio::test]
async fn the_status_is_the_operators_alone() -> Result<()> {
    let scene = scene("owner").await?;
    let alice = scene.requests("alice").await?;
    alice.granted(&exec_request("mine", TEMPLATE, "5m")).await?;
    let admin: kube::Api<ExecAccessRequest> = scene.api();
    let edit = json!({"status": {"expiresAt": "2099-01-01T00:00:00Z"}});
    let message = refused(
        admin
            .patch_status("mine", &PatchParams::default(), &Patch::Merge(&edit))
            .await,
    )?;
    assert!(message.contains("status"), "{message}");
    Ok(())
}

#[tokio::test]
async fn template_author_without_pod_rights_is_refused() -> Result<()> {
    let scene = scene("author").await?;
    let bob = scene
        .cluster
        .issue_kubeconfig("template-bob", &["editors"])?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "editors"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "oz-template-manager-role"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "editors"}],
    });
    let binding: k8s_openapi::api::rbac::v1::RoleBinding = serde_json::from_value(binding)?;
    scene.api().create(&Default::default(), &binding).await?;
    assert!(bob.exists());
    let right = json!({
        "apiGroups": ["crds.wizardofoz.co"], "resources": ["execaccesstemplates"], "verbs": ["create"],
    });
    scene.wait_for_rules("template-bob", &[right]).await?;
    let client = scene.cluster.client("template-bob").await?;
    let templates: kube::Api<oz_api::ExecAccessTemplate> =
        kube::Api::namespaced(client, scene.name());
    let template = exec_template("mine", TargetKind::Deployment, WORKLOAD);
    let message = refused(templates.create(&Default::default(), &template).await)?;
    assert!(message.contains("pods/exec"), "{message}");
    Ok(())
}
