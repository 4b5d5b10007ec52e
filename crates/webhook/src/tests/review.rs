//! Emergencies at admission, and their reviews: the reviewer writes a finding once, and users
//! neither create nor delete reviews.

#![allow(
    clippy::too_many_lines,
    clippy::type_complexity,
    reason = "tables whose rows the formatter spreads over many lines"
)]

use jiff::{SignedDuration, Timestamp};
use oz_api::{
    AccessRequestReference, AccessReview, AccessReviewSpec, Attestation, Finding, Removal,
    Requester, Reviewed, Reviewers, labels,
};
use oz_core::access::emergency::finding;
use oz_core::access::emergency::review::{self, ReviewState};
use oz_trail::{Action, Decision};
use serde_json::{Value, json};

use super::server::Server;
use super::{
    Attempt, OPERATOR, Records, Webhook, exec_template, keys, now, pod_template, request, with,
};

/// Returns a template that grants emergency access to the on-call group, with reviews by security.
fn template(mut template: Value) -> Value {
    template["spec"]["accessConfig"]["emergency"] = json!({
        "groups": ["oncall"], "maxDuration": "30m", "openReviews": 2,
        "review": { "deadline": "24h", "groups": ["security"] },
    });
    template
}

fn person(user: &str, uid: &str) -> Requester {
    Requester {
        user: user.into(),
        uid: uid.into(),
        groups: Vec::new(),
    }
}

/// Returns an open review for dana's access, as the operator creates it.
pub(super) fn open(name: &str) -> AccessReview {
    let spec = AccessReviewSpec {
        access_request_ref: Some(AccessRequestReference {
            name: name.into(),
            uid: format!("uid-of-{name}"),
            ..AccessRequestReference::default()
        }),
        requester: Reviewed {
            user: "dana".into(),
            uid: "u-dana".into(),
        },
        template: "shell".into(),
        emergency: "INC-42".into(),
        due_at: now() + SignedDuration::from_hours(24),
        reviewers: Reviewers {
            groups: vec!["security".into(), "system:serviceaccounts".into()],
            users: vec!["frank".into()],
        },
        ..AccessReviewSpec::default()
    };
    let mut review = AccessReview::new(name, spec);
    review.metadata.namespace = Some("shop".into());
    review.metadata.uid = Some(format!("review-{name}"));
    review::put_seal(&keys(), &mut review, ReviewState::default()).unwrap();
    review
}

fn written(name: &str, at: Timestamp) -> AccessReview {
    let mut review = open(name);
    review.spec.finding = Some(Finding::Justified);
    review.spec.reason = Some("seen".into());
    let standing = ReviewState {
        by: Some(person("erin", "")),
        at: Some(at),
    };
    review::put_seal(&keys(), &mut review, standing).unwrap();
    review
}

pub(super) fn value(review: &AccessReview) -> Value {
    serde_json::to_value(review).unwrap()
}

fn emergency(kind: &str) -> Value {
    let object = with(request(kind, "shell"), "/spec/emergency", true);
    with(object, "/spec/reason", "INC-42")
}

/// The requester, the groups, the changes, and the reason of the denial.
type Row = (
    &'static str,
    &'static [&'static str],
    &'static str,
    Value,
    Option<&'static str>,
);

fn asking() -> Vec<Row> {
    let oncall = &["oncall"][..];
    vec![
        ("dana", oncall, "/spec/emergency", true.into(), None),
        (
            "dana",
            &["devs"],
            "/spec/emergency",
            true.into(),
            Some("EmergencyNotAllowed"),
        ),
        (
            "mallory",
            &[],
            "/spec/emergency",
            true.into(),
            Some("EmergencyNotAllowed"),
        ),
        (
            "dana",
            oncall,
            "/spec/emergency",
            false.into(),
            Some("NotAllowed"),
        ),
        (
            "dana",
            oncall,
            "/spec/reason",
            "".into(),
            Some("ReasonRequired"),
        ),
        ("dana", oncall, "/spec/reason", "  ".into(), Some("Invalid")),
        (
            "dana",
            oncall,
            "/spec/reason",
            "\u{202e}x".into(),
            Some("Invalid"),
        ),
        (
            "dana",
            oncall,
            "/spec/reason",
            "x".repeat(2000).into(),
            Some("Invalid"),
        ),
        (
            "dana",
            oncall,
            "/spec/templateName",
            "other".into(),
            Some("EmergencyAccessDisabled"),
        ),
    ]
}

