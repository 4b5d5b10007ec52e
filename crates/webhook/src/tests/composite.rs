//! The users who may write CompositeControllers.

use oz_admission::testing::{Answer, Request};
use serde_json::{Value, json};

use super::server::Server;
use super::{OPERATOR, Webhook, with};

fn composite() -> Value {
    json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": {"name": "fleets", "uid": "u"},
        "spec": {"parentResource": {"apiVersion": "example.org/v1", "resource": "fleets"}},
    })
}

fn rego_controller() -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "RegoController",
        "metadata": {"name": "fleets", "uid": "u"},
        "spec": {
            "parent": {"apiVersion": "example.org/v1", "resource": "fleets"},
            "children": [{"apiVersion": "v1", "resource": "configmaps"}],
            "policy": {"inline": "package controller"},
            "runAs": {"namespace": "elsewhere", "serviceAccount": "somebody"},
        },
    })
}

/// A RegoController names its account itself.
#[tokio::test]
async fn rego_controller_requires_right_to_impersonate_named_account() {
    let webhook = not_allowed();
    let request = Request::create(&rego_controller()).user("ina");
    let request = request.resource("regocontrollers", None);
    let answer = request
        .send(&webhook.manager, "/guard-regocontroller")
        .await;
    assert!(!answer.allowed());
    let asked_for = webhook.server.asked.lock().clone();
    assert_eq!(asked_for.len(), 1, "{asked_for:?}");
    let right = &asked_for[0]["resourceAttributes"];
    assert_eq!(
        (&right["namespace"], &right["name"]),
        (&json!("elsewhere"), &json!("somebody"))
    );
}

async fn asked(webhook: &Webhook, request: Request) -> Answer {
    let request = request.user("ina").groups(&["interns"]);
    let request = request.resource("compositecontrollers", None);
    request
        .send(&webhook.manager, "/guard-compositecontroller")
        .await
}

fn not_allowed() -> Webhook {
    Webhook::new(Server {
        forbids: vec!["impersonate serviceaccounts"],
        ..Server::default()
    })
}

#[tokio::test]
async fn composite_is_admitted_from_author_who_may_impersonate_account() {
    let webhook = Webhook::new(Server::default());
    assert!(
        asked(&webhook, Request::create(&composite()))
            .await
            .allowed()
    );
    let asked_for = webhook.server.asked.lock().clone();
    assert_eq!(asked_for.len(), 1, "{asked_for:?}");
    assert_eq!(asked_for[0]["user"], "ina");
    assert_eq!(
        asked_for[0]["resourceAttributes"],
        json!({
            "namespace": "oz-system", "verb": "impersonate", "resource": "serviceaccounts",
            "name": "oz-composites",
        })
    );
}

#[tokio::test]
async fn composite_refusal_names_missing_rule() {
    let webhook = not_allowed();
    let changed = with(composite(), "/spec/generateSelector", true);
    for request in [
        Request::create(&composite()),
        Request::update(&composite(), &changed),
    ] {
        let answer = asked(&webhook, request).await;
        assert!(!answer.allowed());
        let said = answer.response["status"]["message"].to_string();
        for part in [
            "oz-system/oz-composites",
            "ina",
            "impersonate",
            "resourceNames",
        ] {
            assert!(said.contains(part), "{said}");
        }
    }
}

#[tokio::test]
async fn a_change_of_finalizers_asks_for_nothing() {
    let webhook = not_allowed();
    let held = with(composite(), "/metadata/finalizers", json!(["a/b"]));
    let request = Request::update(&held, &composite());
    assert!(asked(&webhook, request).await.allowed());
    assert!(webhook.server.asked.lock().is_empty());
}

#[tokio::test]
async fn composite_hook_excludes_operator() {
    let webhook = not_allowed();
    let configurations = webhook.manager.configurations();
    let hooks = configurations
        .iter()
        .flat_map(|one| one["webhooks"].as_array().unwrap());
    let mut ours = hooks.filter(|hook| hook["name"] == "guard-compositecontroller.kb.io");
    let hook = ours.next().unwrap();
    assert_eq!(hook["failurePolicy"], "Fail");
    assert_eq!(
        hook["rules"][0]["resources"],
        json!(["compositecontrollers"])
    );
    let condition = hook["matchConditions"][0]["expression"].as_str().unwrap();
    assert!(condition.contains(OPERATOR), "{condition}");
}
