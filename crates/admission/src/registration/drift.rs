//! The difference between a live webhook configuration and the desired one. Pure.
//!
//! Other writers may add labels, annotations and webhooks to the object; these additions stay. The webhooks
//! of the product must not differ: an added condition there would disable an extension.

use std::collections::BTreeMap;

use serde_json::Value;

/// Fields that must not appear in the webhooks of the product unless the manager wrote them. All other
/// omitted fields are defaults of API versions newer than this library.
const GUARDED: [&str; 1] = ["matchConditions"];

/// Returns the path of the first difference to repair, if there is one.
pub(crate) fn drift(desired: &Value, live: &Value) -> Option<String> {
    labels(desired, live).or_else(|| {
        let live = by_name(&live["webhooks"]);
        by_name(&desired["webhooks"])
            .into_iter()
            .find_map(|(name, desired)| {
                let path = format!("webhooks[{name}]");
                match live.get(name) {
                    Some(live) => webhook(&path, desired, live),
                    None => Some(path),
                }
            })
    })
}

/// Returns `live` with the webhooks of the product exactly as desired, and all else unchanged: for fields
/// that an apply cannot remove, because another field manager owns them.
pub(crate) fn enforced(desired: &Value, live: &Value) -> Value {
    let wanted = by_name(&desired["webhooks"]);
    let mut result = live.clone();
    for webhook in result["webhooks"].as_array_mut().into_iter().flatten() {
        let name = webhook["name"].as_str();
        if let Some(wanted) = name.and_then(|name| wanted.get(name).copied()) {
            let injected = webhook["clientConfig"]["caBundle"].take();
            *webhook = wanted.clone();
            if names_no_bundle(wanted) && !injected.is_null() {
                webhook["clientConfig"]["caBundle"] = injected;
            }
        }
    }
    result
}

fn labels(desired: &Value, live: &Value) -> Option<String> {
    let wanted = desired["metadata"]["labels"].as_object()?;
    wanted.iter().find_map(|(key, value)| {
        (live["metadata"]["labels"].get(key) != Some(value))
            .then(|| format!("metadata.labels[{key}]"))
    })
}

fn webhook(path: &str, desired: &Value, live: &Value) -> Option<String> {
    let wanted = desired.as_object()?;
    let differing = wanted.iter().find(|(key, value)| match key.as_str() {
        // The API server treats this list as a map; its order is irrelevant.
        "matchConditions" => by_name(value) != by_name(&live[key.as_str()]),
        "clientConfig" if names_no_bundle(desired) => {
            let mut live = live["clientConfig"].clone();
            live.as_object_mut().map(|it| it.remove("caBundle"));
            live != **value
        }
        key => live.get(key) != Some(value),
    });
    let added = || {
        GUARDED.iter().find(|key| {
            !wanted.contains_key(**key)
                && live[**key].as_array().is_some_and(|list| !list.is_empty())
        })
    };
    differing
        .map(|(key, _)| key.as_str())
        .or_else(|| added().copied())
        .map(|key| format!("{path}.{key}"))
}

/// Checks whether another component sets the trusted authorities, such as cert-manager's injector.
fn names_no_bundle(webhook: &Value) -> bool {
    webhook["clientConfig"].get("caBundle").is_none()
}

pub(crate) fn by_name(list: &Value) -> BTreeMap<&str, &Value> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| Some((item["name"].as_str()?, item)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn desired() -> Value {
        json!({
            "metadata": {"name": "acme", "labels": {"oz-admission/fingerprint": "acme"}},
            "webhooks": [{"name": "a.acme.admission", "failurePolicy": "Fail",
                "clientConfig": {"caBundle": "AAAA", "url": "https://h/a"},
                "objectSelector": {}, "rules": [{"operations": ["CREATE"]}]}],
        })
    }

    /// Returns the object as the API server would show it, with additions by other writers and by newer
    /// versions.
    fn live() -> Value {
        let mut live = desired();
        live["metadata"]["resourceVersion"] = json!("7");
        live["metadata"]["labels"]["team"] = json!("theirs");
        live["webhooks"][0]["newDefault"] = json!("x");
        live["webhooks"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "theirs.example.com"}));
        live
    }

    #[test]
    fn fields_added_by_other_managers_are_not_drift() {
        assert_eq!(drift(&desired(), &live()), None);
    }

    #[test]
    fn each_kind_of_damage_is_found_and_named() {
        type Damage = fn(&mut Value);
        let damages: [(&str, Damage); 7] = [
            ("webhooks[a.acme.admission].clientConfig", |v| {
                v["webhooks"][0]["clientConfig"]["caBundle"] = json!("BBBB");
            }),
            ("webhooks[a.acme.admission].rules", |v| {
                v["webhooks"][0]["rules"][0]["operations"] = json!(["DELETE"]);
            }),
            ("webhooks[a.acme.admission].failurePolicy", |v| {
                v["webhooks"][0]["failurePolicy"] = json!("Ignore");
            }),
            ("webhooks[a.acme.admission].objectSelector", |v| {
                v["webhooks"][0]["objectSelector"] = json!({"matchLabels": {"no": "match"}});
            }),
            ("webhooks[a.acme.admission].matchConditions", |v| {
                v["webhooks"][0]["matchConditions"] =
                    json!([{"name": "off", "expression": "false"}]);
            }),
            ("webhooks[a.acme.admission]", |v| {
                v["webhooks"].as_array_mut().unwrap().remove(0);
            }),
            ("metadata.labels[oz-admission/fingerprint]", |v| {
                v["metadata"]["labels"] = json!({});
            }),
        ];
        for (path, damage) in damages {
            let mut live = live();
            damage(&mut live);
            assert_eq!(drift(&desired(), &live).as_deref(), Some(path));
        }
    }

    #[test]
    fn injected_webhook_bundle_is_kept_and_is_no_drift() {
        let mut desired = desired();
        desired["webhooks"][0]["clientConfig"] = json!({"url": "https://h/a"});
        assert_eq!(drift(&desired, &live()), None);
        let mut broken = live();
        broken["webhooks"][0]["matchConditions"] = json!([{"name": "off", "expression": "false"}]);
        let result = enforced(&desired, &broken);
        assert_eq!(drift(&desired, &result), None);
        assert_eq!(
            result["webhooks"][0]["clientConfig"]["caBundle"],
            json!("AAAA")
        );
        broken["webhooks"][0]["clientConfig"]["url"] = json!("https://elsewhere/a");
        let path = "webhooks[a.acme.admission].clientConfig";
        assert_eq!(drift(&desired, &broken).as_deref(), Some(path));
    }

    #[test]
    fn enforcing_takes_away_foreign_conditions_and_leaves_foreign_webhooks() {
        let mut broken = live();
        broken["webhooks"][0]["matchConditions"] = json!([{"name": "off", "expression": "false"}]);
        let result = enforced(&desired(), &broken);
        assert_eq!(drift(&desired(), &result), None);
        assert_eq!(result["webhooks"][1]["name"], json!("theirs.example.com"));
        assert_eq!(result["metadata"]["labels"]["team"], json!("theirs"));
    }
}
