//! The end of a grant: on time in spite of other failures, and early after a revocation or drift.

use jiff::SignedDuration;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::DynamicObject;
use oz_api::{ExecAccessRequestSpec, Phase, conditions, encode};
use proptest::prelude::*;
use serde_json::json;
use strum::IntoEnumIterator as _;

use super::world::*;
use crate::access::exec::ExecAccess;
use crate::access::grant::Grant;
use crate::access::kind::{KeepFinished, PodSeen};
use crate::access::status::transitions;
use crate::access::testing::UID;
use crate::controller::{Controller, Failure, Outcome, Step};
use crate::lifecycle::seal::{Keys, Owner};
use crate::sessions::{self, Sessions, SessionsEnded};

fn granted() -> World {
    let mut world = World::new();
    world.settle(timestamp(1));
    world
}

#[test]
fn access_ends_at_the_agreed_instant_and_not_a_nanosecond_before() {
    let world = granted();
    assert!(world.plan(timestamp(300) - NANOSECOND).stages.is_empty());
    for late in [
        timestamp(300),
        timestamp(300) + NANOSECOND,
        timestamp(100_000),
    ] {
        let first = &world.plan(late).stages[0];
        assert!(matches!(&first[..], [Step::Delete(gone)] if gone.resource.kind == "RoleBinding"));
    }
}

#[test]
fn expired_request_keeps_only_its_history() {
    let mut world = granted();
    let status = world.settle(timestamp(300));
    assert_eq!((status.phase, status.ready), (Phase::Expired, false));
    let valid = conditions::find(&status.conditions, conditions::ACCESS_STILL_VALID).unwrap();
    assert_eq!(
        (valid.reason.as_str(), valid.message.as_str()),
        ("Timeout", "Access expired")
    );
    assert!(world.live.is_empty());
    assert_eq!(world.actions(), ["AccessGranted", "AccessExpired"]);
    assert_eq!(status.expires_at, Some(timestamp(300)));
}

#[test]
fn the_role_outlives_the_binding_until_the_status_is_written() {
    let mut world = granted();
    world.pass(timestamp(300));
    assert_eq!(
        (world.kinds(), world.status().phase),
        (vec!["Role"], Phase::Expired)
    );
    world.pass(timestamp(300));
    assert!(world.live.is_empty());
}

#[test]
fn a_record_that_cannot_be_written_does_not_keep_access_open() {
    let mut world = granted();
    world.records_fail = true;
    let status = world.settle(timestamp(300));
    assert_eq!(world.kinds(), ["Role"]);
    assert!(!status.ready);
    assert_eq!(
        status.phase,
        Phase::Active,
        "not over before it is on record"
    );
    world.records_fail = false;
    assert_eq!(world.settle(timestamp(301)).phase, Phase::Expired);
    assert_eq!(world.actions(), ["AccessGranted", "AccessExpired"]);
}

#[test]
fn a_finished_request_goes_when_it_was_kept_long_enough() {
    let mut world = granted();
    world.settle(timestamp(300));
    let hour = 3600;
    assert_eq!(world.plan(timestamp(301)).wake, Some(timestamp(300 + hour)));
    world.pass(timestamp(300 + hour) - NANOSECOND);
    assert!(!world.deleted);
    world.pass(timestamp(300 + hour));
    assert!(world.deleted);
}

#[test]
fn deleting_a_request_revokes_and_nothing_is_built_for_it_again() {
    let mut world = granted();
    world.request.metadata.deletion_timestamp = Some(Time(timestamp(10)));
    let status = world.settle(timestamp(10));
    assert_eq!(status.phase, Phase::Revoked);
    assert!(world.live.is_empty());
    assert_eq!(world.actions(), ["AccessGranted", "AccessRevoked"]);

    let mut fresh = World::new();
    fresh.request.metadata.deletion_timestamp = Some(Time(timestamp(1)));
    assert!(!applies(&fresh.plan(timestamp(1))));
}

