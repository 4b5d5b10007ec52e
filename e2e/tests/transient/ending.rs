//! Revocation of transient bindings.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use oz_api::{Phase, TransientClusterRoleBinding};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn a_deletion_that_orphans_leaves_no_binding() -> Result<()> {
    let fixture = Fixture::set("orphan").await?;
    for (name, policy) in [
        ("orphaned", PropagationPolicy::Orphan),
        ("foreground", PropagationPolicy::Foreground),
        ("background", PropagationPolicy::Background),
    ] {
        fixture
            .create(&binding(name, &json!({"duration": "10m"})))
            .await?;
        fixture.phase(name, Phase::Active).await?;
        let parameters = DeleteParams {
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        fixture.bindings().delete(name, &parameters).await?;
        eventually(
            &format!("nothing left of {name}"),
            CONDITION_TIMEOUT,
            async || {
                let left = fixture.bindings().get_opt(name).await?.is_some();
                Ok((!left).then_some(()))
            },
        )
        .await?;
        assert!(fixture.made().get_opt(name).await?.is_none(), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn meddling_revokes() -> Result<()> {
    let fixture = Fixture::set("meddling").await?;
    fixture
        .create(&binding("meddled", &json!({"duration": "10m"})))
        .await?;
    fixture.phase("meddled", Phase::Active).await?;
    let subjects = json!([{
        "kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io",
    }]);
    let change = Patch::Merge(json!({ "subjects": subjects }));
    fixture
        .made()
        .patch("meddled", &PatchParams::default(), &change)
        .await?;
    let status = fixture.phase("meddled", Phase::Revoked).await?;
    assert_eq!(condition(&status, "Ready"), "False (DriftDetected)");
    assert!(fixture.made().get_opt("meddled").await?.is_none());
    Ok(())
}

/// The maximum time in which the controller manager deletes a namespace: it lists every kind, which takes a minute on a
/// busy machine, and tries again some time after the last finalizer is gone.
const NAMESPACE_TIMEOUT: Duration = Duration::from_secs(400);

#[tokio::test]
async fn namespace_is_deleted_with_its_bindings() -> Result<()> {
    let fixture = Fixture::set("gone").await?;
    fixture
        .create(&binding("bound", &json!({"duration": "10m"})))
        .await?;
    fixture
        .create(&binding(
            "later",
            &json!({"validFrom": from_now(900), "duration": "10m"}),
        ))
        .await?;
    fixture.phase("bound", Phase::Active).await?;
    let namespaces = Api::<Namespace>::all(fixture.admin.clone());
    let name = fixture.name();
    namespaces.delete(name, &DeleteParams::default()).await?;
    eventually("the namespace to be gone", NAMESPACE_TIMEOUT, async || {
        let left = namespaces.get_opt(name).await?;
        ensure!(left.is_none(), "{left:?}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn rights_in_the_whole_cluster_come_and_go() -> Result<()> {
    let fixture = Fixture::set("cluster").await?;
    let all = Api::<TransientClusterRoleBinding>::all(fixture.lead.clone());
    let made = Api::<ClusterRoleBinding>::all(fixture.admin.clone());
    let mut object = binding(fixture.name(), &json!({"duration": "4s"}));
    object["spec"]["subjects"][0]["name"] = json!("auditor");
    let object = serde_json::from_value(object)?;
    all.create(&PostParams::default(), &object).await?;
    phase_of(&all, fixture.name(), Phase::Active).await?;
    assert_eq!(made.get(fixture.name()).await?.role_ref.name, "view");
    phase_of(&all, fixture.name(), Phase::Expired).await?;
    assert!(made.get_opt(fixture.name()).await?.is_none());
    all.delete(fixture.name(), &DeleteParams::default()).await?;
    eventually("the object to be gone", CONDITION_TIMEOUT, async || {
        Ok(all.get_opt(fixture.name()).await?.is_none().then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_finalizer_keeps_no_rights() -> Result<()> {
    let fixture = Fixture::set("held").await?;
    let all = Api::<TransientClusterRoleBinding>::all(fixture.lead.clone());
    let made = Api::<ClusterRoleBinding>::all(fixture.admin.clone());
    let mut object = binding(fixture.name(), &json!({"duration": "6s"}));
    object["spec"]["subjects"][0]["name"] = json!("auditor");
    let object = serde_json::from_value(object)?;
    all.create(&PostParams::default(), &object).await?;
    phase_of(&all, fixture.name(), Phase::Active).await?;
    let merge = PatchParams::default();
    let hold = Patch::Merge(json!({"metadata": {"finalizers": ["example.test/hold"]}}));
    made.patch(fixture.name(), &merge, &hold).await?;
    eventually(
        "the binding to name nobody",
        CONDITION_TIMEOUT,
        async || {
            let held = made.get(fixture.name()).await?;
            Ok(held.subjects.unwrap_or_default().is_empty().then_some(()))
        },
    )
    .await?;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    made.patch(fixture.name(), &merge, &free).await?;
    all.delete(fixture.name(), &DeleteParams::default()).await?;
    Ok(())
}
