//! Approvals and denials of requests: the users who may create one, for which requests, until when,
//! and who withdraws it.

use jiff::{SignedDuration, Timestamp};
use oz_api::{ExecAccessRequest, ExecAccessTemplate, Requester, labels};
use oz_core::access::approval;
use oz_core::access::stamp::Stamp;
use oz_core::kinds::{AccessRequest as _, AccessTemplate as _, Kind as _};
use oz_trail::{Action, Decision};
use serde_json::{Value, json};

use super::server::Server;
use super::{Attempt, Records, UID, Webhook, exec_template, keys, now, registered, request, with};

/// Returns a template that bob, the group security and one service account approve.
fn template() -> Value {
    with(
        exec_template("shell"),
        "/spec/accessConfig/approval",
        json!({
            "rules": [{
                "name": "security",
                "groups": ["security", "system:serviceaccounts"],
                "users": ["bob", "system:serviceaccount:ci:gate"],
            }],
            "timeout": "30m",
        }),
    )
}

/// Returns a pending request of alice with this age.
fn waiting(age: SignedDuration) -> Value {
    let mut object = registered(request("ExecAccessRequest", "shell"));
    let created = now() - age;
    object["metadata"]["creationTimestamp"] = created.to_string().into();
    let parsed: ExecAccessRequest = serde_json::from_value(object.clone()).unwrap();
    object["metadata"]["annotations"] = json!({
        labels::REQUESTED_BY: "alice",
        labels::REQUESTER: stamp("alice", "ExecAccessRequest", "mine", parsed.spec_digest(), created),
    });
    object
}

fn stamp(user: &str, kind: &str, name: &str, spec_digest: String, at: Timestamp) -> String {
    let stamp = Stamp {
        requester: Requester {
            user: user.into(),
            ..Requester::default()
        },
        kind: kind.into(),
        namespace: "shop".into(),
        name: name.into(),
        spec_digest,
        at,
        nonce: user.into(),
        ..Stamp::default()
    };
    stamp.seal(&keys()).unwrap()
}

/// Returns the digest that an approval or denial must name.
fn digest(request: &Value, template: &Value) -> String {
    let request: ExecAccessRequest = serde_json::from_value(request.clone()).unwrap();
    let template: ExecAccessTemplate = serde_json::from_value(template.clone()).unwrap();
    let config = template.config().approval.as_ref().unwrap();
    approval::digest(
        &request.stored().unwrap().candidate(),
        &template.spec_digest(),
        config,
    )
}

fn answer(request: &Value, template: &Value, approval: bool) -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": "AccessRequestApproval",
        "metadata": { "name": "yes", "namespace": "shop" },
        "spec": {
            "accessRequestRef": { "kind": "ExecAccessRequest", "name": "mine", "uid": UID },
            "approval": approval,
            "digest": digest(request, template),
        },
    })
}

/// Returns a webhook with the template, the request and the other objects.
fn webhook(request: &Value, template: &Value, others: Vec<Value>) -> Webhook {
    let known = [request.clone(), template.clone()];
    Webhook::new(Server::with(known.into_iter().chain(others)))
}

/// A row of one attempt: the user, the groups, the changes to a valid approval, and the reason of
/// the denial.
type Row = (
    &'static str,
    &'static [&'static str],
    &'static str,
    Value,
    Option<&'static str>,
);

fn attempts() -> Vec<Row> {
    let gate = "system:serviceaccount:ci:gate";
    let other = "system:serviceaccount:ci:other";
    vec![
        ("bob", &[], "/spec/approval", true.into(), None),
        ("bob", &[], "/spec/approval", false.into(), None),
        ("erin", &["security"], "/spec/approval", true.into(), None),
        (
            gate,
            &["system:serviceaccounts"],
            "/spec/approval",
            true.into(),
            None,
        ),
        (
            other,
            &["system:serviceaccounts"],
            "/spec/approval",
            true.into(),
            Some("NotAnApprover"),
        ),
        (
            "erin",
            &["devs"],
            "/spec/approval",
            true.into(),
            Some("NotAnApprover"),
        ),
        (
            "erin",
            &["devs"],
            "/spec/approval",
            false.into(),
            Some("NotAnApprover"),
        ),
        (
            "alice",
            &["security"],
            "/spec/approval",
            true.into(),
            Some("SelfApproval"),
        ),
        (
            "bob",
            &[],
            "/spec/accessRequestRef/uid",
            "uid-before".into(),
            Some("RequestReplaced"),
        ),
        (
            "bob",
            &[],
            "/spec/accessRequestRef/name",
            "none".into(),
            Some("RequestMissing"),
        ),
        (
            "bob",
            &[],
            "/spec/digest",
            "sha256:0".into(),
            Some("RequestChanged"),
        ),
        (
            "bob",
            &[],
            "/spec/reason",
            "\u{1b}[2J".into(),
            Some("Invalid"),
        ),
    ]
}

