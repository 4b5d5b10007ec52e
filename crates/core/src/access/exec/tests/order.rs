//! The order of the rules of exec access.

use super::world::*;
use crate::access::exec::ExecAccess;
use crate::access::testing::order::{self, rules};
use crate::access::testing::rules::{Asked, after_offer, before_offer, confirmation};

#[test]
fn first_broken_rule_decides_about_request() {
    let of_kind = rules! {
        Asked<ExecAccess>:
        "pod unknown" => |it| it.ask(|terms| terms.target_pod = Some("db-9"));
        "no pod running" => |it| {
            it.world.workload.iter_mut().for_each(|workload| workload.pods.clear());
        };
        "command fails" => |it| {
            it.config().access_command = "{{ index .Metadata.Finalizers 7 }}".into();
        };
        "probes unread" => |it| it.with(|facts| facts.probes = None);
        "pod not stored" => |it| {
            let pods = it.world.workload.iter_mut().flat_map(|workload| &mut workload.pods);
            pods.for_each(|pod| pod.metadata.uid = None);
        };
    };
    let last = rules! {
        Asked<ExecAccess>:
        "role name unread" => |it| it.with(|facts| facts.role_name = None);
    };
    let rules = [
        &*before_offer(),
        &of_kind,
        &after_offer(),
        &confirmation(),
        &last,
    ];
    let granted = || Asked::from_world(World::new());
    insta::assert_snapshot!("order", order::table(granted, &rules.concat()));
}
