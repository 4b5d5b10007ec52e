//! The reads that a new object costs, and the limits that count it: an object that a rule denies costs no read of a later
//! rule, and counts no longer.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::binding::binding;
use super::harness::{echo, object};
use super::server::Server;
use super::{Answer, Attempt, Records, Webhook, exec_template, registered, request, with};

const EXEC: &str = "ExecAccessRequest";

fn lock() -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "AccessLock",
        "metadata": {"name": "incident-7", "uid": "l"},
        "spec": {"target": {"user": "alice"}, "reason": "stolen laptop"},
    })
}

/// Returns the number of requests to the API server about single objects and rights.
fn reads(webhook: &Webhook) -> usize {
    webhook.server.reads.load(Ordering::Relaxed) + webhook.server.asked.lock().len()
}

/// Returns the response to the creation of an object with this UID by alice.
async fn created(webhook: &Webhook, uid: &str, object: Value) -> Answer {
    let attempt = Attempt::create("alice", &["devs"], object);
    let stamped = registered(webhook.stamped(&attempt).await);
    let object = Some(with(stamped, "/metadata/uid", uid));
    webhook.validate(&Attempt { object, ..attempt }).await
}

#[tokio::test]
async fn object_of_locked_user_costs_no_request_to_the_api_server() {
    let extending = with(request(EXEC, "shell"), "/spec/extends", "first");
    let reading = json!({
        "templateRef": {"name": "echo"},
        "promptFrom": {"secretKeyRef": {"name": "prompts", "key": "hello"}},
    });
    let reading = object("HarnessRun", "hello", reading);
    for object in [extending, binding(), reading] {
        let known = [exec_template("shell"), echo("HarnessTemplate")];
        let webhook = Webhook::new(Server::with(known.clone()));
        created(&webhook, "free", object.clone()).await;
        assert_eq!(reads(&webhook), 1, "{object}");

        let webhook = Webhook::new(Server::with(known.into_iter().chain([lock()])));
        let answer = created(&webhook, "locked", object.clone()).await;
        assert_eq!(answer.refusal(), Some("Locked"), "{object}");
        assert_eq!(reads(&webhook), 0, "{object}");
    }
}

#[tokio::test]
async fn request_that_is_denied_after_it_was_counted_counts_no_longer() {
    let review = json!({"deadline": "24h", "groups": ["security"]});
    let emergency = json!({"groups": ["devs"], "openReviews": 0, "review": review});
    let template = exec_template("shell");
    let template = with(template, "/spec/accessConfig/emergency", emergency);
    let webhook = Webhook::new(Server::with([template]));
    webhook.grants.wait_until_ready().await;
    let plain = with(request(EXEC, "shell"), "/spec/reason", "INC-7");
    let urgent = with(plain.clone(), "/spec/emergency", true);
    // More than `webhook.limits.waiting`.
    for number in 0..25 {
        let answer = created(&webhook, &format!("urgent-{number}"), urgent.clone()).await;
        assert_eq!(answer.refusal(), Some("TooManyOpenReviews"), "{number}");
    }
    let answer = created(&webhook, "plain", plain).await;
    assert!(answer.allowed, "{answer:?}");
}

#[tokio::test]
async fn binding_that_is_denied_after_it_was_counted_counts_no_longer() {
    let secrets = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }]);
    let webhook = Webhook::new(Server {
        roles: vec![("team-secret", secrets)],
        ..Server::default()
    });
    let dated = with(binding(), "/spec/validFrom", "2026-01-01T12:30:00Z");
    let powerful = with(dated.clone(), "/spec/roleRef/name", "team-secret");
    for number in 0..25 {
        let answer = created(&webhook, &format!("powerful-{number}"), powerful.clone()).await;
        assert_eq!(answer.refusal(), Some("RoleTooPowerful"), "{number}");
    }
    let answer = created(&webhook, "harmless", dated).await;
    assert!(answer.allowed, "{answer:?}");
}

#[tokio::test]
async fn object_without_audit_record_counts_no_longer() {
    let plain = with(request(EXEC, "shell"), "/spec/reason", "INC-7");
    let dated = with(binding(), "/spec/validFrom", "2026-01-01T12:30:00Z");
    for object in [plain, dated] {
        let broken = Records {
            broken: true,
            ..Records::default()
        };
        let webhook = Webhook::recording(Server::with([exec_template("shell")]), broken);
        webhook.grants.wait_until_ready().await;
        // More than both limits.
        for number in 0..25 {
            let answer = created(&webhook, &format!("lost-{number}"), object.clone()).await;
            assert_eq!(answer.refusal(), Some("RecordFailed"), "{number}");
        }
    }
}