#[tokio::test]
async fn approval_is_accepted_from_users_of_rule_only() {
    let template = template();
    let request = waiting(SignedDuration::from_mins(5));
    for (user, groups, pointer, value, refusal) in attempts() {
        let webhook = webhook(&request, &template, Vec::new());
        let object = with(answer(&request, &template, true), pointer, value.clone());
        let answer = webhook.create(&Attempt::create(user, groups, object)).await;
        assert_eq!(
            answer.refusal(),
            refusal,
            "{user} {pointer} {value}: {answer:?}"
        );
        let record = webhook.recorded().pop().unwrap();
        let action = match (refusal, value == false) {
            (Some(_), _) => Action::ApprovalRefused,
            (None, true) => Action::ApprovalDenied,
            (None, false) => Action::ApprovalGiven,
        };
        assert_eq!(record.action, action, "{user} {pointer} {value}");
        assert_eq!(record.user.unwrap().user, user);
        assert!(action.decisions().contains(&record.decision));
    }
}

#[tokio::test]
async fn an_answer_comes_before_the_time_is_over_and_while_the_request_waits() {
    let template = template();
    let minutes = SignedDuration::from_mins(30);
    let second = SignedDuration::from_secs(1);
    let mut active = waiting(second);
    active["status"] = json!({ "phase": "Active", "ready": true });
    for (request, refusal) in [
        (waiting(minutes - second), None),
        (waiting(minutes), Some("ApprovalTimedOut")),
        (active, Some("NotPending")),
    ] {
        let webhook = webhook(&request, &template, Vec::new());
        let object = answer(&request, &template, true);
        let answer = webhook.create(&Attempt::create("bob", &[], object)).await;
        assert_eq!(answer.refusal(), refusal, "{answer:?}");
    }
}

#[tokio::test]
async fn second_decision_of_same_approver_is_refused() {
    let template = template();
    let request = waiting(SignedDuration::from_mins(5));
    let first = webhook(&request, &template, Vec::new());
    let given = Attempt::create("bob", &[], answer(&request, &template, true));
    let given = registered(first.stamped(&given).await);
    let webhook = webhook(&request, &template, vec![given]);
    let mut second = answer(&request, &template, false);
    second["metadata"]["name"] = "again".into();
    let again = webhook
        .create(&Attempt::create("bob", &[], second.clone()))
        .await;
    assert_eq!(again.refusal(), Some("AlreadyDecided"), "{again:?}");
    let other = webhook
        .create(&Attempt::create("erin", &["security"], second))
        .await;
    assert!(other.allowed, "{other:?}");
}

#[tokio::test]
async fn approval_without_template_or_rules_is_refused() {
    let with_rules = template();
    let request = waiting(SignedDuration::from_mins(5));
    for (others, refusal) in [
        (vec![exec_template("shell")], "ApprovalNotRequired"),
        (Vec::new(), "TemplateMissing"),
    ] {
        let known = std::iter::once(request.clone()).chain(others);
        let webhook = Webhook::new(Server::with(known));
        let object = answer(&request, &with_rules, true);
        let answer = webhook.create(&Attempt::create("bob", &[], object)).await;
        assert_eq!(answer.refusal(), Some(refusal), "{answer:?}");
    }
}

