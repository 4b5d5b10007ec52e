//! The fields of an existing request that may be changed, and by which users.

use oz_api::labels;
use serde_json::{Value, json};

use super::server::Server;
use super::{Attempt, OPERATOR, Webhook, exec_template, pod_template, registered, request, with};

const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// Returns a pointer to an annotation.
fn annotation(key: &str) -> String {
    format!("/metadata/annotations/{}", key.replace('/', "~1"))
}

fn stored(kind: &str) -> Value {
    let object = with(
        registered(request(kind, "shell")),
        &annotation(labels::REQUESTED_BY),
        "alice",
    );
    with(object, &annotation(labels::REQUESTER), "sealed")
}

#[tokio::test]
async fn spec_and_requester_of_request_are_immutable() {
    let webhook = Webhook::new(Server::default());
    let (exec, pod) = (stored("ExecAccessRequest"), stored("PodAccessRequest"));
    let target =
        "error - Spec.TargetPod is an immutable field, create a new PodAccessRequest instead";
    let spec =
        "spec is immutable: create a new request instead (spec.extends continues a running one)";
    let by = "error - crds.wizardofoz.co/requested-by is an immutable annotation (\"alice\"), \
              cannot update to \"mallory\"";
    let none = "error - crds.wizardofoz.co/requested-by is an immutable annotation (\"alice\"), \
                cannot update to \"\"";
    let seal = "error - crds.wizardofoz.co/requester is an immutable annotation the annotation \
                identifies the user who created the request; create a new request instead";
    let requested_by = annotation(labels::REQUESTED_BY);
    let requester = annotation(labels::REQUESTER);
    for (old, pointer, value, field, message) in [
        (
            &exec,
            "/spec/targetPod",
            json!("web-1"),
            "spec.targetPod",
            target,
        ),
        (&exec, "/spec/duration", json!("24h"), "spec", spec),
        (&exec, "/spec/templateName", json!("other"), "spec", spec),
        (&pod, "/spec/duration", json!("24h"), "spec", spec),
        (
            &exec,
            &requested_by,
            json!("mallory"),
            "metadata.annotations[crds.wizardofoz.co/requested-by]",
            by,
        ),
        (
            &pod,
            &requested_by,
            json!("mallory"),
            "metadata.annotations[crds.wizardofoz.co/requested-by]",
            by,
        ),
        (
            &exec,
            "/metadata/annotations",
            json!({}),
            "metadata.annotations[crds.wizardofoz.co/requested-by]",
            none,
        ),
        (
            &exec,
            &requester,
            json!("copied"),
            "metadata.annotations[crds.wizardofoz.co/requester]",
            seal,
        ),
    ] {
        for user in ["mallory", "admin", OPERATOR] {
            let changed = with(old.clone(), pointer, value.clone());
            let answer = webhook.validate(&Attempt::update(user, old, changed)).await;
            assert_eq!(answer.refusal(), Some("Immutable"), "{user} {pointer}");
            assert_eq!(
                (answer.status.code, answer.status.message.as_str()),
                (403, message)
            );
            assert_eq!(answer.fields(), [field]);
        }
    }
    assert!(webhook.recorded().is_empty());
}

#[tokio::test]
async fn a_request_older_than_oz_cannot_be_given_a_requester() {
    let webhook = Webhook::new(Server::default());
    let old = registered(request("ExecAccessRequest", "shell"));
    for key in [labels::REQUESTED_BY, labels::REQUESTER] {
        let changed = with(old.clone(), &annotation(key), "alice");
        let answer = webhook
            .validate(&Attempt::update("alice", &old, changed))
            .await;
        assert_eq!(answer.refusal(), Some("Immutable"), "{key}");
    }
    let answer = webhook
        .validate(&Attempt::update("alice", &old, old.clone()))
        .await;
    assert_eq!(answer.refusal(), None);
}

#[tokio::test]
async fn other_changes_of_request_are_permitted() {
    let webhook = Webhook::new(Server::default());
    for old in [stored("ExecAccessRequest"), stored("PodAccessRequest")] {
        for (pointer, value) in [
            ("/metadata/labels", json!({ "team": "shop" })),
            (annotation("note").as_str(), json!("x")),
            ("/metadata/finalizers", json!(["example.com/wait"])),
        ] {
            for user in ["alice", OPERATOR, GARBAGE_COLLECTOR] {
                let changed = with(old.clone(), pointer, value.clone());
                let answer = webhook
                    .validate(&Attempt::update(user, &old, changed))
                    .await;
                assert_eq!(answer.refusal(), None, "{user} {pointer}");
            }
        }
    }
}

#[tokio::test]
async fn owner_references_of_request_are_immutable() {
    let webhook = Webhook::new(Server::default());
    for old in [stored("ExecAccessRequest"), stored("PodAccessRequest")] {
        let other = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}]);
        let changed = with(old.clone(), "/metadata/ownerReferences", other);
        let answer = webhook
            .validate(&Attempt::update("alice", &old, changed))
            .await;
        assert!(answer.fields().contains(&"metadata.ownerReferences"));
    }
}

#[tokio::test]
async fn metadata_beyond_reason_is_refused() {
    let webhook = Webhook::new(Server::default());
    for old in [stored("ExecAccessRequest"), stored("PodAccessRequest")] {
        let note = annotation("note");
        let changed = with(old.clone(), &note, json!("x".repeat(17 * 1024)));
        let answer = webhook
            .validate(&Attempt::update("alice", &old, changed))
            .await;
        assert!(answer.refusal() == Some("MetadataTooLarge"));
    }
}

#[tokio::test]
async fn status_is_written_by_operator_only() {
    let webhook = Webhook::new(Server::default());
    let imposters = [
        "alice",
        "admin",
        GARBAGE_COLLECTOR,
        "system:serviceaccount:shop:oz-operator",
    ];
    for old in [
        stored("ExecAccessRequest"),
        stored("PodAccessRequest"),
        exec_template("shell"),
        pod_template("pod"),
    ] {
        let by = |user: &str| {
            let changed = with(old.clone(), "/status", json!({ "ready": true }));
            Attempt::update(user, &old, changed).status()
        };
        assert_eq!(webhook.validate(&by(OPERATOR)).await.refusal(), None);
        for user in imposters {
            let answer = webhook.validate(&by(user)).await;
            assert_eq!(
                answer.refusal(),
                Some("StatusReserved"),
                "{user} {}",
                old["kind"]
            );
            assert!(answer.status.message.contains(OPERATOR));
        }
    }
}
