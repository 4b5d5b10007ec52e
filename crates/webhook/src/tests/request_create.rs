//! The new requests that are admitted, and the messages of the responses.

use oz_api::{Requester, encode, labels};
use oz_core::access::stamp::Stamp;
use serde_json::{Value, json};

use super::server::Server;
use super::{
    Attempt, OPERATOR, Webhook, exec_template, keys, now, pod_template, registered, request, with,
};

const EXEC: &str = "ExecAccessRequest";

fn webhook() -> Webhook {
    let config = "/spec/accessConfig";
    let strict = with(
        exec_template("strict"),
        &format!("{config}/requireReason"),
        true,
    );
    let narrow = with(
        exec_template("narrow"),
        &format!("{config}/containers"),
        json!(["app"]),
    );
    let robots = with(
        exec_template("robots"),
        &format!("{config}/allowServiceAccounts"),
        true,
    );
    let robots = with(
        robots,
        &format!("{config}/allowedUsers"),
        json!(["system:serviceaccount:ci:bot"]),
    );
    let broken = with(
        exec_template("broken"),
        &format!("{config}/maxDuration"),
        "soon",
    );
    Webhook::new(Server::with([
        exec_template("shell"),
        pod_template("pod"),
        strict,
        narrow,
        robots,
        broken,
    ]))
}

/// Returns a request by a template with one more field in its spec.
fn asking(template: &str, field: &str, value: &str) -> Value {
    with(request(EXEC, template), &format!("/spec/{field}"), value)
}

#[tokio::test]
async fn requester_without_access_is_refused_at_once() {
    let webhook = webhook();
    let bot = "system:serviceaccount:ci:bot";
    let pod = |template: &str| request("PodAccessRequest", template);
    for (user, groups, object, refusal) in [
        ("alice", &["devs"][..], request(EXEC, "shell"), None),
        ("alice", &["devs"], pod("pod"), None),
        (
            "mallory",
            &["interns"],
            request(EXEC, "shell"),
            Some("NotAllowed"),
        ),
        ("mallory", &["interns"], pod("pod"), Some("NotAllowed")),
        (
            "admin",
            &["system:masters"],
            request(EXEC, "shell"),
            Some("NotAllowed"),
        ),
        (
            bot,
            &["devs"],
            request(EXEC, "shell"),
            Some("ServiceAccountsNotAllowed"),
        ),
        (bot, &[], request(EXEC, "robots"), None),
        (
            "alice",
            &["devs"],
            request(EXEC, "strict"),
            Some("ReasonRequired"),
        ),
        (
            "alice",
            &["devs"],
            asking("strict", "reason", "INC-7"),
            None,
        ),
        (
            "alice",
            &["devs"],
            asking("narrow", "container", "sidecar"),
            Some("ContainerNotAllowed"),
        ),
        (
            "alice",
            &["devs"],
            asking("narrow", "container", "app"),
            None,
        ),
        // A template of the other kind: no exec template has that name.
        ("alice", &["devs"], request(EXEC, "pod"), None),
    ] {
        let attempt = Attempt::create(user, groups, object);
        let answer = webhook.create(&attempt).await;
        assert_eq!(
            answer.refusal(),
            refusal,
            "{user} {groups:?} {:?}",
            attempt.object
        );
        let dry = webhook.create(&attempt.dry()).await;
        assert_eq!(dry.refusal(), refusal, "a dry run is answered alike");
    }
    let mallory = Attempt::create("mallory", &["interns"], request(EXEC, "shell"));
    let answer = webhook.create(&mallory).await;
    assert_eq!(answer.status.code, 403);
    assert_eq!(
        answer.status.message,
        "mallory is in none of the groups that template shell allows (devs); request membership, \
         or use another template"
    );
}

