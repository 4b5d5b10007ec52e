//! Messages are for users: a corrected message changes no decision.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oz_api::OnTemplateChange;
use serde_json::json;

use super::world::*;
use crate::access::kind::PodSeen;
use crate::controller::Failure;
use crate::sessions::{NOT_ENDED, SessionsEnded};

const EVENTS: [(&str, Change); 7] = [
    ("nothing", |_| {}),
    ("rules", |world| {
        world.edit("Role", |role| {
            role.data["rules"][0]["resourceNames"] = json!(["a"])
        });
    }),
    ("no role", |world| world.remove("Role")),
    ("a finalizer", |world| {
        world.edit("RoleBinding", |binding| {
            binding.metadata.finalizers = Some(vec!["example.com/mine".into()]);
        });
    }),
    ("deleted", |world| {
        world.request.metadata.deletion_timestamp = Some(Time(timestamp(10)));
    }),
    ("another template", |world| {
        world.config().access_command = "other".into();
    }),
    ("another pod", |world| {
        let name = world.status().pod_name.unwrap();
        world.pod = Some(PodSeen { name, uid: None });
    }),
];

const TROUBLES: [(&str, Change); 5] = [
    ("none", |_| {}),
    ("nothing can be recorded", |world| world.records_fail = true),
    ("the node is gone", |world| {
        let reason = NOT_ENDED;
        world.sessions_fail = Some(Failure::transient(reason, "no answer"));
    }),
    ("sessions end", |world| {
        world.sessions_came = Some(SessionsEnded {
            ended: 2,
            left: 1,
            ..SessionsEnded::default()
        });
    }),
    ("sessions end, and nothing can be recorded", |world| {
        world.sessions_came = Some(SessionsEnded::default());
        world.records_fail = true;
    }),
];

/// Returns all decisions from the grant on, without any message. The trouble is over at `cured`.
fn decisions(reworded: bool, event: Change, trouble: Change, cured: i64) -> Vec<String> {
    let mut world = World::new();
    world.reworded = reworded;
    world.config().on_template_change = OnTemplateChange::Revoke;
    world.settle(timestamp(1));
    event(&mut world);
    trouble(&mut world);
    let seconds = [10, 11, 12, 300, 301, 330, 360, 361, 362, 363];
    world.decides(&seconds, |world, now| {
        if now >= cured {
            (world.records_fail, world.sessions_fail) = (false, None);
        }
    })
}

#[test]
fn corrected_message_changes_no_decision() {
    for (what, event) in EVENTS {
        for (which, trouble) in TROUBLES {
            for cured in [12, 330, 1_000] {
                assert_eq!(
                    decisions(false, event, trouble, cured),
                    decisions(true, event, trouble, cured),
                    "{what}, {which}, over at {cured}"
                );
            }
        }
    }
}
