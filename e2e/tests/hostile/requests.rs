//! Requests for more access than the requester may have, or with fields that the requester may not set.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use oz_api::{ExecAccessRequest, Phase, RequestStatus};
use oz_e2e::{NAMESPACE, Requests, TEMPLATE, exec_request, records_of, refusal, refused};
use oz_testkit::{eventually, fixtures};
use serde_json::json;

use crate::Stage;

pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Setting creationTimestamp, uid, managedFields and owner references in a new request: the API server sets the UID and
/// the time, the webhook sets the owner, and the duration counts from the API server's time.
#[tokio::test]
async fn metadata_that_is_not_the_users_to_set() -> Result<()> {
    let stage = Stage::set("metadata").await?;
    let before = Timestamp::now() - SignedDuration::from_secs(2);
    let mut request = serde_json::to_value(exec_request("mine", TEMPLATE, "5m"))?;
    request["metadata"] = json!({
        "name": "mine", "creationTimestamp": "2099-01-01T00:00:00Z", "generation": 7,
        "uid": "00000000-0000-0000-0000-000000000000", "selfLink": "/x",
        "managedFields": [{"manager": "oz/execaccessrequest", "operation": "Apply", "apiVersion": "v1"}],
        "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "x",
            "uid": "00000000-0000-0000-0000-000000000000",
        }],
    });
    let alice = stage.requests("alice").await?;
    let asked = alice.granted(&serde_json::from_value(request)?).await?;
    let metadata = &asked.request.metadata;
    assert!(
        metadata
            .uid
            .as_ref()
            .is_some_and(|uid| !uid.starts_with("00000000"))
    );
    let owners: Vec<_> = metadata
        .owner_references
        .iter()
        .flatten()
        .map(|owner| &owner.kind)
        .collect();
    assert_eq!(owners, ["ExecAccessTemplate"]);
    let until = asked.status().expires_at.context("no end")?;
    assert!(until >= before && until <= Timestamp::now() + SignedDuration::from_mins(5));
    Ok(())
}

/// Creating a request with a status that states a grant: the status is dropped, and the request is pending.
#[tokio::test]
async fn a_request_that_brings_its_status() -> Result<()> {
    let stage = Stage::set("status").await?;
    let mut request = exec_request("mine", "later", "5m");
    request.status = Some(RequestStatus {
        phase: Phase::Active,
        ready: true,
        expires_at: Some("2099-01-01T00:00:00Z".parse()?),
        ..RequestStatus::default()
    });
    let alice = stage.requests("alice").await?;
    let stored = alice.create(&request).await?;
    assert_ne!(stored.status.unwrap_or_default().phase, Phase::Active);
    let pending = alice
        .until("mine", "to be looked at", |status| {
            !status.conditions.is_empty()
        })
        .await?;
    let status = pending.status.unwrap_or_default();
    assert_eq!(
        (status.phase, status.ready, status.expires_at),
        (Phase::Pending, false, None)
    );
    Ok(())
}

/// Writing a later expiry into the status, with rights on the status or as an administrator: the API server denies it.
#[tokio::test]
async fn writing_the_status() -> Result<()> {
    let stage = Stage::set("writing").await?;
    let rule = json!({
        "apiGroups": ["crds.wizardofoz.co"], "resources": ["execaccessrequests/status"],
        "verbs": ["patch", "update"],
    });
    stage.allow("status", "alice", &[rule]).await?;
    let alice = stage.requests("alice").await?;
    let asked = alice.granted(&exec_request("mine", TEMPLATE, "5m")).await?;
    let edit = Patch::Merge(json!({"status": {"expiresAt": "2099-01-01T00:00:00Z"}}));
    let (merge, replace) = (PatchParams::default(), PostParams::default());
    for user in ["alice", "admin"] {
        let requests = stage.requests(user).await?;
        let merged = requests.api().patch_status("mine", &merge, &edit).await;
        assert!(refused(merged)?.contains("status"));
        let mut whole = asked.request.clone();
        whole.status.get_or_insert_default().expires_at = Some("2099-01-01T00:00:00Z".parse()?);
        whole.metadata.resource_version = None;
        let replaced = requests
            .api()
            .replace_status("mine", &replace, &whole)
            .await;
        assert!(replaced.is_err());
    }
    let now = alice.api().get("mine").await?.status.unwrap_or_default();
    assert_eq!(now.expires_at, asked.status().expires_at);
    Ok(())
}