#[test]
fn access_of_request_without_identity_ends() {
    let mut world = granted();
    world.request.metadata.creation_timestamp = None;
    let plan = world.plan(timestamp(10));
    let deleted = plan.steps().filter_map(|step| match step {
        Step::Delete(gone) => Some(gone.resource.kind.as_str()),
        _ => None,
    });
    assert_eq!(deleted.collect::<Vec<_>>(), ["RoleBinding", "Role"]);
}

#[test]
fn role_and_binding_of_deleted_request_are_removed_and_recorded() {
    for (now, action) in [
        (timestamp(10), "AccessRevoked"),
        (timestamp(300), "AccessExpired"),
    ] {
        let mut world = granted();
        let plan = world.controller.orphaned(now, None, &world.live);
        let kinds: Vec<String> = plan
            .steps()
            .map(|step| match step {
                Step::Delete(gone) => gone.resource.kind.clone(),
                Step::Record(record) => record.action.to_string(),
                Step::Effect(effect) => {
                    format!("sessions in {}", Sessions::try_from(effect).unwrap().pod)
                }
                Step::Look(_) => "Look".to_owned(),
                other => panic!("unexpected {other:?}"),
            })
            .collect();
        let sessions = format!("sessions in {}", world.status().pod_name.unwrap());
        // Sessions that end automatically are over by then.
        let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
        assert_eq!(kinds, ["RoleBinding", "Look", action, &sessions, "Role"]);
        world.carry_out(&plan);
        assert!(
            world
                .controller
                .orphaned(now, None, &world.live)
                .stages
                .is_empty()
        );
    }
}

#[test]
fn meddling_revokes_and_is_not_repaired() {
    let cases: [(&str, Change); 12] = [
        ("wider rules", |world| {
            world.edit("Role", |role| {
                role.data["rules"][0]["resourceNames"] = json!(["db-0", "db-1"])
            });
        }),
        ("more verbs", |world| {
            world.edit("Role", |role| role.data["rules"][1]["verbs"] = json!(["*"]));
        }),
        ("another subject", |world| {
            world.edit("RoleBinding", |binding| {
                binding.data["subjects"] = json!([
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"},
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"},
                ]);
            });
        }),
        ("another role", |world| {
            world.edit("RoleBinding", |binding| {
                binding.data["roleRef"]["name"] = json!("admin")
            });
        }),
        ("a longer decision", |world| {
            world.edit("Role", |role| {
                let sealed = role.metadata.annotations.as_mut().unwrap();
                let text = sealed.get_mut(oz_api::labels::GRANT).unwrap();
                *text = text.replace("2026-01-01T12:05", "2027-01-01T12:05");
            });
        }),
        ("no binding", |world| world.remove("RoleBinding")),
        ("no role", |world| world.remove("Role")),
        ("no decision anywhere", |world| {
            for kind in ["Role", "RoleBinding"] {
                world.edit(kind, |object| object.metadata.annotations = None);
            }
        }),
        ("neither", |world| world.live.clear()),
        ("another's stamp", |world| world.stamp("mallory", &["devs"])),
        ("no stamp", |world| {
            world.request.metadata.annotations = None
        }),
        ("a broken stamp", |world| {
            let annotations = world.request.metadata.annotations.as_mut().unwrap();
            annotations.insert(oz_api::labels::REQUESTER.into(), "{}".into());
        }),
    ];
    for (what, meddle) in cases {
        let mut world = granted();
        meddle(&mut world);
        let status = world.settle(timestamp(10));
        assert_eq!(status.phase, Phase::Revoked, "{what}");
        assert!(!world.ended.is_empty(), "{what}: sessions go on");
        assert!(world.ended.iter().all(|mark| mark == UID), "{what}");
        assert!(world.live.is_empty(), "{what}: {:?}", world.kinds());
        assert!(
            world.actions().contains(&"DriftDetected".to_owned()),
            "{what}"
        );
        let valid = conditions::find(&status.conditions, conditions::ACCESS_STILL_VALID).unwrap();
        assert_eq!(valid.reason, "DriftDetected", "{what}");
        assert!(!applies(&world.plan(timestamp(11))), "{what}");
    }
}

