//! The comparison of the assessment of requests for pods with that before the machine.

use proptest::prelude::*;
use serde_json::json;

use super::world::*;
use crate::access::pod::PodAccess;
use crate::access::testing::old_machine::{Event, events, run};

fn all_events() -> Vec<Event<PodAccess>> {
    fn has_pod(world: &World) -> bool {
        world.live.iter().any(|live| live.resource.kind == "Pod")
    }
    let own: [Event<PodAccess>; 6] = [
        |world| {
            if has_pod(world) {
                world.start(timestamp(1));
            }
        },
        |world| {
            if has_pod(world) {
                world.becomes(json!({"phase": "Failed"}));
            }
        },
        |world| {
            if has_pod(world) {
                world.edit("Pod", |pod| pod.metadata.uid = Some("other".into()));
            }
        },
        |world| {
            if has_pod(world) {
                world.edit("Pod", |pod| pod.metadata.annotations = None);
            }
        },
        |world| {
            if has_pod(world) {
                world.edit("Pod", |pod| {
                    pod.data["spec"]["containers"][0]["image"] = json!("evil:1");
                });
            }
        },
        |world| world.remove("NetworkPolicy"),
    ];
    [events(), own.to_vec()].concat()
}

proptest! {
    #[test]
    fn machine_agrees_with_old_assessment(
        is_shut: bool,
        begins in 0_u8..3,
        history in prop::collection::vec((0_usize..25, 0_i64..90, any::<bool>()), 0..12),
    ) {
        let network = match is_shut {
            true => json!({"network": {"egress": "Dns", "ingress": "None"}}),
            false => json!({}),
        };
        let mut world = World::by(template(network));
        if begins > 0 {
            world.pass(timestamp(1));
        }
        if begins > 1 {
            world.settle(timestamp(1));
        }
        run(world, &all_events(), history);
    }
}
