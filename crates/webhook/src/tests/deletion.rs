//! Deletions of requested objects: they are recorded, and without the right to revoke, only a
//! user's own are allowed.

use kube::core::ApiResource;
use oz_api::labels;
use oz_core::kinds::requested;
use oz_trail::{Action, Decision};
use serde_json::Value;

use super::server::Server;
use super::{Attempt, Records, Webhook, registered, request, with};

fn stored(kind: &str) -> Value {
    let pointer = format!(
        "/metadata/annotations/{}",
        labels::REQUESTED_BY.replace('/', "~1")
    );
    let mut object = with(registered(request(kind, "shell")), &pointer, "alice");
    if ["HarnessRun", "Workspace"].contains(&kind) {
        object["apiVersion"] = "paddock.dev/v1alpha1".into();
    }
    object
}

fn delete(user: &str, kind: &str) -> Attempt {
    Attempt {
        operation: "DELETE",
        object: None,
        old: Some(stored(kind)),
        ..Attempt::create(user, &["devs"], stored(kind))
    }
}

/// Each kind that users request, with the right to end the requests of other users.
const KINDS: [(&str, &str); 6] = [
    ("ExecAccessRequest", "revoke execaccessrequests"),
    ("PodAccessRequest", "revoke podaccessrequests"),
    ("TransientRoleBinding", "revoke transientrolebindings"),
    (
        "TransientClusterRoleBinding",
        "revoke transientclusterrolebindings",
    ),
    ("HarnessRun", "revoke harnessruns"),
    ("Workspace", "revoke workspaces"),
];

#[tokio::test]
async fn deletion_of_request_is_recorded_with_user() {
    for (kind, _) in KINDS {
        let webhook = Webhook::new(Server::default());
        for (user, message) in [
            ("alice", format!("alice deleted the {kind}")),
            ("bob", format!("bob deleted a {kind} of alice")),
        ] {
            let answer = webhook
                .review("observe-deletion", &delete(user, kind))
                .await;
            assert!(answer.allowed, "{user}: {answer:?}");
            let record = webhook.recorded().pop().unwrap();
            assert_eq!(
                (record.action, record.decision),
                (Action::RequestDeleted, Decision::End)
            );
            assert_eq!(record.message, message);
            assert_eq!(record.user.unwrap().user, user);
            assert_eq!(record.request.name, "mine");
            assert_eq!(record.details["requester"], "alice");
        }
        let before = webhook.recorded().len();
        let dry = delete("alice", kind).dry();
        assert!(webhook.review("observe-deletion", &dry).await.allowed);
        assert_eq!(webhook.recorded().len(), before);
    }
}

#[tokio::test]
async fn the_access_of_others_is_ended_by_who_may_revoke_it() {
    for (kind, right) in KINDS {
        let webhook = Webhook::new(Server {
            forbids: vec![right],
            ..Server::default()
        });
        let answer = webhook
            .review("observe-deletion", &delete("bob", kind))
            .await;
        assert_eq!(answer.refusal(), Some("NotRequester"));
        assert!(answer.status.message.contains("oz-revoke-access"));
        let record = webhook.recorded().pop().unwrap();
        assert_eq!(
            (record.action, record.decision),
            (Action::RequestDeleted, Decision::Deny)
        );
        let own = webhook
            .review("observe-deletion", &delete("alice", kind))
            .await;
        assert!(own.allowed, "{own:?}");
    }
}

#[test]
fn kinds_that_people_request_are_all_tested() {
    let ours = |kind: &&ApiResource| kind.group != "example.com";
    let all = requested();
    let all: Vec<&str> = all.iter().filter(ours).map(|kind| &*kind.kind).collect();
    assert_eq!(all, KINDS.map(|(kind, _)| kind));
}

#[tokio::test]
async fn access_is_ended_whether_or_not_that_can_be_put_on_record() {
    let broken = Records {
        broken: true,
        ..Records::default()
    };
    let webhook = Webhook::recording(Server::default(), broken);
    for (kind, _) in KINDS {
        let answer = webhook
            .review("observe-deletion", &delete("alice", kind))
            .await;
        assert!(answer.allowed, "{answer:?}");
    }
}