/// Replaces the seal of an object by one of an earlier release.
fn retire(object: &mut DynamicObject) {
    let annotations = object.metadata.annotations.as_mut().unwrap();
    let text = annotations.get_mut(oz_api::labels::GRANT).unwrap();
    let mut sealed: serde_json::Value = serde_json::from_str(text).unwrap();
    let members = sealed.as_object_mut().unwrap();
    members.remove("sig").unwrap();
    members.insert(
        "mac".into(),
        json!("q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA"),
    );
    *text = sealed.to_string();
}

#[test]
fn grant_sealed_by_earlier_release_is_revoked_as_retired() {
    let mut world = granted();
    for kind in ["Role", "RoleBinding"] {
        world.edit(kind, retire);
    }
    let status = world.settle(timestamp(10));
    assert_eq!(status.phase, Phase::Revoked);
    assert!(world.live.is_empty(), "{:?}", world.kinds());
    assert!(!world.ended.is_empty(), "sessions go on");
    assert_eq!(world.actions(), ["AccessGranted", "AccessRevoked"]);
    let valid = conditions::find(&status.conditions, conditions::ACCESS_STILL_VALID).unwrap();
    assert_eq!(valid.reason, "SealRetired");
    assert!(valid.message.contains("an earlier release"), "{valid:?}");
}

/// The deletion of the Role ends the sessions as well, even if that takes several attempts.
#[test]
fn sessions_are_ended_until_they_are_when_the_decision_is_lost() {
    let mut world = granted();
    world.remove("Role");
    world.sessions_fail = Some(Failure::transient(
        sessions::NOT_ENDED,
        "the node does not answer",
    ));
    for seconds in 10..13 {
        world.pass(timestamp(seconds));
    }
    assert_eq!(
        (world.kinds(), world.status().phase),
        (vec![], Phase::Active)
    );
    assert_eq!(world.ended, [UID; 3]);
    world.sessions_fail = None;
    assert_eq!(world.settle(timestamp(13)).phase, Phase::Revoked);
    let times = |wanted: &str| world.actions().iter().filter(|one| *one == wanted).count();
    assert_eq!((times("DriftDetected"), times("AccessRevoked")), (1, 1));

    // The wait for a node without response is limited, and an attempt is made however late the operator is.
    let mut late = granted();
    late.live.clear();
    late.sessions_fail = Some(Failure::transient(sessions::NOT_ENDED, "no answer"));
    late.pass(timestamp(300 + 60));
    assert_eq!((late.status().phase, late.ended.len()), (Phase::Active, 1));
    assert_eq!(late.settle(timestamp(300 + 120)).phase, Phase::Expired);
    assert_eq!(late.ended, [UID; 2]);
}

#[test]
fn a_key_that_is_gone_leaves_stamps_of_running_grants_alone() {
    let mut world = granted();
    let other = Keys::with_every_owner([[8; 32]]);
    let keys = world.controller.keys.clone();
    let adopt = |secrets: &[[u8; 32]]| {
        for owner in Owner::iter() {
            let secrets = secrets.iter().map(|secret| Keys::of_owner(owner, *secret));
            let secrets: Vec<_> = secrets.collect();
            keys.adopt(owner, &secrets).unwrap();
            keys.settle(owner);
        }
    };
    adopt(&[[8; 32], [3; 32]]);
    // oz seals the decision again with the new key; the stamp stays as it was.
    for kind in ["Role", "RoleBinding"] {
        let grant = world.decision(kind).seal(&other).unwrap();
        world.edit(kind, |object| {
            let annotations = object.metadata.annotations.as_mut().unwrap();
            annotations.insert(oz_api::labels::GRANT.into(), grant);
        });
    }
    adopt(&[[8; 32]]);
    assert!(world.plan(timestamp(10)).stages.is_empty());
}

