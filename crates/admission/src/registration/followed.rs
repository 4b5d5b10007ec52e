//! Webhooks with changing rules: the distinction between a change of rules and damage in a live
//! configuration. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::drift::{by_name, drift};

/// Sets the live rules on webhooks with unknown rules; an unregistered webhook stays unregistered.
pub(crate) fn adopt(wanted: &mut Value, live: Option<&Value>) {
    let live = live.map(|live| by_name(&live["webhooks"]));
    let found = |webhook: &Value| -> Option<Value> {
        let live = live.as_ref()?.get(webhook["name"].as_str()?)?;
        live.get("rules").cloned()
    };
    if let Some(webhooks) = wanted["webhooks"].as_array_mut() {
        webhooks.retain_mut(|webhook| {
            if webhook.get("rules").is_some() {
                return true;
            }
            let Some(rules) = found(webhook) else {
                return false;
            };
            webhook["rules"] = rules;
            true
        });
    }
}

/// Returns the path of a webhook of the product that is registered and should not be.
pub(crate) fn surplus(absent: &BTreeSet<String>, live: &Value) -> Option<String> {
    let live = by_name(&live["webhooks"]);
    let found = absent.iter().find(|name| live.contains_key(name.as_str()));
    found.map(|name| format!("webhooks[{name}]"))
}

/// Returns `live` without these webhooks.
pub(crate) fn without(absent: &BTreeSet<String>, mut live: Value) -> Value {
    if let Some(webhooks) = live["webhooks"].as_array_mut() {
        webhooks.retain(|webhook| {
            !webhook["name"]
                .as_str()
                .is_some_and(|it| absent.contains(it))
        });
    }
    live
}

/// Checks whether a live configuration is as desired except for the rules of these webhooks, and for which
/// of them have rules.
pub(crate) fn differs_in_rules_only(
    desired: &Value,
    live: &Value,
    following: &BTreeSet<String>,
) -> bool {
    if following.is_empty() {
        return false;
    }
    let theirs: BTreeMap<&str, &Value> = by_name(&live["webhooks"]);
    let mut like = desired.clone();
    if let Some(webhooks) = like["webhooks"].as_array_mut() {
        webhooks.retain_mut(|webhook| {
            let name = webhook["name"].as_str();
            let Some(name) = name.filter(|name| following.contains(*name)) else {
                return true;
            };
            let Some(theirs) = theirs.get(name) else {
                return false;
            };
            webhook["rules"] = theirs["rules"].clone();
            true
        });
    }
    drift(&like, live).is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn configuration(webhooks: &[(&str, Option<&str>)]) -> Value {
        let webhooks = webhooks.iter().map(|(name, plural)| {
            let mut webhook = json!({"name": name, "failurePolicy": "Fail"});
            if let Some(plural) = plural {
                webhook["rules"] = json!([{"resources": [plural]}]);
            }
            webhook
        });
        json!({"metadata": {"labels": {}}, "webhooks": webhooks.collect::<Vec<_>>()})
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn rules_that_are_not_known_stay_as_they_are_registered() {
        let mut wanted = configuration(&[("fixed", Some("pods")), ("a", None), ("b", None)]);
        let live = configuration(&[("fixed", Some("nodes")), ("a", Some("widgets"))]);
        adopt(&mut wanted, Some(&live));
        let both = configuration(&[("fixed", Some("pods")), ("a", Some("widgets"))]);
        assert_eq!(wanted, both);
        let mut wanted = configuration(&[("fixed", Some("pods")), ("a", None)]);
        adopt(&mut wanted, None);
        assert_eq!(wanted, configuration(&[("fixed", Some("pods"))]));
    }

    #[test]
    fn a_webhook_without_a_rule_is_taken_away_and_those_of_others_stay() {
        let live = configuration(&[("a", Some("widgets")), ("theirs", Some("pods"))]);
        let absent = names(&["a"]);
        let path = surplus(&absent, &live);
        assert_eq!(path.as_deref(), Some("webhooks[a]"));
        let rest = without(&absent, live);
        assert_eq!(rest, configuration(&[("theirs", Some("pods"))]));
        assert_eq!(surplus(&absent, &rest), None);
    }

    #[test]
    fn difference_in_followed_rules_only_is_not_damage() {
        let following = names(&["a", "b"]);
        let desired = configuration(&[("fixed", Some("pods")), ("a", Some("widgets"))]);
        let others = configuration(&[
            ("fixed", Some("pods")),
            ("a", Some("gadgets")),
            ("b", Some("x")),
        ]);
        assert!(differs_in_rules_only(&desired, &others, &following));
        assert!(!differs_in_rules_only(&desired, &others, &names(&[])));
        let fewer = configuration(&[("fixed", Some("pods"))]);
        assert!(differs_in_rules_only(&desired, &fewer, &following));
        let damaged = configuration(&[("fixed", Some("nodes")), ("a", Some("gadgets"))]);
        assert!(!differs_in_rules_only(&desired, &damaged, &following));
        let mut weaker = others;
        weaker["webhooks"][1]["failurePolicy"] = json!("Ignore");
        assert!(!differs_in_rules_only(&desired, &weaker, &following));
    }
}
