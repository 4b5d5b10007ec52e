//! Changes of the ConfigMaps of policies: each is recorded with its author, and none is denied.

use oz_admission::testing::{Answer, Request};
use oz_composites::bundle;
use oz_trail::{Action, Decision};
use serde_json::{Value, json};

use super::server::Server;
use super::{Records, Webhook};

fn map(text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "fleets", "namespace": "policies", "uid": "u"},
        "data": {"fleets.rego": text, "fleets_test.rego": "package tests"},
    })
}

async fn asked(webhook: &Webhook, request: Request) -> Answer {
    let request = request.user("paula").groups(&["authors"]);
    let request = request.resource("configmaps", None);
    let answer = request.send(&webhook.manager, "/observe-policy").await;
    assert!(answer.allowed(), "{answer:?}");
    answer
}

fn digest(map: &Value) -> String {
    let map = serde_json::from_value(map.clone()).unwrap();
    bundle::digest_of(&map).unwrap()
}

#[tokio::test]
async fn a_change_of_a_policy_is_on_record_with_both_digests_and_who_made_it() {
    let webhook = Webhook::new(Server::default());
    let (one, other) = (map("package one"), map("package other"));
    for (request, reason, before, after) in [
        (Request::create(&one), "Created", None, Some(&one)),
        (
            Request::update(&one, &other),
            "Changed",
            Some(&one),
            Some(&other),
        ),
        (Request::delete(&other), "Deleted", Some(&other), None),
    ] {
        asked(&webhook, request).await;
        let record = webhook.recorded().pop().unwrap();
        assert_eq!(
            (record.action, record.decision, record.reason.as_str()),
            (Action::PolicyChanged, Decision::Allow, reason)
        );
        assert_eq!(record.user.unwrap().user, "paula");
        assert_eq!(record.request.kind, "ConfigMap");
        let named = [&record.request.namespace, &record.request.name];
        assert_eq!(named, ["policies", "fleets"]);
        assert_eq!(record.details.get("before").cloned(), before.map(digest));
        assert_eq!(record.details.get("after").cloned(), after.map(digest));
    }
    assert_eq!(webhook.recorded().len(), 3);
}

#[tokio::test]
async fn unchanged_policy_leaves_no_audit_record() {
    let webhook = Webhook::new(Server::default());
    let one = map("package one");
    let mut labelled = one.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    labelled["data"]["fleets_test.rego"] = json!("package other_tests");
    asked(&webhook, Request::update(&one, &labelled)).await;
    asked(&webhook, Request::create(&one).dry_run()).await;
    let mut empty = one.clone();
    empty["data"] = json!({});
    asked(&webhook, Request::create(&empty)).await;
    assert!(webhook.recorded().is_empty(), "{:?}", webhook.recorded());
}

#[tokio::test]
async fn policy_change_is_admitted_without_audit_record() {
    let records = Records {
        broken: true,
        ..Records::default()
    };
    let webhook = Webhook::recording(Server::default(), records);
    asked(&webhook, Request::create(&map("package one"))).await;
}