/// The grant is sealed without digests of the stamp and of the rules.
#[test]
fn grant_of_older_release_continues_and_is_guarded() {
    let mut world = granted();
    let older = Grant {
        stamp: None,
        rules: None,
        ..world.decision("Role")
    };
    let sealed = older.seal(&world.controller.keys).unwrap();
    assert!(!sealed.contains("stamp") && !sealed.contains("rules"));
    for kind in ["Role", "RoleBinding"] {
        world.edit(kind, |object| {
            let annotations = object.metadata.annotations.as_mut().unwrap();
            annotations.insert(oz_api::labels::GRANT.into(), sealed.clone());
        });
    }
    assert!(world.plan(timestamp(10)).stages.is_empty());
    world.edit("Role", |role| role.data["rules"][1]["verbs"] = json!(["*"]));
    assert_eq!(world.settle(timestamp(11)).phase, Phase::Revoked);
}

/// The rules that another release wrote for the same grant match its seal.
#[test]
fn rules_of_another_release_are_not_meddling() {
    let mut world = granted();
    let rules = json!([{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"],
                        "resourceNames": [world.status().pod_name]}]);
    let typed: Vec<PolicyRule> = serde_json::from_value(rules.clone()).unwrap();
    let other = Grant {
        rules: Some(encode::digest(&Some(typed))),
        ..world.decision("Role")
    };
    let sealed = other.seal(&world.controller.keys).unwrap();
    world.edit("Role", |role| {
        role.data["rules"] = rules;
        let annotations = role.metadata.annotations.as_mut().unwrap();
        annotations.insert(oz_api::labels::GRANT.into(), sealed);
    });
    assert!(world.plan(timestamp(10)).stages.is_empty());
}

#[test]
fn meddling_before_the_status_was_written_revokes_too() {
    let mut world = World::new();
    world.writes_left = 2;
    world.pass(timestamp(1));
    world.writes_left = usize::MAX;
    assert_eq!(
        (world.kinds(), world.status().phase),
        (vec!["Role", "RoleBinding"], Phase::Pending)
    );
    world.edit("RoleBinding", |binding| {
        binding.data["subjects"][0]["name"] = json!("mallory")
    });
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Revoked);
    assert!(world.live.is_empty());
}

#[test]
fn labels_and_annotations_of_others_are_not_meddling() {
    let mut world = granted();
    for kind in ["Role", "RoleBinding"] {
        world.edit(kind, |object| {
            object
                .metadata
                .labels
                .as_mut()
                .unwrap()
                .insert("team".into(), "a".into());
            object
                .metadata
                .annotations
                .as_mut()
                .unwrap()
                .insert("seen".into(), "yes".into());
        });
    }
    assert!(world.plan(timestamp(10)).stages.is_empty());
}

#[test]
fn terminal_phases_are_never_left() {
    for phase in [Phase::Expired, Phase::Revoked, Phase::Denied, Phase::Failed] {
        let mut world = World::new();
        let mut status = world.status();
        status.phase = phase;
        world.request.status = Some(status);
        let plan = world.pass(timestamp(1));
        assert!(!applies(&plan), "{phase}");
        assert_eq!(world.status().phase, phase);
    }
}

#[test]
fn a_crash_anywhere_in_the_end_still_ends() {
    for writes in 0..4 {
        let mut world = granted();
        world.writes_left = writes;
        world.pass(timestamp(300));
        world.pass(timestamp(300));
        world.writes_left = usize::MAX;
        // The template permits more since then; the grant does not change.
        world.config().max_duration = "240h".into();
        assert_eq!(
            world.settle(timestamp(301)).phase,
            Phase::Expired,
            "after {writes} writes"
        );
        assert!(world.live.is_empty());
    }
}