/// Taking over fields with server-side apply, also under oz's field manager: the API server denies changes of spec,
/// stamp and owner references by every manager.
#[tokio::test]
async fn taking_fields_over_by_server_side_apply() -> Result<()> {
    let stage = Stage::set("apply").await?;
    let alice = stage.requests("alice").await?;
    let asked = alice.granted(&exec_request("mine", TEMPLATE, "5m")).await?;
    let admin = stage.requests("admin").await?;
    for (fields, word) in [
        (
            json!({"spec": {"templateName": TEMPLATE, "duration": "24h"}}),
            "spec",
        ),
        (
            json!({"metadata": {"annotations": {oz_api::labels::REQUESTER: "x"}}}),
            "immutable",
        ),
        (
            json!({"metadata": {"ownerReferences": [{
                "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x",
            }]}}),
            "ownerReferences",
        ),
    ] {
        let mut object = json!({
            "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "ExecAccessRequest",
            "spec": {"templateName": TEMPLATE, "duration": "5m"},
        });
        for (name, value) in fields.as_object().into_iter().flatten() {
            object[name] = value.clone();
        }
        for manager in ["mallory", "oz/execaccessrequest"] {
            let apply = PatchParams::apply(manager).force();
            let why = refused(
                admin
                    .api()
                    .patch("mine", &apply, &Patch::Apply(&object))
                    .await,
            )?;
            assert!(why.contains(word), "{manager}: {why}");
        }
    }
    let now = alice.api().get("mine").await?;
    assert_eq!(now.spec, asked.request.spec);
    Ok(())
}

/// Creating requests with an oversized reason, annotation or name: the API server denies them, and names the field or
/// the limit.
#[tokio::test]
async fn fields_without_measure() -> Result<()> {
    let stage = Stage::set("measure").await?;
    let alice = stage.requests("alice").await?;
    let mut reason = exec_request("mine", TEMPLATE, "5m");
    reason.spec.reason = Some("x".repeat(100_000));
    assert!(refused(alice.create(&reason).await)?.contains("spec.reason"));
    let mut annotated = exec_request("mine", TEMPLATE, "5m");
    annotated.metadata.annotations = Some(BTreeMap::from([("x".to_owned(), "x".repeat(200_000))]));
    assert!(refused(alice.create(&annotated).await)?.contains("the maximum is"));
    let long = exec_request(&"x".repeat(253), TEMPLATE, "5m");
    assert!(refused(alice.create(&long).await)?.contains("metadata.name"));
    Ok(())
}

/// Reusing the name of another user's deleted request: the new request has separate objects, and the access by the
/// first one ends.
#[tokio::test]
async fn the_name_of_anothers_request() -> Result<()> {
    let stage = Stage::set("name").await?;
    let (alice, bob) = (stage.requests("alice").await?, stage.requests("bob").await?);
    let first = alice
        .granted(&exec_request("debug", TEMPLATE, "10m"))
        .await?;
    alice
        .api()
        .delete("debug", &DeleteParams::default())
        .await?;
    let second = eventually("the name to be free", SOON, async || {
        Ok(bob
            .create(&exec_request("debug", TEMPLATE, "5m"))
            .await
            .ok())
    })
    .await?;
    let second = bob.ready(&second.name_any()).await?;
    assert_ne!(first.object_name(), second.object_name());
    eventually("alice's access to end", SOON, async || {
        let (role, binding) = stage.grant(&first.object_name()).await?;
        Ok((role.is_none() && binding.is_none()).then_some(()))
    })
    .await?;
    let bindings = stage
        .api::<RoleBinding>()
        .list(&ListParams::default())
        .await?;
    let bound: Vec<String> = bindings
        .into_iter()
        .flat_map(|one| one.subjects.unwrap_or_default())
        .map(|subject| subject.name)
        .collect();
    assert!(bound.contains(&"bob".to_owned()) && !bound.contains(&"alice".to_owned()));
    Ok(())
}

