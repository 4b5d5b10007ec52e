//! The order of the rules of transient bindings.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use oz_api::{
    BindingStatus, Phase, RBAC_GROUP, TransientClusterRoleBinding, TransientRoleBinding,
    example_com,
};
use serde_json::{Value, json};

use super::waiting::older;
use super::world::*;
use crate::access::approval;
use crate::access::policy::{self, EmergencyRule, Judgement};
use crate::access::testing::judgements::{self, TIMEOUT, answer, judgement, refused, ticket};
use crate::access::testing::order::{self, Case, Rule, rules};
use crate::controller::{Answers, Controller as _, Failure, Outcome, Verdict};
use crate::lifecycle::seal::Keys;
use crate::tickets::{Answer, CheckTerms, Said};
use crate::transient::{Facts, Policy};

/// A binding with all facts about it, at an instant inside its window.
struct Asked<K: InMemory> {
    world: World<K>,
    namespace: Option<&'static str>,
    spec: Value,
    now: Timestamp,
    /// The approvals and denials.
    answers: Vec<(&'static str, bool)>,
    /// The changes after the binding was stamped.
    later: Vec<fn(&mut World<K>)>,
    /// The changes of the facts.
    facts: Vec<fn(&mut Facts)>,
}

fn written<K: InMemory>(namespace: Option<&str>, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()),
        "metadata": {"name": "on-call", "namespace": namespace},
    });
    match K::PREFIX {
        "" => object
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone()),
        _ => object["spec"] = spec.clone(),
    }
    object
}

impl<K: InMemory> Asked<K> {
    fn new() -> Self {
        let namespace = (!K::CLUSTER).then_some("shop");
        let spec = json!({
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "alice"}],
            "validFrom": timestamp(60), "validUntil": timestamp(360),
        });
        let mut world = World::from_object(written::<K>(namespace, &spec));
        world.allow(&["vie*"]);
        world.judgement = Some(judgement());
        let checks = ["refused", "away", "pending", "stale"];
        let checks = checks.map(|check| (check.to_owned(), CheckTerms::UNKNOWN));
        world.tickets.checks = Some(Arc::new(BTreeMap::from(checks)));
        Self {
            world,
            namespace,
            spec,
            now: timestamp(100),
            answers: Vec::new(),
            later: Vec::new(),
            facts: Vec::new(),
        }
    }

    /// Changes the binding or its cluster after the binding was stamped.
    fn then(&mut self, change: fn(&mut World<K>)) {
        self.later.push(change);
    }

    fn judgement(&mut self) -> &mut Judgement {
        self.world.judgement.as_mut().unwrap()
    }

    fn policy(&mut self) -> &mut Policy {
        Arc::make_mut(&mut self.world.controller.policy)
    }

    /// Requires a ticket check, with the response at this second.
    fn check(&mut self, check: &str, said: Option<(i64, Answer)>) {
        self.spec["ticket"] = json!("INC-42");
        self.judgement().tickets.push(ticket(None, Some(check)));
        if let Some((second, answer)) = said {
            let said = Said {
                asked_at: timestamp(second),
                answer,
                away_since: None,
            };
            self.world.tickets.said.insert(check.to_owned(), said);
        }
    }

    /// Declares an emergency of bob, which the access policy permits.
    fn emergency(&mut self) {
        let terms = json!({
            "users": ["bob"], "openReviews": 2,
            "review": {"deadline": "24h", "groups": ["security"]},
        });
        self.judgement().emergencies = vec![EmergencyRule {
            policy: "prod".into(),
            terms: serde_json::from_value(terms).unwrap(),
        }];
        self.spec["emergency"] = json!(true);
        self.spec["reason"] = json!("it burns");
        self.spec["subjects"] = json!([{"kind": "User", "name": "bob"}]);
        self.spec.as_object_mut().unwrap().remove("validFrom");
    }

    /// Requires an approval of a user, with the decision of the user.
    fn approver(&mut self, user: &'static str, decision: Option<bool>, timeout: &str) {
        judgements::require(self.judgement(), user, timeout);
        self.answers
            .extend(decision.map(|approves| (user, approves)));
    }
}