proptest! {
    /// The central guarantee: a plan at or after the expiry contains no write that grants access, and leaves no
    /// binding.
    #[test]
    fn plan_after_expiry_never_grants_access(
        late in 0_i64..1_000_000,
        template in 0_u8..4,
        workload_gone: bool,
        stampless: bool,
        active: bool,
        deleted: bool,
        with_role: bool,
        records_fail: bool,
        duration in proptest::option::of("[a-z0-9]{0,6}"),
    ) {
        let mut world = granted();
        match template {
            0 => world.template = None,
            1 => world.config().max_duration = "garbage".into(),
            2 => world.config().max_duration = "8760h".into(),
            _ => {}
        }
        if workload_gone { world.workload = Err(Failure::transient("Gone", "gone")); }
        if stampless { world.request.metadata.annotations = None; }
        if !active { world.request.status = None; }
        if deleted { world.request.metadata.deletion_timestamp = Some(Time(timestamp(1))); }
        if let Some(duration) = duration { world.request.spec.duration = Some(duration); }
        if !with_role { world.remove("Role"); }
        world.records_fail = records_fail;
        let now = timestamp(300) + SignedDuration::from_nanos(late);
        let plan = world.plan(now);
        prop_assert!(!applies(&plan));
        world.carry_out(&plan);
        prop_assert!(!world.kinds().contains(&"RoleBinding"));
    }
}

#[test]
fn a_binding_that_is_left_without_its_role_is_known_by_its_seal() {
    let mut world = granted();
    world.remove("Role");
    let plan = world.controller.orphaned(timestamp(10), None, &world.live);
    world.carry_out(&plan);
    assert!(world.live.is_empty());
    assert_eq!(world.actions(), ["AccessGranted", "AccessRevoked"]);

    let mut unsealed = granted();
    unsealed.remove("Role");
    unsealed.edit("RoleBinding", |binding| binding.metadata.annotations = None);
    let plan = unsealed
        .controller
        .orphaned(timestamp(10), None, &unsealed.live);
    assert!(plan.stages.is_empty(), "only marks: {plan:?}");
}

#[test]
fn waiting_ends_too() {
    let mut world = World::new();
    world.template = None;
    assert_eq!(world.plan(timestamp(1)).wake, Some(timestamp(300)));
    assert_eq!(world.settle(timestamp(299)).phase, Phase::Pending);
    let status = world.settle(timestamp(300));
    assert_eq!((status.phase, status.expires_at), (Phase::Expired, None));
    assert!(
        world.actions().is_empty(),
        "nothing was granted, so nothing ended"
    );

    let mut endless = World::asking(ExecAccessRequestSpec {
        template_name: "shell".into(),
        duration: Some("9999h".into()),
        ..ExecAccessRequestSpec::default()
    });
    endless.template = None;
    assert_eq!(endless.plan(timestamp(1)).wake, Some(timestamp(24 * 3600)));
}

#[test]
fn a_template_that_comes_after_the_end_grants_nothing() {
    let mut world = World::new();
    world.config().max_duration = "1m".into();
    world.config().default_duration = "1m".into();
    assert!(applies(&world.plan(timestamp(60) - NANOSECOND)));
    assert!(!applies(&world.plan(timestamp(60))));
    assert_eq!(world.settle(timestamp(60)).phase, Phase::Expired);
}

#[test]
fn finished_request_is_deleted_at_once_without_retention() {
    let mut world = granted();
    world.controller = ExecAccess {
        keep_finished: KeepFinished::all(SignedDuration::ZERO),
        gate: None,
        ..world.controller
    };
    world.settle(timestamp(300));
    assert!(world.deleted);
}

