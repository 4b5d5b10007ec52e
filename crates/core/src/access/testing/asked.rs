//! A request that is granted, until a test breaks rules: for the tables of [`order`].

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::Resource as _;
use oz_api::{AccessConfig, EmergencyConfig, Requester};
use serde_json::json;

use super::judgements::{self, answer, judgement, ticket};
use super::order::{self, Case};
use super::{InMemory, World, timestamp};
use crate::access::kind::FactsOf;
use crate::access::policy::{self, Judgement, seen};
use crate::access::{approval, author};
use crate::controller::{Answers, Controller as _, Outcome, Verdict};
use crate::kinds::{AccessRequest as _, Kind as _, Terms};
use crate::tickets::{Answer, CheckTerms, Said};

/// The requester: a service account.
const ROBOT: &str = "system:serviceaccount:ci:robot";

/// A request with all facts about it. Everything that a template can require is given, except approvals.
pub(crate) struct Asked<K: InMemory> {
    pub(crate) world: World<K>,
    pub(crate) now: Timestamp,
    pub(crate) groups: &'static [&'static str],
    /// The author of the template.
    pub(crate) author: &'static str,
    /// The approvals and denials.
    answers: Vec<(&'static str, bool)>,
    /// The changes after the request was stamped.
    pub(super) later: Vec<fn(&mut World<K>)>,
    /// The changes of the facts.
    facts: Vec<fn(&mut FactsOf<K>)>,
}

impl<K: InMemory> Asked<K> {
    pub(crate) fn from_world(world: World<K>) -> Self {
        let mut asked = Self {
            world,
            now: timestamp(100),
            groups: &["devs"],
            author: "bob",
            answers: Vec::new(),
            later: Vec::new(),
            facts: Vec::new(),
        };
        asked.world.tried = Some(Ok(()));
        asked.world.judgement = Some(judgement());
        let checks = ["jira", "refused", "away", "pending", "stale"];
        let checks = checks.map(|check| (check.to_owned(), CheckTerms::UNKNOWN));
        asked.world.tickets.checks = Some(Arc::new(BTreeMap::from(checks)));
        asked.said("jira", 90, Answer::Accepted);
        let config = asked.config();
        config.allow_service_accounts = true;
        config.ticket = Some(ticket(None, Some("jira")).ticket);
        let emergency = json!({
            "users": [ROBOT], "maxDuration": "4m", "openReviews": 2,
            "review": {"deadline": "24h", "groups": ["security"]},
        });
        config.emergency = serde_json::from_value(emergency).unwrap();
        asked.ask(|terms| {
            terms.container = Some("app");
            terms.reason = Some("disk is full");
            terms.ticket = Some("INC-42");
        });
        asked
    }

    /// Changes the terms of the request.
    pub(crate) fn ask(&mut self, change: impl FnOnce(&mut Terms<'_>)) {
        let old = &self.world.request;
        let mut terms = old.terms();
        change(&mut terms);
        let mut request = K::Request::asking(&terms);
        *request.meta_mut() = old.meta().clone();
        self.world.request = request;
    }

    pub(crate) fn config(&mut self) -> &mut AccessConfig {
        K::config_mut(self.world.template.as_mut().unwrap())
    }

    /// Changes the request or its cluster after the request was stamped.
    pub(crate) fn then(&mut self, change: fn(&mut World<K>)) {
        self.later.push(change);
    }

    pub(crate) fn with(&mut self, change: fn(&mut FactsOf<K>)) {
        self.facts.push(change);
    }

    pub(super) fn judgement(&mut self) -> &mut Judgement {
        self.world.judgement.as_mut().unwrap()
    }

    fn said(&mut self, check: &str, second: i64, answer: Answer) {
        let said = Said {
            asked_at: timestamp(second),
            answer,
            away_since: None,
        };
        self.world.tickets.said.insert(check.to_owned(), said);
    }

    /// Requires a ticket check, with the response at this second.
    pub(super) fn check(&mut self, check: &str, said: Option<(i64, Answer)>) {
        self.judgement().tickets.push(ticket(None, Some(check)));
        if let Some((second, answer)) = said {
            self.said(check, second, answer);
        }
    }

    /// Requires an approval of a user, with the decision of the user.
    pub(super) fn approver(&mut self, user: &'static str, decision: Option<bool>, timeout: &str) {
        judgements::require(self.judgement(), user, timeout);
        self.answers
            .extend(decision.map(|approves| (user, approves)));
    }

    /// Declares an emergency, and returns its configuration.
    pub(super) fn emergency(&mut self) -> Option<&mut EmergencyConfig> {
        self.ask(|terms| terms.emergency = true);
        self.config().emergency.as_mut()
    }
}

impl<K: InMemory> Case for Asked<K> {
    fn answer(mut self) -> String {
        let world = &mut self.world;
        let template = world.template.as_mut().unwrap();
        let digest = template.spec_digest();
        let author = Requester {
            user: self.author.into(),
            ..Requester::default()
        };
        author::write(template.meta_mut(), &author, &digest);
        let seen = Some(seen(template));
        let rules = policy::approval(world.judgement.as_ref(), template);
        world.judgement.as_mut().unwrap().template = seen;
        world.stamp(ROBOT, self.groups);
        if let Some(rules) = rules {
            let candidate = world.request.stored().unwrap();
            let candidate = candidate.candidate();
            let digest = approval::digest(&candidate, &digest, &rules);
            let given = |(user, approves): &(&str, bool)| {
                answer(&candidate, digest.clone(), user, *approves, 50)
            };
            world.approvals = self.answers.iter().map(given).collect();
        }
        self.later.iter().for_each(|change| change(world));
        let mut facts = world.facts();
        self.facts.iter().for_each(|change| change(&mut facts));
        let World {
            controller,
            request,
            live,
            ..
        } = &self.world;
        match controller.decide(self.now, request, &facts, live) {
            Verdict::Need { question, until } => order::needs(&question, until),
            Verdict::Decided(decision) => {
                let outcome = Outcome {
                    live: live.clone(),
                    failure: decision.plan.obstacle.clone(),
                    answers: Answers::default(),
                };
                let status = controller.status(self.now, request, &decision, &outcome);
                let conditions = &status.conditions;
                order::decided(&decision.state.state, conditions, status.approval.as_ref())
            }
        }
    }
}