impl<K: InMemory> Case for Asked<K> {
    fn answer(mut self) -> String {
        let world = &mut self.world;
        world.object = World::from_object(written::<K>(self.namespace, &self.spec)).object;
        world.stamp();
        if let Some(rules) = policy::rules(world.judgement.as_ref()).filter(|_| K::APPROVABLE) {
            let binding = world.object.stored().unwrap();
            let candidate = binding.candidate("oz-system");
            let digest = approval::digest(&candidate, &binding.spec_digest, &rules);
            let given = |(user, approves): &(&str, bool)| {
                answer(&candidate, digest.clone(), user, *approves, 15)
            };
            world.approvals = self.answers.iter().map(given).collect();
        }
        self.later.iter().for_each(|change| change(world));
        let mut facts = Facts {
            locks: world.locks.clone(),
            waiting: Some(world.waiting.clone()),
            same_stamp: Some(world.same_stamp.clone()),
            lookup: Some(world.lookup.clone()),
            approvals: world.approvals.clone(),
            confirmed: Some(Ok(world.approvals.clone())),
            tickets: world.tickets.clone(),
            unreviewed: Some(world.unreviewed.clone()),
        };
        self.facts.iter().for_each(|change| change(&mut facts));
        let World {
            controller, object, ..
        } = world;
        match controller.decide(self.now, object, &facts, &[]) {
            Verdict::Need { question, until } => order::needs(&question, until),
            Verdict::Decided(decision) => {
                let outcome = Outcome {
                    live: Vec::new(),
                    failure: decision.plan.obstacle.clone(),
                    answers: Answers::default(),
                };
                let status = controller.status(self.now, object, &decision, &outcome);
                let conditions = &status.conditions;
                order::decided(&decision.state.state, conditions, status.approval.as_ref())
            }
        }
    }
}

fn unreachable<T>(what: &str) -> Result<T, Failure> {
    let message = format!("no response about the {what}");
    Err(Failure::transient("Unreachable", message))
}

/// Returns the rules for a binding before and inside its window.
fn at_any_time<K: InMemory>() -> Vec<Rule<Asked<K>>> {
    rules! {
        Asked<K>:
        "ended" => |it| {
            it.then(|world| {
                let status = BindingStatus { phase: Phase::Denied, ..BindingStatus::default() };
                world.object.set_status(status);
            });
        };
        "deleted" => |it| it.then(World::delete);
        "binding invalid" => |it| it.spec["subjects"] = json!([]);
        "window over" => |it| {
            it.spec["validFrom"] = json!(timestamp(10));
            it.spec["validUntil"] = json!(timestamp(20));
        };
        "window never opens" => |it| it.spec["validFrom"] = json!(timestamp(360));
        "stamp missing" => |it| it.then(|world| world.object.meta_mut().annotations = None);
        "stamp unverified" => |it| it.then(|world| world.controller.keys = Keys::default());
        "stamp forged" => |it| it.then(|world| judgements::forge(world.object.meta_mut()));
        // It replaces the stamp before any other change of it.
        "stamp of another binding" => |it| it.later.insert(0, |world| {
            let name = world.object.meta_mut().name.replace("other".into());
            world.stamp();
            world.object.meta_mut().name = name;
        });
        "locked" => |it| it.world.locks.all = vec![order::lock(&json!({"user": "bob"}))];
        "lock unreadable" => |it| it.world.locks.unreadable = 1;
        "too far ahead, before window" => |it| {
            it.now = timestamp(30);
            it.policy().longest_lead = SignedDuration::from_secs(59);
        };
        "waiting windows unread" => |it| {
            it.now = timestamp(30);
            it.facts.push(|facts| facts.waiting = None);
        };
        "too many waiting windows" => |it| {
            it.now = timestamp(30);
            it.world.waiting = older(20);
        };
        "policy denies" => |it| it.judgement().refused = Some(refused());
        "policy requires reason" => |it| it.judgement().require_reason = Some("prod".into());
        "policy requires ticket" => |it| it.judgement().tickets = vec![ticket(None, None)];
        "approvers unknown" => |it| it.approver("carol", None, "forever");
        "approval denied" => |it| it.approver("erin", Some(false), TIMEOUT);
        "approval timed out" => |it| it.approver("dave", None, "20s");
        "approval missing" => |it| it.approver("frank", None, TIMEOUT);
        "before window" => |it| it.now = timestamp(30);
    }
}