#[tokio::test]
async fn invalid_field_of_request_is_named() {
    let webhook = webhook();
    let long = "a".repeat(245);
    for (object, field, words) in [
        (
            asking("shell", "duration", "-5m"),
            "spec.duration",
            "must not be negative",
        ),
        (
            asking("shell", "duration", "5"),
            "spec.duration",
            "time: missing unit in duration \"5\"",
        ),
        (
            asking("shell", "duration", "1d"),
            "spec.duration",
            "time: unknown unit \"d\"",
        ),
        (
            asking("shell", "duration", "9999999h"),
            "spec.duration",
            "time: invalid duration",
        ),
        (
            request(EXEC, "Not A Name"),
            "spec.templateName",
            "must be at most 253",
        ),
        (
            with(request(EXEC, "shell"), "/metadata/name", long),
            "metadata.name",
            "at most 244",
        ),
        (
            asking("shell", "extends", "mine"),
            "spec.extends",
            "must name another request",
        ),
    ] {
        let answer = webhook
            .create(&Attempt::create("alice", &["devs"], object))
            .await;
        assert_eq!(
            (answer.refusal(), answer.status.code),
            (Some("Invalid"), 422),
            "{field}"
        );
        assert_eq!(answer.fields(), [field]);
        assert!(
            answer.status.message.contains(words),
            "{}",
            answer.status.message
        );
    }
}

#[tokio::test]
async fn the_requester_is_warned_of_what_will_be_otherwise_than_they_may_think() {
    let webhook = webhook();
    for (object, warning) in [
        (request(EXEC, "shell"), None),
        (asking("shell", "duration", "2h"), None),
        (asking("shell", "duration", "0s"), None),
        (
            asking("shell", "duration", "30h"),
            Some(
                "Access requested duration (30h0m0s) larger than template maximum duration \
                 (2h0m0s); access will last 2h0m0s",
            ),
        ),
        (
            request(EXEC, "unknown"),
            Some(
                "ExecAccessTemplate unknown does not exist; the request stays Pending until it does",
            ),
        ),
        (
            request(EXEC, "broken"),
            Some(
                "template broken cannot be used: spec.accessConfig.maxDuration: time: invalid \
                 duration \"soon\"; the request stays Pending until the template is corrected",
            ),
        ),
    ] {
        let answer = webhook
            .create(&Attempt::create("alice", &["devs"], object))
            .await;
        assert_eq!(answer.refusal(), None);
        assert_eq!(answer.warnings, Vec::from_iter(warning));
    }
}

#[tokio::test]
async fn request_in_namespace_of_oz_is_refused_except_dry_run_of_operator() {
    let webhook = webhook();
    let own = with(request(EXEC, "shell"), "/metadata/namespace", "oz-system");
    let by = |user: &str| Attempt::create(user, &["devs"], own.clone());
    for (attempt, refusal) in [
        (by("alice"), Some("ReservedNamespace")),
        (by("alice").dry(), Some("ReservedNamespace")),
        (by(OPERATOR), Some("ReservedNamespace")),
        (by(OPERATOR).dry(), None),
    ] {
        assert_eq!(webhook.create(&attempt).await.refusal(), refusal);
    }
}

#[tokio::test]
async fn request_in_unserved_namespace_is_refused() {
    let in_ = |namespace: &str| with(request(EXEC, "shell"), "/metadata/namespace", namespace);
    for (served, namespace, user, refusal) in [
        (&[][..], "shop", "alice", None),
        (&["billing", "shop"], "shop", "alice", None),
        (&["billing"], "shop", "alice", Some("NamespaceNotServed")),
        // The operator tests the stamp in its own namespace, whether or not that is served.
        (&["billing"], "oz-system", OPERATOR, None),
    ] {
        let webhook = Webhook::new(Server {
            served: served.iter().map(ToString::to_string).collect(),
            ..Server::default()
        });
        let attempt = Attempt::create(user, &["devs"], in_(namespace)).dry();
        let answer = webhook.create(&attempt).await;
        assert_eq!(answer.refusal(), refusal, "{served:?} {namespace}");
    }
}

