//! Seals by the key of a component that does not own their purpose. The gate parses data of every user, so its keys are
//! the most exposed.

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::Role;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use oz_api::{ExecAccessRequest, Phase, Requester, labels, names};
use oz_core::access::grant::Grant;
use oz_core::access::seal::{Keys, Owner};
use oz_core::access::stamp::Stamp;
use oz_core::kinds::AccessRequest as _;
use oz_e2e::{NAMESPACE, Scene, TEMPLATE, conditions_line, exec_request, private_key, unregister};
use serde_json::json;

use crate::gating::Gated;
use crate::{SYSTEM, Stage};

/// Returns a request of mallory with a stamp that names alice, sealed with this key as if by the webhook.
fn stamped(
    scene: &Scene,
    name: &str,
    key: [u8; Keys::BYTES],
    at: Timestamp,
) -> Result<ExecAccessRequest> {
    let mut request = exec_request(name, TEMPLATE, "5m");
    let view = request.view();
    let stamp = Stamp {
        requester: Requester {
            user: "alice".to_owned(),
            groups: vec!["devs".to_owned()],
            ..Requester::default()
        },
        kind: view.kind.to_owned(),
        namespace: scene.name().to_owned(),
        name: name.to_owned(),
        spec_digest: view.spec.digest(),
        at,
        nonce: name.to_owned(),
        ..Stamp::default()
    };
    let sealed = stamp.seal(&Keys::new(Owner::Webhook, &[key])?)?;
    request.metadata.annotations = Some([(labels::REQUESTER.to_owned(), sealed)].into());
    Ok(request)
}

/// Sealing a stamp that names another user with the private key of the gate or the operator, after an administrator
/// removed the webhook and the admission policies: the operator denies the request as forged; it accepts the webhook's
/// own key.
#[tokio::test]
async fn a_stamp_by_the_key_of_another_component() -> Result<()> {
    // The gate of this process runs from here on.
    drop(Gated::set("gates-stamp").await?);
    let mut place = SYSTEM.write().await;
    let cluster = crate::cluster().await?;
    let mut system = match place.take() {
        Some(system) => system,
        None => crate::smaller::start(cluster).await?,
    };
    let scene = Scene::set(cluster, "stamps").await?;
    let mallory = scene.requests("mallory").await?;
    system.webhook.process.kill9();
    unregister(cluster)?;
    for owner in [Owner::Gate, Owner::Operator] {
        let name = format!("by-{owner}");
        let key = private_key(&scene.admin, owner).await?;
        let request = stamped(&scene, &name, key, Timestamp::now())?;
        mallory.create(&request).await?;
        let status = mallory.phase(&name, Phase::Denied).await?;
        let line = conditions_line(&status);
        assert!(
            line.contains("RequesterVerified=False (StampForged"),
            "{line}"
        );
    }
    let key = private_key(&scene.admin, Owner::Webhook).await?;
    let request = stamped(&scene, "by-webhook", key, Timestamp::now())?;
    let granted = mallory.granted(&request).await?;
    assert_eq!(granted.status().requester.as_deref(), Some("alice"));
    Ok(())
}

/// Extending one's own grant with a new seal by the private key of the gate or the webhook: the operator revokes the
/// grant because of drift.
#[tokio::test]
async fn a_grant_by_the_key_of_another_component() -> Result<()> {
    drop(Gated::set("gates-grant").await?);
    let stage = Stage::set("grants").await?;
    let alice = stage.requests("alice").await?;
    for owner in [Owner::Gate, Owner::Webhook] {
        let name = format!("by-{owner}");
        let asked = alice.granted(&exec_request(&name, TEMPLATE, "10m")).await?;
        let roles = stage.api::<Role>();
        let role = roles.get(&asked.role_name()).await?;
        let text = role.annotations().get(labels::GRANT).context("no grant")?;
        let mut grant: Grant = serde_json::from_str(text)?;
        grant.window.until += SignedDuration::from_hours(24);
        let key = private_key(&stage.admin, owner).await?;
        let forged = grant.seal(&Keys::new(Owner::Operator, &[key])?)?;
        ensure!(*text != forged, "nothing is changed");
        let change = Patch::Merge(json!({"metadata": {"annotations": {labels::GRANT: forged}}}));
        roles
            .patch(&asked.role_name(), &PatchParams::default(), &change)
            .await?;
        let status = alice.phase(&name, Phase::Revoked).await?;
        let line = conditions_line(&status);
        assert!(line.contains("DriftDetected"), "{line}");
    }
    Ok(())
}

/// Reading the private keys of another component, or replacing its public keys, as the gate: the API server denies it.
#[tokio::test]
async fn the_keys_of_others_as_the_gate() -> Result<()> {
    let gated = Gated::set("gates-rights").await?;
    let reviews: Api<SubjectAccessReview> = Api::all(gated.stage.admin.clone());
    let may = async |verb: &str, name: &str| -> Result<bool> {
        let review: SubjectAccessReview = serde_json::from_value(json!({"spec": {
            "user": names::service_account(NAMESPACE, names::GATE),
            "groups": ["system:serviceaccounts", "system:serviceaccounts:oz-system"],
            "resourceAttributes": {
                "namespace": NAMESPACE, "verb": verb, "resource": "secrets", "name": name,
            },
        }}))?;
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    };
    for owner in [Owner::Webhook, Owner::Operator] {
        for verb in [
            "get", "list", "watch", "update", "patch", "delete", "create",
        ] {
            let name = owner.private_keys();
            assert!(!may(verb, name).await?, "{verb} {name}");
        }
        for verb in ["update", "patch", "delete", "create"] {
            let name = owner.public_keys();
            assert!(!may(verb, name).await?, "{verb} {name}");
        }
    }
    for verb in ["get", "list", "watch"] {
        assert!(!may(verb, "").await?, "{verb} all");
    }
    assert!(may("get", Owner::Gate.private_keys()).await?);
    assert!(may("get", Owner::Operator.public_keys()).await?);
    Ok(())
}
