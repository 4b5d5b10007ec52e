//! What an earlier release granted, this one honours to its end, if its seal still counts: it opens the sealed decision,
//! finds nothing drifted and writes nothing. A fixture is never written again; a release that
//! changes what it grants adds one: the request, the Role and the RoleBinding of a settled world.
//!
//! The components of 0.1 shared the key of their seals. What it sealed is revoked.
//!
//! What the original granted, before oz, nobody vouches for: it is taken away.

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use super::world::*;
use crate::access::kind::Question;
use crate::access::{grant, testing};
use crate::api::{EndReason, Ending, Phase, RequestStatus};
use crate::conditions;
use crate::controller::{Child, Failure, Live, Step};
use crate::labels;

/// What 0.1 granted.
pub(super) const GRANTED_BY_0_1: &str = include_str!("fixtures/granted-by-0.1.0.json");
const RELEASES: &[&str] = &[GRANTED_BY_0_1];

/// An end that was begun, and that only the words of conditions tell of.
const ENDING: &str = include_str!("fixtures/ending-by-0.1.0.json");

/// What a release left in the cluster for alice's request.
fn left_by(fixture: &str) -> World {
    let left: Value = serde_json::from_str(fixture).unwrap();
    let live = |child: Child| Live {
        resource: child.resource,
        object: child.object,
    };
    let role: Role = serde_json::from_value(left["role"].clone()).unwrap();
    let mut world = World::new();
    world.live = vec![live(Child::new(&role))];
    if !left["roleBinding"].is_null() {
        let binding: RoleBinding = serde_json::from_value(left["roleBinding"].clone()).unwrap();
        world.live.push(live(Child::new(&binding)));
    }
    world.request = serde_json::from_value(left["request"].clone()).unwrap();
    world
}

/// The same, sealed by a key that counts.
fn sealed_again(mut world: World) -> World {
    for live in &mut world.live {
        let annotations = live.object.metadata.annotations.iter_mut().flatten();
        for (_, text) in annotations.filter(|(key, _)| *key == labels::GRANT) {
            let grant: grant::Grant = serde_json::from_str(text).unwrap();
            *text = grant.seal(&testing::keys()).unwrap();
        }
    }
    world
}

#[test]
fn grant_of_0_1_is_revoked_since_its_seal_is_retired() {
    let mut world = left_by(GRANTED_BY_0_1);
    let status = world.settle(at(60));
    assert_eq!(status.phase, Phase::Revoked);
    assert_eq!(world.live, []);
    assert_eq!(world.actions(), ["AccessRevoked"]);
    let record = world.records.first().unwrap();
    assert_eq!(
        (record.reason.as_str(), record.until),
        ("SealRetired", Some(at(300)))
    );
    let valid = conditions::find(&status.conditions, conditions::ACCESS_STILL_VALID).unwrap();
    assert_eq!(valid.reason, "SealRetired");
    assert!(!world.ended.is_empty(), "sessions go on");
}

#[test]
fn a_grant_of_an_earlier_release_goes_on_untouched_and_ends_in_time() {
    for fixture in RELEASES {
        let mut world = sealed_again(left_by(fixture));
        let before = world.status();
        let plan = world.plan(at(60));
        assert_eq!(plan.steps().count(), 0, "{plan:?}");
        assert_eq!(plan.wake, Some(at(300)));
        world.pass(at(60));
        assert_eq!(world.status(), before);
        world.settle(at(300));
        assert_eq!(world.live, []);
        assert_eq!(world.actions(), ["AccessExpired"]);
    }
}

/// Alice's request as the original has it, and what that made for it.
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
fn an_end_that_an_earlier_release_began_is_written_typed_and_goes_on_as_it_was() {
    let mut world = sealed_again(left_by(ENDING));
    let reason = crate::sessions::NOT_ENDED;
    world.sessions_fail = Some(Failure::transient(reason, "the node does not answer"));
    world.pass(at(61));
    let status = world.status();
    assert_eq!((status.phase, status.ready), (Phase::Active, false));
    let expected = Ending {
        reason: EndReason::DriftDetected,
        detail: Some("the rules of Role debug-0a1b2c3d were changed".to_owned()),
        since: Some(at(60)),
        recorded: true,
        sessions_ended: false,
        sessions_may_go_on: true,
        sessions_given_up: false,
    };
    assert_eq!(status.ending, Some(expected));
    assert_eq!(world.ended, [testing::UID]);
    world.sessions_fail = None;
    assert_eq!(world.settle(at(62)).phase, Phase::Revoked);
    assert_eq!(world.live, []);
    assert!(
        world.records.is_empty(),
        "it is on record: {:?}",
        world.actions()
    );

    // A node that never answers: that is put on record, once, although 0.1 tried in vain.
    let mut silent = sealed_again(left_by(ENDING));
    silent.sessions_fail = Some(Failure::transient(reason, "the node does not answer"));
    silent.settle(at(360));
    assert_eq!(silent.status().phase, Phase::Revoked);
    assert_eq!(silent.actions(), ["SessionCut"]);
}

#[test]
fn what_the_original_granted_is_taken_away_before_its_request_is_refused() {
    let mut world = left_by_the_original();
    let plan = world.plan(at(60));
    let steps = plan.stages.iter().flatten().map(|step| match step {
        Step::Delete(target) => target.uid.clone(),
        Step::Record(record) => record.action.to_string(),
        other => format!("{other:?}"),
    });
    let steps: Vec<String> = steps.collect();
    assert_eq!(steps, ["binding", "role", "RequestDenied"]);
    world.writes_left = 0;
    assert_eq!(world.settle(at(60)).phase, Phase::Pending);
    world.writes_left = usize::MAX;
    let status = world.settle(at(61));
    assert_eq!(
        (status.phase, status.ready, status.access_message),
        (Phase::Denied, false, None)
    );
    let verified = conditions::find(&status.conditions, conditions::REQUESTER_VERIFIED).unwrap();
    assert_eq!(verified.reason, "NotStamped");
    assert!(verified.message.contains("create the request again"));
}

#[test]
fn what_cannot_be_read_is_not_taken_for_gone() {
    let mut world = left_by_the_original();
    world.left = Some(Err(Failure::transient("Timeout", "no answer")));
    assert!(is_transient(&world.plan(at(60))));
    assert_eq!(world.settle(at(60)).phase, Phase::Pending);
    assert!(world.records.is_empty());
}

#[test]
fn only_a_request_without_a_stamp_is_looked_at_for_what_another_program_made() {
    let mut world = World::new();
    let looked = |world: &World| {
        let mut facts = world.facts();
        facts.predecessor = None;
        let question = world.asks(at(60), &facts);
        question.is_some_and(|question| matches!(question, Question::Predecessor))
    };
    assert!(!looked(&world));
    world.stamp("mallory", &["interns"]);
    assert!(!looked(&world));
    let mut world = left_by_the_original();
    assert!(looked(&world));
    world.settle(at(60));
    assert!(!looked(&world));
}
