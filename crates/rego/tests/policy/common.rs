//! A policy as users write it, and helpers for evaluation.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use oz_rego::{Answer, CompileErrors, EvaluateError, Limits, Policy};
use serde_json::{Value, json};

/// Returns limits with enough time on a busy machine: no test measures speed.
pub(crate) fn limits() -> Limits {
    Limits {
        time: Duration::from_secs(60),
        ..Limits::default()
    }
}

pub(crate) fn try_compile(text: &str) -> Result<Policy, CompileErrors> {
    Policy::compile(&[("p.rego".to_owned(), text.to_owned())])
}

pub(crate) fn compile(text: &str) -> Policy {
    try_compile(text).unwrap_or_else(|errors| panic!("{errors}: {text:.300}"))
}

pub(crate) fn timestamp(instant: &str, nanoseconds_after: i64) -> Timestamp {
    let instant: Timestamp = instant.parse().unwrap();
    instant + SignedDuration::from_nanos(nanoseconds_after)
}

pub(crate) fn evaluate(
    policy: &Policy,
    path: &str,
    input: &Value,
    now: Timestamp,
) -> Result<Answer, EvaluateError> {
    policy.evaluate(path, input, now, &limits())
}

pub(crate) fn answer(policy: &Policy, path: &str, input: &Value, now: Timestamp) -> Value {
    match evaluate(policy, path, input, now) {
        Ok(Answer::Document(document)) => document,
        other => panic!("{path}: {other:?}"),
    }
}

pub(crate) fn undefined(policy: &Policy, path: &str, input: &Value) -> bool {
    evaluate(policy, path, input, Timestamp::UNIX_EPOCH).unwrap() == Answer::Undefined
}

pub(crate) fn count(answer: &Answer) -> usize {
    let children = answer
        .document()
        .map(|document| document["children"].clone());
    children
        .and_then(|children| children.as_array().map(Vec::len))
        .unwrap_or(0)
}

pub(crate) fn window() -> Policy {
    compile(include_str!("policies/window.rego"))
}

pub(crate) fn window_input(from: &str, until: &str) -> Value {
    json!({
        "controller": {"spec": {"childResources": [
            {"apiVersion": "rbac.authorization.k8s.io/v1", "resource": "rolebindings"},
        ]}},
        "parent": {
            "apiVersion": "example.com/v1", "kind": "TransientRoleBinding",
            "metadata": {"name": "night-shift", "namespace": "a"},
            "validFrom": from, "validUntil": until,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [
                {"kind": "ServiceAccount", "name": "default", "namespace": "a"},
                {"kind": "ServiceAccount", "name": "default", "namespace": "b"},
            ],
            "status": {"conditions": [
                {"type": "effective", "status": "False", "lastTransitionTime": "2024-04-30T00:00:00Z"},
            ]},
        },
        "children": {"RoleBinding.rbac.authorization.k8s.io/v1": {}},
        "finalizing": false,
    })
}
