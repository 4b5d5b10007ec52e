//! Invalid objects, and the field of each error: the same for webhook and operator.

use oz_api::{Phase, TransientClusterRoleBinding, TransientRoleBinding, example_com};
use serde_json::{Value, json};

use super::world::*;
use crate::transient::Kind;

fn fields<K: Kind>(object: Value) -> Vec<String> {
    let object: K = serde_json::from_value(object).unwrap();
    let violations = object.terms().err().unwrap_or_default();
    violations.into_iter().map(|found| found.field).collect()
}

fn spec(change: impl FnOnce(&mut Value)) -> Value {
    let mut object = json!({
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "alice"}],
            "validUntil": "2026-01-01T13:00:00Z",
        },
    });
    change(&mut object["spec"]);
    object
}

#[test]
fn invalid_fields_of_binding_are_named() {
    type Change = fn(&mut Value);
    let cases: [(&[&str], Change); 22] = [
        (&[], |_| {}),
        (&["spec.validUntil"], |spec| {
            spec["validUntil"] = json!("tomorrow")
        }),
        (&["spec.validFrom"], |spec| {
            spec["validFrom"] = json!("2026-01-01 12:00:00Z")
        }),
        (&["spec.validFrom", "spec.validUntil"], |spec| {
            spec["validFrom"] = json!("1");
            spec["validUntil"] = json!("2");
        }),
        (&["spec"], |spec| spec["duration"] = json!("1h")),
        (&[], |spec| spec["ticket"] = json!("INC-42")),
        (&["spec.ticket"], |spec| spec["ticket"] = json!("INC 42")),
        (&["spec.ticket"], |spec| spec["ticket"] = json!("x/../y")),
        (&[], |spec| spec["emergency"] = json!(true)),
        (&["spec.reason"], |spec| {
            spec["emergency"] = json!(true);
            spec["reason"] = json!("\u{202e}it burns");
        }),
        (&["spec.validFrom"], |spec| {
            spec["emergency"] = json!(true);
            spec["validFrom"] = json!("2026-01-01T12:00:00Z");
        }),
        (&["spec"], |spec| {
            spec.as_object_mut().unwrap().remove("validUntil");
        }),
        (&["spec.duration"], |spec| {
            spec.as_object_mut().unwrap().remove("validUntil");
            spec["duration"] = json!("1d");
        }),
        (&["spec.duration"], |spec| {
            spec.as_object_mut().unwrap().remove("validUntil");
            spec["duration"] = json!("0s");
        }),
        (&["spec.duration"], |spec| {
            spec.as_object_mut().unwrap().remove("validUntil");
            spec["duration"] = json!("-1h");
        }),
        (&["spec.subjects"], |spec| spec["subjects"] = json!([])),
        (&["spec.subjects[1].namespace"], |spec| {
            spec["subjects"] = json!([
                {"kind": "User", "name": "a"}, {"kind": "ServiceAccount", "name": "b"},
            ]);
        }),
        (&["spec.subjects[0].namespace"], |spec| {
            spec["subjects"] = json!([{"kind": "Group", "name": "a", "namespace": "b"}]);
        }),
        (&["spec.subjects[0].apiGroup"], |spec| {
            spec["subjects"] = json!([{"kind": "User", "name": "a", "apiGroup": "example.com"}]);
        }),
        (&["spec.roleRef.name"], |spec| {
            spec["roleRef"]["name"] = json!("a/b")
        }),
        (&["spec.roleRef.apiGroup"], |spec| {
            spec["roleRef"]["apiGroup"] = json!("")
        }),
        (&["spec.reason"], |spec| spec["reason"] = json!("\u{1b}[2J")),
    ];
    for (wrong, change) in cases {
        let object = spec(change);
        assert_eq!(
            fields::<TransientRoleBinding>(object.clone()),
            wrong,
            "{object}"
        );
    }
    let role = spec(|spec| spec["roleRef"]["kind"] = json!("Role"));
    assert!(fields::<TransientRoleBinding>(role.clone()).is_empty());
    assert_eq!(
        fields::<TransientClusterRoleBinding>(role),
        ["spec.roleRef.kind"]
    );
}

#[test]
fn the_published_form_is_read_field_by_field() {
    let whole = json!({
        "metadata": {"name": "a"},
        "validFrom": "2026-01-01T12:00:00Z", "validUntil": "2026-01-01T13:00:00+00:00",
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    });
    assert!(fields::<example_com::ClusterRoleBinding>(whole.clone()).is_empty());
    for field in ["validFrom", "validUntil", "roleRef", "subjects"] {
        for nonsense in [json!(null), json!(7), json!({}), json!("nonsense")] {
            let mut object = whole.clone();
            object[field] = nonsense.clone();
            let found = fields::<example_com::RoleBinding>(object);
            assert_eq!(found, [field], "{nonsense}");
        }
        let mut object = whole.clone();
        object.as_object_mut().unwrap().remove(field);
        assert_eq!(fields::<example_com::RoleBinding>(object), [field]);
    }
}

/// Returns 64 users with names of this length.
fn users(length: usize) -> Value {
    let users =
        (0..64).map(|number| json!({"kind": "User", "name": format!("{number:0>length$}")}));
    users.collect()
}

#[test]
fn binding_with_subjects_that_no_decision_can_contain_is_invalid_and_never_bound() {
    let mut world = namespaced(|object| object["spec"]["subjects"] = users(600));
    assert_eq!(world.settle(timestamp(60)).phase, Phase::Active);
    assert_eq!(world.bound().len(), 64);

    let mut world = namespaced(|object| object["spec"]["subjects"] = users(1024));
    assert_eq!(world.settle(timestamp(60)).phase, Phase::Failed);
    assert_eq!(world.condition("Ready"), "False (Invalid)");
    assert_eq!(world.actions(), ["RequestDenied"]);
    let published = json!({
        "metadata": {"name": "a"},
        "validFrom": "2026-01-01T12:00:00Z", "validUntil": "2026-01-01T13:00:00Z",
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": users(1024),
    });
    assert_eq!(fields::<example_com::RoleBinding>(published), ["subjects"]);
}

#[test]
fn invalid_binding_that_was_stored_fails_with_cause() {
    let mut world = namespaced(|object| object["spec"]["validUntil"] = json!("soon"));
    let status = world.settle(timestamp(0));
    assert_eq!(status.phase, Phase::Failed);
    assert_eq!(world.condition("Ready"), "False (Invalid)");
    assert!(
        status
            .conditions
            .iter()
            .any(|known| known.message.contains("spec.validUntil"))
    );

    let mut world =
        namespaced(|object| object["spec"]["validUntil"] = timestamp(60).to_string().into());
    assert_eq!(world.settle(timestamp(0)).phase, Phase::Failed);
}
