//! Requests for access to pods.

use oz_api::{ExecAccessRequest, PodAccessRequest, labels};
use oz_core::kinds::Kind;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::limits::waiting;
use super::super::{exec_template, pod_template, request, with};
use super::{World, check, names};

const RULES: &str = "reserved namespace, namespace not served, size, spec, stamp missing, \
    stamp of another user, extends: not owned, extends: unreadable, lock, locks unreadable, \
    service account, emergency: not allowed, not a member, reason, change ticket, container, \
    policy denial, policy reason, policy ticket, policy outdated, emergency: reviews, too many, \
    audit record, template: invalid, template: missing";

const ROBOT: &str = "system:serviceaccount:ci:bot";

fn violate(it: &mut World, rule: &'static str) {
    it.violate(rule);
    let config = &mut it.server.templates[0]["spec"]["accessConfig"];
    match rule {
        "spec" => it.set("/spec/duration", "-5m"),
        "extends: not owned" => it.set("/spec/extends", "first"),
        "extends: unreadable" => {
            it.server.unreadable = true.into();
            it.set("/spec/extends", "first");
        }
        "service account" => it.user = ROBOT,
        "not a member" => it.groups = &[],
        "reason" => {
            config["requireReason"] = true.into();
            it.set("/spec/reason", Value::Null);
        }
        "change ticket" => {
            config["ticket"] = json!({});
            it.set("/spec/ticket", Value::Null);
        }
        "policy ticket" => it.set("/spec/ticket", Value::Null),
        "container" => {
            config["containers"] = json!(["app"]);
            it.set("/spec/container", "sidecar");
        }
        "policy outdated" => it.judgement.asked = 1,
        "emergency: not allowed" => it.set("/spec/emergency", true),
        "emergency: reviews" => {
            let review = json!({"deadline": "24h", "groups": ["security"]});
            let emergency = json!({"groups": ["staff"], "openReviews": 0, "review": review});
            config["emergency"] = emergency;
            it.set("/spec/emergency", true);
        }
        "template: invalid" => config["maxDuration"] = "soon".into(),
        "template: missing" => {
            it.server.templates.remove(0);
        }
        _ => {}
    }
}

/// Returns as many pending requests of a user as may exist.
fn pending(user: &str) -> impl Iterator<Item = Value> {
    let by = json!({ labels::REQUESTED_BY: user });
    let uids = (0..20).map(move |number| format!("{user}-{number}"));
    uids.map(move |uid| with(waiting(&uid), "/metadata/annotations", by.clone()))
}

async fn check_kind<R: Kind + DeserializeOwned>(snapshot: &str, template: Value) {
    let object = with(request(R::title(), "shell"), "/spec/reason", "INC-7");
    let object = with(object, "/spec/ticket", "CHG-1");
    let others: Vec<Value> = ["alice", ROBOT].into_iter().flat_map(pending).collect();
    let admitted = || World {
        others: others.clone(),
        ..World::new::<R>(object.clone(), vec![template.clone()])
    };
    check(snapshot, &names(&[RULES]), violate, admitted).await;
}

#[tokio::test]
async fn exec_access_request_that_violates_rules_has_the_response_of_the_first() {
    check_kind::<ExecAccessRequest>("exec-access-request", exec_template("shell")).await;
}

#[tokio::test]
async fn pod_access_request_that_violates_rules_has_the_response_of_the_first() {
    check_kind::<PodAccessRequest>("pod-access-request", pod_template("shell")).await;
}
