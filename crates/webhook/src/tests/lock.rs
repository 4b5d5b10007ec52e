//! Locks at admission: the requests that they deny, and the audit records of their creation, change
//! and removal.

use oz_trail::{Action, Decision};
use serde_json::{Value, json};

use super::server::Server;
use super::{
    Answer, Attempt, Records, Webhook, exec_template, pod_template, registered, request, with,
};

fn lock(name: &str, target: &Value) -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "AccessLock",
        "metadata": {"name": name, "uid": format!("uid-of-{name}")},
        "spec": {"target": target, "reason": "stolen laptop", "exceptEmergency": false},
    })
}

fn webhook(locks: impl IntoIterator<Item = Value>) -> Webhook {
    let templates = [exec_template("shell"), pod_template("shell")];
    Webhook::new(Server::with(templates.into_iter().chain(locks)))
}

#[tokio::test]
async fn locked_request_is_refused_with_name_reason_and_end_of_lock() {
    let template = |name: &str| json!({"template": {"namespace": "shop", "name": name}});
    for (target, refused) in [
        (json!({"user": "alice"}), true),
        (json!({"group": "devs"}), true),
        (json!({"namespace": "shop"}), true),
        (template("shell"), true),
        (json!({"user": "alic\u{435}"}), false),
        (json!({"group": "ops"}), false),
        (json!({"namespace": "mall"}), false),
        (template("other"), false),
    ] {
        for kind in ["ExecAccessRequest", "PodAccessRequest"] {
            let held = with(
                lock("incident-7", &target),
                "/spec/until",
                "2026-01-01T12:00:01Z",
            );
            let webhook = webhook([held]);
            let attempt = Attempt::create("alice", &["devs"], request(kind, "shell"));
            let answer = webhook.create(&attempt).await;
            assert_eq!(
                answer.refusal(),
                refused.then_some("Locked"),
                "{target} {answer:?}"
            );
            if refused {
                let said = &answer.status.message;
                let why =
                    "locked by AccessLock incident-7 until 2026-01-01T12:00:01Z: stolen laptop";
                assert!(said.contains(why), "{said}");
                let record = webhook.recorded().pop().unwrap();
                assert_eq!(record.action, Action::RequestDenied);
                assert_eq!(record.reason, "Locked");
            }
        }
    }
}

#[tokio::test]
async fn a_lock_that_is_over_refuses_nothing() {
    let over = with(
        lock("past", &json!({"user": "alice"})),
        "/spec/until",
        "2026-01-01T12:00:00Z",
    );
    let webhook = webhook([over]);
    let attempt = Attempt::create("alice", &["devs"], request("ExecAccessRequest", "shell"));
    assert_eq!(webhook.create(&attempt).await.refusal(), None);
}

#[tokio::test]
async fn binding_by_or_for_locked_user_is_refused() {
    let binding = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "TransientRoleBinding",
        "metadata": {"name": "on-call", "namespace": "shop"},
        "spec": {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "alice"}],
            "validUntil": "2026-01-01T13:00:00Z",
        },
    });
    for (target, refused) in [
        (json!({"user": "alice"}), true),
        (json!({"user": "bob"}), true),
        (json!({"namespace": "shop"}), true),
        (json!({"user": "carol"}), false),
    ] {
        let server = Server {
            roles: vec![("view", json!([]))],
            ..Server::with([lock("incident-7", &target)])
        };
        let webhook = Webhook::new(server);
        let answer = webhook
            .create(&Attempt::create("bob", &["leads"], binding.clone()))
            .await;
        assert_eq!(
            answer.refusal(),
            refused.then_some("Locked"),
            "{target} {answer:?}"
        );
    }
}

/// Returns the response to the creation of a lock.
async fn made(webhook: &Webhook, lock: Value) -> Answer {
    let attempt = Attempt::create("sam", &["lockers"], lock);
    webhook.review("lock", &attempt).await
}

#[tokio::test]
async fn a_lock_is_made_on_record_and_one_that_would_not_do_what_it_says_is_not() {
    let alice = || lock("incident-7", &json!({"user": "alice"}));
    for (lock, refusal) in [
        (alice(), None),
        (lock("one", &json!({"user": "alice*"})), Some("Invalid")),
        (
            lock("one", &json!({"user": "ali\u{200b}ce"})),
            Some("Invalid"),
        ),
        (lock("one", &json!({})), Some("Invalid")),
        (
            lock("one", &json!({"user": "a", "group": "b"})),
            Some("Invalid"),
        ),
        (
            with(alice(), "/spec/reason", "a".repeat(1 << 20)),
            Some("Invalid"),
        ),
        (
            with(alice(), "/spec/until", "3026-01-01T12:00:00Z"),
            Some("Invalid"),
        ),
        (
            with(alice(), "/spec/until", "2026-01-01T12:00:00Z"),
            Some("Invalid"),
        ),
        (
            with(
                alice(),
                "/metadata/ownerReferences",
                json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a"}]),
            ),
            Some("Invalid"),
        ),
    ] {
        let webhook = webhook([]);
        let answer = made(&webhook, lock).await;
        assert_eq!(answer.refusal(), refusal, "{answer:?}");
        let record = webhook.recorded().pop().unwrap();
        assert_eq!(record.action, Action::AccessLocked);
        assert_eq!(record.decision == Decision::Allow, refusal.is_none());
        assert_eq!(record.user.unwrap().user, "sam");
    }
}

