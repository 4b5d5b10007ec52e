//! Lists and watches, cut into every kind of pieces.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::*;

fn split(form: Form, text: &str, size: usize) -> (Vec<RawObject>, Vec<Value>) {
    let mut splitter = Splitter::new(form);
    let mut pieces = Vec::new();
    for part in text.as_bytes().chunks(size) {
        splitter.push(part, &mut pieces);
    }
    assert!(!splitter.too_much());
    let (mut objects, mut around) = (Vec::new(), Vec::new());
    for piece in pieces {
        match piece {
            Piece::Object(object) => objects.push(object),
            Piece::Around(text) => around.push(serde_json::from_slice(&text).unwrap()),
        }
    }
    (objects, around)
}

fn map(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "uid": name, "labels": { "a": "\"}{][,:\\" } },
        "data": { "items": "[{}]", "metadata": "\u{1F980}\\\"" },
    })
}

fn deep(levels: usize) -> String {
    let open = r#"{"a":["#.repeat(levels / 2);
    format!(
        r#"{{"metadata":{{"name":"deep","namespace":"dev","uid":"u","labels":{{"a":"b"}}}},"data":{open}1{}}}"#,
        "]}".repeat(levels / 2)
    )
}

#[test]
fn a_list_and_a_watch_are_their_objects_however_they_are_cut() {
    let list = json!({
        "kind": "ConfigMapList", "metadata": { "resourceVersion": "7", "continue": "x" },
        "items": [map("a"), map("b"), map("c")],
    });
    let event = |name: &str| json!({ "type": "ADDED", "object": map(name) }).to_string();
    let watch = format!("{}\n{}\n{}\n", event("a"), event("b"), event("c"));
    for size in [1, 3, 16, 1 << 20] {
        let (objects, around) = split(Form::List, &list.to_string(), size);
        let names = |objects: &[RawObject]| -> Vec<Value> {
            objects
                .iter()
                .map(|object| decode(object).unwrap())
                .collect()
        };
        assert_eq!(names(&objects), [map("a"), map("b"), map("c")]);
        assert_eq!(around[0]["metadata"], list["metadata"]);
        let (objects, around) = split(Form::Watch, &watch, size);
        assert_eq!(names(&objects), [map("a"), map("b"), map("c")]);
        assert_eq!(around.len(), 3);
        assert_eq!(around[2], json!({ "type": "ADDED", "object": null }));
    }
    for none in ["[]", "null"] {
        let (objects, around) = split(
            Form::List,
            &format!(r#"{{"items":{none},"metadata":{{}}}}"#),
            1,
        );
        assert!(objects.is_empty() && around[0]["metadata"].is_object());
    }
}

#[test]
fn undecodable_object_is_named_and_others_are_listed() {
    let wrong = r#"{"metadata":{"name":"wrong","labels":{"a":1,"b":"c"},"uid":"w"},"data":7}"#;
    let list = format!(
        r#"{{"items":[{},{},{},{wrong},{}]}}"#,
        map("a"),
        deep(100_000),
        deep(400),
        map("b")
    );
    let (objects, _) = split(Form::List, &list, 4096);
    let decoded: Vec<_> = objects.iter().map(decode::<ConfigMap>).collect();
    assert!(decoded[0].is_ok() && decoded[4].is_ok());
    for bad in &decoded[1..3] {
        let bad = bad.as_ref().unwrap_err();
        assert_eq!(bad.metadata.name.as_deref(), Some("deep"));
        assert_eq!(bad.metadata.labels.as_ref().unwrap()["a"], "b");
        assert!(bad.error.contains("levels"), "{bad}");
    }
    let bad = decoded[3].as_ref().unwrap_err();
    assert_eq!(bad.metadata.name.as_deref(), Some("wrong"));
    assert_eq!(bad.metadata.labels.as_ref().unwrap().len(), 1);
}

#[test]
fn oversized_object_is_named_but_not_stored() {
    let large = format!(
        r#"{{"metadata":{{"name":"large","uid":"l"}},"data":{{"a":"{}"}}}}"#,
        "x".repeat(3 * MAX_OBJECT_BYTES)
    );
    let (objects, _) = split(
        Form::List,
        &format!(r#"{{"items":[{large},{}]}}"#, map("b")),
        16_384,
    );
    assert!(objects[0].metadata().unwrap().len() < 100);
    assert_eq!(objects[0].text(), None);
    let bad = decode::<Value>(&objects[0]).unwrap_err();
    assert_eq!(bad.metadata.name.as_deref(), Some("large"));
    assert!(decode::<ConfigMap>(&objects[1]).is_ok());
}

#[test]
fn decode_error_contains_no_object_content() {
    for text in [
        r#"{"metadata":{"name":"hunter2"},"spec":"hunter2"}"#,
        r#"{"metadata":{"name":"a"},"spec":{"containers":"hunter2"}}"#,
        r#"{"metadata":{"name":"a"},"spec":{"containers":[{"env":[{"name":"a","value":{"hunter2":"hunter2"}}]}]}}"#,
    ] {
        let bad = decode::<Pod>(&RawObject::new(text.as_bytes())).unwrap_err();
        assert!(!bad.error.contains("hunter2"), "{bad}");
    }
}

#[test]
fn an_object_as_deep_as_is_taken_in_can_be_written_again() {
    let object: DynamicObject = decode(&RawObject::new(deep(118).as_bytes())).unwrap();
    let text = serde_json::to_string(&object).unwrap();
    assert!(serde_json::from_str::<DynamicObject>(&text).is_ok());
    assert!(decode::<DynamicObject>(&RawObject::new(deep(122).as_bytes())).is_err());
}

/// Returns an object with this number of values in one field.
fn wide(one: &str, count: usize) -> String {
    let many = vec![one; count].join(",");
    format!(r#"{{"metadata":{{"name":"wide","uid":"u","labels":{{"a":"b"}}}},"data":[{many}]}}"#)
}

#[test]
fn an_object_of_too_many_values_is_named_and_not_decoded() {
    // A value takes up to some hundred times as many bytes decoded as in its text.
    for one in ["{}", r#"{"a":0}"#, "0", "[[]]"] {
        let list = format!(r#"{{"items":[{},{}]}}"#, wide(one, 400_000), map("b"));
        let (objects, _) = split(Form::List, &list, 4096);
        let bad = decode::<Value>(&objects[0]).unwrap_err();
        assert_eq!(bad.metadata.name.as_deref(), Some("wide"));
        assert!(bad.error.contains("values"), "{bad}");
        assert!(decode::<ConfigMap>(&objects[1]).is_ok());
    }
}

#[test]
fn the_largest_honest_objects_are_taken_in() {
    let names: Vec<String> = (0..20_000).map(|number| format!("web-{number}")).collect();
    let role = json!({
        "metadata": { "name": "wide", "uid": "u" },
        "rules": [{ "apiGroups": [""], "resources": ["pods"], "resourceNames": names, "verbs": ["get"] }],
    });
    let environment: Vec<Value> = (0..1_000)
        .map(|number| json!({ "name": format!("A_{number}"), "value": "b" }))
        .collect();
    let container = json!({ "name": "a", "image": "b", "env": environment });
    let pod = json!({
        "metadata": { "name": "fat", "uid": "u" }, "spec": { "containers": [container, container] },
    });
    for object in [role, pod] {
        let text = object.to_string();
        assert!(decode::<DynamicObject>(&RawObject::new(text.as_bytes())).is_ok());
    }
}

#[test]
fn of_metadata_without_measure_what_names_the_object_is_known() {
    let labels: Vec<String> = (0..200_000)
        .map(|number| format!(r#""a{number}":"""#))
        .collect();
    let labels = labels.join(",");
    let owner = super::KEPT_LABELS[2];
    let text = format!(
        r#"{{"metadata":{{"labels":{{{labels},"{owner}":"owner"}},"name":"wide","namespace":"dev","uid":"u","resourceVersion":"7"}}}}"#
    );
    let bad = decode::<ConfigMap>(&RawObject::new(text.as_bytes())).unwrap_err();
    let metadata = bad.metadata;
    assert_eq!(metadata.name.as_deref(), Some("wide"));
    assert_eq!(metadata.namespace.as_deref(), Some("dev"));
    assert_eq!(metadata.uid.as_deref(), Some("u"));
    assert_eq!(metadata.resource_version.as_deref(), Some("7"));
    let labels = metadata.labels.unwrap();
    assert!(labels.len() < 2_000, "{}", labels.len());
    assert_eq!(labels[owner], "owner");
}
