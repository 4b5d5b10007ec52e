//! The authors of the parent of a composite with children that hand out rights.

use kube::core::DynamicObject;
use oz_admission::testing::Request;
use oz_api::labels;
use oz_composites::rights::{MOST_AUTHORS, authors};
use serde_json::{Value, json};

use super::server::Server;
use super::{Webhook, keys, with};

const PATH: &str = "/stamp-parents-compositecontroller";

fn fleet() -> Value {
    json!({
        "apiVersion": "test.example.org/v1", "kind": "Fleet",
        "metadata": {"name": "one", "namespace": "dev"},
        "spec": {"role": "view"},
    })
}

async fn stamped(webhook: &Webhook, user: &str, request: Request, object: &Value) -> Value {
    let request = request
        .user(user)
        .groups(&["devs"])
        .resource("fleets", None);
    let answer = request.send(&webhook.manager, PATH).await;
    assert!(answer.allowed(), "{:?}", answer.message());
    answer.object(object)
}

/// Returns a created object as the API server stores it.
fn stored(mut object: Value) -> Value {
    object["metadata"]["uid"] = json!("u-1");
    object["metadata"]["creationTimestamp"] = json!("2026-01-01T12:00:00Z");
    object
}

async fn created(webhook: &Webhook, object: &Value) -> Value {
    stored(stamped(webhook, "alice", Request::create(object), object).await)
}

async fn changed(webhook: &Webhook, user: &str, old: &Value, new: &Value) -> Value {
    stamped(webhook, user, Request::update(old, new), new).await
}

/// Returns the authors of an object; empty if they are not proven.
fn believed(object: &Value) -> Vec<String> {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let authors = authors(&keys(), &object).unwrap_or_default();
    authors.into_iter().map(|author| author.user).collect()
}

#[tokio::test]
async fn creator_and_editors_of_parent_are_stamped() {
    let webhook = Webhook::new(Server::default());
    let first = created(&webhook, &fleet()).await;
    assert_eq!(believed(&first), ["alice"]);
    for (pointer, value) in [
        ("/spec/role", json!("edit")),
        ("/metadata/labels", json!({"a": "b"})),
    ] {
        let second = changed(
            &webhook,
            "bob",
            &first,
            &with(first.clone(), pointer, value),
        )
        .await;
        assert_eq!(believed(&second), ["alice", "bob"], "{pointer}");
        let mut third = second.clone();
        third["metadata"]["annotations"]["note"] = json!("x");
        let third = changed(&webhook, "alice", &second, &third).await;
        assert_eq!(believed(&third), ["alice", "bob"], "{pointer}");
    }
}

#[tokio::test]
async fn a_stamp_is_nobodys_to_write_and_nobodys_to_take_along() {
    let webhook = Webhook::new(Server::default());
    let first = created(&webhook, &fleet()).await;
    let stamp = first["metadata"]["annotations"][labels::REQUESTER].clone();
    // A user creates the same object with the stamp of another.
    let mut copied = fleet();
    copied["metadata"]["annotations"] = json!({ labels::REQUESTER: stamp });
    let eves = stamped(&webhook, "eve", Request::create(&copied), &copied).await;
    assert_eq!(believed(&stored(eves)), ["eve"]);
    // A user removes the stamp, or changes nothing else: it stays.
    let mut without = first.clone();
    without["metadata"]["annotations"] = json!({});
    let kept = changed(&webhook, "eve", &first, &without).await;
    assert_eq!(believed(&kept), ["alice"]);
    // An object that was written while the stamp hook was down has no author, also after later
    // changes.
    let unseen = with(first.clone(), "/spec/role", json!("edit"));
    assert!(believed(&unseen).is_empty());
    let after = with(unseen.clone(), "/spec/role", json!("view-more"));
    let after = changed(&webhook, "alice", &unseen, &after).await;
    assert!(believed(&after).is_empty());
}

#[tokio::test]
async fn more_authors_than_can_be_asked_about_are_none() {
    let webhook = Webhook::new(Server::default());
    let mut last = created(&webhook, &fleet()).await;
    for count in 1..=MOST_AUTHORS {
        let next = with(last.clone(), "/spec/role", json!(format!("role-{count}")));
        last = changed(&webhook, &format!("user-{count}"), &last, &next).await;
        assert_eq!(believed(&last).is_empty(), count >= MOST_AUTHORS, "{count}");
    }
}

#[tokio::test]
async fn stamp_by_an_unproven_caller_or_for_a_chosen_uid_is_worth_nothing() {
    let webhook = Webhook::new(Server::default());
    let from = [10, 0, 0, 7];
    let first = created(&webhook, &fleet()).await;
    let second = with(first.clone(), "/spec/role", json!("edit"));
    for (request, object) in [
        (Request::create(&fleet()), fleet()),
        (Request::create(&first), first.clone()),
        (Request::update(&first, &second), second.clone()),
    ] {
        let forged = stamped(&webhook, "admin", request.from_address(from), &object).await;
        assert!(believed(&stored(forged)).is_empty());
    }
    // Nor does an API server pass on a UID from a user: the stamp is valid for the created object.
    let brought = with(fleet(), "/metadata/uid", json!("u-1"));
    let brought = stored(stamped(&webhook, "eve", Request::create(&brought), &brought).await);
    assert_eq!(believed(&brought), ["eve"]);
    let older = with(
        brought,
        "/metadata/creationTimestamp",
        json!("2025-01-01T12:00:00Z"),
    );
    assert!(believed(&older).is_empty());
}
