//! Access policies about transient bindings at admission, and the approvals and denials of bindings
//! that require approval.

use oz_api::{TransientClusterRoleBinding, TransientRoleBinding};
use oz_core::access::policy::Judgement;
use oz_core::transient::Kind;
use oz_trail::{Action, Decision};
use serde_json::{Value, json};

use super::server::Server;
use super::{Attempt, UID, Webhook, keys, registered, with};

fn policy(name: &str, text: &str, then: Value) -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": "AccessPolicy",
        "metadata": { "name": name, "uid": format!("uid-of-{name}") },
        "spec": { "match": text, "then": then },
    })
}

fn security() -> Value {
    json!({ "approval": { "rules": [{ "name": "security", "users": ["carol"] }] } })
}

fn deny() -> Value {
    json!({ "deny": { "message": "the freeze lasts until Monday" } })
}

fn binding(kind: &str) -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": kind,
        "metadata": { "name": "on-call", "namespace": (kind == "TransientRoleBinding").then_some("shop") },
        "spec": {
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
            },
            "subjects": [{ "kind": "Group", "name": "oncall" }],
            "duration": "1h",
        },
    })
}

fn published() -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "TransientRoleBinding",
        "metadata": { "name": "on-call", "namespace": "shop" },
        "validFrom": "2026-01-01T12:00:00Z", "validUntil": "2026-01-01T13:00:00Z",
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
        },
        "subjects": [{ "kind": "User", "name": "alice" }],
    })
}

fn bob(object: Value) -> Attempt {
    Attempt::create("bob", &["leads"], object)
}

fn webhook(known: Vec<Value>) -> Webhook {
    Webhook::new(Server::with(known))
}

fn sealed<K: Kind>(object: &Value) -> Option<Judgement> {
    let object: K = serde_json::from_value(registered(object.clone())).unwrap();
    object.view().stamp(&keys()).unwrap().judgement
}

#[tokio::test]
async fn without_policies_nothing_is_sealed_of_them() {
    let webhook = webhook(Vec::new());
    let object = webhook.stamped(&bob(binding("TransientRoleBinding"))).await;
    assert_eq!(sealed::<TransientRoleBinding>(&object), None);
}

#[tokio::test]
async fn access_policies_see_binding_and_their_judgement_holds() {
    let reason = json!({ "requireReason": true });
    for (text, then, refusal) in [
        (
            "request.kind == 'TransientRoleBinding'",
            deny(),
            Some("PolicyDenied"),
        ),
        ("request.kind == 'ExecAccessRequest'", deny(), None),
        (
            "request.role.kind == 'ClusterRole' && request.role.name == 'view'",
            deny(),
            Some("PolicyDenied"),
        ),
        ("request.role.name == 'edit'", deny(), None),
        (
            "request.subjects.exists(s, s.kind == 'Group' && s.name == 'oncall')",
            deny(),
            Some("PolicyDenied"),
        ),
        (
            "request.duration > duration('30m')",
            deny(),
            Some("PolicyDenied"),
        ),
        ("request.duration > duration('1h')", deny(), None),
        (
            "requester.user == 'bob' && request.namespace == 'shop'",
            deny(),
            Some("PolicyDenied"),
        ),
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
        // The variables of a template are empty; a policy that requires more of it fails, and so
        // denies.
        ("request.template == ''", deny(), Some("PolicyDenied")),
        (
            "template.labels['tier'] == 'prod'",
            deny(),
            Some("PolicyFailed"),
        ),
        ("true", reason, Some("ReasonRequired")),
        ("true", security(), None),
    ] {
        let webhook = webhook(vec![policy("one", text, then)]);
        let answer = webhook.create(&bob(binding("TransientRoleBinding"))).await;
        assert_eq!(answer.refusal(), refusal, "{text}: {answer:?}");
    }
}

#[tokio::test]
async fn requester_is_warned_of_shorter_duration_and_policies_are_recorded() {
    let webhook = webhook(vec![policy(
        "short",
        "true",
        json!({ "maxDuration": "10m" }),
    )]);
    let answer = webhook.create(&bob(binding("TransientRoleBinding"))).await;
    assert_eq!(answer.refusal(), None, "{answer:?}");
    assert!(
        answer.warnings[0].contains("the window will be 10m0s"),
        "{:?}",
        answer.warnings
    );
    let record = webhook.recorded().pop().unwrap();
    assert_eq!(record.action, Action::RequestCreated);
    assert!(
        record.details["policies"].starts_with("short sha256:"),
        "{record:?}"
    );
}

