//! Tests of the limits for metadata, by number and by bytes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::labels;
use serde_json::{Value, json};

use super::super::*;
use super::texts;

fn head(more: Value) -> ObjectMeta {
    serde_json::from_value(more).unwrap()
}

fn pairs(count: usize) -> Value {
    let pair = |number| (format!("note-{number}"), Value::from(""));
    Value::Object((0..count).map(pair).collect())
}

fn owners(count: usize) -> Value {
    let owner = |number: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": number.to_string()});
    (0..count).map(owner).collect()
}

fn finalizers(count: usize) -> Value {
    let name = |number: usize| Value::from(format!("example.com/{number}"));
    (0..count).map(name).collect()
}

fn found(new: &ObjectMeta, old: Option<&ObjectMeta>) -> Vec<String> {
    texts(&metadata(new, old, &REQUEST_METADATA))
}

#[test]
fn metadata_at_limit_is_accepted_and_above_limit_rejected() {
    for (field, enough, more, says) in [
        (
            "labels",
            pairs(64),
            pairs(65),
            "65 labels: the maximum is 64",
        ),
        (
            "annotations",
            pairs(64),
            pairs(65),
            "65 annotations: the maximum is 64",
        ),
        (
            "finalizers",
            finalizers(16),
            finalizers(17),
            "17 finalizers: the maximum is 16",
        ),
        (
            "ownerReferences",
            owners(16),
            owners(17),
            "17 owner references: the maximum is 16",
        ),
        (
            "annotations",
            json!({"note": "x".repeat(16 * 1024 - 4)}),
            json!({"note": "x".repeat(16 * 1024 - 3)}),
            "16385 bytes, with labels, finalizers and owner references: the maximum is 16384",
        ),
    ] {
        assert_eq!(found(&head(json!({field: enough})), None), [""; 0]);
        let lines = found(&head(json!({field: more})), None);
        let expected = format!("metadata.{field}: has {says}; remove some");
        assert_eq!(lines, [expected]);
    }
}

#[test]
fn the_stamp_counts_for_nothing() {
    let stamped = json!({"annotations": {
        labels::REQUESTER: "x".repeat(64 * 1024), labels::REQUESTED_BY: "alice",
    }});
    assert_eq!(found(&head(stamped), None), [""; 0]);
}

#[test]
fn oversized_metadata_of_existing_object_may_shrink_but_not_grow() {
    let old = head(json!({"annotations": pairs(100), "finalizers": finalizers(20)}));
    for (annotations, finalizers_, refused) in
        [(100, 20, 0), (70, 0, 0), (101, 20, 1), (101, 21, 2)]
    {
        let new = head(json!({
            "annotations": pairs(annotations), "finalizers": finalizers(finalizers_),
        }));
        assert_eq!(found(&new, Some(&old)).len(), refused, "{annotations}");
    }
}
