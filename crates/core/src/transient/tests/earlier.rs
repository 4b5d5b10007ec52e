//! Bindings that the release before stored, in every state: their statements are literal, without the fields of change
//! tickets and emergencies. Each binding ends at its second, and its end is recorded.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::core::ApiResource;
use oz_api::{EndReason, Phase, TransientClusterRoleBinding, TransientRoleBinding, labels};
use serde_json::{Value, json};

use super::world::*;
use crate::access::policy;
use crate::access::testing::judgements;
use crate::controller::{Controller as _, Live, Step};
use crate::lifecycle::seal::{self, Purpose};
use crate::transient::{Grant, Kind as _};

const VERSION: &str = "crds.wizardofoz.co/v1alpha1";
const RBAC: &str = "rbac.authorization.k8s.io";
const OWN: &str = "oz-system";
/// The digest of the spec of [`stored`], as that release computed it.
const SPEC_DIGEST: &str = "sha256:3f1414e28be427c7de4c84765e839c589a3baa2ede04573455082c7d2e45ec21";
/// The annotation of [`bound`] in a namespace, as that release sealed it with [`keys`].
const SEALED: &str = r#"{"activatedAt":"2026-01-01T12:01:00Z","apiVersion":"crds.wizardofoz.co/v1alpha1","mark":"TransientRoleBinding","request":{"kind":"TransientRoleBinding","name":"on-call","namespace":"shop","uid":"0a1b2c3d-0000-4000-8000-000000000001"},"requester":{"groups":["leads"],"user":"bob"},"role":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"sig":"1cab5db6885c6ce4:SSkGtjE7CD9a7ynbU7-50Poa6q_MBD2S6cEzxTLOOQlR9LjkfSfRQBn1cZA3UUZUAJAkw2lGzqcRFMhHd1lKCA","specDigest":"sha256:3f1414e28be427c7de4c84765e839c589a3baa2ede04573455082c7d2e45ec21","subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"alice"}],"until":"2026-01-01T12:06:00Z"}"#;

fn namespace<K: InMemory>() -> &'static str {
    if K::CLUSTER { "" } else { "shop" }
}

fn role() -> Value {
    json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"})
}

/// Returns a stored binding of alice to `view` by bob, from 60 to 360 seconds after noon, with this judgement of access
/// policies in its stamp.
fn judged<K: InMemory>(judgement: Value) -> World<K> {
    let mut world = World::<K>::from_object(json!({
        "apiVersion": VERSION, "kind": K::kind(&()),
        "metadata": {"name": "on-call", "namespace": (!K::CLUSTER).then_some("shop")},
        "spec": {
            "roleRef": role(), "subjects": [{"kind": "User", "name": "alice"}],
            "validFrom": "2026-01-01T12:01:00Z", "validUntil": "2026-01-01T12:06:00Z",
        },
    }));
    let mut stamp = json!({
        "user": "bob", "groups": ["leads"], "kind": K::kind(&()), "namespace": namespace::<K>(),
        "name": "on-call", "specDigest": SPEC_DIGEST, "at": "2026-01-01T12:00:00Z", "nonce": "nonce",
    });
    if !judgement.is_null() {
        stamp["judgement"] = judgement;
    }
    let sealed = seal::seal(&keys(), Purpose::Stamp, &stamp).unwrap();
    let annotations = BTreeMap::from([(labels::REQUESTER.to_owned(), sealed)]);
    world.object.meta_mut().annotations = Some(annotations);
    world
}

/// Returns such a binding without access policies, with this status.
fn stored<K: InMemory>(status: Value) -> World<K> {
    let mut world = judged(Value::Null);
    reported(&mut world, status);
    world
}

fn reported<K: InMemory>(world: &mut World<K>, status: Value) {
    world
        .object
        .set_status(serde_json::from_value(status).unwrap());
}

/// Returns such a binding in its window.
fn active<K: InMemory>() -> World<K> {
    let mut world = stored(status_in_window());
    world.live.push(bound::<K>());
    world
}

fn status_in_window() -> Value {
    let condition = |type_: &str| {
        json!({
            "type": type_, "status": "True", "reason": "Success", "message": "the role is bound",
            "lastTransitionTime": "2026-01-01T12:01:00Z", "observedGeneration": 1,
        })
    };
    json!({
        "phase": "Active", "requester": "bob", "bindingName": "on-call", "bindingUID": "uid-1",
        "activatedAt": "2026-01-01T12:01:00Z", "expiresAt": "2026-01-01T12:06:00Z",
        "nextTransitionTime": "2026-01-01T12:06:00Z", "observedGeneration": 1,
        "conditions": [condition("Ready"), condition("Effective")],
    })
}

