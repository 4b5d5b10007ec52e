//! The audit records of a new request, and the results of a failure to write them.

use oz_trail::{Action, Decision};

use super::server::Server;
use super::{Attempt, Records, UID, Webhook, exec_template, now, request, with};

const EXEC: &str = "ExecAccessRequest";

#[tokio::test]
async fn decision_is_recorded_unless_dry_run() {
    let webhook = Webhook::new(Server::with([exec_template("shell")]));
    let object = with(
        with(request(EXEC, "shell"), "/spec/duration", "10m"),
        "/spec/reason",
        "INC-7",
    );
    let alice = Attempt::create("alice", &["devs"], object);
    let mallory = Attempt::create("mallory", &["interns"], request(EXEC, "shell"));

    webhook.create(&alice.clone().dry()).await;
    webhook.create(&mallory.clone().dry()).await;
    assert!(webhook.recorded().is_empty());

    webhook.create(&alice).await;
    webhook.create(&mallory).await;
    let records = webhook.recorded();
    let [created, denied] = &records[..] else {
        panic!("{records:?}")
    };
    assert_eq!(
        (created.action, created.decision),
        (Action::RequestCreated, Decision::Allow)
    );
    assert_eq!((created.reason.as_str(), created.time), ("Admitted", now()));
    assert_eq!(
        created.message,
        "alice requests 10m of access by template shell"
    );
    let who = created.user.as_ref().unwrap();
    assert_eq!(
        (who.user.as_str(), &who.groups[..]),
        ("alice", &["devs".to_owned()][..])
    );
    assert_eq!(
        (
            created.request.namespace.as_str(),
            created.request.name.as_str()
        ),
        ("shop", "mine")
    );
    assert_eq!(created.request.uid, UID);
    assert_eq!(created.details["reason"], "INC-7");
    assert!(
        created
            .template_digest
            .as_ref()
            .unwrap()
            .starts_with("sha256:")
    );

    assert_eq!(
        (denied.action, denied.decision),
        (Action::RequestDenied, Decision::Deny)
    );
    assert_eq!(denied.reason, "NotAllowed");
    assert_eq!(denied.user.as_ref().unwrap().user, "mallory");
}

#[tokio::test]
async fn a_request_that_cannot_be_put_on_record_is_refused() {
    let records = Records {
        broken: true,
        ..Records::default()
    };
    let webhook = Webhook::recording(Server::with([exec_template("shell")]), records);
    let by = |user: &str, group: &str| Attempt::create(user, &[group], request(EXEC, "shell"));
    let answer = webhook.create(&by("alice", "devs")).await;
    assert_eq!(
        (answer.refusal(), answer.status.code),
        (Some("RecordFailed"), 503)
    );
    // A denial keeps its own reason.
    assert_eq!(
        webhook.create(&by("mallory", "interns")).await.refusal(),
        Some("NotAllowed")
    );
    assert_eq!(
        webhook.create(&by("alice", "devs").dry()).await.refusal(),
        None
    );
}
