//! The stamp hook: the values that it writes, and those that it overwrites.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{ExecAccessRequest, PodAccessRequest, Requester, encode, labels};
use oz_core::access::stamp;
use serde_json::{Value, json};

use super::server::Server;
use super::{Attempt, Webhook, exec_template, keys, pod_template, registered, request, with};

/// Returns the user that the operator accepts as the requester of an object.
fn believed(object: Value) -> Requester {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let metadata: ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap();
    let digest = match kind.as_str() {
        "ExecAccessRequest" => encode::digest(
            &serde_json::from_value::<ExecAccessRequest>(object)
                .unwrap()
                .spec,
        ),
        _ => encode::digest(
            &serde_json::from_value::<PodAccessRequest>(object)
                .unwrap()
                .spec,
        ),
    };
    stamp::verify(&keys(), &kind, &metadata, &digest).unwrap()
}

#[tokio::test]
async fn the_operator_believes_the_stamp_of_every_kind_of_request_in_every_namespace() {
    let webhook = Webhook::new(Server::default());
    let generated = |kind: &str, prefix: &str| {
        let metadata = json!({ "generateName": prefix, "namespace": "shop" });
        with(request(kind, "shell"), "/metadata", metadata)
    };
    let exec = "ExecAccessRequest";
    for object in [
        request(exec, "shell"),
        request("PodAccessRequest", "shell"),
        generated(exec, "alice-"),
        generated("PodAccessRequest", &"long".repeat(30)),
        with(request(exec, "shell"), "/metadata/namespace", "oz-system"),
        with(request(exec, "shell"), "/metadata/namespace", "kube-system"),
        with(request(exec, "shell"), "/spec/duration", "1h30m"),
        with(
            request(exec, "shell"),
            "/spec/reason",
            "it is \"broken\" \u{e9}",
        ),
    ] {
        let attempt = Attempt::create("alice", &["devs", "system:authenticated"], object);
        for attempt in [attempt.clone(), attempt.dry()] {
            // The API server truncates a long prefix.
            let mut stored = webhook.stamped(&attempt).await;
            stored["metadata"]["annotations"]["other"] = "kept".into();
            let requester = believed(registered_as_the_server_does(stored));
            assert_eq!(requester.user, "alice");
            assert_eq!(requester.groups, ["devs", "system:authenticated"]);
        }
    }
    assert!(webhook.recorded().is_empty());
}

fn registered_as_the_server_does(object: Value) -> Value {
    let Some(prefix) = object["metadata"]["generateName"]
        .as_str()
        .map(ToOwned::to_owned)
    else {
        return registered(object);
    };
    let kept: String = prefix.chars().take(58).collect();
    with(registered(object), "/metadata/name", format!("{kept}x7k2p"))
}

#[tokio::test]
async fn claimed_requester_is_overwritten() {
    let webhook = Webhook::new(Server::default());
    let plain = Attempt::create("bob", &["devs"], request("ExecAccessRequest", "shell"));
    let of_bob =
        webhook.stamped(&plain).await["metadata"]["annotations"][labels::REQUESTER].clone();
    for (requested_by, requester) in [
        (json!("bob"), json!("{\"user\":\"bob\",\"sig\":\"AAAA\"}")),
        (json!("bob"), of_bob),
        (json!(""), json!("")),
    ] {
        let annotations = json!({
            labels::REQUESTED_BY: requested_by, labels::REQUESTER: requester, "note": "mine",
        });
        let forged = with(
            request("ExecAccessRequest", "shell"),
            "/metadata/annotations",
            annotations,
        );
        let stamped = webhook
            .stamped(&Attempt::create("alice", &[], forged))
            .await;
        assert_eq!(
            stamped["metadata"]["annotations"][labels::REQUESTED_BY],
            "alice"
        );
        assert_eq!(stamped["metadata"]["annotations"]["note"], "mine");
        assert_eq!(believed(registered(stamped)).user, "alice");
    }
}

#[tokio::test]
async fn no_two_stamps_are_the_same() {
    let webhook = Webhook::new(Server::default());
    let attempt = Attempt::create("alice", &[], request("ExecAccessRequest", "shell"));
    let (first, second) = (
        webhook.stamped(&attempt).await,
        webhook.stamped(&attempt).await,
    );
    let stamp = |object: &Value| object["metadata"]["annotations"][labels::REQUESTER].clone();
    assert_ne!(stamp(&first), stamp(&second));
}

#[tokio::test]
async fn request_without_user_is_refused() {
    let webhook = Webhook::new(Server::default());
    let nobody = Attempt::create("", &[], request("ExecAccessRequest", "shell"));
    let answer = webhook.review("mutate", &nobody).await;
    assert_eq!(answer.refusal(), Some("NoIdentity"));
}

#[tokio::test]
async fn the_template_owns_the_request_and_the_user_does_not_say_which() {
    let webhook = Webhook::new(Server::with([exec_template("shell"), pod_template("pod")]));
    let owner = |kind: &str, name: &str, uid: &str| {
        let group = if kind.ends_with("Template") {
            "crds.wizardofoz.co/v1alpha1"
        } else {
            "v1"
        };
        json!({ "apiVersion": group, "kind": kind, "name": name, "uid": uid })
    };
    let ours = |kind: &str, name: &str| {
        with(
            owner(kind, name, &format!("uid-of-{name}")),
            "/controller",
            true,
        )
    };
    let shell = ours("ExecAccessTemplate", "shell");
    let map = owner("ConfigMap", "team", "1");
    let controller = with(map.clone(), "/controller", true);
    let exec = "ExecAccessRequest";
    for (kind, template, before, after) in [
        (exec, "shell", json!([]), json!([shell])),
        (
            "PodAccessRequest",
            "pod",
            json!([]),
            json!([ours("PodAccessTemplate", "pod")]),
        ),
        (exec, "unknown", json!([]), json!([])),
        (exec, "shell", json!([map]), json!([shell])),
        (exec, "shell", json!([shell]), json!([shell])),
        // Owner references to another template, and to one that the webhook does not know.
        (
            exec,
            "shell",
            json!([owner("ExecAccessTemplate", "shell", "x")]),
            json!([shell]),
        ),
        (
            exec,
            "unknown",
            json!([owner("ExecAccessTemplate", "unknown", "x"), map]),
            json!([]),
        ),
        // With another existing owner, the request would stay after the deletion of its template.
        (exec, "shell", json!([controller]), json!([shell])),
    ] {
        let object = with(
            request(kind, template),
            "/metadata/ownerReferences",
            before.clone(),
        );
        let attempt = Attempt::create("alice", &[], object);
        let once = webhook.stamped(&attempt).await;
        let owners = |object: &Value| {
            object["metadata"]
                .get("ownerReferences")
                .cloned()
                .unwrap_or_else(|| json!([]))
        };
        assert_eq!(owners(&once), after, "{kind} {template} {before}");
        // The API server may call the hook again with its result.
        let twice = webhook
            .stamped(&Attempt {
                object: Some(once),
                ..attempt
            })
            .await;
        assert_eq!(owners(&twice), after, "again: {kind} {template} {before}");
    }
}
