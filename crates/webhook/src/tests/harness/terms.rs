//! The change ticket and the emergency of a run: what its template and the access policies require.

use oz_api::harness::HarnessRun;
use oz_core::access::stamp;
use oz_runs::objects::KIND;
use oz_runs::run::spec_digest;
use oz_trail::Decision;
use serde_json::{Value, json};

use super::super::review::{open, value};
use super::super::server::Server;
use super::super::{Attempt, Webhook, keys, registered};
use super::{echo, object};

/// Returns a template with these fields, from which runs inherit nothing.
fn template(fields: &Value) -> Value {
    let mut template = echo("HarnessTemplate");
    for (name, value) in fields.as_object().unwrap() {
        template["spec"][name] = value.clone();
    }
    template
}

/// Returns the creation of a run with these fields by dana, who is on call.
fn submits(fields: &Value) -> Attempt {
    let mut spec = json!({"templateRef": {"name": "echo"}, "prompt": "say hello"});
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    let run = object("HarnessRun", "hello", spec);
    Attempt::create("dana", &["oncall"], run)
}

fn emergency() -> Value {
    let review = json!({"deadline": "24h", "groups": ["security"]});
    json!({"groups": ["oncall"], "maxDuration": "30m", "openReviews": 2, "review": review})
}

#[tokio::test]
async fn ticket_of_run_is_required_as_its_template_and_access_policies_say() {
    let policy = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "AccessPolicy",
        "metadata": {"name": "changes", "uid": "changes"},
        "spec": {
            "match": "request.kind == 'HarnessRun' && request.ticket != 'CHG-0'",
            "then": {"requireTicket": {"pattern": "CHG-.*"}},
        },
    });
    let own = json!({"ticket": {"pattern": "INC-.*"}});
    for (fields, known, run, refusal) in [
        (&own, None, json!({}), Some("TicketRequired")),
        (
            &own,
            None,
            json!({"ticket": "CHG-1"}),
            Some("TicketMismatch"),
        ),
        (&own, None, json!({"ticket": "INC-1"}), None),
        (&own, None, json!({"ticket": "INC 1"}), Some("Invalid")),
        (&json!({}), None, json!({"ticket": "unneeded"}), None),
        (&json!({}), Some(&policy), json!({}), Some("TicketRequired")),
        (&json!({}), Some(&policy), json!({"ticket": "CHG-1"}), None),
        (&json!({}), Some(&policy), json!({"ticket": "CHG-0"}), None),
        (
            &own,
            Some(&policy),
            json!({"ticket": "INC-1"}),
            Some("TicketMismatch"),
        ),
    ] {
        let known = [template(fields)].into_iter().chain(known.cloned());
        let webhook = Webhook::new(Server::with(known.collect::<Vec<_>>()));
        let answer = webhook.create(&submits(&run)).await;
        assert_eq!(answer.refusal(), refusal, "{fields} {run}: {answer:?}");
        let record = webhook.recorded().pop().unwrap();
        let ticket = run["ticket"].as_str();
        assert_eq!(record.details.get("ticket").map(String::as_str), ticket);
    }
}

/// Returns an access policy that denies what matches this expression.
fn denying(expression: &str) -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "AccessPolicy",
        "metadata": {"name": "freeze", "uid": "freeze"},
        "spec": {"match": expression, "then": {"deny": {"message": "the freeze lasts until Monday"}}},
    })
}

#[tokio::test]
async fn access_policies_deny_run_whose_template_they_cannot_see() {
    let names_it = "template.name == 'echo'";
    for (expression, known, refusal) in [
        ("false", Some(template(&json!({}))), None),
        (names_it, Some(template(&json!({}))), Some("PolicyDenied")),
        ("false", None, Some("PolicyFailed")),
        (names_it, None, Some("PolicyFailed")),
    ] {
        let known = known.into_iter().chain([denying(expression)]);
        let webhook = Webhook::new(Server::with(known.collect::<Vec<_>>()));
        let answer = webhook.create(&submits(&json!({}))).await;
        assert_eq!(answer.refusal(), refusal, "{expression}: {answer:?}");
    }
}

/// Returns the digest of the template in the judgement of a new run.
async fn judged_template(template: Value, prompt: &str) -> Option<String> {
    let webhook = Webhook::new(Server::with([template, denying("false")]));
    let object = webhook.stamped(&submits(&json!({"prompt": prompt}))).await;
    let run: HarnessRun = serde_json::from_value(registered(object)).unwrap();
    let stamp = stamp::open(&keys(), KIND, &run.metadata, &spec_digest(&run));
    stamp.unwrap().judgement.unwrap().template
}

#[tokio::test]
async fn judgement_of_run_is_about_its_template() {
    let mut labelled = template(&json!({}));
    labelled["metadata"]["labels"] = json!({"tier": "prod"});
    let plain = judged_template(template(&json!({})), "hello").await;
    assert!(plain.is_some());
    assert_eq!(judged_template(template(&json!({})), "bye").await, plain);
    assert_ne!(judged_template(labelled, "hello").await, plain);
}

#[tokio::test]
async fn emergency_run_is_admitted_for_named_users_with_reason() {
    let fields = json!({"emergency": emergency(), "ticket": {}});
    for (fields, run, refusal) in [
        (&fields, json!({"emergency": true, "reason": "INC-7"}), None),
        (&fields, json!({"emergency": true}), Some("ReasonRequired")),
        (
            &fields,
            json!({"emergency": true, "reason": " "}),
            Some("Invalid"),
        ),
        (
            &fields,
            json!({"emergency": false, "reason": "INC-7"}),
            Some("TicketRequired"),
        ),
        (
            &json!({}),
            json!({"emergency": true, "reason": "INC-7"}),
            Some("EmergencyAccessDisabled"),
        ),
    ] {
        let webhook = Webhook::new(Server::with([template(fields)]));
        let answer = webhook.create(&submits(&run)).await;
        assert_eq!(answer.refusal(), refusal, "{fields} {run}: {answer:?}");
        let record = webhook.recorded().pop().unwrap();
        match refusal {
            None => assert_eq!(record.details["emergency"], "true"),
            Some(_) => assert_eq!(record.decision, Decision::Deny),
        }
        let other = Attempt {
            user: "mallory".into(),
            groups: Vec::new(),
            ..submits(&run)
        };
        assert!(!webhook.create(&other).await.allowed, "{fields} {run}");
    }
}

#[tokio::test]
async fn emergency_run_is_refused_with_too_many_open_reviews() {
    let run = json!({"emergency": true, "reason": "INC-7"});
    for (reviews, refusal) in [
        (vec![open("one")], None),
        (vec![open("one"), open("two")], Some("TooManyOpenReviews")),
    ] {
        let known = reviews.iter().map(value);
        let known = known.chain([template(&json!({"emergency": emergency()}))]);
        let webhook = Webhook::new(Server::with(known.collect::<Vec<_>>()));
        let answer = webhook.create(&submits(&run)).await;
        assert_eq!(answer.refusal(), refusal, "{answer:?}");
    }
}

#[tokio::test]
async fn invalid_terms_of_template_are_refused_with_their_paths() {
    for (fields, expected) in [
        (json!({"ticket": {"pattern": "("}}), "spec.ticket.pattern"),
        (
            json!({"emergency": {"groups": ["oncall"], "review": {}}}),
            "spec.emergency.review",
        ),
    ] {
        let webhook = Webhook::new(Server::default());
        let attempt = Attempt::create("dana", &["oncall"], template(&fields));
        let answer = webhook.validate(&attempt).await;
        assert_eq!(answer.fields(), [expected], "{answer:?}");
    }
}
