//! Transient bindings, of oz and of the published controller.

use std::iter::repeat_n;

use oz_api::{TicketConfig, TransientClusterRoleBinding, TransientRoleBinding, example_com};
use oz_core::access::policy::{Applied, EmergencyRule, TicketRule};
use oz_core::transient::Kind;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::binding::{FINALIZER, binding, published, stored};
use super::super::with;
use super::{World, check, names};

const FROM: &str = "2026-01-01T12:00:00Z";

const RULES: &str = "size, spec, stamp missing, stamp of another user, finalizer, \
    role: too powerful, role: missing, role: powerful by name, role not bindable, too many, \
    window too far, window too long, window over, may not bind, lock, locks unreadable, \
    policy denial, policy reason, policy ticket, audit record";
/// The rules of namespaced kinds.
const NAMESPACED: &str = "namespace not served, reserved namespace";
/// The rules of kinds with fields for change tickets and emergencies.
const OF_OZ: &str = "ticket invalid, policy ticket mismatch, emergency: no reason, \
    emergency: for others, emergency: disabled, emergency: withheld, emergency: not allowed, \
    emergency: reviews";
/// The rule of kinds that cannot wait for approvals.
const NOT_APPROVABLE: &str = "policy approval";

/// Declares an emergency, with these terms of an access policy.
fn emergency(it: &mut World, group: &str, open_reviews: i32) {
    let review = json!({"deadline": "24h", "groups": ["security"]});
    let terms = json!({"groups": [group], "openReviews": open_reviews, "review": review});
    it.judgement.emergencies = vec![EmergencyRule {
        policy: "careful".to_owned(),
        terms: Some(serde_json::from_value(terms).unwrap()),
    }];
    it.set("/spec/emergency", true);
    it.set("/spec/validFrom", Value::Null);
}

/// Violates a rule of change tickets or emergencies.
fn violate_of_oz(it: &mut World, rule: &'static str) {
    match rule {
        "ticket invalid" => it.set("/spec/ticket", "../INC-42"),
        "policy ticket mismatch" => {
            it.set("/spec/ticket", "INC-42");
            it.judgement.tickets.push(TicketRule {
                policy: "careful".to_owned(),
                ticket: TicketConfig {
                    pattern: Some("CHG-[0-9]+".to_owned()),
                    check: None,
                },
            });
        }
        "emergency: no reason" => {
            emergency(it, "staff", 2);
            it.set("/spec/reason", Value::Null);
        }
        "emergency: for others" => {
            emergency(it, "staff", 2);
            it.set(
                "/spec/subjects",
                json!([{"kind": "User", "name": "alison"}]),
            );
        }
        "emergency: disabled" => {
            emergency(it, "staff", 2);
            it.judgement.emergencies.clear();
        }
        "emergency: withheld" => {
            emergency(it, "staff", 2);
            it.judgement.emergencies.push(EmergencyRule {
                policy: "strict".to_owned(),
                terms: None,
            });
        }
        "emergency: not allowed" => emergency(it, "oncall", 2),
        "emergency: reviews" => emergency(it, "staff", 0),
        _ => {}
    }
}

fn violate(it: &mut World, rule: &'static str) {
    it.violate(rule);
    violate_of_oz(it, rule);
    // The published kinds have no spec.
    let terms = match it.object["spec"].is_object() {
        true => &mut it.object["spec"],
        false => &mut it.object,
    };
    match rule {
        "spec" => terms["roleRef"]["apiGroup"] = "apps".into(),
        "role: too powerful" => terms["roleRef"]["name"] = "team-secret".into(),
        "role: missing" => terms["roleRef"]["name"] = "team-none".into(),
        "role: powerful by name" => terms["roleRef"]["name"] = "cluster-admin".into(),
        "role not bindable" => terms["roleRef"]["name"] = "edit".into(),
        "too many" => terms["validFrom"] = "2026-01-01T12:30:00Z".into(),
        "window too far" => {
            terms["validFrom"] = "2026-01-20T12:00:00Z".into();
            terms["validUntil"] = "2026-01-20T13:00:00Z".into();
        }
        "window too long" => terms["validUntil"] = "2026-01-25T12:00:00Z".into(),
        "window over" => terms["validUntil"] = "2025-01-01T12:00:00Z".into(),
        "may not bind" => it.server.forbids.push("bind clusterroles"),
        "policy approval" => {
            let rule = json!({"name": "careful/security", "groups": ["security"], "approvals": 1});
            let approval = json!({"rules": [rule], "timeout": "30m"});
            it.judgement.approval = Some(serde_json::from_value(approval).unwrap());
            it.judgement.policies = vec![Applied {
                name: "careful".to_owned(),
                digest: "sha256:1".to_owned(),
            }];
        }
        _ => {}
    }
}

/// Returns a binding of a kind that is in effect for an hour.
fn admitted<K: Kind + DeserializeOwned>(others: &[Value]) -> World {
    let mut object = match K::LENIENT {
        true => published(K::title(), FROM, "2026-01-01T13:00:00Z"),
        false => with(binding(), "/spec/validFrom", FROM),
    };
    object["kind"] = K::title().into();
    if K::CLUSTER {
        object["metadata"]["namespace"] = Value::Null;
    }
    object["metadata"]["finalizers"] = json!([FINALIZER]);
    let mut world = World::new::<K>(object, Vec::new());
    let secrets = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }]);
    world.server.roles = ["team-secret", "edit"]
        .map(|role| (role, secrets.clone()))
        .into();
    world.others = others.to_vec();
    world
}

async fn check_kind<K: Kind + DeserializeOwned>(snapshot: &str) {
    let others = stored(repeat_n("alice", 20)).await;
    let mut rules = vec![RULES];
    if !K::CLUSTER {
        rules.push(NAMESPACED);
    }
    rules.push(match K::APPROVABLE {
        true => OF_OZ,
        false => NOT_APPROVABLE,
    });
    check(snapshot, &names(&rules), violate, || admitted::<K>(&others)).await;
}

#[tokio::test]
async fn role_binding_that_violates_rules_has_the_response_of_the_first() {
    check_kind::<TransientRoleBinding>("role-binding").await;
}

#[tokio::test]
async fn cluster_role_binding_that_violates_rules_has_the_response_of_the_first() {
    check_kind::<TransientClusterRoleBinding>("cluster-role-binding").await;
}

#[tokio::test]
async fn published_role_binding_that_violates_rules_has_the_response_of_the_first() {
    check_kind::<example_com::RoleBinding>("published-role-binding").await;
}

#[tokio::test]
async fn published_cluster_role_binding_that_violates_rules_has_the_response_of_the_first() {
    check_kind::<example_com::ClusterRoleBinding>("published-cluster-role-binding").await;
}