fn grant<K: InMemory>() -> Value {
    json!({
        "apiVersion": VERSION, "mark": K::MARK,
        "request": {
            "kind": K::kind(&()), "namespace": namespace::<K>(), "name": "on-call", "uid": UID,
        },
        "requester": {"user": "bob", "groups": ["leads"]},
        "role": role(),
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "alice"}],
        "specDigest": SPEC_DIGEST,
        "activatedAt": "2026-01-01T12:01:00Z", "until": "2026-01-01T12:06:00Z",
    })
}

/// Returns the RoleBinding or ClusterRoleBinding of the binding.
fn bound<K: InMemory>() -> Live {
    let sealed = seal::seal(&keys(), Purpose::TransientBinding, &grant::<K>()).unwrap();
    let resource = match K::CLUSTER {
        true => ApiResource::erase::<ClusterRoleBinding>(&()),
        false => ApiResource::erase::<RoleBinding>(&()),
    };
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": resource.kind,
        "metadata": {
            "name": "on-call", "namespace": (!K::CLUSTER).then_some("shop"), "uid": "uid-1",
            "labels": {
                "app.kubernetes.io/managed-by": "oz",
                "oz.wizardofoz.co/owner-kind": K::MARK,
                "oz.wizardofoz.co/owner-uid": UID,
            },
            "annotations": {
                "oz.wizardofoz.co/owner-name": "on-call", "oz.wizardofoz.co/grant": sealed,
            },
            "ownerReferences": [{
                "apiVersion": VERSION, "kind": K::kind(&()), "name": "on-call", "uid": UID,
                "controller": true,
            }],
        },
        "roleRef": role(),
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "alice"}],
    });
    let object = serde_json::from_value(object).unwrap();
    Live { resource, object }
}

/// Checks that a binding in its window ends at 360 seconds, and not before.
fn assert_ends_at_its_second<K: InMemory>(mut world: World<K>, actions: &[&str]) {
    let status = world.settle(timestamp(360) - NANOSECOND);
    assert_eq!(status.phase, Phase::Active);
    assert_eq!(status.expires_at, Some(timestamp(360)));
    assert_eq!(world.bound(), ["alice"]);
    let status = world.settle(timestamp(360));
    assert_eq!(status.phase, Phase::Expired);
    assert!(world.live.is_empty());
    assert_eq!(world.actions(), actions);
    let record = world.records.last().unwrap();
    assert_eq!(record.until, Some(timestamp(360)));
    assert_eq!(record.user.as_ref().unwrap().user, "bob");
}

#[test]
fn sealed_grant_of_release_before_opens_and_is_written_alike() {
    let mut live = bound::<TransientRoleBinding>();
    let annotations = live.object.metadata.annotations.as_mut().unwrap();
    annotations.insert(labels::GRANT.to_owned(), SEALED.to_owned());
    let opened = Grant::open(&keys(), &live, VERSION, UID).unwrap();
    let value = serde_json::to_value(&opened).unwrap();
    assert_eq!(value, grant::<TransientRoleBinding>());
    let again = seal::seal(&keys(), Purpose::TransientBinding, &opened).unwrap();
    assert_eq!(again, SEALED);
}

#[test]
fn digest_of_spec_without_new_fields_is_that_of_release_before() {
    let role = stored::<TransientRoleBinding>(json!({}));
    let cluster = stored::<TransientClusterRoleBinding>(json!({}));
    for binding in [
        role.object.stored().unwrap(),
        cluster.object.stored().unwrap(),
    ] {
        assert_eq!(binding.spec_digest, SPEC_DIGEST);
        assert_eq!(binding.requester(&keys()).unwrap().user, "bob");
    }
}

fn granted<K: InMemory>() {
    assert_ends_at_its_second(active::<K>(), &["AccessExpired"]);
    // A process that was killed before it wrote the status.
    let mut unreported = stored::<K>(json!({"phase": "Pending"}));
    unreported.live.push(bound::<K>());
    assert_ends_at_its_second(unreported.clone(), &["AccessExpired"]);
    // No process ran at the expiry.
    for mut overdue in [active::<K>(), unreported] {
        assert_eq!(overdue.settle(timestamp(400)).phase, Phase::Expired);
        assert!(overdue.live.is_empty());
        // A binding that no status reports ends in two passes, with one record.
        overdue.records.dedup_by_key(|record| record.id.clone());
        assert_eq!(overdue.actions(), ["AccessExpired"]);
    }
}

#[test]
fn granted_binding_of_release_before_ends_at_its_second() {
    granted::<TransientRoleBinding>();
    granted::<TransientClusterRoleBinding>();
}

