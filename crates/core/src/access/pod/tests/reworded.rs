//! Messages are for users: a corrected message changes no decision about a pod.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oz_api::OnTemplateChange;
use serde_json::json;

use super::world::*;

/// A change of the cluster, at ten seconds.
type Change = fn(&mut World);

const EVENTS: [(&str, Change); 11] = [
    ("nothing", |_| {}),
    ("ready", |world| world.start(timestamp(10))),
    ("ready, and not any more", |world| {
        world.start(timestamp(10));
        world.pass(timestamp(10));
        world.becomes(json!({"phase": "Running"}));
    }),
    ("the pod ended", |world| {
        world.becomes(json!({"phase": "Failed", "reason": "Evicted"}));
    }),
    ("the pod was deleted", |world| world.remove("Pod")),
    ("another image", |world| {
        world.edit("Pod", |pod| {
            pod.data["spec"]["containers"][0]["image"] = json!("evil:1");
        });
    }),
    ("other rules", |world| {
        world.edit("Role", |role| role.data["rules"][0]["verbs"] = json!(["*"]));
    }),
    ("no role", |world| world.remove("Role")),
    ("a finalizer", |world| {
        world.edit("RoleBinding", |binding| {
            binding.metadata.finalizers = Some(vec!["example.com/mine".into()]);
        });
    }),
    ("the request was deleted", |world| {
        world.request.metadata.deletion_timestamp = Some(Time(timestamp(10)));
    }),
    ("another template", |world| {
        let template = world.template.as_mut().unwrap();
        template.spec.access_config.max_duration = "2h".into();
    }),
];

/// Returns all decisions from the first pass on. From `cured` on, audit records can be written again and the containers
/// have stopped.
fn decisions(reworded: bool, event: Change, records_fail: bool, cured: i64) -> Vec<String> {
    let mut world = World::new();
    world.reworded = reworded;
    let config = &mut world.template.as_mut().unwrap().spec.access_config;
    config.on_template_change = OnTemplateChange::Revoke;
    let seconds = [
        1, 2, 3, 10, 11, 12, 61, 62, 63, 300, 301, 330, 331, 360, 361, 362, 363,
    ];
    world.decides(&seconds, |world, now| {
        if now == 10 {
            world.records_fail = records_fail;
            event(world);
        }
        if now >= cured {
            world.records_fail = false;
            // The deleted objects are gone.
            world
                .live
                .retain(|live| live.object.metadata.deletion_timestamp.is_none());
        }
    })
}

#[test]
fn corrected_message_changes_no_decision_for_dedicated_pod() {
    for (what, event) in EVENTS {
        for records_fail in [false, true] {
            for cured in [12, 62, 330, 1_000] {
                assert_eq!(
                    decisions(false, event, records_fail, cured),
                    decisions(true, event, records_fail, cured),
                    "{what}, over at {cured}"
                );
            }
        }
    }
}

/// A pod of the name and a binding to the Role's name, both of other authors.
#[test]
fn corrected_message_changes_no_decision_of_waiting_request() {
    let decisions = |reworded: bool, kind: &str| {
        let world = World::ready();
        let foreign = world.live.iter().find(|live| live.resource.kind == kind);
        let mut foreign = foreign.unwrap().clone();
        foreign.object.metadata.annotations = None;
        foreign.object.metadata.uid = Some("foreign".into());
        if kind == "RoleBinding" {
            foreign.object.metadata.name = Some("theirs".into());
            foreign.object.metadata.owner_references = None;
        }
        let mut world = World::new();
        (world.reworded, world.live) = (reworded, vec![foreign]);
        let mut decided = world.decides(&[1, 2, 3, 100], |_, _| {});
        world.live.clear();
        decided.extend(world.decides(&[101, 102, 103, 300, 301], |_, _| {}));
        decided
    };
    for kind in ["Pod", "RoleBinding"] {
        let as_said = decisions(false, kind);
        assert!(as_said[0].contains("waits: NameConflict"), "{as_said:?}");
        assert_eq!(as_said, decisions(true, kind), "{kind}");
    }
}
