//! The webhook configurations, word for word: names, paths and exemptions are promises.

use serde_json::{Value, json};

use super::server::Server;
use super::{OPERATOR, Webhook};

#[tokio::test]
async fn the_webhooks_are_registered_like_this() {
    let webhook = Webhook::new(Server::default());
    insta::assert_yaml_snapshot!(webhook.manager.configurations());
}

#[tokio::test]
async fn stamp_hooks_cover_all_objects_and_fail_open_for_deletions() {
    let webhook = Webhook::new(Server::default());
    for configuration in webhook.manager.configurations() {
        for hook in configuration["webhooks"].as_array().unwrap() {
            let name = hook["name"].as_str().unwrap();
            let others = ["vpod", "connect", "guard-", "observe-policy"];
            if others.iter().any(|one| name.starts_with(one)) {
                // The hooks of connections, and those that guard or observe other kinds, have
                // separate rules.
                continue;
            }
            let observes_deletions = hook["rules"][0]["operations"] == json!(["DELETE"]);
            let failure = if observes_deletions { "Ignore" } else { "Fail" };
            assert_eq!(hook["failurePolicy"], failure, "{name}");
            assert_eq!(hook["namespaceSelector"], json!({}), "every namespace");
            assert_eq!(hook["objectSelector"], json!({}), "every object");
            // Events are no requests: only the reaper deletes them. Nor are approvals and reviews:
            // the deletion of one ends no access.
            let others = [
                "vauditevent.kb.io",
                "vaccessrequestapproval.kb.io",
                "vaccessreview.kb.io",
            ];
            let no_request = others.contains(&name);
            for rule in hook["rules"].as_array().unwrap() {
                assert!(
                    no_request
                        || observes_deletions
                        || !rule["operations"]
                            .as_array()
                            .unwrap()
                            .contains(&"DELETE".into())
                );
            }
            // A template gives no access, and its garbage is collected without the webhook.
            let stamps = !name.ends_with("template.kb.io");
            if configuration["kind"] == "MutatingWebhookConfiguration" && stamps {
                let condition = match name {
                    // The operator seals its own writes.
                    "maccessreview.kb.io" => json!([{
                        "name": "not-by-oz",
                        "expression": format!("request.userInfo.username != \"{OPERATOR}\""),
                    }]),
                    // The operator writes the status, and the garbage collector no spec.
                    "mbrokerpolicy.kb.io" => hook["matchConditions"].clone(),
                    _ => Value::Null,
                };
                assert_eq!(hook["matchConditions"], condition, "{name}");
            }
        }
    }
}
