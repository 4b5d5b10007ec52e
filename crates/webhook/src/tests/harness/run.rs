//! Runs: they are stamped with their submitters, and the requirements of their templates must be
//! granted.

use serde_json::{Value, json};

use super::super::server::Server;
use super::super::{Attempt, Webhook, owners, registered, with};
use super::{bob, echo, going, object};

fn run() -> Value {
    let spec = json!({"templateRef": {"name": "echo"}, "prompt": "say hello"});
    object("HarnessRun", "hello", spec)
}

fn demanding() -> Value {
    let requires = json!({
        "credentials": [{"name": "API_KEY"}],
        "egress": [{"host": "api.example.com", "ports": [443]}],
    });
    with(echo("HarnessTemplate"), "/spec/requires", requires)
}

fn without<'a>(right: &'static str, templates: impl IntoIterator<Item = &'a Value>) -> Webhook {
    Webhook::new(Server {
        forbids: vec![right],
        templates: templates.into_iter().cloned().collect(),
        ..Server::default()
    })
}

fn discovering(expires: &str) -> Value {
    let discovery = json!({
        "accepted": true, "reason": "to find out what it needs", "expiresAt": expires,
    });
    let spec = json!({
        "appliesToTemplates": ["*"], "grants": {}, "egressDiscovery": discovery,
    });
    object("BrokerPolicy", "discovery", spec)
}

#[tokio::test]
async fn run_is_stamped_with_submitter_and_recorded() {
    let webhook = Webhook::new(Server::with([echo("ClusterHarnessTemplate")]));
    let annotations = json!({
        "crds.wizardofoz.co/requested-by": "root", "crds.wizardofoz.co/requester": "{}",
    });
    let forged = with(run(), "/metadata/annotations", annotations);
    let builder = "system:serviceaccount:shop:builder";
    let attempt = Attempt::create(builder, &[], forged);
    let answer = webhook.create(&attempt).await;
    assert!(answer.allowed, "{answer:?}");
    assert!(answer.warnings.is_empty(), "{answer:?}");
    let recorded = webhook.recorded();
    assert_eq!(recorded.len(), 1);
    assert_eq!(recorded[0].action.to_string(), "RunSubmitted");
    assert_eq!(recorded[0].user.as_ref().unwrap().user, builder);
    assert_eq!(recorded[0].template, "echo");
    assert!(recorded[0].template_digest.is_some());
}

#[tokio::test]
async fn template_that_is_being_deleted_is_missing() {
    let webhook = Webhook::new(Server::with([going(echo("HarnessTemplate"))]));
    let answer = webhook.create(&bob(run())).await;
    assert!(answer.allowed, "{answer:?}");
    let warning = "template echo does not exist; the run waits a minute for it";
    assert_eq!(answer.warnings, [warning]);
}

#[tokio::test]
async fn stamp_of_run_is_neither_forged_copied_nor_changed() {
    let webhook = Webhook::new(Server::with([echo("HarnessTemplate")]));
    // Without a stamp: another webhook removed it, or oz's was not called.
    let answer = webhook.validate(&bob(registered(run()))).await;
    assert!(!answer.allowed);
    // Stamped for another user.
    let alices = registered(webhook.stamped(&Attempt::create("alice", &[], run())).await);
    let answer = webhook.validate(&bob(alices.clone())).await;
    assert_eq!(answer.refusal(), Some("StampOfAnotherRequest"));
    // A prompt that differs from the stamped one.
    let other = with(alices.clone(), "/spec/prompt", "say goodbye");
    let answer = webhook
        .validate(&Attempt::create("alice", &[], other))
        .await;
    assert!(!answer.allowed);
    for key in [
        "crds.wizardofoz.co~1requested-by",
        "crds.wizardofoz.co~1requester",
    ] {
        let changed = with(
            alices.clone(),
            &format!("/metadata/annotations/{key}"),
            "bob",
        );
        let answer = webhook
            .validate(&Attempt::update("bob", &alices, changed))
            .await;
        assert_eq!(answer.refusal(), Some("Immutable"), "{key}");
    }
}

