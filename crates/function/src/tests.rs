use std::time::Duration;

use oz_core::controller::FailureClass;
use serde_json::json;

use super::*;

const NOW: &str = "2026-01-31T12:00:00Z";

fn function(modules: Modules, change: impl FnOnce(&mut InProcess)) -> InProcess {
    let mut function = InProcess {
        modules,
        path: "controller".to_owned(),
        language: None,
        strict: false,
        evaluation: None,
    };
    change(&mut function);
    function
}

fn inline(text: &str, change: impl FnOnce(&mut InProcess)) -> (InProcess, Result<Policy, Failure>) {
    let function = function(Modules::Inline(text.to_owned()), change);
    let modules = [(function.modules.to_string(), text.to_owned())];
    let policy = compile("spec.policy.inline", &modules, dialect(&function));
    (function, policy)
}

#[test]
fn the_language_that_is_named_is_the_one_that_counts() {
    let old = "package controller\n\nchildren[child] { child := {} }\n";
    let (function, policy) = inline(old, |_| {});
    assert_eq!(found(&function, &policy.unwrap()).language, "v0");
    let (_, policy) = inline(old, |one| one.language = Some(rego::Language::V1));
    let failure = policy.unwrap_err();
    assert_eq!(failure.reason, "PolicyInvalid");
    assert!(
        failure.message.contains("spec.policy.inline:3"),
        "{}",
        failure.message
    );
}

#[test]
fn a_digest_is_of_all_that_decides_what_a_policy_says() {
    let text = "package controller\n\nchildren := []\n";
    let digest = |modules: Modules, change: fn(&mut InProcess)| {
        let (_, policy) = inline(text, |_| {});
        found(&function(modules, change), &policy.unwrap()).digest
    };
    let here = || Modules::Inline(text.to_owned());
    let plain = digest(here(), |_| {});
    assert_ne!(plain, digest(here(), |one| one.strict = true));
    assert_ne!(plain, digest(here(), |one| one.path = "other".to_owned()));
    // A time limit does not change a response; the text alone identifies a bundle.
    assert_eq!(
        plain,
        digest(here(), |one| one.evaluation = Some(Duration::from_secs(1)))
    );
    let bundle = || Modules::Bundle("policies".to_owned());
    assert_eq!(
        digest(bundle(), |_| {}),
        digest(bundle(), |one| one.path = "other".to_owned())
    );
    assert_ne!(plain, digest(bundle(), |_| {}));
}

#[test]
fn evaluation_failure_names_document_and_cause() {
    let now = NOW.parse().unwrap();
    let request = json!({"parent": {"metadata": {"name": "one"}}});
    let endless = "package controller\n\nimport rego.v1\n\nchildren := [x | some x in \
                   numbers.range(1, 1000000); some y in numbers.range(1, 1000000); x == y]\n";
    let (function, policy) = inline(endless, |one| {
        one.evaluation = Some(Duration::from_millis(1));
    });
    let failure = call(&function, &policy.unwrap(), &request, false, now).unwrap_err();
    assert_eq!(failure.class, FailureClass::Transient);
    assert!(
        failure.message.starts_with("data.controller: "),
        "{}",
        failure.message
    );
    let (function, policy) = inline("package other\n\nx := 1\n", |_| {});
    let failure = document(&function, &policy.unwrap(), &request, now).unwrap_err();
    assert_eq!(
        failure.message,
        "data.controller: is undefined for this parent"
    );
    assert_eq!(
        missing(&Modules::Bundle("policies".to_owned())).message,
        "no ConfigMap in policies has a key that ends in .rego"
    );
    let key = Modules::Key {
        namespace: "policies".to_owned(),
        name: "fleets".to_owned(),
        key: "a.rego".to_owned(),
    };
    assert_eq!(
        missing(&key).message,
        "there is no ConfigMap key policies/fleets/a.rego"
    );
}

#[test]
fn an_answer_names_the_policy_that_gave_it() {
    let now = NOW.parse().unwrap();
    let text = "package controller\n\nchildren := []\n\nstatus := {\"seen\": input.parent.metadata.name}\n";
    let (function, policy) = inline(text, |_| {});
    let policy = policy.unwrap();
    let request = json!({"parent": {"metadata": {"name": "one"}}});
    let called = call(&function, &policy, &request, false, now).unwrap();
    assert_eq!(called.policy, Some(found(&function, &policy).digest));
    let status = json!({"seen": "one"});
    assert_eq!(
        called.answer.status.map(Value::Object),
        Some(status.clone())
    );
    let said = document(&function, &policy, &request, now).unwrap();
    assert_eq!(said["status"], status);
}
