//! Workspaces: they are seeded with Secrets that their author may get; the seed never changes.

use serde_json::{Value, json};

use super::super::server::Server;
use super::super::{Attempt, Webhook, owners, with};
use super::{bob, going, object};

fn workspace() -> Value {
    let repository = json!({
        "url": "https://git.example.com/shop.git",
        "credentialsSecretRef": {"name": "git"},
    });
    let spec = json!({"storage": {"size": "1Gi"}, "seed": {"repos": [repository]}});
    object("Workspace", "shop", spec)
}

fn without_secrets() -> Webhook {
    Webhook::new(Server {
        forbids: vec!["get secrets"],
        ..Server::default()
    })
}

#[tokio::test]
async fn r31_a_seed_is_read_with_no_secret_that_its_author_may_not_get() {
    let webhook = without_secrets();
    let answer = webhook.validate(&bob(workspace())).await;
    assert_eq!(answer.refusal(), Some("MissingPermission"));
    assert_eq!(answer.fields(), ["spec.seed.repos[0].credentialsSecretRef"]);
    let asked = webhook.server.asked.lock()[0]["resourceAttributes"].clone();
    let expected =
        json!({"namespace": "shop", "verb": "get", "resource": "secrets", "name": "git"});
    assert_eq!(asked, expected);
    // A user with the right is admitted.
    let webhook = Webhook::new(Server::default());
    let answer = webhook.validate(&bob(workspace())).await;
    assert!(answer.allowed, "{answer:?}");
}

#[tokio::test]
async fn storage_and_seed_are_immutable_and_other_changes_need_no_review() {
    let webhook = without_secrets();
    let other = json!({"repos": [{"url": "ssh://git@git.example.com/other.git"}]});
    let changed = with(workspace(), "/spec/storage/size", "2Gi");
    let changed = with(changed, "/spec/seed", other);
    let answer = webhook
        .validate(&Attempt::update("bob", &workspace(), changed.clone()))
        .await;
    assert_eq!(answer.fields(), ["spec.storage", "spec.seed"]);
    let owned = with(workspace(), "/metadata/ownerReferences", owners());
    let answer = webhook
        .validate(&Attempt::update("bob", &workspace(), owned))
        .await;
    assert_eq!(answer.fields(), ["metadata.ownerReferences"]);
    for object in [
        with(workspace(), "/spec/templates", json!(["echo"])),
        with(workspace(), "/metadata/labels", json!({"team": "shop"})),
        going(changed),
    ] {
        let answer = webhook
            .validate(&Attempt::update("bob", &workspace(), object))
            .await;
        assert!(answer.allowed, "{answer:?}");
    }
}