fn waiting<K: InMemory>() {
    let mut world = stored::<K>(json!({
        "phase": "Pending", "requester": "bob", "nextTransitionTime": "2026-01-01T12:01:00Z",
        "observedGeneration": 1,
    }));
    let status = world.settle(timestamp(60) - NANOSECOND);
    assert_eq!((status.phase, world.live.len()), (Phase::Pending, 0));
    assert_eq!(world.settle(timestamp(60)).phase, Phase::Active);
    assert_ends_at_its_second(world, &["AccessGranted", "AccessExpired"]);
}

#[test]
fn window_of_release_before_opens_and_ends_at_its_seconds() {
    waiting::<TransientRoleBinding>();
    waiting::<TransientClusterRoleBinding>();
}

/// Returns a binding that waits for the approval of carol, and the digest that an approval must name.
fn asked<K: InMemory>() -> (World<K>, String) {
    let rule = json!({"name": "night/carol", "users": ["carol"], "approvals": 1});
    let mut world = judged::<K>(json!({
        "asked": 1, "policies": [{"name": "night", "digest": "sha256:1"}],
        "approval": {"rules": [rule], "timeout": "30m"},
    }));
    let digest = {
        let view = world.object.stored().unwrap();
        let judgement = view.stamp(&keys()).unwrap().judgement;
        let config = policy::rules(judgement.as_ref()).unwrap();
        let requester = view.requester(&keys()).unwrap();
        view.asked(OWN, &requester, &config).unwrap().digest
    };
    let status = json!({
        "phase": "Pending", "requester": "bob", "observedGeneration": 1,
        "approval": {"digest": digest, "until": "2026-01-01T12:06:00Z"},
    });
    reported(&mut world, status);
    (world, digest)
}

fn approved<K: InMemory>() {
    let (mut world, _) = asked::<K>();
    let status = world.settle(timestamp(360) - NANOSECOND);
    assert_eq!((status.phase, world.live.len()), (Phase::Pending, 0));
    // The approvers were asked by the release before.
    assert!(world.actions().is_empty(), "{:?}", world.actions());
    assert_eq!(world.settle(timestamp(360)).phase, Phase::Expired);
    assert_eq!(world.actions().last().unwrap(), "AccessExpired");

    let (mut world, digest) = asked::<K>();
    let answer = {
        let view = world.object.stored().unwrap();
        judgements::answer(&view.candidate(OWN), digest, "carol", true, 90)
    };
    world.approvals.push(answer);
    assert_eq!(world.settle(timestamp(100)).phase, Phase::Active);
    assert_ends_at_its_second(world, &["AccessGranted", "AccessExpired"]);
}

#[test]
fn approval_of_release_before_counts_and_its_binding_ends_at_its_second() {
    approved::<TransientRoleBinding>();
    approved::<TransientClusterRoleBinding>();
}

fn ended<K: InMemory>() {
    // An end that began before the upgrade keeps its reason, also after the expiry.
    for now in [200, 400] {
        let mut world = active::<K>();
        let mut status = status_in_window();
        status["ending"] = json!({
            "reason": "Locked", "detail": "AccessLock incident-7: stolen laptop",
            "since": "2026-01-01T12:03:00Z",
        });
        reported(&mut world, status);
        let status = world.settle(timestamp(now));
        assert_eq!(status.phase, Phase::Revoked);
        assert_eq!(status.ending.unwrap().reason, EndReason::Locked);
        assert!(world.live.is_empty());
        assert_eq!(world.actions(), ["AccessRevoked"]);
        assert_eq!(world.records[0].reason, "Locked");
    }
    let mut world = active::<K>();
    world.delete();
    world.settle(timestamp(200));
    assert!(world.gone && world.live.is_empty());
    assert_eq!(world.actions(), ["AccessRevoked"]);

    let world = active::<K>();
    let plan = world.controller.orphaned(timestamp(200), None, &world.live);
    let steps: Vec<&Step> = plan.steps().collect();
    assert!(
        matches!(steps[..], [Step::Delete(_), Step::Record(_)]),
        "{steps:?}"
    );

    let mut status = status_in_window();
    status["phase"] = json!("Expired");
    status["ending"] = json!({
        "reason": "Expired", "since": "2026-01-01T12:06:00Z", "recorded": true,
    });
    let mut over = stored::<K>(status);
    assert_eq!(over.settle(timestamp(400)).phase, Phase::Expired);
    assert_eq!((over.writes, over.actions().len()), (0, 0));
}

#[test]
fn end_that_release_before_began_is_completed() {
    ended::<TransientRoleBinding>();
    ended::<TransientClusterRoleBinding>();
}
