//! The replica that wrote a configuration. During a rollout, two versions may register different
//! configurations; each would repair the changes of the other, again and again.
//!
//! The writer names itself in an annotation, sealed with a key that only replicas have, together with all
//! that was written: no other writer can claim to be a replica, and a configuration that was changed since
//! has no valid seal. The replica that started last has precedence for a limited time: if it no longer
//! exists, the remaining ones do not wait for it forever. Pure, except for the memory of seen writers.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::FINGERPRINT_LABEL;
use crate::crypto::{equal, hex, hmac_sha256};

/// The annotation on a configuration.
pub(crate) const WRITTEN_BY_ANNOTATION: &str = "oz-admission/written-by";

/// The time for which a configuration of another replica counts as part of a rollout, from the instant at
/// which this replica first saw it. The time suffices to replace the earlier replicas; a configuration that
/// still exists later is of a rollout that was aborted, or was restored by another writer.
const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(120);

/// The time for which rules of another replica stay unchanged although this one knows others: the other
/// replica may have seen a change first. It is longer than the lag between two watches, unless one is
/// broken.
pub(crate) const RULES_TIMEOUT: Duration = Duration::from_secs(5);

/// A replica. Replicas that started later are greater.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Writer {
    /// The instant at which it started.
    pub(crate) since: Timestamp,
    pub(crate) identity: String,
}

/// The content of the annotation.
#[derive(Serialize, Deserialize)]
struct Origin {
    #[serde(flatten)]
    writer: Writer,
    /// The names of the written webhooks; other writers may have added theirs.
    webhooks: Vec<String>,
    seal: String,
}

/// Marks `object`, a configuration with its kind, as written by `writer`.
pub(crate) fn mark(object: &mut Value, writer: &Writer, key: &[u8]) -> serde_json::Result<()> {
    let mut webhooks: Vec<String> = webhooks_by_name(object)
        .into_keys()
        .map(ToOwned::to_owned)
        .collect();
    webhooks.sort();
    let seal = seal(object, writer, &webhooks, key);
    let origin = Origin {
        writer: writer.clone(),
        webhooks,
        seal: hex(&seal),
    };
    object["metadata"]["annotations"][WRITTEN_BY_ANNOTATION] =
        serde_json::to_string(&origin)?.into();
    Ok(())
}

/// Returns the replica that wrote `object`, if the object is unchanged since.
pub(crate) fn writer(object: &Value, key: &[u8]) -> Option<Writer> {
    let text = object["metadata"]["annotations"][WRITTEN_BY_ANNOTATION].as_str()?;
    let origin: Origin = serde_json::from_str(text).ok()?;
    let written = seal(object, &origin.writer, &origin.webhooks, key);
    let said = unhex(&origin.seal)?;
    equal(&written, &said).then_some(origin.writer)
}

/// Computes the seal over the product's label, and over all of the webhooks with these names, including
/// additions by other writers.
fn seal(object: &Value, writer: &Writer, names: &[String], key: &[u8]) -> [u8; 32] {
    let live = webhooks_by_name(object);
    let webhooks: Vec<Option<Value>> = names
        .iter()
        .map(|name| {
            let mut webhook = live.get(name.as_str()).copied().cloned();
            // The API server treats this list as a map; its order is irrelevant.
            if let Some(Value::Array(conditions)) = webhook
                .as_mut()
                .and_then(|it| it.get_mut("matchConditions"))
            {
                conditions.sort_by_key(|it| it["name"].as_str().map(ToOwned::to_owned));
            }
            webhook
        })
        .collect();
    let text = json!([
        object["kind"],
        object["metadata"]["name"],
        object["metadata"]["labels"][FINGERPRINT_LABEL],
        writer,
        names,
        webhooks
    ]);
    hmac_sha256(key, "oz-admission/written-by", text.to_string().as_bytes())
}

