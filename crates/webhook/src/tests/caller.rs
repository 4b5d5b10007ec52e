//! Reviews of callers that are not proven to be API servers.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use oz_api::labels;
use oz_core::canary::Word;
use oz_trail::Action;
use prometheus_client::encoding::text::encode;
use serde_json::json;

use super::connect::{ENFORCING, exec, grant};
use super::server::Server;
use super::{Answer, Attempt, OPERATOR, UID, Webhook, keys, now, request, with};

const STRANGER: [u8; 4] = [10, 0, 0, 7];
const STAMP: &str = "/mutate-crds-wizardofoz-co-v1alpha1-execaccessrequest";

async fn webhook() -> Webhook {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "namespace": "shop", "uid": "uid-of-web" },
    });
    let asked = with(request("ExecAccessRequest", "shell"), "/metadata/uid", UID);
    let webhook = Webhook::new(Server::with([pod, asked]));
    webhook.grant(grant());
    webhook.grants.wait_until_ready().await;
    webhook
}

/// Returns the address in the audit record of a session from there; `None` if the record is a fact.
async fn recorded_as(webhook: &Webhook, from: [u8; 4]) -> Option<String> {
    let told = exec(&["sh"]).request().from_address(from);
    let answer: Answer = told.send(&webhook.manager, ENFORCING).await.into();
    assert!(answer.allowed, "{answer:?}");
    let record = webhook.recorded().pop().unwrap();
    assert_eq!(record.action, Action::SessionOpened);
    record.unproven_peer().map(ToOwned::to_owned)
}

/// Sends the canary's dry run, with a word of this instant.
async fn canary(webhook: &Webhook, from: [u8; 4], user: &str, at: Timestamp) {
    let word = Word {
        replica: "oz-0".to_owned(),
        at,
    };
    let mut object = request("ExecAccessRequest", "oz-canary");
    object["metadata"]["annotations"][labels::CANARY] = word.seal(&keys()).unwrap().into();
    let attempt = Attempt::create(user, &["system:serviceaccounts"], object).dry();
    let told = attempt.review().from_address(from);
    let answer = told.send(&webhook.manager, STAMP).await;
    assert!(answer.allowed() || user != OPERATOR, "{answer:?}");
}

#[tokio::test]
async fn record_of_an_unproven_caller_names_its_address_and_is_counted() {
    let webhook = webhook().await;
    let stranger = IpAddr::from(STRANGER).to_string();
    assert_eq!(recorded_as(&webhook, STRANGER).await, Some(stranger));
    let local = exec(&["sh"]).request();
    assert!(local.send(&webhook.manager, ENFORCING).await.allowed());
    assert_eq!(webhook.recorded().pop().unwrap().unproven_peer(), None);
    let mut metrics = String::new();
    encode(&mut metrics, &webhook.registry).unwrap();
    let count = "oz_audit_unproven_records_total 1\n";
    assert!(metrics.contains(count), "{metrics}");
}

#[tokio::test]
async fn word_of_the_canary_makes_the_address_that_it_comes_from_known() {
    let webhook = webhook().await;
    canary(&webhook, STRANGER, OPERATOR, now()).await;
    assert_eq!(recorded_as(&webhook, STRANGER).await, None);
    assert!(recorded_as(&webhook, [10, 0, 0, 8]).await.is_some());
    // The word is valid once, from any address.
    canary(&webhook, [10, 0, 0, 8], OPERATOR, now()).await;
    assert!(recorded_as(&webhook, [10, 0, 0, 8]).await.is_some());
}

#[tokio::test]
async fn old_or_foreign_canary_proves_no_address() {
    let webhook = webhook().await;
    canary(
        &webhook,
        STRANGER,
        OPERATOR,
        now() - SignedDuration::from_secs(31),
    )
    .await;
    canary(&webhook, STRANGER, "mallory", now()).await;
    assert!(recorded_as(&webhook, STRANGER).await.is_some());
}
