//! Tests of requests of both kinds.

use oz_api::PodAccessRequest;
use serde_json::json;

use super::super::*;
use super::{exec_request, lines, object};
use crate::kinds::AccessRequest;

fn checked<R: AccessRequest>(request: &R) -> Result<ValidatedRequest, Vec<Violation>> {
    request.check()
}

#[test]
fn a_request_is_checked_field_by_field() {
    let subdomain = "must be at most 253 lower-case letters, digits, '-' and '.', with a letter or \
                     digit at both ends and before and after every '.'";
    for (spec, violations) in [
        (json!({}), vec![]),
        (
            json!({
                "duration": "5m", "targetPod": "web-1", "container": "app", "extends": "alice-0",
                "reason": "Ticket 7:\n\tlook at the heap",
            }),
            vec![],
        ),
        (
            json!({ "templateName": "" }),
            vec![format!("spec.templateName: {subdomain}")],
        ),
        (
            json!({ "targetPod": "Web" }),
            vec![format!("spec.targetPod: {subdomain}")],
        ),
        (
            json!({ "extends": "a/b" }),
            vec![format!("spec.extends: {subdomain}")],
        ),
        (
            json!({ "extends": "alice-1" }),
            vec!["spec.extends: must name another request".to_owned()],
        ),
        (
            json!({ "container": "a.b" }),
            vec![
                "spec.container: must be at most 63 lower-case letters, digits and '-', with a \
                  letter or digit at both ends"
                    .to_owned(),
            ],
        ),
        (
            json!({ "duration": "5" }),
            vec![r#"spec.duration: time: missing unit in duration "5""#.to_owned()],
        ),
        (
            json!({ "duration": "9999999h" }),
            vec![r#"spec.duration: time: invalid duration "9999999h""#.to_owned()],
        ),
        (
            json!({ "duration": "-1ns" }),
            vec!["spec.duration: must not be negative".to_owned()],
        ),
        (
            json!({ "reason": "\u{1b}[2J" }),
            vec!["spec.reason: must not contain control characters".to_owned()],
        ),
        (
            json!({ "reason": "x".repeat(MAX_REASON + 1) }),
            vec!["spec.reason: must be at most 1024 bytes".to_owned()],
        ),
    ] {
        let exec = exec_request(json!({ "spec": spec.clone() }));
        assert_eq!(lines(checked(&exec)), violations, "{spec}");
        if spec.get("targetPod").is_none() {
            let pod = object::<PodAccessRequest>(
                serde_json::to_value(&exec).unwrap(),
                json!({ "kind": "PodAccessRequest" }),
            );
            assert_eq!(lines(checked(&pod)), violations, "{spec}");
        }
    }
}

#[test]
fn zero_asks_for_the_default() {
    for (duration, asked) in [
        (json!(null), None),
        (json!("0"), None),
        (json!("0s"), None),
        (json!("-0s"), None),
        (json!("1ns"), Some(GoDuration::from_nanos(1))),
        (json!("1h30m"), Some(GoDuration::from_secs(5400))),
    ] {
        let request = exec_request(json!({ "spec": { "duration": duration.clone() } }));
        assert_eq!(checked(&request).unwrap().duration, asked, "{duration}");
    }
}

#[test]
fn a_request_leaves_room_for_the_name_of_its_grant() {
    let named = |field: &str, length: usize| {
        let change = json!({ "metadata": { "name": null, field: "a".repeat(length) } });
        lines(checked(&exec_request(change)))
    };
    assert_eq!(MAX_REQUEST_NAME + "-".len() + 8, 253);
    assert!(named("name", MAX_REQUEST_NAME).is_empty());
    assert_eq!(
        named("name", MAX_REQUEST_NAME + 1),
        ["metadata.name: must be at most 244 characters"]
    );
    assert!(named("generateName", MAX_GENERATE_NAME).is_empty());
    assert_eq!(
        named("generateName", MAX_GENERATE_NAME + 1),
        ["metadata.generateName: must be at most 58 characters"]
    );
}

#[test]
fn violations_make_one_line() {
    let request =
        exec_request(json!({ "spec": { "duration": "x", "container": "A", "reason": "\r" } }));
    let violations = checked(&request).unwrap_err();
    assert!(violations[0].is_about_duration());
    assert!(!violations[1].is_about_duration());
    assert_eq!(
        Violation::list(&violations),
        "spec.duration: time: invalid duration \"x\"; spec.container: must be at most 63 \
         lower-case letters, digits and '-', with a letter or digit at both ends; spec.reason: \
         must not contain control characters"
    );
}

#[test]
fn an_empty_string_is_one_that_was_not_given() {
    let empty = json!({
        "duration": "", "targetPod": "", "container": "", "reason": "", "extends": "",
    });
    let given = checked(&exec_request(json!({ "spec": empty })));
    assert_eq!(given, checked(&exec_request(json!({}))));
    assert!(given.is_ok());
}
