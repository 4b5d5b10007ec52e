//! The end of a binding: at its time with other objects broken, before its time after a revocation or drift, and
//! complete after a crash at any point.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oz_api::{EndReason, Phase, TransientRoleBinding, conditions, labels};
use serde_json::json;

use super::world::*;
use crate::access::testing::done_by;
use crate::controller::{Controller, Failure, Live, Step};

fn active() -> World<TransientRoleBinding> {
    let mut world = namespaced(|_| {});
    world.settle(timestamp(60));
    assert_eq!(world.bound(), ["alice"]);
    world
}

#[test]
fn two_subjects_of_one_name_are_two_and_cause_no_rewrite() {
    let mut world = namespaced(|object| {
        object["spec"]["subjects"] = json!([
            {"kind": "ServiceAccount", "name": "default", "namespace": "a"},
            {"kind": "ServiceAccount", "name": "default", "namespace": "b"},
            {"kind": "User", "name": "bob"},
            {"kind": "Group", "name": "bob"},
        ]);
    });
    world.settle(timestamp(60));
    assert_eq!(world.bound(), ["default", "default", "bob", "bob"]);
    let writes = world.writes;
    for now in 61..100 {
        assert!(world.pass(timestamp(now)).stages.is_empty());
    }
    assert_eq!(world.writes, writes);
}

#[test]
fn a_foreign_binding_of_the_name_is_left_alone_and_costs_one_write() {
    let mut world = namespaced(|_| {});
    world.taken = true;
    world.settle(timestamp(60));
    assert_eq!(world.condition("NameConflict"), "True (NameConflict)");
    assert_eq!(world.condition("Ready"), "False (NameConflict)");
    let (status, writes) = (world.status(), world.writes);
    assert_eq!(writes, 1);
    for now in 61..200 {
        let plan = world.pass(timestamp(now));
        assert_eq!(plan.wake, Some(timestamp(360)));
        assert_eq!(plan.obstacle.unwrap().reason, Failure::NAME_CONFLICT);
    }
    assert_eq!((world.status(), world.writes), (status, writes));
    // Nothing is on record as granted.
    assert!(world.actions().is_empty());

    world.taken = false;
    assert_eq!(world.settle(timestamp(200)).phase, Phase::Active);
    assert_eq!(world.condition("NameConflict"), "False (NameAvailable)");
}

#[test]
fn binding_ends_at_expiry_although_role_is_no_longer_bindable() {
    // What the status does not know of yet, as after a crash, is emptied before it goes: if the
    // operator may write it.
    let forgotten = || {
        let mut world = active();
        world.object.status = None;
        world
    };
    for (mut world, roles, emptied) in [
        (active(), &[][..], false),
        (forgotten(), &[], false),
        (forgotten(), &["view"], true),
    ] {
        world.allow(roles);
        assert!(
            world.plan(timestamp(359)).stages.is_empty(),
            "not before its end"
        );
        let plan = world.plan(timestamp(360));
        let writes = plan.steps().any(|step| matches!(step, Step::Apply(_)));
        assert_eq!(writes, emptied, "{roles:?}");
        assert_eq!(world.settle(timestamp(360)).phase, Phase::Expired);
        assert!(world.live.is_empty());
        world.delete();
        world.settle(timestamp(361));
        assert!(world.gone);
    }
    let mut waiting = namespaced(|_| {});
    waiting.allow(&[]);
    assert_eq!(waiting.settle(timestamp(60)).phase, Phase::Denied);
}

#[test]
fn deleting_the_object_ends_the_binding_before_the_finalizer_goes() {
    let mut world = active();
    world.delete();
    let plan = world.plan(timestamp(100));
    let steps: Vec<&Step> = plan.steps().collect();
    assert!(
        matches!(
            steps[..],
            [
                Step::Delete(_),
                Step::Look(_),
                Step::Record(_),
                Step::Release(_)
            ]
        ),
        "{steps:?}"
    );
    // While the record cannot be written the object stays, without its binding.
    world.records_fail = true;
    world.pass(timestamp(100));
    assert_eq!((world.gone, world.bound().len()), (false, 0));
    world.records_fail = false;
    world.settle(timestamp(101));
    assert!(world.gone);
    assert_eq!(world.actions(), ["AccessGranted", "AccessRevoked"]);
}