#[tokio::test]
async fn a_published_kind_is_no_way_around_policies() {
    for (then, refusal) in [
        (deny(), Some("PolicyDenied")),
        // It cannot wait for approvals.
        (security(), Some("NotApprovable")),
        // It can name no ticket.
        (json!({ "requireTicket": {} }), Some("CannotNameTicket")),
        (json!({ "maxDuration": "10m" }), None),
    ] {
        let webhook = webhook(vec![policy("one", "true", then)]);
        let answer = webhook.create(&bob(published())).await;
        assert_eq!(answer.refusal(), refusal, "{answer:?}");
    }
}

/// Returns a pending binding of bob, stamped under these policies.
async fn waiting(kind: &str, policies: Vec<Value>) -> Value {
    registered(webhook(policies).stamped(&bob(binding(kind))).await)
}

fn answer_to<K: Kind>(asked: &Value, namespace: &str) -> Value {
    let object: K = serde_json::from_value(asked.clone()).unwrap();
    let view = object.stored().unwrap();
    let stamp = view.stamp(&keys()).unwrap();
    let config = oz_core::access::policy::rules(stamp.judgement.as_ref()).unwrap();
    let asked = view.asked("oz-system", &stamp.requester, &config).unwrap();
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": "AccessRequestApproval",
        "metadata": { "name": "yes", "namespace": namespace },
        "spec": {
            "accessRequestRef": { "kind": view.kind, "name": "on-call", "uid": UID },
            "approval": true,
            "digest": asked.digest,
        },
    })
}

#[tokio::test]
async fn approvers_of_binding_follow_sealed_judgement() {
    let agree = policy("agree", "true", security());
    let asked = waiting("TransientRoleBinding", vec![agree.clone()]).await;
    let good = answer_to::<TransientRoleBinding>(&asked, "shop");
    let other = "0a1b2c3d-0000-4000-8000-00000000000f";
    let over = with(asked.clone(), "/status", json!({ "phase": "Active" }));
    for (known, user, answer, refusal) in [
        (&asked, "carol", good.clone(), None),
        (
            &asked,
            "carol",
            with(good.clone(), "/spec/approval", false),
            None,
        ),
        (&asked, "bob", good.clone(), Some("SelfApproval")),
        (&asked, "erin", good.clone(), Some("NotAnApprover")),
        (
            &asked,
            "carol",
            with(good.clone(), "/spec/digest", "sha256:0"),
            Some("RequestChanged"),
        ),
        (
            &asked,
            "carol",
            with(good.clone(), "/spec/accessRequestRef/uid", other),
            Some("RequestReplaced"),
        ),
        (
            &asked,
            "carol",
            with(good.clone(), "/spec/accessRequestRef/name", "other"),
            Some("RequestMissing"),
        ),
        (&over, "carol", good.clone(), Some("NotPending")),
    ] {
        let webhook = webhook(vec![known.clone(), agree.clone()]);
        let given = webhook.create(&Attempt::create(user, &[], answer)).await;
        assert_eq!(given.refusal(), refusal, "{user}: {given:?}");
        let record = webhook.recorded().pop().unwrap();
        match refusal {
            None => assert_eq!(record.details["rules"], "agree/security"),
            Some(reason) => {
                assert_eq!(
                    (record.action, record.decision),
                    (Action::ApprovalRefused, Decision::Deny)
                );
                assert_eq!(record.reason, reason);
            }
        }
    }
}

#[tokio::test]
async fn bound_user_may_not_approve_binding() {
    let agree = policy("agree", "true", security());
    for (subject, refusal) in [
        (
            json!({ "kind": "User", "name": "carol" }),
            Some("SelfApproval"),
        ),
        (json!({ "kind": "User", "name": "dave" }), None),
        (json!({ "kind": "Group", "name": "carol" }), None),
    ] {
        let object = binding("TransientRoleBinding");
        let object = with(object, "/spec/subjects", json!([subject]));
        let stamped = webhook(vec![agree.clone()]).stamped(&bob(object)).await;
        let asked = registered(stamped);
        let good = answer_to::<TransientRoleBinding>(&asked, "shop");
        let webhook = webhook(vec![asked, agree.clone()]);
        for approval in [true, false] {
            let answer = with(good.clone(), "/spec/approval", approval);
            let given = webhook.create(&Attempt::create("carol", &[], answer)).await;
            assert_eq!(given.refusal(), refusal, "{subject}: {given:?}");
        }
    }
}

