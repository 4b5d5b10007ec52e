//! The rules of harness runs: merge of templates, policies, missing grants, admission, and the objects of a run.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::panic,
    reason = "helpers of tests stop where they fail, too"
)]
#![allow(clippy::too_many_lines, reason = "tables")]

mod admission;
mod approving;
mod credentials;
mod definitions;
mod earlier;
mod emergencies;
mod git_server;
mod holders;
mod isolation;
mod lean;
mod pods;
mod policies;
mod policies_lending;
mod proxied;
mod readers;
mod requirements;
mod rule_order;
mod rule_table;
mod runs;
mod scaffold;
mod seeding;
mod seeds;
mod seeds_https;
mod starting;
mod templates;
mod tickets;
mod world;

use jiff::Timestamp;
use oz_api::harness::{BrokerPolicy, HarnessTemplateSpec};
use serde_json::{Value, json};

/// An instant; policies end around it.
fn now() -> Timestamp {
    "2026-01-31T09:00:00Z".parse().unwrap()
}

/// A template without a base, with additional fields.
fn template(fields: Value) -> HarnessTemplateSpec {
    let mut spec = json!({"image": "parrot:1", "command": ["/bin/parrot"]});
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

/// A template with a base, with additional fields.
fn inheriting(fields: Value) -> HarnessTemplateSpec {
    let mut spec = fields;
    spec["baseTemplateRef"] = json!({"name": "base"});
    serde_json::from_value(spec).unwrap()
}

fn policy(name: &str, spec: Value) -> BrokerPolicy {
    let mut whole = json!({"appliesToTemplates": ["parrot"]});
    for (field, value) in spec.as_object().unwrap() {
        whole[field] = value.clone();
    }
    BrokerPolicy::new(name, serde_json::from_value(whole).unwrap())
}
