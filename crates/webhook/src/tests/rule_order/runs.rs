//! Harness runs.

use oz_api::harness::HarnessRun;
use serde_json::{Value, json};

use super::super::harness::{echo, object};
use super::{World, check, names};

/// The positions of the objects on which a run depends.
const TEMPLATE: usize = 0;
const POLICY: usize = 1;
const WORKSPACE: usize = 2;

const RULES: &str = "reserved namespace, namespace not served, size, spec, interactive, \
    workspace of other templates, stamp missing, stamp of another user, lock, locks unreadable, \
    emergency: not allowed, emergency: without reason, change ticket, policy denial, policy ticket, \
    emergency: reviews, reads, discovery expired, grants, audit record, template: misnamed, template: invalid, \
    template: base missing, template: missing";

fn violate(it: &mut World, rule: &'static str) {
    it.violate(rule);
    let known = &mut it.server.templates;
    match rule {
        "spec" => it.set("/spec/retries", 11),
        "interactive" => it.set("/spec/mode", "Interactive"),
        "workspace of other templates" => known[WORKSPACE]["spec"]["templates"] = json!(["other"]),
        "emergency: not allowed" => it.set("/spec/emergency", true),
        "emergency: without reason" => {
            known[TEMPLATE]["spec"]["emergency"] = emergency(1);
            it.set("/spec/emergency", true);
        }
        "emergency: reviews" => {
            known[TEMPLATE]["spec"]["emergency"] = emergency(0);
            it.set("/spec/emergency", true);
            it.set("/spec/reason", "INC-7");
        }
        "change ticket" => known[TEMPLATE]["spec"]["ticket"] = json!({}),
        "reads" => it.server.forbids.push("get secrets"),
        "discovery expired" => {
            let (reason, ends) = ("to find out what it needs", "2026-01-01T12:00:00Z");
            let discovery = json!({"accepted": true, "reason": reason, "expiresAt": ends});
            known[POLICY]["spec"]["egressDiscovery"] = discovery;
        }
        "grants" => {
            let credentials = json!([{"name": "API_KEY"}]);
            known[TEMPLATE]["spec"]["requires"]["credentials"] = credentials;
        }
        "template: misnamed" => it.set("/spec/templateRef/name", "Not A Name"),
        "template: invalid" => known[TEMPLATE]["spec"]["image"] = Value::Null,
        "template: base missing" => {
            known[TEMPLATE]["spec"]["baseTemplateRef"] = json!({"name": "base"})
        }
        "template: missing" => {
            it.server.templates.remove(TEMPLATE);
        }
        _ => {}
    }
}

/// Returns emergency settings for the user, with this maximum number of unreviewed emergencies.
fn emergency(most: i32) -> Value {
    let review = json!({"deadline": "24h", "groups": ["security"]});
    json!({"groups": ["staff"], "openReviews": most, "review": review})
}

fn admitted() -> World {
    let egress = json!([{"host": "api.example.com", "ports": [443]}]);
    let mut template = echo("HarnessTemplate");
    template["spec"]["requires"] = json!({ "egress": egress });
    let policy = json!({"appliesToTemplates": ["echo"], "grants": { "egress": egress }});
    let known = vec![
        template,
        object("BrokerPolicy", "grants", policy),
        object("Workspace", "cage", json!({"storage": {"size": "1Gi"}})),
    ];
    let spec = json!({
        "templateRef": {"name": "echo"}, "workspaceRef": "cage",
        "promptFrom": {"secretKeyRef": {"name": "prompts", "key": "hello"}},
    });
    World::new::<HarnessRun>(object("HarnessRun", "hello", spec), known)
}

#[tokio::test]
async fn harness_run_that_violates_rules_has_the_response_of_the_first() {
    check("harness-run", &names(&[RULES]), violate, admitted).await;
}
