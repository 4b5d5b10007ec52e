//! Policies: they give no access to a Secret that their author may not get.

use serde_json::{Value, json};

use super::super::server::Server;
use super::super::{Attempt, Webhook, with};
use super::{bob, going, object};

fn policy() -> Value {
    let provider = json!({
        "kind": "AnthropicAPI",
        "secretRef": {"name": "anthropic", "key": "value"},
        "hosts": ["api.example.com"],
    });
    let spec = json!({
        "appliesToTemplates": ["echo"],
        "grants": {
            "credentials": [{"name": "ANTHROPIC_API_KEY", "provider": provider}],
            "egress": [{"host": "api.example.com", "ports": [443]}],
        },
    });
    object("BrokerPolicy", "shop", spec)
}

fn without_secrets() -> Webhook {
    Webhook::new(Server {
        forbids: vec!["get secrets"],
        ..Server::default()
    })
}

#[tokio::test]
async fn r31_a_policy_names_no_secret_that_its_author_may_not_get() {
    let webhook = without_secrets();
    let answer = webhook.validate(&bob(policy())).await;
    assert_eq!(answer.refusal(), Some("MissingPermission"), "{answer:?}");
    let field = "spec.grants.credentials[0].provider.secretRef";
    assert_eq!(answer.fields(), [field]);
    let recorded = webhook.recorded();
    assert_eq!(recorded[0].action.to_string(), "PolicyChanged");
    assert_eq!(recorded[0].decision.to_string(), "Deny");
}

#[tokio::test]
async fn a_policy_is_on_record_with_its_digests() {
    let webhook = Webhook::new(Server::default());
    let answer = webhook.validate(&bob(policy())).await;
    assert!(answer.allowed, "{answer:?}");
    let wider = with(policy(), "/spec/grants/runs", json!({"interact": true}));
    let answer = webhook
        .validate(&Attempt::update("bob", &policy(), wider))
        .await;
    assert!(answer.allowed, "{answer:?}");
    let recorded = webhook.recorded();
    assert_eq!(recorded.len(), 2);
    assert!(!recorded[0].details.contains_key("before"));
    assert_eq!(recorded[1].details["before"], recorded[0].details["after"]);
}

/// An unchanged grant is not checked, unless it is given to more templates or given otherwise.
#[tokio::test]
async fn only_new_grants_of_policy_require_rights_of_author() {
    let webhook = without_secrets();
    let labelled = with(policy(), "/metadata/labels", json!({"team": "shop"}));
    let interactive = with(policy(), "/spec/grants/runs", json!({"interact": true}));
    let broken = with(policy(), "/spec/appliesToTemplates", json!([]));
    for object in [labelled, interactive, going(broken)] {
        let attempt = Attempt::update("bob", &policy(), object);
        let answer = webhook.validate(&attempt).await;
        assert!(answer.allowed, "{answer:?}");
    }
    let mut hosts = with(
        policy(),
        "/spec/grants/egress",
        json!([{"host": "*.example.com", "ports": [443]}]),
    );
    hosts["spec"]["grants"]["credentials"][0]["provider"]["hosts"] = json!(["evil.example.com"]);
    let templates = with(policy(), "/spec/appliesToTemplates", json!(["echo", "*"]));
    for object in [hosts, templates] {
        let attempt = Attempt::update("bob", &policy(), object);
        let answer = webhook.validate(&attempt).await;
        assert_eq!(answer.refusal(), Some("MissingPermission"), "{answer:?}");
    }
}

/// Regardless of its size: a Secret that is named several times is checked once.
#[tokio::test]
async fn the_largest_policy_is_judged() {
    let mut large = policy();
    let grants = large["spec"]["grants"].clone();
    let one = &grants["credentials"][0];
    let many = (0..256).map(|number| with(one.clone(), "/name", format!("KEY_{number}")));
    large["spec"]["grants"]["credentials"] = many.collect();
    large["metadata"]["annotations"] = json!({"note": "<".repeat(100 << 10)});
    let webhook = without_secrets();
    let answer = webhook.validate(&bob(large)).await;
    assert_eq!(answer.refusal(), Some("MissingPermission"), "{answer:?}");
    assert_eq!(webhook.server.asked.lock().len(), 1);
}
