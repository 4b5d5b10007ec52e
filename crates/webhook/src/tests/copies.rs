//! The hooks that prevent copies of the rights of a grant, called with various objects.

use oz_admission::testing;
use oz_trail::{Action, Decision};
use prometheus_client::encoding::text::encode;
use serde_json::{Value, json};

use super::connect::grant;
use super::server::Server;
use super::{Answer, Webhook};

const ROLE: &str = "/guard-copied-role";
const BINDING: &str = "/guard-copied-rolebinding";

/// Returns the rules of alice's grant: exec into pod web.
fn copy() -> Value {
    json!([{
        "apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"],
        "resourceNames": ["web"],
    }])
}

fn role(rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": "mine", "namespace": "shop" }, "rules": rules,
    })
}

fn binding(kind: &str, role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "mine", "namespace": "shop" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice" }],
    })
}

async fn written(webhook: &Webhook, path: &str, user: &str, object: &Value) -> Answer {
    let request = testing::Request::create(object)
        .user(user)
        .groups(&["devs"]);
    request.send(&webhook.manager, path).await.into()
}

/// Returns a webhook in which no user may exec into every pod; alice has a grant for one.
fn webhook(server: Server) -> Webhook {
    let webhook = Webhook::new(Server {
        forbids: vec!["create pods/exec", "get pods/exec"],
        ..server
    });
    webhook.grants.insert(grant());
    webhook
}

#[tokio::test]
async fn a_role_with_the_rights_of_ones_grant_is_refused_and_on_record() {
    let webhook = webhook(Server::default());
    let answer = written(&webhook, ROLE, "alice", &role(&copy())).await;
    assert_eq!(answer.refusal(), Some("GrantCopied"));
    assert!(
        answer
            .status
            .message
            .contains("Role mine grants create pods/exec for pod web")
    );
    let [record] = &webhook.recorded()[..] else {
        panic!("{:?}", webhook.recorded());
    };
    assert_eq!(
        (record.action, record.decision),
        (Action::GrantCopied, Decision::Deny)
    );
    assert_eq!(record.details["role"], "Role mine");
    assert_eq!(record.details["request"], "mine");
}

#[tokio::test]
async fn role_of_other_author_or_content_is_no_copy_of_grant() {
    let webhook = webhook(Server::default());
    let other = json!([{
        "apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"], "resourceNames": ["db"],
    }]);
    for (user, rules) in [("bob", copy()), ("alice", other), ("alice", json!(null))] {
        assert!(written(&webhook, ROLE, user, &role(&rules)).await.allowed);
    }
    assert!(webhook.recorded().is_empty());
}

#[tokio::test]
async fn user_who_may_exec_everywhere_may_copy_grant() {
    let webhook = Webhook::new(Server::default());
    webhook.grants.insert(grant());
    assert!(
        written(&webhook, ROLE, "alice", &role(&copy()))
            .await
            .allowed
    );
}

#[tokio::test]
async fn a_binding_is_judged_by_what_its_role_hands_out() {
    for (user, kind, name, refusal) in [
        ("alice", "Role", "copy", Some("GrantCopied")),
        ("alice", "ClusterRole", "copy", Some("GrantCopied")),
        ("alice", "Role", "harmless", None),
        ("alice", "Role", "absent", None),
        ("bob", "Role", "copy", None),
    ] {
        let webhook = webhook(Server {
            roles: vec![("copy", copy())],
            ..Server::default()
        });
        let reads = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]);
        for (name, rules) in [("copy", copy()), ("harmless", reads)] {
            let role = json!({ "metadata": { "name": name }, "rules": rules });
            webhook.server.has_role(role);
        }
        let answer = written(&webhook, BINDING, user, &binding(kind, name)).await;
        assert_eq!(
            answer.refusal(),
            refusal,
            "{user} {kind} {name}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn a_binding_that_cannot_be_judged_is_let_through_with_an_alarm() {
    tokio::time::pause();
    let silent = webhook(Server {
        silent: true,
        ..Server::default()
    });
    let answer = written(&silent, BINDING, "alice", &binding("Role", "copy")).await;
    assert!(answer.allowed, "{answer:?}");
    let [record] = &silent.recorded()[..] else {
        panic!("{:?}", silent.recorded());
    };
    assert_eq!(
        (record.action, record.decision),
        (Action::GrantCopied, Decision::Note)
    );
    assert_eq!(record.details["role"], "Role copy");
    let mut metrics = String::new();
    encode(&mut metrics, &silent.registry).unwrap();
    assert!(
        metrics.contains("oz_grant_copies_unchecked_total 1"),
        "{metrics}"
    );
    // A known copy is denied although not all rights are known.
    let answer = written(&silent, ROLE, "alice", &role(&copy())).await;
    assert_eq!(answer.refusal(), Some("PermissionsUnknown"));
}