#[test]
fn binding_that_was_never_active_is_deleted_without_audit_record() {
    for phase in [0, 60, 360] {
        let mut world = namespaced(|_| {});
        world.lookup.role = Ok(None);
        world.settle(timestamp(phase));
        let told = world.records.len();
        world.delete();
        world.settle(timestamp(phase + 1));
        assert!(world.gone);
        assert_eq!(world.records.len(), told);
    }
}

#[test]
fn grant_of_binding_without_identity_ends() {
    let mut world = active();
    world.object.metadata.creation_timestamp = None;
    let plan = world.plan(timestamp(100));
    let is_deletion = |step: &Step| matches!(step, Step::Delete(_));
    assert!(plan.steps().any(is_deletion), "{plan:?}");
}

#[test]
fn orphaned_binding_is_ended_by_its_decision() {
    let world = active();
    let plan = world.controller.orphaned(timestamp(100), None, &world.live);
    let steps: Vec<&Step> = plan.steps().collect();
    assert!(
        matches!(steps[..], [Step::Delete(_), Step::Record(_)]),
        "{steps:?}"
    );
    // By its decision, not by its labels.
    let mut forged = world.live.clone();
    forged[0].object.metadata.annotations = None;
    assert!(
        world
            .controller
            .orphaned(timestamp(100), None, &forged)
            .stages
            .is_empty()
    );
    let mut moved = world.live.clone();
    moved[0].object.metadata.name = Some("other".to_owned());
    assert!(
        world
            .controller
            .orphaned(timestamp(100), None, &moved)
            .stages
            .is_empty()
    );
}

#[test]
fn meddling_revokes() {
    type Change = fn(&mut World<TransientRoleBinding>);
    let changes: [(&str, Change); 7] = [
        ("subjects", |world| {
            world.live[0].object.data["subjects"][0]["name"] = json!("mallory");
        }),
        ("one more subject", |world| {
            let more = json!({"kind": "User", "name": "mallory"});
            let subjects = &mut world.live[0].object.data["subjects"];
            subjects.as_array_mut().unwrap().push(more);
        }),
        ("role", |world| {
            world.live[0].object.data["roleRef"]["name"] = json!("cluster-admin");
        }),
        ("owner", |world| {
            world.live[0].object.metadata.owner_references = None;
        }),
        ("decision", |world| {
            world.live[0].object.metadata.annotations = None;
        }),
        ("deleted", |world| world.live.clear()),
        ("spec", |world| {
            world.object.spec.valid_until = Some(timestamp(100_000).to_string());
        }),
    ];
    for (what, change) in changes {
        let mut world = active();
        change(&mut world);
        assert_eq!(world.settle(timestamp(100)).phase, Phase::Revoked, "{what}");
        assert!(world.bound().is_empty(), "{what}");
        assert_eq!(
            world.actions(),
            ["AccessGranted", "DriftDetected", "AccessRevoked"],
            "{what}"
        );
        assert_eq!(world.condition("Ready"), "False (DriftDetected)");
    }
    // Labels and annotations of others are not ours to mind.
    let mut world = active();
    let metadata = &mut world.live[0].object.metadata;
    metadata
        .labels
        .get_or_insert_default()
        .insert("team".into(), "a".into());
    assert!(world.plan(timestamp(100)).stages.is_empty());
}

#[test]
fn binding_sealed_by_earlier_release_is_revoked_as_retired() {
    let mut world = active();
    let annotations = world.live[0].object.metadata.annotations.as_mut().unwrap();
    let text = annotations.get_mut(oz_api::labels::GRANT).unwrap();
    *text = text.replacen("\"sig\":", "\"mac\":", 1);
    assert_eq!(world.settle(timestamp(100)).phase, Phase::Revoked);
    assert!(world.bound().is_empty());
    assert_eq!(world.actions(), ["AccessGranted", "AccessRevoked"]);
    assert_eq!(world.condition("Ready"), "False (SealRetired)");
}