#[tokio::test]
async fn non_ascii_name_in_lock_is_shown_escaped() {
    let webhook = webhook([]);
    let answer = made(&webhook, lock("one", &json!({"user": "alic\u{435}"}))).await;
    assert!(answer.allowed);
    assert!(answer.warnings[0].contains("alic\\u{435}"), "{answer:?}");
}

#[tokio::test]
async fn lock_is_admitted_without_audit_record_and_unlock_is_not() {
    let broken = || Records {
        broken: true,
        ..Records::default()
    };
    let webhook = Webhook::recording(Server::default(), broken());
    let alice = lock("incident-7", &json!({"user": "alice"}));
    assert!(made(&webhook, alice.clone()).await.allowed);
    // A change that grants access again waits for the audit record; break-glass groups do not wait
    // for the webhook.
    for (group, verb, refusal) in [
        ("lockers", "unlock", Some("RecordFailed")),
        ("sre", "lock", None),
    ] {
        let attempt = removes("sam", group, &alice);
        let answer = webhook.review(verb, &attempt).await;
        assert_eq!(answer.refusal(), refusal, "{group}: {answer:?}");
    }
}

fn removes(user: &str, group: &str, lock: &Value) -> Attempt {
    Attempt {
        operation: "DELETE",
        object: None,
        old: Some(lock.clone()),
        ..Attempt::create(user, &[group], lock.clone())
    }
}

#[tokio::test]
async fn locked_user_may_not_remove_or_change_lock() {
    for (target, user, group, refusal) in [
        (json!({"user": "alice"}), "alice", "lockers", Some("Locked")),
        (json!({"user": "alice"}), "alice", "sre", None),
        (json!({"user": "alice"}), "sam", "lockers", None),
        (
            json!({"group": "lockers"}),
            "sam",
            "lockers",
            Some("Locked"),
        ),
        (json!({"namespace": "shop"}), "alice", "lockers", None),
    ] {
        let webhook = webhook([]);
        let old = lock("incident-7", &target);
        let later = with(old.clone(), "/spec/until", "2026-01-01T12:00:00Z");
        let change = Attempt {
            groups: vec![group.to_owned()],
            ..Attempt::update(user, &old, later)
        };
        for (attempt, action, decision) in [
            (
                removes(user, group, &old),
                Action::AccessUnlocked,
                Decision::End,
            ),
            (change, Action::AccessLocked, Decision::Allow),
        ] {
            let answer = webhook.review("unlock", &attempt).await;
            assert_eq!(answer.refusal(), refusal, "{target} {user}: {answer:?}");
            let record = webhook.recorded().pop().unwrap();
            let decision = if refusal.is_some() {
                Decision::Deny
            } else {
                decision
            };
            assert_eq!((record.action, record.decision), (action, decision));
            assert!(action.decisions().contains(&record.decision));
            assert!(record.details["target"].contains(' '));
        }
    }
}

#[tokio::test]
async fn only_until_is_changed() {
    let old = lock("incident-7", &json!({"user": "alice"}));
    for (pointer, value, refusal) in [
        ("/spec/until", json!("2026-01-01T13:00:00Z"), None),
        ("/spec/until", json!("2026-01-01T11:00:00Z"), None),
        (
            "/spec/until",
            json!("3026-01-01T11:00:00Z"),
            Some("Invalid"),
        ),
        ("/spec/reason", json!("another"), Some("Immutable")),
        ("/spec/target/user", json!("bob"), Some("Immutable")),
        ("/spec/exceptEmergency", json!(true), Some("Immutable")),
        ("/metadata/labels", json!({"a": "b"}), None),
    ] {
        let webhook = webhook([]);
        let attempt = Attempt::update("sam", &old, with(old.clone(), pointer, value.clone()));
        let answer = webhook.review("unlock", &attempt).await;
        assert_eq!(answer.refusal(), refusal, "{pointer} {value}: {answer:?}");
        let recorded = webhook.recorded().len();
        assert_eq!(recorded, usize::from(pointer != "/metadata/labels"));
    }
}

#[tokio::test]
async fn the_dry_run_that_sees_whether_requests_are_stamped_is_not_locked_out() {
    let webhook = webhook([lock("all", &json!({"group": "system:serviceaccounts"}))]);
    let canary = with(
        request("ExecAccessRequest", "shell"),
        "/metadata/namespace",
        "oz-system",
    );
    let attempt = Attempt::create(super::OPERATOR, &["system:serviceaccounts"], canary).dry();
    let stamped = registered(webhook.stamped(&attempt).await);
    let checked = Attempt {
        object: Some(stamped),
        ..attempt
    };
    let answer = webhook.validate(&checked).await;
    assert_ne!(answer.refusal(), Some("Locked"), "{answer:?}");
}