#[tokio::test]
async fn everything_wrong_is_refused_at_once_with_its_path() {
    let webhook = Webhook::new(Server::with([echo("HarnessTemplate")]));
    let spec = json!({
        "templateRef": {"name": "echo"},
        "prompt": "one",
        "promptFrom": {"configMapKeyRef": {"name": "prompts", "key": "other"}},
        "retries": 11,
        "mode": "Interactive",
        "extraEnv": [{"name": "https_proxy", "value": "x"}],
    });
    let answer = webhook
        .create(&bob(object("HarnessRun", "wrong", spec)))
        .await;
    assert_eq!(answer.refusal(), Some("Invalid"));
    assert_eq!(
        answer.fields(),
        ["spec.prompt", "spec.retries", "spec.extraEnv[0].name"]
    );
    assert_eq!(webhook.recorded()[0].decision.to_string(), "Deny");
    // The template is read for a run with valid fields only.
    let interactive = with(run(), "/spec/mode", "Interactive");
    let answer = webhook.create(&bob(interactive)).await;
    assert_eq!(answer.refusal(), Some("Invalid"));
    assert_eq!(answer.fields(), ["spec.mode", "spec.mode"]);
}

#[tokio::test]
async fn locked_user_learns_nothing_about_template_and_policies() {
    let interactive = with(run(), "/spec/mode", "Interactive");
    let lock = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "AccessLock",
        "metadata": {"name": "incident-7", "uid": "l"},
        "spec": {"target": {"user": "bob"}, "reason": "stolen laptop"},
    });
    for known in [vec![lock.clone()], vec![demanding(), lock]] {
        let webhook = Webhook::new(Server::with(known));
        let answer = webhook.create(&bob(interactive.clone())).await;
        assert_eq!(answer.refusal(), Some("Locked"));
        assert!(!answer.status.message.contains("echo"), "{answer:?}");
        assert!(answer.warnings.is_empty(), "{answer:?}");
    }
}

#[tokio::test]
async fn r31_a_prompt_is_read_from_nothing_that_its_submitter_may_not_get() {
    for (right, field, reference) in [
        ("get secrets", "secretKeyRef", "Secret tokens"),
        ("get configmaps", "configMapKeyRef", "ConfigMap tokens"),
    ] {
        let mut object = run();
        object["spec"]["prompt"].take();
        object["spec"].as_object_mut().unwrap().remove("prompt");
        object["spec"]["promptFrom"] = json!({ field: {"name": "tokens", "key": "admin"} });
        let webhook = without(right, &[echo("HarnessTemplate")]);
        let answer = webhook.create(&bob(object.clone())).await;
        assert_eq!(answer.refusal(), Some("MissingPermission"));
        assert_eq!(answer.fields(), [format!("spec.promptFrom.{field}")]);
        assert!(answer.status.message.contains(reference), "{answer:?}");
        let webhook = Webhook::new(Server::with([echo("HarnessTemplate")]));
        let answer = webhook.create(&bob(object)).await;
        assert!(answer.allowed, "{answer:?}");
    }
}