#[tokio::test]
async fn approval_of_binding_without_rules_is_refused() {
    let agree = policy("agree", "true", security());
    let asked = waiting("TransientRoleBinding", vec![agree]).await;
    let good = answer_to::<TransientRoleBinding>(&asked, "shop");
    let free = waiting("TransientRoleBinding", Vec::new()).await;
    let webhook = webhook(vec![free]);
    let given = webhook.create(&Attempt::create("carol", &[], good)).await;
    assert_eq!(given.refusal(), Some("ApprovalNotRequired"), "{given:?}");
}

#[tokio::test]
async fn stricter_policies_void_approval_and_deleted_policy_does_not() {
    let agree = policy("agree", "true", security());
    let asked = waiting("TransientRoleBinding", vec![agree.clone()]).await;
    let good = answer_to::<TransientRoleBinding>(&asked, "shop");
    let longest = policy("long", "true", json!({ "maxDuration": "10m" }));
    for (policies, refusal) in [
        (vec![agree.clone()], None),
        (vec![], None),
        (
            vec![agree.clone(), policy("freeze", "true", deny())],
            Some("PoliciesStricter"),
        ),
        (vec![agree.clone(), longest], Some("PoliciesStricter")),
        (
            vec![policy("broken", "1 / 0 == 1", deny())],
            Some("PoliciesStricter"),
        ),
    ] {
        let webhook = webhook([vec![asked.clone()], policies.clone()].concat());
        let given = webhook
            .create(&Attempt::create("carol", &[], good.clone()))
            .await;
        assert_eq!(given.refusal(), refusal, "{policies:?}: {given:?}");
        let no = with(good.clone(), "/spec/approval", false);
        let given = webhook.create(&Attempt::create("carol", &[], no)).await;
        assert_eq!(given.refusal(), None, "{policies:?}: {given:?}");
    }
}

#[tokio::test]
async fn cluster_binding_is_approved_in_namespace_of_oz_only() {
    let agree = policy("agree", "true", security());
    let whole = waiting("TransientClusterRoleBinding", vec![agree.clone()]).await;
    let of_shop = waiting("TransientRoleBinding", vec![agree.clone()]).await;
    let whole_in = |namespace| answer_to::<TransientClusterRoleBinding>(&whole, namespace);
    let shop_in = |namespace| answer_to::<TransientRoleBinding>(&of_shop, namespace);
    for (answer, refusal) in [
        (whole_in("oz-system"), None),
        (whole_in("shop"), Some("NotInOzNamespace")),
        (shop_in("shop"), None),
        (shop_in("oz-system"), Some("ReservedNamespace")),
    ] {
        let webhook = webhook(vec![whole.clone(), of_shop.clone(), agree.clone()]);
        let given = webhook.create(&Attempt::create("carol", &[], answer)).await;
        assert_eq!(given.refusal(), refusal, "{given:?}");
        if refusal.is_none() {
            let record = webhook.recorded().pop().unwrap();
            let place = record.request.namespace.as_str();
            let is_whole = record.request.kind == "TransientClusterRoleBinding";
            assert_eq!(place, if is_whole { "" } else { "shop" });
        }
    }
}

#[tokio::test]
async fn locked_user_may_not_approve() {
    let agree = policy("agree", "true", security());
    let asked = waiting("TransientRoleBinding", vec![agree.clone()]).await;
    let good = answer_to::<TransientRoleBinding>(&asked, "shop");
    for (target, refusal) in [
        (json!({ "user": "carol" }), Some("Locked")),
        (json!({ "group": "security" }), Some("Locked")),
        (json!({ "user": "dave" }), None),
    ] {
        let lock = json!({
            "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "AccessLock",
            "metadata": { "name": "incident-7", "uid": "l" },
            "spec": { "target": target, "reason": "stolen laptop" },
        });
        let webhook = webhook(vec![asked.clone(), agree.clone(), lock]);
        let attempt = Attempt::create("carol", &["security"], good.clone());
        let given = webhook.create(&attempt).await;
        assert_eq!(given.refusal(), refusal, "{target}: {given:?}");
    }
}

#[tokio::test]
async fn cluster_binding_is_not_approved_while_namespace_of_oz_is_locked() {
    let agree = policy("agree", "true", security());
    let asked = waiting("TransientClusterRoleBinding", vec![agree.clone()]).await;
    let good = answer_to::<TransientClusterRoleBinding>(&asked, "oz-system");
    for (namespace, refusal) in [("oz-system", Some("Locked")), ("shop", None)] {
        let lock = json!({
            "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "AccessLock",
            "metadata": { "name": "incident-7", "uid": "l" },
            "spec": { "target": { "namespace": namespace }, "reason": "freeze" },
        });
        let webhook = webhook(vec![asked.clone(), agree.clone(), lock]);
        let attempt = Attempt::create("carol", &["security"], good.clone());
        let given = webhook.create(&attempt).await;
        assert_eq!(given.refusal(), refusal, "{namespace}: {given:?}");
    }
}