/// Kubernetes permits users to put finalizers on a binding that they may not change otherwise, and the binding is
/// effective until it is gone.
#[test]
fn a_finalizer_does_not_keep_access_past_its_end() {
    let hold = |world: &mut World| {
        for kind in ["Role", "RoleBinding"] {
            world.edit(kind, |object| {
                object.metadata.finalizers = Some(vec!["example.com/hold".into()]);
            });
        }
    };
    let powerless = |world: &World| {
        world.live.iter().all(|live| {
            let entries = |field: &str| live.object.data[field].as_array().map_or(0, Vec::len);
            live.object.metadata.deletion_timestamp.is_some()
                && entries("subjects") + entries("rules") == 0
        })
    };
    let mut early = granted();
    hold(&mut early);
    assert_eq!(
        early.settle(timestamp(10)).phase,
        Phase::Revoked,
        "it is tampering"
    );
    assert!(powerless(&early), "{:?}", early.live);

    // A finalizer of the last moment is first observed after the expiry.
    let mut late = granted();
    hold(&mut late);
    let status = late.settle(timestamp(300)).clone();
    assert_eq!(status.phase, Phase::Expired);
    assert!(powerless(&late), "{:?}", late.live);
    assert_eq!(late.actions(), ["AccessGranted", "AccessExpired"]);

    let mut orphan = granted();
    hold(&mut orphan);
    for _ in 0..3 {
        let plan = orphan
            .controller
            .orphaned(timestamp(300), None, &orphan.live);
        orphan.carry_out(&plan);
    }
    assert!(powerless(&orphan), "{:?}", orphan.live);
    assert_eq!(orphan.actions(), ["AccessGranted", "AccessExpired"]);
    let plan = orphan
        .controller
        .orphaned(timestamp(300), None, &orphan.live);
    assert!(plan.steps().all(|step| matches!(step, Step::Look(_))));
}

#[test]
fn a_binding_that_its_request_no_longer_owns_is_tampering() {
    let mut world = granted();
    world.edit("RoleBinding", |binding| {
        binding.metadata.owner_references = None
    });
    assert_eq!(world.settle(timestamp(10)).phase, Phase::Revoked);
    assert!(world.live.is_empty());
}

/// Any user can write labels, also in another namespace.
#[test]
fn objects_that_only_bear_our_labels_change_and_suffer_nothing() {
    let forge = |world: &World, namespace: &str, name: &str| {
        let mut forged: Vec<_> = world.live.clone();
        for live in &mut forged {
            let metadata = &mut live.object.metadata;
            metadata.namespace = Some(namespace.into());
            metadata.name = Some(name.into());
            metadata.uid = Some(format!("forged-{}", live.resource.kind));
            metadata.finalizers = Some(vec!["example.com/hold".into()]);
        }
        forged
    };
    for (namespace, name) in [("elsewhere", "debug-0a1b2c3d"), ("shop", "another")] {
        let model = granted();
        let forged = forge(&model, namespace, name);

        let mut pending = World::new();
        pending.template = None;
        pending.live.clone_from(&forged);
        assert_eq!(
            pending.settle(timestamp(1)).phase,
            Phase::Pending,
            "{namespace}/{name}"
        );

        let mut world = granted();
        world.live.extend(forged.clone());
        assert!(
            world.plan(timestamp(10)).stages.is_empty(),
            "{namespace}/{name}"
        );
        assert_eq!(world.settle(timestamp(300)).phase, Phase::Expired);
        assert_eq!(world.live, forged, "{namespace}/{name}");

        // The sealed decision can be read and copied, but not moved.
        let plan = world.controller.orphaned(timestamp(300), None, &forged);
        assert!(plan.stages.is_empty(), "{namespace}/{name}: {plan:?}");
    }
}

