//! Templates: a user without the right to create pods cannot have a template create them.

use serde_json::json;

use super::super::server::Server;
use super::super::{Attempt, Webhook, with};
use super::{bob, echo, going, object};

const KINDS: [&str; 2] = ["HarnessTemplate", "ClusterHarnessTemplate"];

fn without_pods() -> Webhook {
    Webhook::new(Server {
        forbids: vec!["create pods"],
        ..Server::default()
    })
}

#[tokio::test]
async fn r31_who_may_not_create_pods_writes_no_template() {
    for kind in KINDS {
        let webhook = without_pods();
        let answer = webhook.validate(&bob(echo(kind))).await;
        assert_eq!(answer.refusal(), Some("MissingPermission"), "{kind}");
        let message = &answer.status.message;
        assert!(message.contains("bob may not create pods in"), "{message}");
        // The denial is recorded.
        let recorded = webhook.recorded();
        assert_eq!(recorded[0].action.to_string(), "TemplateChanged");
        assert_eq!(recorded[0].decision.to_string(), "Deny");
    }
}

#[tokio::test]
async fn pods_are_asked_about_in_the_namespace_or_in_all_and_the_change_is_on_record() {
    for (kind, namespace) in KINDS.into_iter().zip([Some("shop"), None]) {
        let webhook = Webhook::new(Server::default());
        let answer = webhook.validate(&bob(echo(kind))).await;
        assert!(answer.allowed, "{answer:?}");
        let asked = webhook.server.asked.lock().clone();
        assert_eq!(asked[0]["user"], "bob");
        assert_eq!(
            asked[0]["resourceAttributes"]["namespace"],
            json!(namespace)
        );
        let recorded = webhook.recorded();
        assert_eq!(recorded[0].reason, "Created");
        assert_eq!(recorded[0].request.kind, kind);
    }
}

#[tokio::test]
async fn everything_wrong_is_refused_at_once_with_its_path() {
    let webhook = Webhook::new(Server::default());
    let spec = json!({
        "baseTemplateRef": {"name": "base"},
        "image": "registry.test/other:1",
        "defaults": {"terminationGracePeriodSeconds": 301},
        "requires": {"egress": [{"host": "*"}]},
    });
    let answer = webhook
        .validate(&bob(object("HarnessTemplate", "mine", spec)))
        .await;
    assert_eq!(answer.refusal(), Some("Invalid"));
    assert_eq!(
        answer.fields(),
        [
            "spec.image",
            "spec.defaults.terminationGracePeriodSeconds",
            "spec.requires.egress[0].host"
        ]
    );
}

/// A change of labels or a deletion hands out nothing.
#[tokio::test]
async fn r32_nothing_is_asked_or_written_for_metadata_and_on_a_dry_run() {
    for kind in KINDS {
        let webhook = without_pods();
        let labelled = with(echo(kind), "/metadata/labels", json!({"team": "shop"}));
        let changed = with(echo(kind), "/spec/image", "registry.test/echo:2");
        for attempt in [
            Attempt::update("bob", &echo(kind), labelled),
            Attempt::update("bob", &echo(kind), going(changed)),
        ] {
            let answer = webhook.validate(&attempt).await;
            assert!(answer.allowed, "{answer:?}");
        }
        assert!(webhook.server.asked.lock().is_empty());
        let answer = webhook.validate(&bob(echo(kind)).dry()).await;
        assert_eq!(answer.refusal(), Some("MissingPermission"));
        let webhook_of_others = Webhook::new(Server::default());
        let answer = webhook_of_others.validate(&bob(echo(kind)).dry()).await;
        assert!(answer.allowed, "{answer:?}");
        assert!(webhook.recorded().is_empty());
        assert!(webhook_of_others.recorded().is_empty());
    }
}

#[tokio::test]
async fn the_status_is_the_operators() {
    let webhook = Webhook::new(Server::default());
    let old = echo("HarnessTemplate");
    let attempt = Attempt::update("bob", &old, old.clone()).status();
    let answer = webhook.validate(&attempt).await;
    assert_eq!(answer.refusal(), Some("StatusReserved"));
}