/// Returns the terms for emergencies of these groups.
fn terms(groups: &[&str], open_reviews: i32) -> Value {
    json!({
        "groups": groups, "maxDuration": "10m", "openReviews": open_reviews,
        "review": { "deadline": "24h", "groups": ["security"] },
    })
}

#[tokio::test]
async fn policies_read_ticket_of_binding_and_require_it() {
    let ticket = json!({ "requireTicket": { "pattern": "INC-[0-9]+" } });
    for (text, then, named, refusal) in [
        ("true", ticket.clone(), None, Some("TicketRequired")),
        (
            "true",
            ticket.clone(),
            Some("CHG-1"),
            Some("TicketMismatch"),
        ),
        ("true", ticket.clone(), Some("INC-42"), None),
        (
            "request.ticket == 'INC-42'",
            deny(),
            Some("INC-42"),
            Some("PolicyDenied"),
        ),
        ("request.ticket == 'INC-42'", deny(), None, None),
    ] {
        let webhook = webhook(vec![policy("one", text, then)]);
        let asked = match named {
            Some(named) => with(binding("TransientRoleBinding"), "/spec/ticket", named),
            None => binding("TransientRoleBinding"),
        };
        let answer = webhook.create(&bob(asked)).await;
        assert_eq!(answer.refusal(), refusal, "{text} {named:?}: {answer:?}");
        let record = webhook.recorded().pop().unwrap();
        let expected = named.map(ToOwned::to_owned);
        assert_eq!(record.details.get("ticket").cloned(), expected);
    }
}

/// Returns the emergency of bob.
fn emergency() -> Value {
    let asked = with(binding("TransientRoleBinding"), "/spec/emergency", true);
    let asked = with(asked, "/spec/reason", "it burns");
    let subjects = json!([{
        "kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io",
    }]);
    with(asked, "/spec/subjects", subjects)
}

#[tokio::test]
async fn emergency_of_binding_requires_terms_of_every_policy_that_requires_approval_or_ticket() {
    let permits = || json!({ "emergency": terms(&["leads"], 2) });
    let guarded = || {
        let mut then = security();
        then["emergency"] = terms(&["leads"], 2);
        then
    };
    let other = json!({ "emergency": terms(&["oncall"], 2) });
    let full = json!({ "emergency": terms(&["leads"], 1) });
    for (policies, refusal) in [
        (vec![], Some("EmergencyAccessDisabled")),
        (vec![security()], Some("EmergencyAccessDisabled")),
        (vec![permits()], None),
        (vec![guarded()], None),
        (vec![guarded(), full], None),
        (vec![permits(), security()], Some("EmergencyAccessDisabled")),
        (
            vec![permits(), json!({ "requireTicket": {} })],
            Some("EmergencyAccessDisabled"),
        ),
        (vec![permits(), other], Some("EmergencyNotAllowed")),
        (vec![permits(), deny()], Some("PolicyDenied")),
    ] {
        let numbered = policies.iter().enumerate();
        let named = numbered.map(|(at, then)| policy(&format!("p{at}"), "true", then.clone()));
        let webhook = webhook(named.collect());
        let answer = webhook.create(&bob(emergency())).await;
        assert_eq!(answer.refusal(), refusal, "{policies:?}: {answer:?}");
        let record = webhook.recorded().pop().unwrap();
        assert_eq!(record.details["emergency"], "true", "{policies:?}");
        if refusal.is_none() {
            let warnings = &answer.warnings;
            assert!(
                warnings[0].contains("the window will be 10m0s"),
                "{warnings:?}"
            );
        }
    }
}

#[tokio::test]
async fn approval_of_emergency_is_refused_as_it_requires_none() {
    let mut then = security();
    then["emergency"] = terms(&["leads"], 2);
    let guarded = policy("guarded", "true", then);
    let asked = waiting("TransientRoleBinding", vec![guarded.clone()]).await;
    let yes = answer_to::<TransientRoleBinding>(&asked, "shop");
    let declared = webhook(vec![guarded.clone()])
        .stamped(&bob(emergency()))
        .await;
    let webhook = webhook(vec![registered(declared), guarded]);
    let answer = webhook.create(&Attempt::create("carol", &[], yes)).await;
    assert_eq!(answer.refusal(), Some("ApprovalNotRequired"), "{answer:?}");
}
