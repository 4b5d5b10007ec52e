//! Access policies: the judgement of a request and of an approval or denial, and the users who may
//! write policies.

use oz_api::{ExecAccessRequest, ExecAccessTemplate, labels};
use oz_core::access::policy::{self, Judgement, When};
use oz_core::access::{approval, stamp};
use oz_core::kinds::{AccessRequest as _, Kind as _};
use oz_trail::{Action, Decision};
use serde_json::{Value, json};

use super::server::Server;
use super::{Attempt, OPERATOR, UID, Webhook, exec_template, keys, registered, request, with};

pub(super) fn policy(name: &str, text: &str, then: Value) -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": "AccessPolicy",
        "metadata": { "name": name, "uid": format!("uid-of-{name}") },
        "spec": { "match": text, "then": then },
    })
}

pub(super) fn deny() -> Value {
    json!({ "deny": { "message": "the freeze lasts until Monday" } })
}

pub(super) fn security() -> Value {
    json!({ "approval": { "rules": [{ "name": "security", "users": ["bob"] }] } })
}

/// Returns a webhook with these policies, and a template by which alice may request access.
pub(super) fn webhook(policies: Vec<Value>) -> Webhook {
    let known = std::iter::once(exec_template("shell"));
    Webhook::new(Server::with(known.chain(policies)))
}

pub(super) fn asks() -> Attempt {
    Attempt::create("alice", &["devs"], request("ExecAccessRequest", "shell"))
}

/// Returns the sealed judgement from the stamp of a request.
fn sealed(object: &Value) -> Option<Judgement> {
    let request: ExecAccessRequest = serde_json::from_value(registered(object.clone())).unwrap();
    request.view().stamp(&keys()).unwrap().judgement
}

#[tokio::test]
async fn request_without_access_policies_has_no_judgement_and_no_reads() {
    let webhook = webhook(Vec::new());
    let object = webhook.stamped(&asks()).await;
    assert_eq!(sealed(&object), None);
    let text = object["metadata"]["annotations"][labels::REQUESTER].as_str();
    assert!(!text.unwrap().contains("judgement"), "{text:?}");
    assert_eq!(
        webhook
            .server
            .reads
            .load(std::sync::atomic::Ordering::Relaxed),
        0
    );
}

#[tokio::test]
async fn judgement_of_access_policies_is_sealed_and_enforced_at_admission() {
    let reason = json!({ "requireReason": true });
    let half = json!({ "maxDuration": "30m" });
    for (text, then, refusal) in [
        ("request.namespace == 'shop'", deny(), Some("PolicyDenied")),
        ("request.namespace == 'bank'", deny(), None),
        (
            "namespaceLabels['env'] == 'prod'",
            deny(),
            Some("PolicyDenied"),
        ),
        (
            "namespaceLabels['team'] == 'prod'",
            deny(),
            Some("PolicyFailed"),
        ),
        (
            "requester.user == 'alice' && 'devs' in requester.groups",
            deny(),
            Some("PolicyDenied"),
        ),
        (
            "template.name == 'shell' && 'Exec' in operations",
            deny(),
            Some("PolicyDenied"),
        ),
        ("size(active) > 0", deny(), None),
        ("now.getFullYear() == 2026", deny(), Some("PolicyDenied")),
        ("nobody == 'x'", deny(), Some("PolicyFailed")),
        ("true", json!({}), Some("PolicyFailed")),
        ("true", reason, Some("ReasonRequired")),
        ("true", half, None),
        ("true", security(), None),
    ] {
        let webhook = webhook(vec![policy("one", text, then.clone())]);
        let answer = webhook.create(&asks()).await;
        assert_eq!(answer.refusal(), refusal, "{text} {then}: {answer:?}");
        let record = webhook.recorded().pop().unwrap();
        match refusal {
            Some(reason) => {
                assert_eq!(
                    (record.action, record.reason.as_str()),
                    (Action::RequestDenied, reason)
                );
            }
            None => assert_eq!(record.action, Action::RequestCreated),
        }
    }
}

#[tokio::test]
async fn the_record_of_a_request_names_the_policies_that_applied() {
    let webhook = webhook(vec![
        policy("b", "true", json!({ "maxDuration": "30m" })),
        policy("a", "true", security()),
        policy("c", "false", deny()),
    ]);
    let asked = with(
        request("ExecAccessRequest", "shell"),
        "/spec/duration",
        "1h",
    );
    let answer = webhook
        .create(&Attempt::create("alice", &["devs"], asked))
        .await;
    assert_eq!(answer.refusal(), None, "{answer:?}");
    assert!(
        answer.warnings[0].contains("access will last 30m0s"),
        "{:?}",
        answer.warnings
    );
    let record = webhook.recorded().pop().unwrap();
    let named = &record.details["policies"];
    let names: Vec<&str> = named
        .split(", ")
        .map(|one| one.split(' ').next().unwrap())
        .collect();
    assert_eq!(names, ["a", "b"]);
}

