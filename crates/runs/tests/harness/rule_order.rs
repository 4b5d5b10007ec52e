//! The order of the rules between a HarnessRun and its Job, as the operator applies them.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use oz_api::harness::{BrokerPolicy, HarnessRunStatus, HarnessTemplate};
use oz_core::controller::{Controller as _, Failure, Live, Outcome, Verdict};
use oz_core::lifecycle::seal::Keys;
use oz_core::tickets::Answer;
use oz_runs::policy::PodSecurity;
use oz_runs::run::State;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::credentials::{injected, stamped};
use crate::isolation::allow_dns;
use crate::rule_table::{Outcomes, table, violations};
use crate::runs::{Begun, Submitted, lock};
use crate::tickets::{checks, said};
use crate::{now, policy, template};

/// The rules, which [`World::violate`] and [`violate`] violate in this order. A later change replaces the effects of an
/// earlier one.
const RULES: &str = "has ended, being deleted, spec, interactive, stamp missing, stamp unverified, \
    stamp of another run, other stamps: unknown, other stamps: the same, lock, locks unreadable, \
    template: missing, template: missing for a minute, template: base missing, template: invalid, \
    emergency: not allowed, emergency: without reason, emergency: invalid, emergency: reviews unknown, \
    emergency: reviews, ticket: missing, ticket: unknown check, ticket: pending, ticket: refused, \
    ticket: unavailable, discovery expired, grants, workspace of other templates, too many runs, overlay, \
    policy unverified, provider not served, credential incomplete, secret unreadable, \
    pod security: unknown, pod security: unreadable, pod security: restricted, \
    pod security: cooperative, workspace: lacking, workspace: missing, workspace: being deleted, \
    workspace: failed, workspace: being prepared, workspace: free, workspace: in use, broker, \
    isolation, confinement: missing, confinement: changed";

/// A run that can start, and everything that its assessment reads.
struct World {
    /// The spec of the run, before its stamp.
    run: Value,
    template: Value,
    /// The spec of the broker policy, before its stamp.
    policy: Value,
    workspace: Value,
    /// The violated rules.
    violated: Vec<&'static str>,
    is_first_pass: bool,
    at: Timestamp,
    live: Vec<Live>,
}

impl World {
    fn new(live: &[Live]) -> Self {
        let egress = json!([{"host": "api.example.com", "ports": [443]}]);
        Self {
            run: json!({"workspaceRef": "cage"}),
            template: json!({
                "workspace": {"required": false},
                "requires": {"credentials": [{"name": "API_KEY"}], "egress": egress},
            }),
            policy: json!({
                "grants": {"credentials": [injected("API_KEY")], "egress": egress},
                "limits": {"concurrentRuns": 2},
            }),
            workspace: json!({
                "metadata": {"name": "cage", "namespace": "birds", "uid": "u-2"},
                "spec": {"storage": {"size": "1Gi"}},
                "status": {"phase": "Active", "activeRunRef": "squawk", "activeRunUID": "u-1"},
            }),
            violated: Vec::new(),
            is_first_pass: true,
            at: now(),
            live: live.to_vec(),
        }
    }

    /// Returns the NetworkPolicy of the run that violates no rule.
    fn confinement() -> Live {
        Begun::after_start_of(Self::new(&[]).submitted()).policy
    }

