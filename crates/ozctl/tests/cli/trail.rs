//! A trail of two records, whole and signed, as a cluster has it: events, the published key, and the
//! checkpoint.

use jiff::Timestamp;
use oz_api::Requester;
use oz_trail::{
    Action, AuditEvent, AuditKey, Chain, Checkpoint, Decision, Entry, Medium, PodRef, Record,
    RequestRef, Writer, name_of,
};
use serde_json::{Value, json};

fn timestamp(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn key() -> AuditKey {
    AuditKey::new(&[7; AuditKey::BYTES])
}

fn entries() -> Vec<Entry> {
    let began = timestamp("2026-01-01T11:59:00Z");
    let writer = Writer::new("oz-operator", "oz-operator-x2x8p", began, 1);
    let (mut chain, first) = Chain::begin(writer, began, &[], &key());
    vec![first, chain.append(granted(), &key())]
}

fn granted() -> Record {
    Record {
        id: "0123abcd".to_owned(),
        time: timestamp("2026-01-01T12:00:00Z"),
        action: Action::AccessGranted,
        decision: Decision::Allow,
        reason: "Granted".to_owned(),
        message: "alice may exec in pod web-7d4b9c5f6-x2x8p".to_owned(),
        user: Some(Requester {
            user: "alice".to_owned(),
            groups: vec!["devs".to_owned()],
            ..Requester::default()
        }),
        request: RequestRef {
            kind: "ExecAccessRequest".to_owned(),
            namespace: "shop".to_owned(),
            name: "alice-x7k2p".to_owned(),
            uid: "uid-of-alice-x7k2p".to_owned(),
        },
        template: "shell".to_owned(),
        pod: Some(PodRef {
            name: "web-7d4b9c5f6-x2x8p".to_owned(),
            ..PodRef::default()
        }),
        ..Record::default()
    }
}

/// Returns the records, as events.
pub(crate) fn events() -> Vec<Value> {
    let events = entries().into_iter().map(AuditEvent::from);
    events
        .map(|event| serde_json::to_value(event).unwrap())
        .collect()
}

/// Returns the name of the event about alice's grant.
pub(crate) fn grants_name() -> String {
    entries().last().map(name_of).unwrap_or_default()
}

/// Returns a ConfigMap of oz's namespace.
pub(crate) fn map(name: &str) -> Option<Value> {
    let (slot, text) = match name {
        "oz-audit-keys" => {
            let published = serde_json::to_string(&key().published(None)).unwrap();
            (key().id().to_owned(), published)
        }
        "oz-audit-checkpoints" => {
            let head = entries().last()?.head(&[Medium::Objects]);
            let checkpoint = Checkpoint::sign(head, &key());
            (
                checkpoint.slot(),
                serde_json::to_string(&checkpoint).unwrap(),
            )
        }
        _ => return None,
    };
    Some(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "oz-system"}, "data": {slot: text},
    }))
}
