//! Table tests for `patch`: the data that a mutation must not lose.

use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::json;

use super::*;

/// Mutates `raw` through the typed `Pod` and applies the resulting patch to `raw`.
fn mutated(raw: &Value, mutate: impl FnOnce(&mut Pod)) -> Value {
    let pod: Pod = serde_json::from_value(raw.clone()).unwrap();
    let mut changed = pod.clone();
    mutate(&mut changed);
    let patch = diff(
        raw,
        &serde_json::to_value(&pod).unwrap(),
        &serde_json::to_value(&changed).unwrap(),
    );
    let mut result = raw.clone();
    json_patch::patch(&mut result, &patch).unwrap();
    result
}

fn pod_with_unknown_fields() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "newInMetadata": 1},
        "spec": {
            "newInSpec": {"a": [1, 2]},
            "containers": [
                {"name": "app", "image": "app:1", "newInContainer": true, "resources": {}},
                {"name": "log", "image": "log:1", "newInContainer": false, "resources": {}},
            ],
        },
        "newAtTop": "x",
    })
}

#[test]
fn nothing_changed_gives_an_empty_patch() {
    let raw = pod_with_unknown_fields();
    assert_eq!(mutated(&raw, |_| {}), raw);
}

#[test]
fn unknown_fields_survive_change_of_known_fields() {
    let raw = pod_with_unknown_fields();
    let result = mutated(&raw, |pod| {
        pod.spec.as_mut().unwrap().containers[0].image = Some("app:2".into());
        pod.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    });
    let mut expected = raw;
    expected["spec"]["containers"][0]["image"] = json!("app:2");
    expected["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(result, expected);
}

#[test]
fn unknown_fields_stay_with_their_container_when_one_is_put_in_front() {
    let result = mutated(&pod_with_unknown_fields(), |pod| {
        let sidecar = Container {
            name: "side".into(),
            ..Container::default()
        };
        pod.spec.as_mut().unwrap().containers.insert(0, sidecar);
    });
    let containers = result["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 3);
    assert!(containers[0].get("newInContainer").is_none());
    assert_eq!(containers[1]["newInContainer"], json!(true));
    assert_eq!(containers[2]["newInContainer"], json!(false));
}

#[test]
fn unknown_fields_go_with_a_container_that_is_removed() {
    let result = mutated(&pod_with_unknown_fields(), |pod| {
        pod.spec.as_mut().unwrap().containers.remove(0);
    });
    let containers = result["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    assert_eq!(
        (&containers[0]["name"], &containers[0]["newInContainer"]),
        (&json!("log"), &json!(false))
    );
}

#[test]
fn reordered_and_changed_elements_keep_their_own_unknown_fields() {
    let result = mutated(&pod_with_unknown_fields(), |pod| {
        let containers = &mut pod.spec.as_mut().unwrap().containers;
        containers.swap(0, 1);
        containers[1].image = Some("app:9".into());
    });
    let containers = result["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers[0]["newInContainer"], json!(false));
    assert_eq!(containers[1]["newInContainer"], json!(true));
    assert_eq!(containers[1]["image"], json!("app:9"));
}

#[test]
fn a_map_that_was_absent_is_added_with_its_parents() {
    let raw = json!({"apiVersion": "v1", "kind": "Pod"});
    let result = mutated(&raw, |pod| {
        pod.metadata.annotations = Some([("a/b~c".to_owned(), "d".to_owned())].into());
    });
    assert_eq!(result["metadata"]["annotations"], json!({"a/b~c": "d"}));
}

#[test]
fn defaults_that_the_type_writes_out_are_not_added() {
    // A non-optional map is serialised as `{}` although the raw object lacks it.
    let raw = json!({"spec": {"a": 1}});
    let before = json!({"spec": {"a": 1, "resources": {}}, "metadata": {}});
    let after = json!({"spec": {"a": 2, "resources": {}}, "metadata": {}});
    assert_eq!(carry_over(&raw, &before, &after), json!({"spec": {"a": 2}}));
}

#[test]
fn an_explicit_null_gives_way_to_a_value() {
    let raw = json!({"metadata": {"labels": null}});
    let before = json!({"metadata": {}});
    let after = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(carry_over(&raw, &before, &after), after);
}

#[test]
fn a_removed_field_is_removed() {
    let result = mutated(&pod_with_unknown_fields(), |pod| {
        pod.spec.as_mut().unwrap().containers[0].image = None;
    });
    assert!(result["spec"]["containers"][0].get("image").is_none());
    assert_eq!(
        result["spec"]["containers"][0]["newInContainer"],
        json!(true)
    );
}

#[test]
fn equal_elements_are_not_confused() {
    let raw = json!(["a", "a", "b"]);
    assert_eq!(
        carry_over(&raw, &raw, &json!(["a", "b", "a", "a"])),
        json!(["a", "b", "a", "a"])
    );
}

#[test]
fn a_list_of_plain_values_takes_the_new_values() {
    let before = json!({"args": ["-v", "2"]});
    let after = json!({"args": ["-v", "3"]});
    assert_eq!(carry_over(&before, &before, &after), after);
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    /// Generates small JSON with lists of named and of nameless elements.
    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..4_i32).prop_map(Value::from),
            "[ab]".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            let key = prop_oneof![Just("name"), Just("a"), Just("b"), Just("c~/d")];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key.prop_map(str::to_owned), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Returns an object of a newer API version: more fields in every object.
    fn with_unknown(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let known = map
                    .iter()
                    .map(|(key, value)| (key.clone(), with_unknown(value)));
                let unknown = ("unknown".to_owned(), json!([map.len()]));
                Value::Object(known.chain([unknown]).collect())
            }
            Value::Array(list) => list.iter().map(with_unknown).collect(),
            other => other.clone(),
        }
    }

    fn without_unknown(value: &Value) -> Value {
        match value {
            Value::Object(map) => map
                .iter()
                .filter(|(key, _)| *key != "unknown")
                .map(|(key, value)| (key.clone(), without_unknown(value)))
                .collect(),
            Value::Array(list) => list.iter().map(without_unknown).collect(),
            other => other.clone(),
        }
    }

    proptest! {
        #[test]
        fn patched_object_without_unknown_fields_equals_extension_result(before in json(), after in json()) {
            let raw = with_unknown(&before);
            let mut result = raw.clone();
            json_patch::patch(&mut result, &diff(&raw, &before, &after)).unwrap();
            prop_assert_eq!(without_unknown(&result), after);
        }

        #[test]
        fn without_a_change_there_is_no_patch(before in json()) {
            prop_assert!(diff(&with_unknown(&before), &before, &before).0.is_empty());
        }

        #[test]
        fn elements_that_only_move_keep_all_that_is_unknown(list in prop::collection::vec(json(), 0..5)) {
            let before = Value::from(list.clone());
            let after: Value = list.into_iter().rev().collect();
            let raw = with_unknown(&before);
            prop_assert_eq!(carry_over(&raw, &before, &after), with_unknown(&after));
        }
    }
}
