//! Extra attributes of requesters: the webhook seals those that the configuration names, access policies read them, and
//! an approval is judged by those of the requester.

use oz_api::labels;
use serde_json::{Value, json};

use super::access_policy::{answer, asks, deny, policy, security, webhook};
use super::binding::binding;
use super::harness::object;
use super::{Attempt, Webhook, exec_template, registered, request, with};

const ACR: &str = "example.org/acr";

/// The condition of a policy that denies requests without a second factor.
const NO_MFA: &str =
    "!('example.org/acr' in requester.extra) || !('mfa' in requester.extra['example.org/acr'])";

/// Returns an object of each form that access policies judge.
fn judged() -> [Value; 4] {
    let run = json!({"templateRef": {"name": "echo"}, "prompt": "hello"});
    [
        request("ExecAccessRequest", "shell"),
        request("PodAccessRequest", "shell"),
        binding(),
        object("HarnessRun", "run", run),
    ]
}

fn by_alice(object: Value) -> Attempt {
    Attempt::create("alice", &["devs"], object)
}

/// Returns the stamp of an object.
async fn stamp(webhook: &Webhook, attempt: &Attempt) -> String {
    let object = webhook.stamped(attempt).await;
    let stamp = &object["metadata"]["annotations"][labels::REQUESTER];
    stamp.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn only_configured_attributes_are_stamped() {
    let webhook = webhook(Vec::new());
    for object in judged() {
        let attempt = by_alice(object)
            .with_extra(ACR, &["mfa", "\"quoted\""])
            .with_extra("example.org/token", &["secret"])
            .with_extra("authentication.kubernetes.io/credential-id", &["secret"]);
        let text = stamp(&webhook, &attempt).await;
        assert!(!text.contains("secret"), "{text}");
        let stamp: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(stamp["extra"], json!({ ACR: ["mfa", "\"quoted\""] }));
    }
}

#[tokio::test]
async fn stamp_has_no_attributes_without_configured_ones() {
    let webhook = webhook(Vec::new());
    for object in judged() {
        let attempt = by_alice(object).with_extra("example.org/token", &["secret"]);
        let text = stamp(&webhook, &attempt).await;
        assert!(!text.contains("extra"), "{text}");
    }
}

#[tokio::test]
async fn too_large_attributes_are_refused() {
    let webhook = webhook(Vec::new());
    let large = "x".repeat(4096);
    for object in judged() {
        let attempt = by_alice(object.clone()).with_extra(ACR, &[&large]);
        let answer = webhook.review("mutate", &attempt).await;
        assert_eq!(answer.refusal(), Some("RequesterExtraTooLarge"));
        let message = &answer.status.message;
        assert!(message.contains("maximum is 4096"), "{message}");
        assert!(!message.contains("xx"), "{message}");
        // Attributes that no key names do not count.
        let others = by_alice(object).with_extra("example.org/token", &[&large]);
        let answer = webhook.review("mutate", &others).await;
        assert_eq!(answer.refusal(), None, "{answer:?}");
    }
}

#[tokio::test]
async fn policy_requires_second_factor() {
    let unguarded = "!('mfa' in requester.extra['example.org/acr'])";
    let cases: [(&str, &[&str], Option<&str>); 5] = [
        (NO_MFA, &["mfa"], None),
        (NO_MFA, &["pwd"], Some("PolicyDenied")),
        (NO_MFA, &[], Some("PolicyDenied")),
        (unguarded, &["mfa"], None),
        (unguarded, &[], Some("PolicyFailed")),
    ];
    for (text, acr, refusal) in cases {
        let webhook = webhook(vec![policy("mfa", text, deny())]);
        let attempt = match acr {
            [] => asks(),
            acr => asks().with_extra(ACR, acr),
        };
        let answer = webhook.create(&attempt).await;
        assert_eq!(answer.refusal(), refusal, "{text} {acr:?}: {answer:?}");
    }
}

#[tokio::test]
async fn condition_of_template_reads_attributes() {
    let approval = json!({
        "rules": [{ "name": "security", "users": ["bob"] }], "when": NO_MFA, "timeout": "30m",
    });
    let template = with(
        exec_template("shell"),
        "/spec/accessConfig/approval",
        approval,
    );
    let webhook = Webhook::new(super::server::Server::with([template]));
    let attempt = asks().with_extra(ACR, &["mfa"]);
    let exempted = stamp(&webhook, &attempt).await;
    assert!(exempted.contains("Exempts"), "{exempted}");
    let applies = stamp(&webhook, &asks()).await;
    assert!(applies.contains("Applies"), "{applies}");
}

#[tokio::test]
async fn approval_is_judged_by_attributes_of_requester() {
    let agree = policy("agree", "true", security());
    let mfa = policy("mfa", NO_MFA, deny());
    for (requester, approver, refusal) in [
        ("mfa", "pwd", None),
        ("pwd", "mfa", Some("PoliciesStricter")),
    ] {
        let before = webhook(vec![agree.clone()]);
        let asks = asks().with_extra(ACR, &[requester]);
        let asked = registered(before.stamped(&asks).await);
        let later = webhook(vec![asked.clone(), agree.clone(), mfa.clone()]);
        let attempt = Attempt::create("bob", &[], answer(&asked)).with_extra(ACR, &[approver]);
        let answer = later.create(&attempt).await;
        assert_eq!(answer.refusal(), refusal, "{requester}: {answer:?}");
    }
}
