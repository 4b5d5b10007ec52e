//! Grants that this release does not honour: a grant with a seal by HMAC is revoked, and a grant of the original Oz, which has
//! no stamp, is removed.

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use oz_api::{Phase, RequestStatus, conditions};
use serde_json::{Value, json};

use super::world::*;
use crate::access::kind::Question;
use crate::access::{grant, testing};
use crate::controller::{Child, Failure, Live, Step};

/// A settled grant with a seal by HMAC: the request, the Role and the RoleBinding.
const SEALED_BY_HMAC: &str = include_str!("fixtures/sealed-by-hmac.json");

fn sealed_by_hmac() -> World {
    let left: Value = serde_json::from_str(SEALED_BY_HMAC).unwrap();
    let live = |child: Child| Live {
        resource: child.resource,
        object: child.object,
    };
    let role: Role = serde_json::from_value(left["role"].clone()).unwrap();
    let binding: RoleBinding = serde_json::from_value(left["roleBinding"].clone()).unwrap();
    let mut world = World::new();
    world.live = vec![live(Child::new(&role)), live(Child::new(&binding))];
    world.request = serde_json::from_value(left["request"].clone()).unwrap();
    world
}

#[test]
fn grant_with_a_seal_by_hmac_is_revoked() {
    let mut world = sealed_by_hmac();
    let status = world.settle(timestamp(60));
    assert_eq!(status.phase, Phase::Revoked);
    assert_eq!(world.live, []);
    assert_eq!(world.actions(), ["AccessRevoked"]);
    let record = world.records.first().unwrap();
    assert_eq!(
        (record.reason.as_str(), record.until),
        ("SealRetired", Some(timestamp(300)))
    );
    let valid = conditions::find(&status.conditions, conditions::ACCESS_STILL_VALID).unwrap();
    assert_eq!(valid.reason, "SealRetired");
    assert!(!world.ended.is_empty(), "sessions go on");
}

/// Returns alice's request as the original Oz stores it, and the objects that the original Oz created for it.
fn left_by_the_original() -> World {
    let mut world = World::new();
    world.request.metadata.annotations = None;
    world.request.status = Some(RequestStatus {
        ready: true,
        access_message: Some("kubectl exec -ti -n shop db-0 -- /bin/sh".to_owned()),
        ..RequestStatus::default()
    });
    let name = grant::object_name("debug", testing::UID);
    let live = |kind: &str, uid: &str, owner: &str| {
        let object: DynamicObject = serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "shop", "uid": uid,
                "ownerReferences": [{
                    "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "ExecAccessRequest",
                    "name": "debug", "uid": owner, "controller": true,
                }],
            },
        }))
        .unwrap();
        let plural = kind.to_lowercase() + "s";
        let gvk = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind);
        Live {
            resource: ApiResource::from_gvk_with_plural(&gvk, &plural),
            object,
        }
    };
    world.left = Some(Ok(vec![
        live("Role", "role", testing::UID),
        live("RoleBinding", "binding", testing::UID),
        live("RoleBinding", "foreign", "somebody-else"),
    ]));
    world
}

#[test]
fn access_of_original_oz_is_deleted_before_request_is_denied() {
    let mut world = left_by_the_original();
    let plan = world.plan(timestamp(60));
    let steps = plan.stages.iter().flatten().map(|step| match step {
        Step::Delete(target) => target.uid.clone().unwrap(),
        Step::Record(record) => record.action.to_string(),
        other => format!("{other:?}"),
    });
    let steps: Vec<String> = steps.collect();
    assert_eq!(steps, ["binding", "role", "RequestDenied"]);
    world.writes_left = 0;
    assert_eq!(world.settle(timestamp(60)).phase, Phase::Pending);
    world.writes_left = usize::MAX;
    let status = world.settle(timestamp(61));
    assert_eq!(
        (status.phase, status.ready, status.access_message),
        (Phase::Denied, false, None)
    );
    let verified = conditions::find(&status.conditions, conditions::REQUESTER_VERIFIED).unwrap();
    assert_eq!(verified.reason, "NotStamped");
    assert!(verified.message.contains("create the request again"));
}

#[test]
fn unreadable_access_of_original_oz_is_not_treated_as_gone() {
    let mut world = left_by_the_original();
    world.left = Some(Err(Failure::transient("Timeout", "no answer")));
    assert!(is_transient(&world.plan(timestamp(60))));
    assert_eq!(world.settle(timestamp(60)).phase, Phase::Pending);
    assert!(world.records.is_empty());
}

#[test]
fn predecessor_is_searched_only_for_request_without_stamp() {
    let mut world = World::new();
    let looked = |world: &World| {
        let mut facts = world.facts();
        facts.predecessor = None;
        let question = world.asks(timestamp(60), &facts);
        question.is_some_and(|question| matches!(question, Question::Predecessor))
    };
    assert!(!looked(&world));
    world.stamp("mallory", &["interns"]);
    assert!(!looked(&world));
    let mut world = left_by_the_original();
    assert!(looked(&world));
    world.settle(timestamp(60));
    assert!(!looked(&world));
}