#[tokio::test]
async fn forged_stamp_of_approval_is_overwritten_and_owner_removed() {
    let template = template();
    let request = waiting(SignedDuration::from_mins(5));
    let webhook = webhook(&request, &template, Vec::new());
    let mut object = answer(&request, &template, true);
    object["metadata"]["annotations"] =
        json!({ labels::REQUESTED_BY: "bob", labels::REQUESTER: "{}" });
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": "u",
    }]);
    let stamped = webhook
        .stamped(&Attempt::create("mallory", &[], object))
        .await;
    let metadata = &stamped["metadata"];
    assert_eq!(metadata["annotations"][labels::REQUESTED_BY], "mallory");
    assert_eq!(metadata["labels"][labels::REQUEST_UID], UID);
    assert!(metadata["ownerReferences"].is_null(), "{metadata}");
    // A stamp that was copied from bob's approval is not mallory's.
    let mut copied = registered(stamped);
    copied["metadata"]["annotations"][labels::REQUESTER] = stamp(
        "bob",
        "AccessRequestApproval",
        "yes",
        "sha256:0".into(),
        now(),
    )
    .into();
    let refused = webhook
        .validate(&Attempt::create("mallory", &[], copied))
        .await;
    assert_eq!(
        refused.refusal(),
        Some("StampOfAnotherRequest"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn an_answer_is_not_changed() {
    let template = template();
    let request = waiting(SignedDuration::from_mins(5));
    let webhook = webhook(&request, &template, Vec::new());
    let given = Attempt::create("bob", &[], answer(&request, &template, false));
    let given = registered(webhook.stamped(&given).await);
    let label = format!(
        "/metadata/labels/{}",
        labels::REQUEST_UID.replace('/', "~1")
    );
    let stamp = format!(
        "/metadata/annotations/{}",
        labels::REQUESTER.replace('/', "~1")
    );
    for (pointer, value) in [
        ("/spec/approval", Value::from(true)),
        (&label, "other".into()),
        (&stamp, "other".into()),
        (
            "/metadata/ownerReferences",
            json!([{
                "apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": "u",
            }]),
        ),
    ] {
        let changed = with(given.clone(), pointer, value);
        let answer = webhook
            .validate(&Attempt::update("bob", &given, changed))
            .await;
        assert_eq!(answer.refusal(), Some("Immutable"), "{pointer}: {answer:?}");
    }
    let labelled = with(given.clone(), "/metadata/labels/team", "a");
    assert!(
        webhook
            .validate(&Attempt::update("bob", &given, labelled))
            .await
            .allowed
    );
}

#[tokio::test]
async fn approval_is_withdrawn_by_its_author_while_request_is_pending() {
    let template = template();
    let pending = waiting(SignedDuration::from_mins(5));
    let mut active = pending.clone();
    active["status"] = json!({ "phase": "Active", "ready": true });
    for (request, user, refusal) in [
        (&pending, "bob", None),
        (&pending, "erin", Some("NotAuthor")),
        (&active, "bob", Some("NotPending")),
    ] {
        let webhook = webhook(request, &template, Vec::new());
        let given = Attempt::create("bob", &[], answer(&pending, &template, true));
        let given = registered(webhook.stamped(&given).await);
        let delete = Attempt {
            operation: "DELETE",
            object: None,
            old: Some(given.clone()),
            ..Attempt::create(user, &[], given)
        };
        let answer = webhook.validate(&delete).await;
        assert_eq!(answer.refusal(), refusal, "{user}: {answer:?}");
        let record = webhook.recorded().pop().unwrap();
        let decision = match refusal {
            None => Decision::End,
            Some(_) => Decision::Deny,
        };
        assert_eq!(
            (record.action, record.decision),
            (Action::ApprovalWithdrawn, decision)
        );
    }
}

#[tokio::test]
async fn approval_without_audit_record_is_refused() {
    let template = template();
    let request = waiting(SignedDuration::from_mins(5));
    let known = [request.clone(), template.clone()];
    let records = Records {
        broken: true,
        ..Records::default()
    };
    let webhook = Webhook::recording(Server::with(known), records);
    let object = answer(&request, &template, true);
    let answer = webhook.create(&Attempt::create("bob", &[], object)).await;
    assert_eq!(answer.refusal(), Some("RecordFailed"), "{answer:?}");
}
