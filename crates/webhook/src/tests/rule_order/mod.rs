//! The order of the rules between a request and its admission, for each kind that users request: the response to an
//! object that violates one rule, or two.

mod bindings;
mod requests;
mod runs;
#[path = "../../../../runs/tests/harness/rule_table.rs"]
mod table;

use futures::{StreamExt as _, stream};
use oz_api::{Requester, TicketConfig, labels};
use oz_core::access::policy::{Judgement, Refused, TicketRule};
use oz_core::access::stamp::Stamp;
use oz_core::kinds::Kind;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::server::Server;
use super::{Answer, Attempt, Records, Webhook, keys, now, registered, with};
use table::{Outcomes, violations};

/// The maximum number of concurrent responses.
const AT_ONCE: usize = 8;

/// The creation of an object that is admitted, and everything on which that depends.
struct World {
    server: Server,
    records: Records,
    object: Value,
    user: &'static str,
    groups: &'static [&'static str],
    /// The user in the stamp, if it is another one.
    stamped_by: Option<&'static str>,
    judgement: Judgement,
    /// The namespace of the object, and of all others of namespace `shop`.
    namespace: &'static str,
    /// The stored objects of the user that reach a limit.
    others: Vec<Value>,
    /// The violated rules.
    violated: Vec<&'static str>,
    digest: fn(&Value) -> String,
}

/// Returns the digest for the stamp of an object.
fn digest<K: Kind + DeserializeOwned>(object: &Value) -> String {
    serde_json::from_value::<K>(object.clone())
        .unwrap()
        .spec_digest()
}

impl World {
    fn new<K: Kind + DeserializeOwned>(object: Value, known: Vec<Value>) -> Self {
        Self {
            server: Server::with(known),
            records: Records::default(),
            object,
            user: "alice",
            groups: &["devs", "staff"],
            stamped_by: None,
            judgement: Judgement::default(),
            namespace: "shop",
            others: Vec::new(),
            violated: Vec::new(),
            digest: digest::<K>,
        }
    }

    fn set(&mut self, field: &str, value: impl Into<Value>) {
        self.object = with(self.object.take(), field, value);
    }

    /// Violates a rule of all kinds. A later change replaces the effects of an earlier one.
    fn violate(&mut self, rule: &'static str) {
        self.violated.push(rule);
        let known = &mut self.server.templates;
        match rule {
            "reserved namespace" => self.namespace = "oz-system",
            "namespace not served" => self.server.served = vec!["billing".to_owned()],
            "size" => {
                let labels = (0..65).map(|number| (format!("label-{number}"), "x".into()));
                self.set("/metadata/labels", Value::Object(labels.collect()));
            }
            "stamp of another user" => self.stamped_by = Some("eve"),
            "lock" => {
                // Each target counts: a rule about a user replaces one of them.
                let target = json!({"user": "alice", "group": "staff"});
                known.push(lock("incident-7", target));
            }
            "locks unreadable" => known.push(lock("unreadable", 7.into())),
            "policy denial" => {
                self.judgement.refused = Some(Refused {
                    policy: "careful".to_owned(),
                    failed: false,
                    message: "the freeze lasts until Monday".to_owned(),
                });
            }
            "policy reason" => {
                if self.object["spec"].is_object() {
                    self.set("/spec/reason", Value::Null);
                }
                self.judgement.require_reason = Some("careful".to_owned());
            }
            "policy ticket" => self.judgement.tickets.push(TicketRule {
                policy: "careful".to_owned(),
                ticket: TicketConfig::default(),
            }),
            "too many" => known.append(&mut self.others),
            "audit record" => self.records.broken = true,
            _ => {}
        }
    }

    fn stamp(&self, object: &Value) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let judgement = Some(&self.judgement).filter(|it| **it != Judgement::default());
        let stamp = Stamp {
            requester: Requester {
                user: self.stamped_by.unwrap_or(self.user).to_owned(),
                groups: self.groups.iter().map(ToString::to_string).collect(),
                ..Requester::default()
            },
            kind: text(&object["kind"]),
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
            spec_digest: (self.digest)(object),
            at: now(),
            nonce: "1".to_owned(),
            judgement: judgement.cloned(),
            ..Stamp::default()
        };
        stamp.seal(&keys()).unwrap()
    }

    /// Returns the response to the creation of the object.
    async fn outcome(mut self) -> String {
        let known = self.server.templates.iter_mut();
        for object in known.chain([&mut self.object]) {
            if object["metadata"]["namespace"] == "shop" {
                object["metadata"]["namespace"] = self.namespace.into();
            }
        }
        let mut object = registered(self.object.clone());
        object["metadata"]["annotations"] = json!({ labels::REQUESTER: self.stamp(&object) });
        for rule in self.violated {
            match rule {
                "stamp missing" => object["metadata"]["annotations"] = json!({}),
                "finalizer" => object["metadata"]["finalizers"] = json!([]),
                _ => {}
            }
        }
        let webhook = Webhook::recording(self.server, self.records);
        webhook.grants.wait_until_ready().await;
        let attempt = Attempt::create(self.user, self.groups, object);
        described(&webhook.validate(&attempt).await)
    }
}

/// Returns the names of rules that are separated by commas.
fn names(rules: &[&'static str]) -> Vec<&'static str> {
    rules.iter().flat_map(|rules| rules.split(", ")).collect()
}

fn lock(name: &str, target: Value) -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "AccessLock",
        "metadata": {"name": name, "uid": name},
        "spec": {"target": target, "reason": "stolen laptop"},
    })
}

fn described(answer: &Answer) -> String {
    if answer.allowed {
        return match answer.warnings.as_slice() {
            [] => "admitted".to_owned(),
            warnings => format!("admitted with a warning: {}", warnings.join("; ")),
        };
    }
    let status = &answer.status;
    let fields = match answer.fields().join(", ") {
        none if none.is_empty() => none,
        fields => format!(" [{fields}]"),
    };
    format!(
        "{} {}{fields}: {}",
        status.code, status.reason, status.message
    )
}

/// Compares the responses with the checked-in table; `violate` violates a rule.
async fn check(
    snapshot: &str,
    names: &[&'static str],
    violate: fn(&mut World, &'static str),
    admitted: impl Fn() -> World,
) {
    let outcomes = violations(names).into_iter().map(|violated| {
        let mut world = admitted();
        for rule in &violated {
            violate(&mut world, names[*rule]);
        }
        async move { (violated, world.outcome().await) }
    });
    let outcomes = stream::iter(outcomes).buffer_unordered(AT_ONCE);
    let outcomes: Outcomes = outcomes.collect().await;
    assert_eq!(outcomes[&Vec::new()], "admitted");
    insta::assert_snapshot!(snapshot, table::table(names, &outcomes));
}