#[tokio::test]
async fn the_canary_is_not_judged() {
    let webhook = webhook(vec![policy("one", "true", deny())]);
    let attempt = Attempt {
        user: OPERATOR.to_owned(),
        ..asks().dry()
    };
    assert_eq!(sealed(&webhook.stamped(&attempt).await), None);
    // The dry run of every other user is judged.
    assert!(
        sealed(&webhook.stamped(&asks().dry()).await)
            .unwrap()
            .refused
            .is_some()
    );
}

#[tokio::test]
async fn a_request_by_a_template_that_is_not_there_is_refused_only_where_there_are_policies() {
    let asked = || Attempt::create("alice", &["devs"], request("ExecAccessRequest", "none"));
    let answer = webhook(Vec::new()).create(&asked()).await;
    assert_eq!(answer.refusal(), None);
    let answer = webhook(vec![policy("one", "false", deny())])
        .create(&asked())
        .await;
    assert_eq!(answer.refusal(), Some("PolicyFailed"));
    assert!(
        answer.status.message.contains("create it first"),
        "{answer:?}"
    );
}

fn conditional(when: &str) -> Value {
    with(
        exec_template("shell"),
        "/spec/accessConfig/approval",
        json!({ "rules": [{ "name": "security", "users": ["bob"] }], "when": when, "timeout": "30m" }),
    )
}

#[tokio::test]
async fn the_condition_of_rules_is_evaluated_and_sealed_and_one_that_fails_is_said() {
    for (when, expected, warned) in [
        ("request.namespace == 'shop'", When::Applies, false),
        ("request.namespace == 'bank'", When::Exempts, false),
        (
            "namespaceLabels['team'] == 'x'",
            When::Failed("No such key: team".into()),
            true,
        ),
    ] {
        let webhook = Webhook::new(Server::with([conditional(when)]));
        let object = webhook.stamped(&asks()).await;
        assert_eq!(sealed(&object).unwrap().when, Some(expected), "{when}");
        let answer = webhook.create(&asks()).await;
        assert_eq!(answer.refusal(), None);
        let warning = answer
            .warnings
            .iter()
            .any(|one| one.contains("so its rules apply"));
        assert_eq!(warning, warned, "{:?}", answer.warnings);
        assert!(
            webhook
                .recorded()
                .pop()
                .unwrap()
                .details
                .contains_key("approvalWhen")
        );
    }
}

#[tokio::test]
async fn a_condition_that_cannot_be_evaluated_is_refused_when_it_is_written() {
    let webhook = webhook(Vec::new());
    for (when, refusal) in [
        ("request.namespace == 'prod'", None),
        ("request.labels['a'] == 'b'", Some("Invalid")),
        ("request.name", Some("Invalid")),
        ("request.name ==", Some("Invalid")),
        (" ", Some("Invalid")),
    ] {
        let template = conditional(when);
        let answer = webhook
            .validate(&Attempt::create("carol", &[], template))
            .await;
        assert_eq!(answer.refusal(), refusal, "{when}: {answer:?}");
        if refusal.is_some() {
            assert_eq!(
                answer.fields(),
                ["spec.accessConfig.approval.when"],
                "{when}"
            );
        }
    }
}

/// Returns a pending request of alice, stamped under these policies.
async fn waiting(policies: Vec<Value>) -> Value {
    registered(webhook(policies).stamped(&asks()).await)
}

pub(super) fn answer(asked: &Value) -> Value {
    let request: ExecAccessRequest = serde_json::from_value(asked.clone()).unwrap();
    let template: ExecAccessTemplate = serde_json::from_value(exec_template("shell")).unwrap();
    let judgement = stamp::parse_unverified(&request.metadata)
        .unwrap()
        .judgement;
    let config = policy::approval(judgement.as_ref(), &template).unwrap();
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": "AccessRequestApproval",
        "metadata": { "name": "yes", "namespace": "shop" },
        "spec": {
            "accessRequestRef": { "kind": "ExecAccessRequest", "name": "mine", "uid": UID },
            "approval": true,
            "digest": approval::digest(&request.stored().unwrap().candidate(), &template.spec_digest(), &config),
        },
    })
}

#[tokio::test]
async fn approval_is_refused_if_access_policies_are_stricter_than_sealed() {
    let agree = policy("agree", "true", security());
    let asked = waiting(vec![agree.clone()]).await;
    let longest = |duration: &str| policy("long", "true", json!({ "maxDuration": duration }));
    let more = json!({ "approval": { "rules": [{ "name": "sre", "groups": ["sre"] }] } });
    for (policies, refusal) in [
        (vec![agree.clone()], None),
        // The sealed judgement applies.
        (vec![], None),
        (vec![policy("other", "true", security())], None),
        (vec![agree.clone(), policy("freeze", "false", deny())], None),
        (
            vec![agree.clone(), policy("freeze", "true", deny())],
            Some("PoliciesStricter"),
        ),
        (
            vec![agree.clone(), policy("broken", "1 / 0 == 1", deny())],
            Some("PoliciesStricter"),
        ),
        (vec![agree.clone(), longest("1h")], Some("PoliciesStricter")),
        (
            vec![agree.clone(), policy("more", "true", more)],
            Some("PoliciesStricter"),
        ),
    ] {
        let webhook = webhook([vec![asked.clone()], policies.clone()].concat());
        let given = webhook
            .create(&Attempt::create("bob", &[], answer(&asked)))
            .await;
        assert_eq!(given.refusal(), refusal, "{policies:?}: {given:?}");
        // A denial is possible under any policies.
        let no = with(answer(&asked), "/spec/approval", false);
        let given = webhook.create(&Attempt::create("bob", &[], no)).await;
        assert_eq!(given.refusal(), None, "{policies:?}: {given:?}");
    }
}