    /// Violates a rule before the stamps, if it is violated there.
    fn violate(&mut self, rule: &'static str) {
        self.violated.push(rule);
        let provider = &mut self.policy["grants"]["credentials"][0]["provider"];
        let deadline = now() + SignedDuration::from_mins(1);
        match rule {
            "spec" => self.run["retries"] = json!(11),
            "interactive" => self.run["mode"] = json!("Interactive"),
            "template: missing for a minute" => self.at = deadline,
            "template: base missing" => self.template["baseTemplateRef"] = json!({"name": "base"}),
            "template: invalid" => self.template["defaults"] = json!({"timeout": "-1s"}),
            "emergency: not allowed" => self.declare(json!(["bob"])),
            "emergency: reviews unknown" | "emergency: reviews" => self.declare(json!(["ada"])),
            "emergency: without reason" => {
                self.declare(json!(["ada"]));
                self.run["reason"] = Value::Null;
            }
            "emergency: invalid" => {
                self.declare(json!(["ada"]));
                self.template["emergency"]["maxDuration"] = json!("soon");
            }
            "ticket: missing" => self.template["ticket"] = json!({}),
            "ticket: unknown check" => self.name_ticket("other"),
            "ticket: pending" | "ticket: refused" | "ticket: unavailable" => {
                self.name_ticket("jira");
            }
            "discovery expired" => {
                let reason = "to find out what it needs";
                let discovery = json!({"accepted": true, "reason": reason, "expiresAt": now()});
                self.policy["egressDiscovery"] = discovery;
            }
            "grants" => {
                let credentials = json!([{"name": "API_KEY"}, {"name": "OTHER"}]);
                self.template["requires"]["credentials"] = credentials;
            }
            "workspace of other templates" => self.workspace["spec"]["templates"] = json!(["crow"]),
            "overlay" => {
                let overlay = json!({"spec": {"hostNetwork": true}});
                self.template["podTemplateOverlay"] = overlay;
            }
            "provider not served" => provider["kind"] = json!("GitHubApp"),
            "credential incomplete" => provider["secretRef"] = Value::Null,
            "pod security: cooperative" => {
                let accepted = json!({"accepted": true, "reason": "the namespace is restricted"});
                self.policy["interception"] = json!({ "cooperativeAccepted": accepted });
            }
            "workspace: lacking" => {
                self.run["workspaceRef"] = Value::Null;
                self.template["workspace"]["required"] = json!(true);
            }
            "workspace: being deleted" => {
                self.workspace["metadata"]["deletionTimestamp"] = json!(now());
            }
            "workspace: failed" => self.workspace["status"]["phase"] = json!("Failed"),
            "workspace: being prepared" => self.workspace["status"]["phase"] = json!("Seeding"),
            "workspace: free" => self.workspace["status"] = json!({"phase": "Active"}),
            "workspace: in use" => {
                let holder =
                    json!({"phase": "Active", "activeRunRef": "other", "activeRunUID": "u-3"});
                self.workspace["status"] = holder;
            }
            "confinement: missing" => self.live.clear(),
            "confinement: changed" => {
                let finalizers = vec!["example.com/other".to_owned()];
                self.live[0].object.metadata.finalizers = Some(finalizers);
            }
            _ => {}
        }
    }

    /// Declares an emergency by a template that lets these users declare one.
    fn declare(&mut self, users: Value) {
        self.run["emergency"] = json!(true);
        self.run["reason"] = json!("INC-7");
        let review = json!({"users": ["erin"]});
        self.template["emergency"] = json!({"users": users, "review": review});
    }

    /// Names a change ticket that this check must accept.
    fn name_ticket(&mut self, check: &str) {
        self.run["ticket"] = json!("INC-42");
        self.template["ticket"] = json!({"check": check});
    }

    fn submitted(&self) -> Submitted {
        let mut submitted = Submitted::new(self.run.clone());
        submitted.controller.require_confined = true;
        let spec = template(self.template.clone());
        let facts = &mut submitted.facts;
        facts.template = Some(Arc::new(HarnessTemplate::new("parrot", spec)));
        facts.policies = vec![Arc::new(stamped(policy("grants", self.policy.clone())))];
        facts.has_policies = true;
        facts.workspace = Some(Arc::new(parsed(self.workspace.clone())));
        facts.pod_security = Some(Ok(PodSecurity::Privileged));
        facts.unreviewed = Some(Ok(Vec::new()));
        facts.tickets = checks();
        if !self.is_first_pass {
            submitted.run.status = Some(HarnessRunStatus::default());
        }
        for rule in &self.violated {
            violate(rule, &mut submitted);
        }
        submitted
    }

    fn outcome(&self) -> String {
        let Submitted {
            controller,
            run,
            facts,
        } = self.submitted();
        let decision = match controller.decide(self.at, &run, &facts, &self.live) {
            Verdict::Need { question, .. } => return format!("question {question:?}"),
            Verdict::Decided(decision) => decision,
        };
        let outcome = Outcome {
            live: self.live.clone(),
            ..Outcome::default()
        };
        let status = controller.status(self.at, &run, &decision, &outcome);
        let (state, message) = described(&decision.state);
        let mut text = format!("{state}: {message}");
        for condition in &status.conditions {
            let (type_, holds, reason) = (&condition.type_, &condition.status, &condition.reason);
            text.push_str(&format!("; {type_}={holds} {reason}"));
            if condition.message != message {
                text.push_str(&format!(": {}", condition.message));
            }
        }
        text
    }
}