#[tokio::test]
async fn a_shortfall_names_the_gaps_and_the_command_that_scaffolds_a_policy() {
    let webhook = Webhook::new(Server::with([demanding()]));
    let answer = webhook.create(&bob(run())).await;
    assert_eq!(answer.refusal(), Some("NotGranted"));
    let message = &answer.status.message;
    for part in [
        "credential API_KEY",
        "egress to api.example.com:443",
        "ozctl run policy scaffold echo -n shop",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let expired = discovering("2026-01-01T11:00:00Z");
    let webhook = Webhook::new(Server::with([demanding(), expired]));
    let answer = webhook.create(&bob(run())).await;
    assert_eq!(answer.refusal(), Some("DiscoveryExpired"), "{answer:?}");
}

#[tokio::test]
async fn a_template_that_is_not_there_is_waited_for() {
    let webhook = Webhook::new(Server::default());
    let answer = webhook.create(&bob(run())).await;
    assert!(answer.allowed, "{answer:?}");
    assert!(answer.warnings[0].contains("echo does not exist"));
}

#[tokio::test]
async fn r32_nothing_is_written_on_a_dry_run_and_for_metadata() {
    let webhook = Webhook::new(Server::with([echo("HarnessTemplate")]));
    let object = registered(webhook.stamped(&bob(run())).await);
    let answer = webhook.validate(&bob(object.clone()).dry()).await;
    assert!(answer.allowed, "{answer:?}");
    let wrong = with(object.clone(), "/spec/retries", 11);
    assert!(!webhook.validate(&bob(wrong).dry()).await.allowed);
    let labelled = with(object.clone(), "/metadata/labels", json!({"team": "shop"}));
    let answer = webhook
        .validate(&Attempt::update("carol", &object, labelled))
        .await;
    assert!(answer.allowed, "{answer:?}");
    assert!(webhook.recorded().is_empty());
}

#[tokio::test]
async fn spec_of_run_is_immutable_unless_deleted() {
    let webhook = Webhook::new(Server::default());
    let object = registered(webhook.stamped(&bob(run())).await);
    let changed = with(object.clone(), "/spec/prompt", "say goodbye");
    let answer = webhook
        .validate(&Attempt::update("bob", &object, changed.clone()))
        .await;
    assert_eq!(answer.fields(), ["spec"]);
    let owned = with(object.clone(), "/metadata/ownerReferences", owners());
    let answer = webhook
        .validate(&Attempt::update("bob", &object, owned))
        .await;
    assert_eq!(answer.fields(), ["metadata.ownerReferences"]);
    let answer = webhook
        .validate(&Attempt::update("bob", &object, going(changed)))
        .await;
    assert!(answer.allowed, "{answer:?}");
}

#[tokio::test]
async fn the_status_is_the_operators_and_the_brokers() {
    let webhook = Webhook::new(Server::default());
    let object = registered(run());
    for (user, refusal) in [
        ("bob", Some("StatusReserved")),
        ("system:serviceaccount:oz-system:oz-operator", None),
        (super::super::BROKER, None),
        (
            "system:serviceaccount:shop:oz-broker",
            Some("StatusReserved"),
        ),
    ] {
        let attempt = Attempt::update(user, &object, object.clone()).status();
        assert_eq!(
            webhook.validate(&attempt).await.refusal(),
            refusal,
            "{user}"
        );
    }
}

#[tokio::test]
async fn the_last_of_two_thousand_policies_counts_as_the_first() {
    let policy = |number: usize, host: &str| {
        let egress = json!([{"host": host, "ports": [443]}]);
        let spec = json!({"appliesToTemplates": ["e*"], "grants": {"egress": egress}});
        object("BrokerPolicy", &format!("policy-{number:04}"), spec)
    };
    let requires = json!({"egress": [{"host": "last.example.com", "ports": [443]}]});
    let template = with(echo("HarnessTemplate"), "/spec/requires", requires);
    let mut all: Vec<Value> = (0..1_999)
        .map(|number| policy(number, &format!("host-{number}.example.com")))
        .collect();
    let without = Webhook::new(Server::with(all.iter().cloned().chain([template.clone()])));
    let answer = without.create(&bob(run())).await;
    assert_eq!(answer.refusal(), Some("NotGranted"));
    all.push(policy(1_999, "last.example.com"));
    let webhook = Webhook::new(Server::with(all.into_iter().chain([template])));
    let answer = webhook.create(&bob(run())).await;
    assert!(answer.allowed, "{answer:?}");
}

#[tokio::test]
async fn submission_is_refused_while_locked() {
    let template = |name: &str| json!({"template": {"namespace": "shop", "name": name}});
    for (target, refusal) in [
        (json!({"user": "bob"}), Some("Locked")),
        (json!({"group": "devs"}), Some("Locked")),
        (json!({"namespace": "shop"}), Some("Locked")),
        (template("echo"), Some("Locked")),
        (template("parrot"), None),
        (json!({"user": "alice"}), None),
    ] {
        let lock = json!({
            "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "AccessLock",
            "metadata": {"name": "incident-7", "uid": "l"},
            "spec": {"target": target, "reason": "stolen laptop"},
        });
        let webhook = Webhook::new(Server::with([echo("HarnessTemplate"), lock]));
        let answer = webhook.create(&bob(run())).await;
        assert_eq!(answer.refusal(), refusal, "{target}: {answer:?}");
        if refusal.is_some() {
            let record = webhook.recorded().pop().unwrap();
            assert_eq!(record.reason, "Locked");
        }
    }
}
