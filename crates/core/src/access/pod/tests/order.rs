//! The order of the rules of dedicated pods.

use serde_json::json;

use super::world::*;
use crate::access::pod::PodAccess;
use crate::access::testing::order::{self, rules};
use crate::access::testing::rules::{Asked, after_offer, before_offer, confirmation};
use crate::controller::Failure;

fn granted() -> Asked<PodAccess> {
    let mut asked = Asked::from_world(World::new());
    asked.world.controller.as_author = true;
    asked
}

#[test]
fn first_broken_rule_decides_about_request() {
    let taken = rules! {
        Asked<PodAccess>:
        "name taken" => |it| {
            let mut pod = World::ready().live.remove(0);
            pod.object.metadata.annotations = None;
            it.world.live.push(pod);
        };
    };
    let of_kind = rules! {
        Asked<PodAccess>:
        "pod invalid" => |it| {
            let template = it.world.template.as_mut().unwrap();
            let patch = json!([{"op": "remove", "path": "/spec/hostname"}]);
            let mutation = serde_json::from_value(json!({"patchSpecOperations": patch}));
            template.spec.controller_target_mutation_config = mutation.unwrap();
        };
        "pod too large" => |it| {
            let template = it.world.template.as_mut().unwrap();
            template.spec.max_cpu = serde_json::from_value(json!("1500m")).unwrap();
        };
        "container unknown" => |it| it.ask(|terms| terms.container = Some("sidecar"));
        "command fails" => |it| {
            it.config().access_command = "{{ index .Metadata.Finalizers 7 }}".into();
        };
        "network policies unread" => |it| {
            let template = it.world.template.as_mut().unwrap();
            template.spec.network = serde_json::from_value(json!({"egress": "None"})).unwrap();
            it.with(|facts| facts.policies = None);
        };
    };
    let trial = rules! {
        Asked<PodAccess>:
        "author unknown" => |it| it.author = "";
        "trial unread" => |it| it.with(|facts| facts.tried = None);
        "trial denied" => |it| {
            it.world.tried = Some(Err(Failure::transient("AuthorRefused", "bob may not")));
        };
    };
    let (before, after, confirmation) = (before_offer(), after_offer(), confirmation());
    let (ended, before) = before.split_at(2);
    let rules = [
        ended,
        &taken,
        before,
        &of_kind,
        &after,
        &trial,
        &confirmation,
    ];
    insta::assert_snapshot!("order", order::table(granted, &rules.concat()));
}
