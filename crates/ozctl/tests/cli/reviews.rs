//! The emergencies that alice must review, and the reviews that she writes.

use serde_json::{Value, json};

use crate::output::{run_commands, shows};
use crate::shop::{self, from_now};
use crate::stub::{Answer, ReceivedRequest, Stub, status};

const GROUP: &str = "crds.wizardofoz.co/v1alpha1";
const WHILE: i64 = 20 * 60 + 30;

fn review(name: &str, by: &str, due: i64, reviewers: &[&str], finding: Option<&str>) -> Value {
    let mut review = json!({
        "apiVersion": GROUP, "kind": "AccessReview",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "accessRequestRef": {"kind": "ExecAccessRequest", "name": "inc", "uid": format!("uid-of-{name}")},
            "requester": {"user": by}, "template": "prod", "emergency": "INC-42",
            "grantedAt": "2026-01-01T12:00:00Z", "dueAt": from_now(due),
            "records": {"count": 2, "digest": "sha256:0"},
            "reviewers": {"groups": reviewers},
        },
    });
    if let Some(finding) = finding {
        review["spec"]["finding"] = finding.into();
        review["spec"]["reason"] = "seen".into();
    }
    review
}

/// Answers with many reviews, of which two require alice, one of them for too long; the others are
/// of her own emergency, written, or for other reviewers.
fn answer(asked: &ReceivedRequest) -> Answer {
    let (method, path) = asked.what.split_once(' ').unwrap_or_default();
    let resource = path.split("accessreviews").nth(1);
    match (method, resource) {
        ("GET", Some("")) => {
            let items = [
                review("bob-a1b2c-0a1b2c3d", "bob", WHILE, &["devs"], None),
                review("late-d3f4g-0a1b2c3d", "carol", -WHILE, &["devs"], None),
                review("alice-x7k2p-0a1b2c3d", "alice", WHILE, &["devs"], None),
                review("dave-h5j6k-0a1b2c3d", "dave", WHILE, &["security"], None),
                review(
                    "old-l7m8n-0a1b2c3d",
                    "bob",
                    -WHILE,
                    &["devs"],
                    Some("Justified"),
                ),
            ];
            let list = json!({
                "apiVersion": GROUP, "kind": "AccessReviewList", "metadata": {"resourceVersion": "8"},
                "items": items,
            });
            (200, list)
        }
        ("PATCH", Some("/bob-a1b2c-0a1b2c3d")) => {
            let spec = asked.body["spec"].as_object().unwrap();
            assert_eq!(spec.len(), 2, "{spec:?}");
            let mut written = review("bob-a1b2c-0a1b2c3d", "bob", WHILE, &["devs"], None);
            written["spec"]["finding"] = spec["finding"].clone();
            written["spec"]["reason"] = spec["reason"].clone();
            (200, written)
        }
        ("PATCH", Some(_)) => status(403, "alice is not a reviewer of it; ask one of them"),
        _ => shop::answer(asked),
    }
}

#[test]
fn reviews_are_listed_and_written() {
    let lines = [
        "reviews",
        "reviews -A",
        "reviews --all",
        "review bob-a1b2c-0a1b2c3d --finding followup --reason INC-42",
        "review dave-h5j6k-0a1b2c3d --finding Justified --reason INC-42",
        "review bob-a1b2c-0a1b2c3d --finding perhaps --reason INC-42",
        "review bob-a1b2c-0a1b2c3d --finding Justified",
        "review Bob --finding Justified --reason INC-42",
        "exec deploy/web --emergency -- id",
    ];
    shows(&run_commands(&Stub::start(answer), &lines), "reviews");
}

#[test]
fn reviews_are_data_as_well() {
    let said = run_commands(&Stub::start(answer), &["reviews -o json"]);
    let json = said
        .split_once('\n')
        .map(|(_, rest)| rest)
        .unwrap_or_default();
    let json = json.rsplit_once('}').map(|(json, _)| format!("{json}}}"));
    let list: Value = serde_json::from_str(&json.unwrap_or_default()).unwrap();
    let names: Vec<&str> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, ["late-d3f4g-0a1b2c3d", "bob-a1b2c-0a1b2c3d"]);
    assert_eq!(list["items"][0]["kind"], "AccessReview");
}

const UID: &str = "0a1b2c3d-5f3a-4e7b-9c1d-2b6e8f0a4c5d";
const MOVED: &str = "inc-0a1b2c3d";

/// Answers with the review of bob's emergency in a deleted namespace, which is in oz's own, and one of namespace shop.
fn answer_moved(asked: &ReceivedRequest) -> Answer {
    let mut moved = review(MOVED, "bob", WHILE, &["devs"], None);
    moved["metadata"]["namespace"] = "oz-system".into();
    moved["spec"]["accessRequestRef"]["uid"] = UID.into();
    moved["spec"]["reviewedNamespace"] = "gone".into();
    let place = format!("PATCH /apis/{GROUP}/namespaces/oz-system/accessreviews/{MOVED}");
    if asked.what == place {
        for field in ["finding", "reason"] {
            moved["spec"][field] = asked.body["spec"][field].clone();
        }
        return (200, moved);
    }
    if asked.what != format!("GET /apis/{GROUP}/accessreviews") {
        return shop::answer(asked);
    }
    let mut items = vec![
        review("carol-d3f4g-0a1b2c3d", "carol", WHILE - 5, &["devs"], None),
        moved,
    ];
    if asked.query.contains("labelSelector") {
        items.retain(|_| asked.query.contains(UID));
    }
    let list = json!({
        "apiVersion": GROUP, "kind": "AccessReviewList", "metadata": {"resourceVersion": "8"},
        "items": items,
    });
    (200, list)
}

#[test]
fn review_of_deleted_namespace_is_listed_and_written_by_uid() {
    let finding = "--finding Justified --reason INC-42";
    let lines = [
        "reviews -A".to_owned(),
        format!("review {UID} {finding}"),
        format!("review 9cd5a2fc-0000-4000-8000-5f3a00000001 {finding}"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let told = run_commands(&Stub::start(answer_moved), &lines);
    shows(&told, "reviews_moved");
}

#[test]
fn no_review_waits() {
    let said = run_commands(&shop::open(), &["reviews"]);
    assert!(said.contains("No reviews wait for you."), "{said}");
}
