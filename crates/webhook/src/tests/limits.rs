//! The number of requests that two replicas admit, where each counts the requests that its watch
//! has shown and those that it has admitted itself.

use oz_api::labels;
use serde_json::{Value, json};

use super::server::Server;
use super::{Attempt, Webhook, exec_template, registered, request, with};

const KIND: &str = "ExecAccessRequest";
/// `webhook.limits.waiting`.
const MOST: usize = 20;

fn uid(replica: &str, number: usize) -> String {
    format!("{replica}-{number}")
}

/// Returns a stored, pending request of alice.
pub(super) fn waiting(uid: &str) -> Value {
    let request = with(request(KIND, "shell"), "/metadata/uid", uid);
    let request = with(request, "/metadata/name", uid);
    let by = json!({ labels::REQUESTED_BY: "alice" });
    with(request, "/metadata/annotations", by)
}

/// Returns a replica with these requests in its watch.
async fn replica(stored: impl IntoIterator<Item = String>) -> Webhook {
    let stored = stored.into_iter().map(|uid| waiting(&uid));
    let objects = std::iter::once(exec_template("shell")).chain(stored);
    let webhook = Webhook::new(Server::with(objects));
    webhook.grants.wait_until_ready().await;
    webhook
}

/// Returns the UIDs of the requests that the replica admits from a burst of 30.
async fn admitted(webhook: &Webhook, replica: &str) -> Vec<String> {
    let mut admitted = Vec::new();
    for number in 0..30 {
        let uid = uid(replica, number);
        let asked = with(request(KIND, "shell"), "/metadata/name", uid.as_str());
        let attempt = Attempt::create("alice", &["devs"], asked);
        let object = registered(webhook.stamped(&attempt).await);
        let object = Some(with(object, "/metadata/uid", uid.as_str()));
        let answer = webhook.validate(&Attempt { object, ..attempt }).await;
        match answer.refusal() {
            None => admitted.push(uid),
            Some(why) => assert_eq!(why, "TooManyRequests"),
        }
    }
    admitted
}

#[tokio::test]
async fn a_burst_that_outruns_the_watch_gets_the_limit_from_each_replica_and_no_more() {
    let (first, second) = (replica([]).await, replica([]).await);
    let mut stored = admitted(&first, "a").await;
    stored.extend(admitted(&second, "b").await);
    assert_eq!(stored.len(), 2 * MOST);
    // Once the watch shows the stored requests, each replica counts all of them.
    assert!(admitted(&replica(stored).await, "c").await.is_empty());
}

#[tokio::test]
async fn watched_and_locally_admitted_requests_count_together() {
    let stored = (0..MOST - 3).map(|number| uid("a", number));
    let webhook = replica(stored).await;
    assert_eq!(admitted(&webhook, "b").await.len(), 3);
}