fn webhooks_by_name(object: &Value) -> BTreeMap<&str, &Value> {
    let webhooks = object["webhooks"].as_array().into_iter().flatten();
    webhooks
        .filter_map(|webhook| Some((webhook["name"].as_str()?, webhook)))
        .collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// The precedence between replicas.
#[derive(Debug)]
pub(crate) struct Precedence {
    pub(crate) me: Writer,
    met: Mutex<BTreeMap<Writer, Instant>>,
    /// The version of each kind with rules of another replica, and the instant since which it is known.
    rules: Mutex<BTreeMap<&'static str, (String, Instant)>>,
}

impl Precedence {
    pub(crate) fn new(me: Writer) -> Self {
        Self {
            me,
            met: Mutex::default(),
            rules: Mutex::default(),
        }
    }

    /// Checks whether a configuration of another replica is left unchanged for now.
    pub(crate) fn yields(&self, other: &Writer, now: Instant) -> bool {
        *other > self.me && self.is_rollout(other, now)
    }

    /// Checks whether another replica, which wrote this version of a configuration, may know of rules that
    /// this one has not seen yet.
    pub(crate) fn may_know_more(
        &self,
        other: &Writer,
        (kind, version): (&'static str, &str),
        now: Instant,
    ) -> bool {
        if *other == self.me {
            return false;
        }
        let mut rules = self.rules.lock();
        let (seen, since) = rules.entry(kind).or_insert((version.to_owned(), now));
        if seen != version {
            (*seen, *since) = (version.to_owned(), now);
        }
        now.duration_since(*since) < RULES_TIMEOUT
    }

    /// Checks whether a configuration of another replica is not damage. Each replica has its time once:
    /// writing the same content again, by the replica or by another writer, does not extend it.
    pub(crate) fn is_rollout(&self, other: &Writer, now: Instant) -> bool {
        if *other == self.me {
            return false;
        }
        let mut met = self.met.lock();
        let first = *met.entry(other.clone()).or_insert(now);
        now.duration_since(first) < ROLLOUT_TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"a key";

    fn writer_since(since: &str, identity: &str) -> Writer {
        Writer {
            since: since.parse().unwrap(),
            identity: identity.to_owned(),
        }
    }

    fn marked() -> Value {
        let mut object = json!({
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "acme", "labels": {FINGERPRINT_LABEL: "acme"}},
            "webhooks": [
                {"name": "a.acme.admission", "failurePolicy": "Fail",
                 "matchConditions": [{"name": "x", "expression": "true"},
                                     {"name": "y", "expression": "true"}]},
                {"name": "b.acme.admission", "failurePolicy": "Fail"},
            ],
        });
        mark(
            &mut object,
            &writer_since("2026-01-01T12:00:00Z", "one"),
            KEY,
        )
        .unwrap();
        object
    }

    #[test]
    fn writer_is_identified_despite_additions_of_others() {
        let me = Some(writer_since("2026-01-01T12:00:00Z", "one"));
        assert_eq!(writer(&marked(), KEY), me);
        let mut live = marked();
        live["metadata"]["labels"]["team"] = json!("theirs");
        let webhooks = live["webhooks"].as_array_mut().unwrap();
        webhooks.reverse();
        webhooks.push(json!({"name": "theirs.example.com"}));
        webhooks[1]["matchConditions"]
            .as_array_mut()
            .unwrap()
            .reverse();
        assert_eq!(writer(&live, KEY), me);
    }

    #[test]
    fn configuration_changed_after_sealing_names_no_writer() {
        type Change = fn(&mut Value);
        let said = |object: &Value| -> Value {
            let text = &object["metadata"]["annotations"][WRITTEN_BY_ANNOTATION];
            serde_json::from_str(text.as_str().unwrap()).unwrap()
        };
        let later = |object: &mut Value| {
            let mut origin = said(object);
            origin["since"] = json!("2100-01-01T00:00:00Z");
            object["metadata"]["annotations"][WRITTEN_BY_ANNOTATION] = origin.to_string().into();
        };
        let fewer = |object: &mut Value| {
            let mut origin = said(object);
            origin["webhooks"] = json!(["a.acme.admission"]);
            object["metadata"]["annotations"][WRITTEN_BY_ANNOTATION] = origin.to_string().into();
        };
        let changes: [(&str, Change); 7] = [
            ("weaker", |it| {
                it["webhooks"][1]["failurePolicy"] = json!("Ignore")
            }),
            ("with a condition", |it| {
                it["webhooks"][1]["matchConditions"] = json!([{"name": "off"}]);
            }),
            ("without one", |it| {
                it["webhooks"].as_array_mut().unwrap().pop();
            }),
            ("of the other kind", |it| {
                it["kind"] = json!("MutatingWebhookConfiguration");
            }),
            ("of another product", |it| {
                it["metadata"]["name"] = json!("other")
            }),
            ("without our label", |it| {
                it["metadata"]["labels"] = json!({})
            }),
            ("unmarked", |it| it["metadata"]["annotations"] = json!({})),
        ];
        for (what, change) in changes {
            let mut live = marked();
            change(&mut live);
            assert_eq!(writer(&live, KEY), None, "{what}");
        }
        let mut live = marked();
        later(&mut live);
        assert_eq!(writer(&live, KEY), None);
        let mut live = marked();
        fewer(&mut live);
        assert_eq!(writer(&live, KEY), None);
        assert_eq!(writer(&marked(), b"another key"), None);
    }

    #[test]
    fn the_latest_has_its_way_for_the_time_of_a_rollout() {
        let (early, late) = (
            writer_since("2026-01-01T12:00:00Z", "b"),
            writer_since("2026-01-01T12:00:01Z", "a"),
        );
        let now = Instant::now();
        let newcomer = Precedence::new(late.clone());
        assert!(!newcomer.yields(&early, now));
        assert!(!newcomer.yields(&late, now), "what it wrote itself");
        let elder = Precedence::new(early);
        assert!(elder.yields(&late, now));
        assert!(elder.yields(&late, now + ROLLOUT_TIMEOUT - Duration::from_secs(1)));
        assert!(!elder.yields(&late, now + ROLLOUT_TIMEOUT));
        assert!(
            !elder.yields(&late, now + ROLLOUT_TIMEOUT * 2),
            "no time is earned again"
        );
        // A configuration of an earlier replica is not damage, but one that it wrote long ago and that is
        // restored is.
        assert!(newcomer.is_rollout(&elder.me, now));
        assert!(!newcomer.is_rollout(&elder.me, now + ROLLOUT_TIMEOUT));
        assert!(!newcomer.is_rollout(&late, now), "its own, from before");
        // Rules that the other replica may have seen first are left for a short time, once for each
        // version.
        assert!(newcomer.may_know_more(&elder.me, ("X", "1"), now));
        assert!(!newcomer.may_know_more(&elder.me, ("X", "1"), now + RULES_TIMEOUT));
        assert!(newcomer.may_know_more(&elder.me, ("X", "2"), now + RULES_TIMEOUT));
        assert!(!newcomer.may_know_more(&late, ("X", "3"), now), "its own");
        // Of two replicas that started at the same instant, one has precedence.
        let twin = writer_since("2026-01-01T12:00:00Z", "c");
        assert!(elder.yields(&twin, now));
        assert!(!Precedence::new(twin).yields(&elder.me, now));
    }
}