#[test]
fn corrected_message_changes_no_decision_for_binding() {
    type Change = fn(&mut World<TransientRoleBinding>);
    let events: [Change; 5] = [
        |_| {},
        |world| world.live.clear(),
        |world| world.live[0].object.metadata.owner_references = None,
        |world| world.live[0].object.metadata.finalizers = Some(vec!["a/b".to_owned()]),
        World::delete,
    ];
    let decisions = |reworded: bool, event: Change, fails: bool| -> Vec<String> {
        let mut world = active();
        (world.reworded, world.records_fail) = (reworded, fails);
        event(&mut world);
        let mut decided = Vec::new();
        for seconds in [100, 101, 102, 360, 361, 362] {
            world.records_fail &= seconds < 360;
            if world.gone {
                break;
            }
            let plan = world.pass(timestamp(seconds));
            let status = world.status();
            let reason = conditions::find(&status.conditions, "Ready").map(|it| it.reason.clone());
            let (done, phase, ending) = (done_by(&plan), status.phase, status.ending);
            decided.push(format!("{seconds}: {done:?} {phase} {reason:?} {ending:?}"));
        }
        decided
    };
    for event in events {
        for fails in [false, true] {
            assert_eq!(
                decisions(false, event, fails),
                decisions(true, event, fails)
            );
        }
    }
}

#[test]
fn finalizer_on_binding_does_not_preserve_access() {
    let mut world = active();
    world.live[0].object.metadata.finalizers = Some(vec!["example.com/mine".to_owned()]);
    assert_eq!(world.settle(timestamp(100)).phase, Phase::Revoked);
    assert!(world.bound().is_empty());
}

#[test]
fn objects_that_only_bear_our_labels_suffer_nothing() {
    let mut world = active();
    let mut forged = world.live[0].clone();
    forged.object.metadata.name = Some("forged".to_owned());
    forged.object.metadata.uid = Some("forged".to_owned());
    forged.object.metadata.owner_references = None;
    world.live.push(forged);
    world.settle(timestamp(360));
    assert_eq!(world.status().phase, Phase::Expired);
    let left: Vec<_> = world.live.iter().map(|live| live.reference().uid).collect();
    assert_eq!(left, [Some("forged".to_owned())]);
}

#[test]
fn unwritable_record_prevents_start_but_not_end_of_binding() {
    let mut world = namespaced(|_| {});
    world.records_fail = true;
    world.settle(timestamp(60));
    assert_eq!(
        (world.status().phase, world.bound().len()),
        (Phase::Pending, 0)
    );
    assert_eq!(world.condition("Ready"), "False (RecordFailed)");

    let mut world = active();
    world.records_fail = true;
    world.settle(timestamp(360));
    assert!(world.bound().is_empty());
    assert_eq!(world.status().phase, Phase::Active);
    assert_eq!(world.condition("Effective"), "False (Ending)");
    world.records_fail = false;
    assert_eq!(world.settle(timestamp(361)).phase, Phase::Expired);
}

#[test]
fn begun_end_of_binding_keeps_its_reason_until_it_is_recorded() {
    let mut world = active();
    world.live[0].object.data["subjects"][0]["name"] = json!("mallory");
    world.records_fail = true;
    world.pass(timestamp(100));
    let begun = world.status().ending.unwrap();
    assert_eq!(begun.reason, EndReason::DriftDetected);
    assert!(world.bound().is_empty());
    // The binding is gone, and later its window ends.
    world.pass(timestamp(101));
    world.pass(timestamp(360));
    world.records_fail = false;
    let status = world.settle(timestamp(361));
    assert_eq!(status.phase, Phase::Revoked);
    assert_eq!(status.ending.unwrap().detail, begun.detail);
    assert_eq!(
        world.actions(),
        ["AccessGranted", "DriftDetected", "AccessRevoked"]
    );
}

#[test]
fn a_window_that_no_status_remembers_is_used_once() {
    // The status can never be written: what remembers is the binding, without its subjects.
    let mut world = lasting("5m");
    world.status_fails = true;
    world.settle(timestamp(10));
    assert_eq!(world.bound(), ["alice"]);
    for now in [310, 311, 1_000, 5_000] {
        world.pass(timestamp(now));
        assert!(world.bound().is_empty(), "bound again at {now}");
        assert_eq!(world.live.len(), 1);
    }
    world.status_fails = false;
    let status = world.settle(timestamp(6_000));
    assert_eq!(
        (status.phase, status.expires_at),
        (Phase::Expired, Some(timestamp(310)))
    );
    assert!(world.live.is_empty());
}

