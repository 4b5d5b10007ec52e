//! The users who may write and delete AuditEvents.

use oz_trail::{AuditEvent, AuditKey, Chain, Writer};
use serde_json::{Value, json};

use super::server::Server;
use super::{Attempt, BROKER, GATE, OPERATOR, WEBHOOK, Webhook, now};

fn event() -> Value {
    let writer = Writer::new("oz-operator", "oz-0", now(), 1);
    let (_, entry) = Chain::begin(writer, now(), &[], &AuditKey::new(&[1; 32]));
    let mut event = serde_json::to_value(AuditEvent::from(entry)).unwrap();
    event["metadata"]["namespace"] = json!("");
    // The contents of an event do not identify its writer.
    event["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("oz");
    event
}

#[tokio::test]
async fn events_are_written_by_ozs_processes_and_deleted_by_the_operator_only() {
    let webhook = Webhook::new(Server::default());
    let anybody = [
        "admin",
        "system:admin",
        "system:serviceaccount:oz-system:default",
        "system:serviceaccount:oz-system:oz-operator-2",
        "system:serviceaccount:shop:oz-operator",
        "system:serviceaccount:shop:oz-broker",
        "system:serviceaccount:kube-system:generic-garbage-collector",
    ];
    let create = |user: &str| Attempt::create(user, &["system:masters"], event());
    let update = |user: &str| Attempt::update(user, &event(), event());
    let delete = |user: &str| Attempt {
        operation: "DELETE",
        object: None,
        old: Some(event()),
        ..create(user)
    };
    for user in anybody {
        for attempt in [create(user), update(user), delete(user)] {
            let answer = webhook.validate(&attempt).await;
            assert_eq!(answer.refusal(), Some("AuditTrailReserved"), "{user}");
        }
    }
    for (attempt, allowed) in [
        (create(OPERATOR), true),
        (create(WEBHOOK), true),
        (create(BROKER), true),
        (create(GATE), true),
        (delete(GATE), false),
        (delete(OPERATOR), true),
        (delete(WEBHOOK), false),
        (delete(BROKER), false),
        (update(OPERATOR), false),
        (update(WEBHOOK), false),
        (update(BROKER), false),
    ] {
        let answer = webhook.validate(&attempt).await;
        assert_eq!(answer.refusal().is_none(), allowed, "{}", attempt.operation);
    }
}