/// Using dry runs to get a grant or to fill the audit trail: nothing is stored, granted or recorded.
#[tokio::test]
async fn a_dry_run() -> Result<()> {
    let stage = Stage::set("dry").await?;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let alice = stage.requests("alice").await?;
    alice
        .api()
        .create(&dry, &exec_request("dry", TEMPLATE, "5m"))
        .await?;
    let mallory = stage.requests("mallory").await?;
    refused(
        mallory
            .api()
            .create(&dry, &exec_request("dry", TEMPLATE, "5m"))
            .await,
    )?;
    // A later request is granted and recorded.
    alice.granted(&exec_request("wet", TEMPLATE, "5m")).await?;
    assert!(alice.api().get_opt("dry").await?.is_none());
    assert!(records_of(&stage.oz()?.webhook.process, stage.name(), "dry")?.is_empty());
    assert!(!records_of(&stage.oz()?.webhook.process, stage.name(), "wet")?.is_empty());
    let bindings = stage
        .api::<RoleBinding>()
        .list(&ListParams::default())
        .await?;
    assert!(
        bindings
            .iter()
            .all(|one| !one.name_any().starts_with("dry-"))
    );
    Ok(())
}

/// Requesting access to oz's own pods, also as a dry run, which oz's canary uses: the webhook denies it.
#[tokio::test]
async fn a_request_in_ozs_own_namespace() -> Result<()> {
    let stage = Stage::set("own").await?;
    let admin = Requests::<ExecAccessRequest>::new(stage.admin.clone(), NAMESPACE);
    for dry_run in [false, true] {
        let how = PostParams {
            dry_run,
            ..PostParams::default()
        };
        let why = refused(
            admin
                .api()
                .create(&how, &exec_request("in", TEMPLATE, "5m"))
                .await,
        )?;
        assert!(why.contains(NAMESPACE), "{why}");
    }
    Ok(())
}

/// Naming a pod that has the workload's labels, which any user with rights on pods can set, but not the workload's
/// owner reference: the operator does not choose it.
#[tokio::test]
async fn a_pod_that_wears_the_workloads_labels() -> Result<()> {
    let stage = Stage::set("labels").await?;
    let pods = stage.api::<Pod>();
    let bait: Pod = serde_json::from_value(json!({
        "metadata": {"name": "bait", "labels": {"app": "elsewhere"}},
        "spec": {"containers": [{"name": fixtures::CONTAINER, "image": fixtures::IMAGE}]},
    }))?;
    pods.create(&PostParams::default(), &bait).await?;
    // The selector of the ReplicaSet requires more than this label, so it does not adopt the pod at once.
    let label = json!({"metadata": {"labels": {"app": oz_e2e::WORKLOAD}}});
    pods.patch("bait", &PatchParams::default(), &Patch::Merge(&label))
        .await?;
    let alice = stage.requests("alice").await?;
    let mut request = exec_request("mine", TEMPLATE, "5m");
    request.spec.target_pod = Some("bait".to_owned());
    alice.create(&request).await?;
    let waiting = alice.until("mine", "to say why it waits", |status| {
        !status.conditions.is_empty()
    });
    let status = waiting.await?.status.unwrap_or_default();
    let line = oz_e2e::conditions_line(&status);
    assert_eq!(status.phase, Phase::Pending, "{line}");
    assert!(
        line.contains("pod named bait not found among the pods"),
        "{line}"
    );
    let other = alice.granted(&exec_request("any", TEMPLATE, "5m")).await?;
    assert_ne!(other.pod(), "bait");
    Ok(())
}

/// Changing the template to longer durations during a grant: the expiry of the grant does not change.
#[tokio::test]
async fn a_template_that_is_changed_in_the_middle() -> Result<()> {
    let stage = Stage::set("middle").await?;
    let alice = stage.requests("alice").await?;
    let asked = alice.granted(&exec_request("mine", TEMPLATE, "8s")).await?;
    let until = asked.status().expires_at.context("no end")?;
    let longer =
        json!({"spec": {"accessConfig": {"defaultDuration": "24h", "maxDuration": "48h"}}});
    let patch = [
        "patch",
        "execaccesstemplate",
        TEMPLATE,
        "--type=merge",
        "-p",
    ];
    let patched = stage
        .kubectl("admin", &[&patch[..], &[&longer.to_string()]].concat())
        .output()?;
    assert_eq!(refusal(&patched), None);
    let status = alice.phase("mine", Phase::Expired).await?;
    assert_eq!(status.expires_at, Some(until));
    Ok(())
}