#[tokio::test]
async fn access_policy_is_admitted_if_valid_and_recorded() {
    let rules = json!({ "approval": { "rules": [{ "name": "x", "users": [] }] } });
    for (text, then, refusal) in [
        ("request.namespace == 'prod'", deny(), None),
        ("template.labels['tier'] == 'prod'", security(), None),
        ("request.nmae == 'x'", deny(), Some("spec.match")),
        ("", deny(), Some("spec.match")),
        ("true", json!({}), Some("spec.then")),
        ("true", rules, Some("spec.then.approval.rules[0]")),
        (
            "true",
            json!({ "maxDuration": "0s" }),
            Some("spec.then.maxDuration"),
        ),
        (
            "true",
            json!({ "deny": { "message": " " } }),
            Some("spec.then.deny.message"),
        ),
        (
            "true",
            json!({ "deny": { "message": "a\u{202e}b" } }),
            Some("spec.then.deny.message"),
        ),
    ] {
        let webhook = webhook(Vec::new());
        let attempt = Attempt::create("sec", &[], policy("one", text, then));
        let answer = webhook.validate(&attempt).await;
        assert_eq!(
            answer.fields().first().copied(),
            refusal,
            "{text}: {answer:?}"
        );
        let record = webhook.recorded().pop().unwrap();
        let decision = match refusal {
            None => Decision::Allow,
            Some(_) => Decision::Deny,
        };
        assert_eq!(
            (record.action, record.decision),
            (Action::PolicyChanged, decision)
        );
        assert_eq!(record.request.kind, "AccessPolicy");
    }
    let zone = with(
        policy("one", "true", deny()),
        "/spec/timeZone",
        "Mars/Phobos",
    );
    let answer = webhook(Vec::new())
        .validate(&Attempt::create("sec", &[], zone))
        .await;
    assert_eq!(answer.fields(), ["spec.timeZone"]);
}

#[tokio::test]
async fn changes_and_deletions_of_policies_are_on_record_and_labels_are_free() {
    let webhook = webhook(Vec::new());
    let old = policy("one", "true", deny());
    let labelled = with(old.clone(), "/metadata/labels", json!({ "a": "b" }));
    let answer = webhook
        .validate(&Attempt::update("sec", &old, labelled))
        .await;
    assert_eq!(answer.refusal(), None);
    assert!(webhook.recorded().is_empty());
    let changed = with(old.clone(), "/spec/match", "false");
    let answer = webhook
        .validate(&Attempt::update("sec", &old, changed))
        .await;
    assert_eq!(answer.refusal(), None);
    let record = webhook.recorded().pop().unwrap();
    assert_eq!(
        (record.reason.as_str(), record.details.len()),
        ("Changed", 2)
    );
    let deletion = Attempt {
        operation: "DELETE",
        old: Some(old.clone()),
        object: None,
        ..Attempt::create("sec", &[], old)
    };
    let answer = webhook.review("observe-deletion", &deletion).await;
    assert_eq!(answer.refusal(), None);
    let record = webhook.recorded().pop().unwrap();
    assert_eq!(
        (record.reason.as_str(), record.user.unwrap().user.as_str()),
        ("Deleted", "sec")
    );
}

#[tokio::test]
async fn there_are_no_more_policies_than_are_asked_and_only_the_operator_writes_their_status() {
    let many = (0..64).map(|number| policy(&format!("p{number}"), "false", deny()));
    let full = webhook(many.collect());
    let one_more = Attempt::create("sec", &[], policy("one", "true", deny()));
    let answer = full.validate(&one_more).await;
    assert_eq!(answer.refusal(), Some("TooManyPolicies"));
    let old = policy("p1", "false", deny());
    let changed = with(old.clone(), "/spec/match", "true");
    let answer = full.validate(&Attempt::update("sec", &old, changed)).await;
    assert_eq!(answer.refusal(), None, "one that is there may be changed");
    for (user, refusal) in [("sec", Some("StatusReserved")), (OPERATOR, None)] {
        let status = with(old.clone(), "/status", json!({ "ready": true }));
        let attempt = Attempt::update(user, &old, status).status();
        assert_eq!(full.validate(&attempt).await.refusal(), refusal, "{user}");
    }
}