#[tokio::test]
async fn emergency_is_admitted_for_named_users_and_refusal_names_next_step() {
    for kind in ["ExecAccessRequest", "PodAccessRequest"] {
        let plain = |name| match kind {
            "ExecAccessRequest" => exec_template(name),
            _ => pod_template(name),
        };
        for (user, groups, pointer, new, refusal) in asking() {
            let known = [template(plain("shell")), plain("other")];
            let webhook = Webhook::new(Server::with(known));
            let object = with(emergency(kind), pointer, new.clone());
            let answer = webhook.create(&Attempt::create(user, groups, object)).await;
            assert_eq!(
                answer.refusal(),
                refusal,
                "{user} {pointer} {new}: {answer:?}"
            );
            if refusal.is_some() {
                assert!(answer.status.message.contains(';') || refusal == Some("Invalid"));
            } else {
                let record = webhook.recorded().pop().unwrap();
                assert_eq!(record.details["emergency"], "true");
            }
        }
    }
}

#[tokio::test]
async fn emergency_is_refused_with_too_many_open_reviews() {
    let past = now() - SignedDuration::from_mins(5);
    let mut forged = open("four");
    forged.spec.access_request_ref.as_mut().unwrap().uid = "uid".into();
    for (reviews, refusal) in [
        (vec![open("one")], None),
        (vec![open("one"), written("two", past)], None),
        (vec![open("one"), forged], None),
        (vec![open("one"), open("two")], Some("TooManyOpenReviews")),
        (
            vec![open("one"), open("two"), written("three", past)],
            Some("TooManyOpenReviews"),
        ),
    ] {
        let known = reviews
            .iter()
            .map(value)
            .chain([template(exec_template("shell"))]);
        let webhook = Webhook::new(Server::with(known.collect::<Vec<_>>()));
        let ask = Attempt::create("dana", &["oncall"], emergency("ExecAccessRequest"));
        let answer = webhook.create(&ask).await;
        assert_eq!(answer.refusal(), refusal, "{answer:?}");
        // The reviews of one user do not count for others.
        let other = Attempt::create("oscar", &["oncall"], emergency("ExecAccessRequest"));
        assert_eq!(webhook.create(&other).await.refusal(), None);
    }
}

/// Handles a change as the API server does: calls the sealing hook and the validating hook.
async fn changed(
    webhook: &Webhook,
    user: &str,
    groups: &[&str],
    old: &Value,
    new: Value,
) -> (super::Answer, Value) {
    let attempt = Attempt {
        groups: groups.iter().map(ToString::to_string).collect(),
        ..Attempt::update(user, old, new)
    };
    let object = webhook.stamped(&attempt).await;
    let attempt = Attempt {
        object: Some(object.clone()),
        ..attempt
    };
    (webhook.validate(&attempt).await, object)
}

/// Returns the reviewers, the groups, the changes to a valid finding, and the reasons of the
/// denials.
fn writing() -> Vec<Row> {
    let security = &["security"][..];
    vec![
        ("erin", security, "/spec/finding", "FollowUp".into(), None),
        ("frank", &[], "/spec/finding", "Unjustified".into(), None),
        (
            "dana",
            security,
            "/spec/finding",
            "Justified".into(),
            Some("SelfReview"),
        ),
        (
            "mallory",
            &["devs"],
            "/spec/finding",
            "Justified".into(),
            Some("NotAReviewer"),
        ),
        (
            "root",
            &["system:masters"],
            "/spec/finding",
            "Justified".into(),
            Some("NotAReviewer"),
        ),
        (
            "system:serviceaccount:ci:bot",
            &["system:serviceaccounts"],
            "/spec/finding",
            "Justified".into(),
            Some("NotAReviewer"),
        ),
        (
            "erin",
            security,
            "/spec/reason",
            "  ".into(),
            Some("Invalid"),
        ),
        (
            "erin",
            security,
            "/spec/reason",
            "\u{2067}x".into(),
            Some("Invalid"),
        ),
        (
            "erin",
            security,
            "/spec/reason",
            "x".repeat(1 << 20).into(),
            Some("Invalid"),
        ),
        (
            "erin",
            security,
            "/spec/dueAt",
            "2126-01-01T00:00:00Z".into(),
            Some("Immutable"),
        ),
        (
            "erin",
            security,
            "/spec/requester/user",
            "oscar".into(),
            Some("Immutable"),
        ),
        (
            "erin",
            security,
            "/spec/reviewers/users",
            json!(["erin"]),
            Some("Immutable"),
        ),
        (
            "erin",
            security,
            "/metadata/ownerReferences",
            json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u" }]),
            Some("Immutable"),
        ),
    ]
}