/// Returns a state with its reason, and its message.
fn described(state: &State) -> (String, String) {
    let name = format!("{state:?}");
    let name = name.split('(').next().unwrap_or_default();
    match state {
        State::Waiting(why) => {
            let state = format!("{name} ({:?}) {}", why.class, why.reason);
            (state, why.message.clone())
        }
        State::Ending(end, _) | State::Ended(end, ..) => {
            let state = format!("{name} {:?} {}", end.phase, end.reason);
            (state, end.message.clone())
        }
        _ => (name.to_owned(), String::new()),
    }
}

fn parsed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Violates a rule after the stamps, if it is violated there.
fn violate(rule: &str, it: &mut Submitted) {
    let Submitted {
        controller,
        run,
        facts,
    } = it;
    let granting: &mut BrokerPolicy = Arc::make_mut(&mut facts.policies[0]);
    match rule {
        "has ended" => run.status = Some(parsed(json!({"phase": "Succeeded"}))),
        "being deleted" => run.metadata.deletion_timestamp = Some(now().into()),
        "stamp missing" => run.metadata.annotations = None,
        "stamp unverified" => controller.keys = Keys::default(),
        "stamp of another run" => run.spec.prompt = Some("bye".to_owned()),
        "other stamps: unknown" => facts.same_stamp = None,
        "other stamps: the same" => facts.same_stamp = Some(Some("other".to_owned())),
        "lock" => facts.locks.all = lock(&json!({"user": "ada"})).all,
        "locks unreadable" => facts.locks.unreadable = 1,
        "template: missing" | "template: missing for a minute" => facts.template = None,
        "emergency: reviews unknown" => facts.unreviewed = None,
        "emergency: reviews" => {
            facts.unreviewed = Some(Ok(vec!["u-7".to_owned(), "u-8".to_owned()]));
        }
        "ticket: refused" => {
            let closed = Answer::Refused("the ticket is closed".to_owned());
            said(&mut facts.tickets, "jira", 0, closed);
        }
        "ticket: unavailable" => {
            let away = Answer::Away("no response within 3s".to_owned());
            said(&mut facts.tickets, "jira", 0, away);
        }
        "too many runs" => facts.older = 2,
        "policy unverified" => granting.metadata.annotations = None,
        "secret unreadable" => {
            let condition = json!({
                "type": "SecretsReadable", "status": "False", "reason": "Forbidden",
                "message": "oz-broker may not get Secret keys in namespace birds",
                "lastTransitionTime": now(), "observedGeneration": 3,
            });
            let status = json!({"observedGeneration": 3, "conditions": [condition]});
            granting.status = Some(parsed(status));
        }
        "pod security: unknown" => facts.pod_security = None,
        "pod security: unreadable" => {
            let failure = Failure::transient("NamespaceUnreadable", "no response");
            facts.pod_security = Some(Err(failure));
        }
        "pod security: restricted" | "pod security: cooperative" => {
            facts.pod_security = Some(Ok(PodSecurity::Restricted));
        }
        "workspace: lacking" | "workspace: missing" => facts.workspace = None,
        "broker" => facts.broker = None,
        "isolation" => {
            let opens = allow_dns("allow-dns", json!({}));
            facts.network_policies = vec![Arc::new(opens)];
        }
        _ => {}
    }
}

/// Returns the table of the outcomes, in the first pass over the run or in a later one.
fn outcomes(is_first_pass: bool) -> String {
    let (names, live) = (
        RULES.split(", ").collect::<Vec<_>>(),
        [World::confinement()],
    );
    let outcome = |violated: &Vec<usize>| {
        let mut world = World::new(&live);
        world.is_first_pass = is_first_pass;
        violated.iter().for_each(|rule| world.violate(names[*rule]));
        world.outcome()
    };
    let all = violations(&names).into_iter();
    let outcomes: Outcomes = all.map(|some| (some.clone(), outcome(&some))).collect();
    assert_eq!(outcomes[&Vec::new()], "Startable: ");
    table(&names, &outcomes)
}

#[test]
fn run_that_violates_rules_has_the_outcome_of_the_first() {
    let first = outcomes(true);
    insta::assert_snapshot!("run", first);
    // A run with a status has waited: it is checked for interception after its workspace.
    let later = outcomes(false);
    let lines = later.lines().zip(first.lines());
    let lines = lines.filter(|(line, other)| line != other);
    let lines: Vec<&str> = lines.map(|(line, _)| line).collect();
    insta::assert_snapshot!("run-with-status", lines.join("\n"));
}
