//! Revocation by deletion of a request: by its requester, or by a user with the right to revoke the requests of others.
//! The audit record names the user who deleted the request.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::Api;
use kube::api::DeleteParams;
use oz_api::{ExecAccessRequest, Phase};
use oz_e2e::{TEMPLATE, exec_request, records_in, refused};
use oz_testkit::eventually;
use oz_trail::{Action, Decision};
use serde_json::json;

use crate::{scene, system};

const SOON: Duration = Duration::from_secs(60);

#[tokio::test]
async fn deletion_of_grant_is_recorded_and_requires_right_for_foreign_grants() -> Result<()> {
    let scene = scene("deleter").await?;
    let alice = scene.requests("alice").await?;
    alice
        .granted(&exec_request("hers", TEMPLATE, "10m"))
        .await?;
    let delete = DeleteParams::default();
    let of = async |user: &str| -> Result<Api<ExecAccessRequest>> {
        let client = scene.cluster.client(user).await?;
        Ok(Api::namespaced(client, scene.name()))
    };
    let bobs = of("bob").await?;
    let why = refused(bobs.delete("hers", &delete).await)?;
    assert!(why.contains("oz-revoke-access"), "{why}");
    assert_eq!(
        scene
            .api::<ExecAccessRequest>()
            .get("hers")
            .await?
            .status
            .map(|status| status.phase),
        Some(Phase::Active)
    );

    let revoke = json!({
        "apiGroups": ["crds.wizardofoz.co"], "resources": ["execaccessrequests"],
        "verbs": ["delete", "revoke"],
    });
    scene.allow("bob-revokes", "bob", &[revoke]).await?;
    // The API server's authorizer learns of a right from a watch.
    eventually("bob to be let", SOON, async || {
        Ok(bobs.delete("hers", &delete).await.is_ok().then_some(()))
    })
    .await?;
    let deleted = eventually("the record of it", SOON, async || {
        let records = records_in(&system().await?.webhook.process)?;
        Ok(records.into_iter().find(|record| {
            let of = &record.request;
            (record.action, record.decision) == (Action::RequestDeleted, Decision::End)
                && (of.namespace.as_str(), of.name.as_str()) == (scene.name(), "hers")
        }))
    })
    .await?;
    assert_eq!(deleted.user.context("nobody")?.user, "bob");
    assert_eq!(deleted.details["requester"], "alice");

    // A requester needs only the right to delete for their own request.
    alice.granted(&exec_request("own", TEMPLATE, "10m")).await?;
    of("alice").await?.delete("own", &delete).await?;
    Ok(())
}