#[tokio::test]
async fn stored_request_must_match_its_stamp() {
    let webhook = webhook();
    let alice = Attempt::create("alice", &["devs"], request(EXEC, "shell"));
    let stamped = registered(webhook.stamped(&alice).await);
    let annotation = format!(
        "/metadata/annotations/{}",
        labels::REQUESTER.replace('/', "~1")
    );
    let copied = {
        let other = with(request(EXEC, "shell"), "/metadata/name", "another");
        let other = webhook
            .stamped(&Attempt::create("alice", &["devs"], other))
            .await;
        other["metadata"]["annotations"][labels::REQUESTER].clone()
    };
    let late = with(
        stamped.clone(),
        "/metadata/creationTimestamp",
        "2026-01-01T12:00:21Z",
    );
    for (object, refusal) in [
        (stamped.clone(), None),
        (
            with(stamped.clone(), "/metadata/annotations", json!({})),
            Some("NotStamped"),
        ),
        (
            with(stamped.clone(), &annotation, "{}"),
            Some("StampForged"),
        ),
        (
            with(stamped.clone(), &annotation, copied),
            Some("StampOfAnotherRequest"),
        ),
        (
            with(stamped.clone(), "/spec/duration", "2h"),
            Some("StampOfAnotherRequest"),
        ),
        (late, Some("StampTimeMismatch")),
    ] {
        let answer = webhook
            .validate(&Attempt {
                object: Some(object),
                ..alice.clone()
            })
            .await;
        assert_eq!(answer.refusal(), refusal);
    }
    // A valid stamp of another user.
    let bob = Attempt {
        user: "bob".into(),
        object: Some(stamped),
        ..alice
    };
    assert_eq!(
        webhook.validate(&bob).await.refusal(),
        Some("StampOfAnotherRequest")
    );
}

#[tokio::test]
async fn a_stamp_too_long_to_be_read_again_is_refused_now_and_not_later() {
    let webhook = webhook();
    let groups: Vec<String> = (0..5000)
        .map(|number| format!("some-quite-long-group-{number}"))
        .collect();
    let groups: Vec<&str> = groups.iter().map(String::as_str).chain(["devs"]).collect();
    let answer = webhook
        .create(&Attempt::create("alice", &groups, request(EXEC, "shell")))
        .await;
    assert_eq!(answer.refusal(), Some("StampForged"));
    assert!(
        answer.status.message.contains("longer than"),
        "{}",
        answer.status.message
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_decided_before_the_templates_are_known() {
    let webhook = Webhook::new(Server {
        silent: true,
        ..Server::default()
    });
    let mut object = registered(request(EXEC, "shell"));
    let attempt = Attempt::create("alice", &["devs"], object.clone());
    assert_eq!(
        webhook.review("mutate", &attempt).await.refusal(),
        Some("NotReady")
    );

    // Stamped by another replica.
    let stamp = Stamp {
        requester: Requester {
            user: "alice".into(),
            uid: String::new(),
            groups: vec!["devs".into()],
        },
        kind: EXEC.into(),
        namespace: "shop".into(),
        name: "mine".into(),
        generate_name: String::new(),
        spec_digest: encode::digest(&object["spec"]),
        at: now(),
        nonce: "1".into(),
        ..Stamp::default()
    };
    object["metadata"]["annotations"] = json!({ labels::REQUESTER: stamp.seal(&keys()).unwrap() });
    let answer = webhook
        .validate(&Attempt {
            object: Some(object),
            ..attempt
        })
        .await;
    assert_eq!(answer.refusal(), Some("NotReady"));
}

/// Returns a request of this user that is granted until the given time.
async fn first(user: &str, until: &str) -> Value {
    let first = with(request(EXEC, "shell"), "/metadata/name", "first");
    let attempt = Attempt::create(user, &["devs"], first);
    let mut first = registered(webhook().stamped(&attempt).await);
    first["status"] = json!({ "phase": "Active", "podName": "web-0", "expiresAt": until });
    first
}

#[tokio::test]
async fn extended_request_must_be_owned_and_active() {
    let (later, before) = ("2026-01-01T12:00:01Z", "2026-01-01T12:00:00Z");
    for (first, pod, refusal) in [
        (Some(first("alice", later).await), "web-0", None),
        (
            Some(first("alice", later).await),
            "web-1",
            Some("ExtendsAnotherPod"),
        ),
        (
            Some(first("bob", later).await),
            "web-0",
            Some("ExtendsNotOwned"),
        ),
        (
            Some(first("alice", before).await),
            "web-0",
            Some("ExtendsEnded"),
        ),
        (None, "web-0", Some("ExtendsNotOwned")),
    ] {
        let stored = [exec_template("shell")].into_iter().chain(first);
        let webhook = Webhook::new(Server::with(stored));
        let next = with(asking("shell", "extends", "first"), "/spec/targetPod", pod);
        let answer = webhook
            .create(&Attempt::create("alice", &["devs"], next))
            .await;
        assert_eq!(answer.refusal(), refusal, "{pod}: {answer:?}");
        if refusal.is_some() {
            assert_eq!(answer.fields(), ["spec.extends"]);
        }
    }
}
