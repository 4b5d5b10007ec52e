//! Policies: they give no access to a Secret that their author may not get.

use oz_admission::testing::{self, Request};
use oz_api::harness::BrokerPolicy;
use oz_api::labels;
use oz_runs::policy_stamp;
use serde_json::{Value, json};

use super::super::server::Server;
use super::super::{Attempt, Webhook, keys, with};
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

const STAMPING: &str = "/mutate-paddock-dev-v1alpha1-brokerpolicy";

async fn asked(webhook: &Webhook, user: &str, request: Request) -> testing::Answer {
    let request = request.user(user).groups(&["devs"]);
    let request = request.resource("brokerpolicies", None);
    let answer = request.send(&webhook.manager, STAMPING).await;
    assert!(answer.allowed(), "{:?}", answer.message());
    answer
}

/// Returns a policy as the API server stores it after its creation by this user.
async fn created(webhook: &Webhook, user: &str, policy: &Value) -> Value {
    let answer = asked(webhook, user, Request::create(policy)).await;
    let mut stored = answer.object(policy);
    stored["metadata"]["uid"] = json!("u-1");
    stored["metadata"]["creationTimestamp"] = json!("2026-01-01T12:00:00Z");
    stored
}

async fn changed(webhook: &Webhook, user: &str, old: &Value, new: &Value) -> Value {
    asked(webhook, user, Request::update(old, new))
        .await
        .object(new)
}

/// Returns the authors of a policy; empty if its stamp is not valid.
fn authors(policy: &Value) -> Vec<String> {
    let policy: BrokerPolicy = serde_json::from_value(policy.clone()).unwrap();
    let authors = policy_stamp::verify(&keys(), &policy).unwrap_or_default();
    authors.into_iter().map(|author| author.user).collect()
}

fn hosts(policy: &Value, host: &str) -> Value {
    let egress = json!([{"host": "api.example.com", "ports": [443]}, {"host": host}]);
    with(policy.clone(), "/spec/grants/egress", egress)
}

#[tokio::test]
async fn policy_is_stamped_with_its_authors_at_each_change_of_its_spec() {
    let webhook = Webhook::new(Server::default());
    let first = created(&webhook, "alice", &policy()).await;
    assert_eq!(authors(&first), ["alice"]);
    let second = changed(&webhook, "bob", &first, &hosts(&first, "one.example.com")).await;
    assert_eq!(authors(&second), ["alice", "bob"]);
    // A later change moves its author to the end, and leaves the time of the creation far behind.
    let third = changed(
        &webhook,
        "alice",
        &second,
        &hosts(&second, "two.example.com"),
    )
    .await;
    assert_eq!(authors(&third), ["bob", "alice"]);
    // The stamp is for this spec alone.
    assert!(authors(&hosts(&third, "evil.example.com")).is_empty());
}

#[tokio::test]
async fn change_outside_the_spec_keeps_the_stamp_of_the_policy() {
    let webhook = Webhook::new(Server::default());
    let first = created(&webhook, "alice", &policy()).await;
    let stamp = &first["metadata"]["annotations"][labels::REQUESTER];
    let labelled = with(first.clone(), "/metadata/labels", json!({"team": "shop"}));
    let without = with(first.clone(), "/metadata/annotations", json!({}));
    for new in [labelled, without] {
        let kept = changed(&webhook, "eve", &first, &new).await;
        assert_eq!(authors(&kept), ["alice"]);
        assert_eq!(&kept["metadata"]["annotations"][labels::REQUESTER], stamp);
    }
}

#[tokio::test]
async fn stamp_of_policy_by_user_is_overwritten() {
    let webhook = Webhook::new(Server::default());
    let first = created(&webhook, "alice", &policy()).await;
    let brought = with(
        policy(),
        "/metadata/annotations",
        first["metadata"]["annotations"].clone(),
    );
    assert_eq!(authors(&created(&webhook, "eve", &brought).await), ["eve"]);
    // Neither does a user take the stamp of an earlier spec along.
    let second = changed(&webhook, "bob", &first, &hosts(&first, "one.example.com")).await;
    let back = with(first.clone(), "/metadata/labels", json!({"a": "b"}));
    let third = changed(&webhook, "eve", &second, &back).await;
    assert_eq!(authors(&third), ["alice", "bob", "eve"]);
}

/// Any user may have written its content, so that a change of a part gives no stamp for the whole.
#[tokio::test]
async fn policy_without_valid_stamp_gets_one_only_when_it_is_created_again() {
    let webhook = Webhook::new(Server::default());
    let unseen = with(policy(), "/metadata/uid", json!("u-1"));
    let labelled = with(unseen.clone(), "/metadata/labels", json!({"team": "shop"}));
    assert!(authors(&changed(&webhook, "admin", &unseen, &labelled).await).is_empty());
    let request = Request::update(&unseen, &hosts(&unseen, "one.example.com"));
    let answer = asked(&webhook, "admin", request).await;
    let warnings = answer.warnings();
    assert!(
        warnings[0].contains("kubectl replace --force -f -"),
        "{warnings:?}"
    );
    assert!(authors(&answer.object(&hosts(&unseen, "one.example.com"))).is_empty());
    assert_eq!(
        authors(&created(&webhook, "admin", &unseen).await),
        ["admin"]
    );
}

#[tokio::test]
async fn unproven_caller_gets_no_stamp_and_takes_none_away() {
    let webhook = Webhook::new(Server::default());
    let from = [10, 0, 0, 7];
    let first = created(&webhook, "alice", &policy()).await;
    let second = hosts(&first, "one.example.com");
    for (request, object) in [
        (Request::create(&policy()), policy()),
        (Request::update(&first, &second), second),
    ] {
        let answer = asked(&webhook, "admin", request.from_address(from)).await;
        assert_eq!(answer.warnings().len(), 1);
        let mut forged = answer.object(&object);
        forged["metadata"]["uid"] = json!("u-1");
        forged["metadata"]["creationTimestamp"] = json!("2026-01-01T12:00:00Z");
        assert!(authors(&forged).is_empty());
    }
    let labelled = with(first.clone(), "/metadata/labels", json!({"team": "shop"}));
    let request = Request::update(&first, &labelled).from_address(from);
    let kept = asked(&webhook, "admin", request).await.object(&labelled);
    assert_eq!(authors(&kept), ["alice"]);
}

#[tokio::test]
async fn many_authors_with_many_groups_fit_into_the_stamp_of_a_policy() {
    let webhook = Webhook::new(Server::default());
    let groups: Vec<String> = (0..200).map(|number| format!("{number:0>200}")).collect();
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let mut last = created(&webhook, "alice", &policy()).await;
    for number in 0..20 {
        let next = hosts(&last, &format!("host-{number}.example.com"));
        let request = Request::update(&last, &next)
            .user(&format!("user-{number}"))
            .groups(&groups)
            .resource("brokerpolicies", None);
        last = request.send(&webhook.manager, STAMPING).await.object(&next);
    }
    let all = authors(&last);
    assert_eq!(all.len(), 8);
    assert_eq!(all.last().unwrap(), "user-19");
}

#[tokio::test]
async fn policy_with_generated_name_is_stamped() {
    let webhook = Webhook::new(Server::default());
    let mut unnamed = policy();
    let metadata = unnamed["metadata"].as_object_mut().unwrap();
    metadata.remove("name");
    metadata.insert("generateName".to_owned(), json!("claude-"));
    let mut stored = created(&webhook, "alice", &unnamed).await;
    stored["metadata"]["name"] = json!("claude-x7k2p");
    assert_eq!(authors(&stored), ["alice"]);
}