#[test]
fn end_of_grant_is_recorded_once_and_waits_for_sessions() {
    let mut world = granted();
    world.sessions_fail = Some(Failure::transient(
        sessions::NOT_ENDED,
        "the node does not answer",
    ));
    world.pass(timestamp(300));
    assert_eq!(world.kinds(), ["Role"]);
    assert_eq!(world.actions(), ["AccessGranted", "AccessExpired"]);
    let waiting = world.status();
    assert_eq!((waiting.phase, waiting.ready), (Phase::Active, false));
    assert!(
        conditions::find(&waiting.conditions, conditions::ACCESS_RESOURCES_READY)
            .unwrap()
            .message
            .contains("its sessions may continue")
    );
    // The end is not recorded again with each attempt.
    world.pass(timestamp(301));
    assert_eq!(world.actions(), ["AccessGranted", "AccessExpired"]);
    assert_eq!(world.ended, [UID, UID]);
    // The wait for a node that never responds is limited.
    let mut lost = world.clone();
    let before = lost.status();
    assert_eq!(lost.settle(timestamp(360)).phase, Phase::Expired);
    let given_up = lost.status();
    let says = |type_| conditions::find(&given_up.conditions, type_).unwrap();
    let cut = says(conditions::SESSION_TERMINATION);
    assert_eq!(
        (cut.status.as_str(), cut.reason.as_str()),
        ("False", conditions::reason::RETRIES_EXHAUSTED)
    );
    let ready = &says(conditions::ACCESS_RESOURCES_READY).message;
    assert!(!ready.contains("have stopped"), "{ready}");
    let events = transitions(Some(&before), &given_up);
    let events: Vec<_> = events.iter().map(|event| event.reason).collect();
    assert_eq!(events, ["AccessExpired", "SessionsNotEnded"]);
    let told = ["AccessGranted", "AccessExpired", "SessionTerminated"];
    assert_eq!(lost.actions(), told);
    world.sessions_fail = None;
    assert_eq!(world.settle(timestamp(302)).phase, Phase::Expired);
    assert_eq!(world.actions(), told[..2]);
    assert_eq!(world.live, []);
}

#[test]
fn ended_sessions_of_grant_are_reported_in_status() {
    let mut world = granted();
    let decision = world.decide(timestamp(300)).unwrap();
    let plan = decision.plan.clone();
    let effects = plan.steps().filter_map(|step| match step {
        Step::Effect(effect) => Some(effect.clone()),
        _ => None,
    });
    let effects: Vec<_> = effects.collect();
    let [effect] = effects.as_slice() else {
        panic!("not one effect: {effects:?}");
    };
    world.carry_out(&plan);
    let ended = SessionsEnded {
        ended: 2,
        left: 1,
        ..SessionsEnded::default()
    };
    let mut outcome = Outcome {
        live: world.live.clone(),
        ..Outcome::default()
    };
    let answer = SessionsEnded::to_answer(Some(&ended));
    outcome.answers.insert(effect, answer);
    let status = world
        .controller
        .status(timestamp(300), &world.request, &decision, &outcome);
    let cut = conditions::find(&status.conditions, conditions::SESSION_TERMINATION).unwrap();
    let told = (cut.status.as_str(), cut.reason.as_str());
    assert_eq!(told, ("False", "ProcessesRemaining"), "{}", cut.message);
}

#[test]
fn a_grant_ends_with_its_pod_and_not_before() {
    let granted_pod = granted().status().pod_name.unwrap();
    for (name, uid, phase) in [
        (granted_pod.as_str(), None, Phase::Revoked),
        (granted_pod.as_str(), Some("another"), Phase::Revoked),
        ("somebody-elses", None, Phase::Active),
    ] {
        let mut world = granted();
        world.pod = None;
        assert_eq!(world.settle(timestamp(5)).phase, Phase::Active);
        let uid_now = world.status().pod_uid;
        world.pod = Some(PodSeen {
            name: granted_pod.clone(),
            uid: uid_now,
        });
        assert_eq!(world.settle(timestamp(10)).phase, Phase::Active);
        world.pod = Some(PodSeen {
            name: name.to_owned(),
            uid: uid.map(ToOwned::to_owned),
        });
        assert_eq!(world.settle(timestamp(20)).phase, phase, "{name} {uid:?}");
    }
}