/// Checks that no user can write a second finding.
async fn assert_finding_is_final(webhook: &Webhook, object: &Value) {
    let with_finding = |finding: Value, reason: Value| {
        let again = with(object.clone(), "/spec/reason", reason);
        with(again, "/spec/finding", finding)
    };
    for (finding, reason) in [
        ("Justified".into(), "on second thoughts".into()),
        ("Unjustified".into(), "on second thoughts".into()),
        ("FollowUp".into(), "on second thoughts".into()),
        (Value::Null, Value::Null),
    ] {
        let new = with_finding(finding, reason);
        let (answer, _) = changed(webhook, "frank", &[], object, new).await;
        assert_eq!(answer.refusal(), Some("AlreadyReviewed"), "{answer:?}");
    }
}

#[tokio::test]
async fn finding_of_reviewer_is_accepted_once_and_sealed() {
    let found = |pointer: &str, new: Value| {
        let object = with(value(&open("one")), "/spec/finding", "Justified");
        with(with(object, "/spec/reason", "seen"), pointer, new)
    };
    let old = value(&open("one"));
    for (user, groups, pointer, new, refusal) in writing() {
        let webhook = Webhook::new(Server::with(Vec::new()));
        let object = found(pointer, new.clone());
        let (answer, object) = changed(&webhook, user, groups, &old, object).await;
        let shown: String = new.to_string().chars().take(30).collect();
        assert_eq!(answer.refusal(), refusal, "{user} {pointer} {shown}");
        let record = webhook.recorded().pop().unwrap();
        let action = match refusal {
            None => Action::ReviewGiven,
            Some(_) => Action::ReviewRefused,
        };
        assert_eq!(record.action, action, "{user} {pointer}");
        assert!(action.decisions().contains(&record.decision));
        if refusal.is_some() {
            continue;
        }
        assert_eq!(
            object["metadata"]["annotations"][labels::REVIEWED_BY],
            *user
        );
        let stored: AccessReview = serde_json::from_value(object.clone()).unwrap();
        let standing = review::read(&keys(), &stored).unwrap();
        assert_eq!(standing.by.map(|by| by.user).as_deref(), Some(user));
        assert_eq!(standing.at, Some(now()));
        assert_finding_is_final(&webhook, &object).await;
    }
}

#[tokio::test]
async fn audit_record_proves_a_finding_in_the_reviewed_namespace() {
    for (place, reviewed, expected) in [("shop", None, "shop"), ("oz-system", Some("shop"), "shop")]
    {
        let mut open = open("one");
        open.metadata.namespace = Some(place.into());
        open.spec.reviewed_namespace = reviewed.map(str::to_owned);
        review::put_seal(&keys(), &mut open, ReviewState::default()).unwrap();
        let old = value(&open);
        let object = with(old.clone(), "/spec/finding", "Justified");
        let object = with(object, "/spec/reason", "seen");
        let webhook = Webhook::new(Server::with(Vec::new()));
        let (answer, _) = changed(&webhook, "erin", &["security"], &old, object).await;
        assert_eq!(answer.refusal(), None, "{place}: {answer:?}");
        let record = webhook.recorded().pop().unwrap();
        let found = finding::on_record(&keys(), &record).unwrap();
        assert_eq!(
            (found.namespace, found.review, found.uid),
            (expected, "one", "uid-of-one"),
            "{place}"
        );
    }
}

#[tokio::test]
async fn seal_and_labels_of_review_are_immutable() {
    let old = value(&open("one"));
    let seal = format!(
        "/metadata/annotations/{}",
        labels::REVIEW.replace('/', "~1")
    );
    let by = format!(
        "/metadata/annotations/{}",
        labels::REVIEWED_BY.replace('/', "~1")
    );
    let label = format!(
        "/metadata/labels/{}",
        labels::REQUEST_UID.replace('/', "~1")
    );
    let other = value(&written("one", now()))["metadata"]["annotations"][labels::REVIEW].clone();
    for (pointer, new, refusal) in [
        (seal.as_str(), other, Some("Immutable")),
        (&seal, "".into(), Some("Immutable")),
        (&by, "erin".into(), Some("Immutable")),
        (&label, "other".into(), Some("Immutable")),
        ("/metadata/labels/team", "blue".into(), None),
    ] {
        let webhook = Webhook::new(Server::with(Vec::new()));
        let object = with(old.clone(), pointer, new);
        let (answer, _) = changed(&webhook, "erin", &["security"], &old, object).await;
        assert_eq!(answer.refusal(), refusal, "{pointer}: {answer:?}");
    }
}