#[test]
fn a_crash_between_any_two_writes_loses_nothing_and_decides_nothing_twice() {
    for duration in [false, true] {
        for writes in 0..6 {
            let mut world = if duration {
                lasting("300s")
            } else {
                namespaced(|_| {})
            };
            world.writes_left = writes;
            for now in [60, 200, 360, 400] {
                world.pass(timestamp(now));
            }
            let until = world.live.first().and_then(|live| {
                let text = &live.object.metadata.annotations.as_ref()?[labels::GRANT];
                let json: serde_json::Value = serde_json::from_str(text).ok()?;
                json["until"].as_str()?.parse().ok()
            });
            // Another process.
            world.writes_left = usize::MAX;
            let status = world.settle(timestamp(401));
            if until.is_some_and(|until| timestamp(401) < until) {
                // It was made late, and lasts as long as was asked for.
                assert_eq!((status.phase, status.expires_at), (Phase::Active, until));
            } else if status.phase == Phase::Active {
                assert!(
                    duration && status.activated_at == Some(timestamp(401)),
                    "{status:?}"
                );
            } else {
                assert_eq!(status.phase, Phase::Expired, "{writes} writes");
                assert!(world.live.is_empty());
            }
        }
    }
}

#[test]
fn a_deletion_that_orphans_leaves_no_binding() {
    let mut world = active();
    world.delete();
    let finalizers = world.object.metadata.finalizers.as_mut().unwrap();
    finalizers.insert(0, "orphan".to_owned());
    // The garbage collector takes the owner reference off and leaves.
    world.live[0].object.metadata.owner_references = None;
    world.object.metadata.finalizers.as_mut().unwrap().remove(0);
    world.settle(timestamp(100));
    assert!(world.gone && world.live.is_empty());
}

#[test]
fn until_when_a_binding_lasts_is_known_from_itself_or_from_the_status() {
    let world = active();
    let lasts = |object, live: &[Live]| world.controller.lasts_until(object, live);
    let until = world.status().expires_at;
    assert!(until.is_some());
    assert_eq!(lasts(None, &world.live), until);
    assert_eq!(lasts(Some(&world.object), &[]), until);
    let waiting = namespaced(|_| {});
    let lasts = waiting.controller.lasts_until(Some(&waiting.object), &[]);
    assert_eq!(lasts, None);
}

#[test]
fn binding_under_foreign_deletion_is_revoked() {
    let mut world = active();
    let metadata = &mut world.live[0].object.metadata;
    metadata.finalizers = Some(vec!["example.com/mine".to_owned()]);
    metadata.deletion_timestamp = Some(Time(timestamp(90)));
    assert_eq!(world.settle(timestamp(100)).phase, Phase::Revoked);
    assert!(world.bound().is_empty());
}

#[test]
fn a_binding_that_is_hidden_is_gone_before_the_status_says_so() {
    type MetadataEdit = fn(&mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta);
    let ways: [MetadataEdit; 2] = [
        |metadata| metadata.labels = None,
        |metadata| {
            metadata.labels = None;
            metadata.annotations = None;
            metadata.owner_references = None;
        },
    ];
    for hide in ways {
        for (now, deleted, phase) in [
            (100, false, Phase::Revoked),
            (360, false, Phase::Expired),
            (100, true, Phase::Active),
        ] {
            let mut world = active();
            let mut binding = world.live.remove(0);
            hide(&mut binding.object.metadata);
            world.hidden.push(binding);
            if deleted {
                world.delete();
            }
            let status = world.settle(timestamp(now));
            assert!(world.live.is_empty() && world.hidden.is_empty());
            assert_eq!((status.phase, world.gone), (phase, deleted));
        }
    }
    // Of the same name, and never ours.
    let mut world = active();
    let mut foreign = world.live.remove(0);
    hide_all(&mut foreign);
    foreign.object.metadata.uid = Some("another".to_owned());
    world.hidden.push(foreign);
    assert_eq!(world.settle(timestamp(100)).phase, Phase::Revoked);
    assert_eq!(world.live.len(), 1);
}

fn hide_all(live: &mut crate::controller::Live) {
    let metadata = &mut live.object.metadata;
    (metadata.labels, metadata.annotations) = (None, None);
    metadata.owner_references = None;
}
