//! How many requests two replicas admit, each of which counts what its watch has shown and what it has
//! admitted itself.

use oz_api::labels;
use serde_json::{Value, json};

use super::server::Server;
use super::{Attempt, Webhook, exec_template, registered, request, with};

const KIND: &str = "ExecAccessRequest";
/// `--max-waiting-requests`.
const MOST: usize = 20;

fn uid(replica: &str, number: usize) -> String {
    format!("{replica}-{number}")
}

/// A request of alice's that is stored and waits.
fn waiting(uid: &str) -> Value {
    let request = with(request(KIND, "shell"), "/metadata/uid", uid);
    let request = with(request, "/metadata/name", uid);
    let by = json!({ labels::REQUESTED_BY: "alice" });
    with(request, "/metadata/annotations", by)
}

/// A replica whose watch has shown these.
async fn replica(stored: impl IntoIterator<Item = String>) -> Webhook {
    let stored = stored.into_iter().map(|uid| waiting(&uid));
    let objects = std::iter::once(exec_template("shell")).chain(stored);
    let webhook = Webhook::new(Server::with(objects));
    webhook.grants.known().await;
    webhook
}

/// UIDs of those of 30 requests in a burst that the replica admits.
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
    // As soon as the watch shows what is stored, each counts the whole.
    assert!(admitted(&replica(stored).await, "c").await.is_empty());
}

#[tokio::test]
async fn what_the_watch_has_shown_and_what_was_admitted_here_count_together() {
    let stored = (0..MOST - 3).map(|number| uid("a", number));
    let webhook = replica(stored).await;
    assert_eq!(admitted(&webhook, "b").await.len(), 3);
}