#[tokio::test]
async fn a_seal_that_was_copied_makes_no_review() {
    let one = open("one");
    let mut copied = open("two");
    copied.metadata.annotations = one.metadata.annotations;
    let old = value(&copied);
    let webhook = Webhook::new(Server::with(Vec::new()));
    let object = with(old.clone(), "/spec/finding", "Justified");
    let object = with(object, "/spec/reason", "seen");
    let (answer, _) = changed(&webhook, "frank", &[], &old, object).await;
    assert_eq!(answer.refusal(), Some("ReviewForged"), "{answer:?}");
}

#[tokio::test]
async fn users_may_not_create_or_delete_reviews() {
    for (user, groups) in [
        ("erin", &["security"][..]),
        ("dana", &["oncall"]),
        ("root", &["system:masters"]),
    ] {
        let webhook = Webhook::new(Server::with(Vec::new()));
        let create = Attempt::create(user, groups, value(&open("one")));
        let answer = webhook.validate(&create).await;
        assert_eq!(answer.refusal(), Some("ReviewReserved"), "{user}");
        for review in [open("one"), written("one", now())] {
            let delete = Attempt {
                operation: "DELETE",
                object: None,
                old: Some(value(&review)),
                ..Attempt::create(user, groups, value(&review))
            };
            let answer = webhook.validate(&delete).await;
            assert_eq!(answer.refusal(), Some("ReviewRetained"), "{user}");
        }
        let records = webhook.recorded();
        let refused = (Action::ReviewRefused, Decision::Deny);
        assert!(
            records.iter().all(|it| (it.action, it.decision) == refused),
            "{records:?}"
        );
        let ids: std::collections::BTreeSet<_> = records.iter().map(|it| &it.id).collect();
        assert!(!ids.is_empty());
    }
}

/// Returns an attestation as ozctl creates it.
fn attestation() -> Value {
    let spec = AccessReviewSpec {
        attestation: Some(Attestation {
            entitlements: oz_api::encode::digest(&1),
            file: oz_api::encode::digest(&2),
            kept: 40,
            removed: 1,
            gaps: 2,
            removals: vec![Removal {
                entitlement: "Standing: User mallory".into(),
                rationale: "left".into(),
            }],
        }),
        ..AccessReviewSpec::default()
    };
    let mut review = AccessReview::new("attestation-1", spec);
    review.metadata.namespace = Some("oz-system".into());
    value(&review)
}

/// Returns the attesting users, the changes to a valid attestation, and the reasons of the denials.
fn attesting() -> Vec<(&'static str, &'static str, Value, Option<&'static str>)> {
    let text = |text: &str| Value::from(text);
    let removal = |why: &str| json!([{ "entitlement": "Standing", "rationale": why }]);
    let mine = "/metadata/labels/team";
    let owners = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u" }]);
    vec![
        ("erin", mine, text("blue"), None),
        ("root", mine, text("blue"), None),
        (
            "system:serviceaccount:ci:bot",
            mine,
            text("blue"),
            Some("AttestedByAccount"),
        ),
        (
            "erin",
            "/spec/attestation/file",
            text("sha256:1"),
            Some("Invalid"),
        ),
        (
            "erin",
            "/spec/attestation/removed",
            2.into(),
            Some("Invalid"),
        ),
        (
            "erin",
            "/spec/attestation/removals",
            removal("\u{202e}tfel"),
            Some("Invalid"),
        ),
        (
            "erin",
            "/spec/attestation/removals",
            removal(&"x".repeat(1 << 20)),
            Some("Invalid"),
        ),
        ("erin", "/spec/finding", text("Justified"), Some("Invalid")),
        (
            "erin",
            "/spec/reviewers",
            json!({ "users": ["erin"] }),
            Some("Invalid"),
        ),
        (
            "erin",
            "/metadata/ownerReferences",
            owners,
            Some("Immutable"),
        ),
    ]
}