/// Returns the rules for a binding inside its window.
fn inside_window<K: InMemory>() -> Vec<Rule<Asked<K>>> {
    rules! {
        Asked<K>:
        "namespace reserved" => |it| it.namespace = Some("oz-system");
        "role not bindable" => |it| it.policy().roles = policy(&["edit"]).roles;
        "window too long" => |it| it.policy().longest = SignedDuration::from_secs(299);
        "too far ahead" => |it| it.policy().longest_lead = SignedDuration::from_secs(59);
        "same stamp unread" => |it| it.facts.push(|facts| facts.same_stamp = None);
        "stamp replayed" => |it| it.world.same_stamp = Some("first".into());
        "lookup unread" => |it| it.facts.push(|facts| facts.lookup = None);
        "role unreadable" => |it| it.world.lookup.role = unreachable("role");
        "role missing" => |it| it.world.lookup.role.iter_mut().for_each(|role| *role = None);
        "role too powerful" => |it| {
            let rules = it.world.lookup.role.iter_mut().flatten().flatten();
            rules.for_each(|rule| rule.resources = Some(vec!["secrets".into()]));
        };
        "right unreadable" => |it| it.world.lookup.may_bind = unreachable("right");
        "right missing" => |it| {
            it.world.lookup.may_bind.iter_mut().for_each(|may_bind| *may_bind = false);
        };
        "name unreadable" => |it| it.world.lookup.taken = unreachable("name");
        "name taken" => |it| it.world.lookup.taken.iter_mut().for_each(|taken| *taken = true);
        "approvals unread" => |it| {
            it.approver("grace", Some(true), TIMEOUT);
            it.facts.push(|facts| facts.confirmed = None);
        };
        "approvals unreadable" => |it| {
            it.approver("heidi", Some(true), TIMEOUT);
            it.facts.push(|facts| {
                facts.confirmed = facts.confirmed.take().map(|_| unreachable("approvals"));
            });
        };
    }
}

/// Returns the rules of change tickets and emergencies, for which only the kinds of oz have fields.
fn of_own_kinds<K: InMemory>() -> Vec<Rule<Asked<K>>> {
    rules! {
        Asked<K>:
        "ticket invalid" => |it| it.spec["ticket"] = json!("../INC-42");
        "emergency with later window" => |it| {
            it.emergency();
            it.spec["validFrom"] = json!(timestamp(60));
        };
        "policy requires other ticket" => |it| {
            it.spec["ticket"] = json!("INC-42");
            it.judgement().tickets.push(ticket(Some("CHG-[0-9]+"), None));
        };
        "emergency without reason" => |it| {
            it.emergency();
            it.spec.as_object_mut().unwrap().remove("reason");
        };
        "emergency for others" => |it| {
            it.emergency();
            it.spec["subjects"] = json!([{"kind": "User", "name": "alice"}]);
        };
        "emergency disabled" => |it| { it.emergency(); it.judgement().emergencies.clear(); };
        "emergency withheld" => |it| {
            it.emergency();
            let rule = EmergencyRule { policy: "strict".into(), terms: None };
            it.judgement().emergencies.push(rule);
        };
        "emergency not permitted" => |it| {
            it.emergency();
            let rules = it.judgement().emergencies.iter_mut();
            let terms = rules.filter_map(|rule| rule.terms.as_mut());
            terms.for_each(|terms| terms.users = vec!["carol".into()]);
        };
        "ticket check unknown" => |it| it.check("unknown", None);
        "ticket check refuses" => |it| {
            it.check("refused", Some((90, Answer::Refused("it is closed".into()))));
        };
        "ticket check unavailable" => |it| {
            it.check("away", Some((90, Answer::Away("no response".into()))));
        };
        "ticket check pending" => |it| it.check("pending", None);
        "ticket check outdated" => |it| it.check("stale", Some((10, Answer::Accepted)));
        "reviews unread" => |it| {
            it.emergency();
            it.facts.push(|facts| facts.unreviewed = None);
        };
        "reviews unreadable" => |it| {
            it.emergency();
            it.world.unreviewed = unreachable("reviews");
        };
        "reviews pending" => |it| {
            it.emergency();
            it.world.unreviewed = Ok(vec!["uid-7".into(), "uid-8".into()]);
        };
    }
}

/// Returns the order of the rules of a kind.
fn order_of<K: InMemory>() -> String {
    let of_others = |name: &str| match name {
        "namespace reserved" => K::CLUSTER,
        "approvals unread" | "approvals unreadable" => !K::APPROVABLE,
        _ => false,
    };
    let mut rules = [at_any_time::<K>(), inside_window()].concat();
    if K::APPROVABLE {
        rules.extend(of_own_kinds::<K>());
    }
    rules.retain(|rule| !of_others(rule.0));
    order::table(Asked::new, &rules)
}

#[test]
fn first_broken_rule_decides_about_binding() {
    insta::assert_snapshot!("order", order_of::<TransientRoleBinding>());
}

#[test]
fn first_broken_rule_decides_about_cluster_binding() {
    insta::assert_snapshot!("order-cluster", order_of::<TransientClusterRoleBinding>());
}

#[test]
fn first_broken_rule_decides_about_published_binding() {
    insta::assert_snapshot!("order-published", order_of::<example_com::RoleBinding>());
}