#[tokio::test]
async fn attestation_is_recorded_under_its_author_and_immutable() {
    for (user, pointer, new, refusal) in attesting() {
        let webhook = Webhook::new(Server::with(Vec::new()));
        let attempt = Attempt::create(user, &[], with(attestation(), pointer, new));
        let object = webhook.stamped(&attempt).await;
        let attempt = Attempt {
            object: Some(object.clone()),
            ..attempt
        };
        let answer = webhook.validate(&attempt).await;
        assert_eq!(answer.refusal(), refusal, "{user} {pointer}: {answer:?}");
        let record = webhook.recorded().pop().unwrap();
        if refusal.is_some() {
            assert_eq!(record.action, Action::ReviewRefused, "{user} {pointer}");
            continue;
        }
        assert_eq!(record.action, Action::EntitlementsAttested);
        assert_eq!(record.user.map(|by| by.user).as_deref(), Some(user));
        assert_eq!(
            (&*record.details["kept"], &*record.details["removed"]),
            ("40", "1")
        );
        assert_eq!(record.request.name, "attestation-1");
        let stored: AccessReview = serde_json::from_value(object.clone()).unwrap();
        let standing = review::read(&keys(), &stored).unwrap();
        assert_eq!(standing.by.map(|by| by.user).as_deref(), Some(user));
        for (pointer, new) in [
            ("/spec/attestation/kept", Value::from(41)),
            ("/spec/finding", Value::from("Justified")),
        ] {
            let changed_object = with(object.clone(), pointer, new);
            let (answer, _) = changed(&webhook, "frank", &[], &object, changed_object).await;
            assert!(answer.refusal().is_some(), "{pointer}");
        }
        let delete = Attempt {
            operation: "DELETE",
            object: None,
            old: Some(object.clone()),
            ..Attempt::create(user, &[], object)
        };
        assert_eq!(
            webhook.validate(&delete).await.refusal(),
            Some("ReviewRetained")
        );
    }
}

#[tokio::test]
async fn attestation_that_api_server_names_is_denied_and_recorded() {
    let webhook = Webhook::new(Server::with(Vec::new()));
    let mut object = attestation();
    object["metadata"]["name"] = Value::Null;
    object["metadata"]["generateName"] = "q3-".into();
    let attempt = Attempt::create("erin", &[], object);
    let mut object = webhook.stamped(&attempt).await;
    object["metadata"]["name"] = "q3-x7k2p".into();
    let attempt = Attempt {
        object: Some(object),
        ..attempt
    };
    let answer = webhook.validate(&attempt).await;
    assert!(answer.refusal().is_some(), "{answer:?}");
    let record = webhook.recorded().pop().unwrap();
    assert_eq!(record.action, Action::ReviewRefused);
}

#[tokio::test]
async fn an_attestation_is_not_made_with_the_seal_of_another() {
    let webhook = Webhook::new(Server::with(Vec::new()));
    let sealed = webhook
        .stamped(&Attempt::create("erin", &[], attestation()))
        .await;
    // Without the sealing hook.
    for (user, object) in [
        ("mallory", sealed.clone()),
        (
            "erin",
            with(sealed.clone(), "/metadata/name", "attestation-2"),
        ),
        ("erin", with(sealed, "/spec/attestation/kept", 41)),
        ("erin", attestation()),
    ] {
        let answer = webhook.validate(&Attempt::create(user, &[], object)).await;
        assert_eq!(answer.refusal(), Some("ReviewForged"), "{user}: {answer:?}");
    }
}

#[tokio::test]
async fn the_status_of_a_review_is_the_operators() {
    let old = value(&open("one"));
    let new = with(old.clone(), "/status/conditions", json!([]));
    let webhook = Webhook::new(Server::with(Vec::new()));
    for (user, refusal) in [("root", Some("StatusReserved")), (OPERATOR, None)] {
        let attempt = Attempt::update(user, &old, new.clone()).status();
        assert_eq!(
            webhook.validate(&attempt).await.refusal(),
            refusal,
            "{user}"
        );
    }
}

#[tokio::test]
async fn finding_without_audit_record_is_refused() {
    let records = Records {
        broken: true,
        ..Records::default()
    };
    let webhook = Webhook::recording(Server::with(Vec::new()), records);
    let old = value(&open("one"));
    let object = with(old.clone(), "/spec/finding", "Justified");
    let object = with(object, "/spec/reason", "seen");
    let (answer, _) = changed(&webhook, "frank", &[], &old, object).await;
    assert_eq!(answer.refusal(), Some("RecordFailed"), "{answer:?}");
}
