//! The controller of AccessPolicies: it creates no objects; the status of an access policy reports to its
//! authors whether it can be evaluated. The caller determines whether an expression compiles.

use jiff::Timestamp;
use oz_api::{AccessPolicy, AccessPolicyStatus, conditions};

use super::MAX_POLICIES;
use crate::access::fact::Fact;
use crate::controller::{Controller, Decision, Live, Outcome, Plan, Transition, Verdict};
use crate::kinds::{Kind as _, Rules as _};
use crate::validate::Violation;

/// The condition of an access policy that can be evaluated.
pub const READY: &str = "Ready";
/// The reason of this condition if the access policy cannot be evaluated.
pub const INVALID: &str = "Invalid";
/// The reason of this condition if there are more access policies than are evaluated.
pub const TOO_MANY: &str = "TooMany";

/// The controller of AccessPolicies.
#[derive(Clone, Copy, Debug)]
pub struct Policies;

/// The question about the state of an access policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compiled;

/// The reason why an access policy cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCompiled {
    /// The expression in this field fails.
    #[error("{field}: cannot be evaluated: {why}")]
    Field {
        /// Path of the field.
        field: String,
        /// The reason.
        why: String,
    },
    /// The attempt fails.
    #[error("spec.match: {0}")]
    Attempt(String),
}

/// The observed state of an access policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Whether its expression can be evaluated, and its time zone is known; or why not.
    pub compiled: Result<(), NotCompiled>,
    /// Number of access policies.
    pub count: usize,
}

impl Controller for Policies {
    type Object = AccessPolicy;
    type Facts = Option<Checked>;
    type Question = Compiled;
    type State = Checked;
    type Status = AccessPolicyStatus;

    fn name(&self) -> &'static str {
        AccessPolicy::NAME
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, object: &AccessPolicy) -> Option<AccessPolicyStatus> {
        object.status.clone()
    }

    fn decide(
        &self,
        _: Timestamp,
        _: &AccessPolicy,
        checked: &Self::Facts,
        _: &[Live],
    ) -> Verdict<Compiled, Decision<Checked>> {
        match checked {
            None => Verdict::Need {
                question: Compiled,
                until: None,
            },
            Some(checked) => Verdict::Decided(Decision {
                plan: Plan::default(),
                state: checked.clone(),
            }),
        }
    }

    fn status(
        &self,
        now: Timestamp,
        object: &AccessPolicy,
        decision: &Decision<Checked>,
        _: &Outcome,
    ) -> AccessPolicyStatus {
        let fact = fact(now, object, &decision.state);
        let metadata = &object.metadata;
        let mut status = object.status.clone().unwrap_or_default();
        fact.set(&mut status.conditions, metadata.generation, now);
        status.ready = conditions::all_true(&status.conditions, &[READY]);
        status.observed_generation = metadata.generation;
        status
    }

    fn transitions(
        &self,
        _: &AccessPolicy,
        before: Option<&AccessPolicyStatus>,
        after: &AccessPolicyStatus,
    ) -> Vec<Transition> {
        let before = before.map_or(&[][..], |status| &status.conditions);
        let news = after
            .conditions
            .iter()
            .filter(|now| conditions::is_news(before, now));
        news.map(|now| Transition {
            warning: now.status != "True",
            reason: "PolicyVerified",
            action: "VerifyPolicy",
            note: now.message.clone(),
            due: None,
        })
        .collect()
    }
}

fn fact(now: Timestamp, object: &AccessPolicy, checked: &Checked) -> Fact {
    let violations = object.violations(now);
    if !violations.is_empty() {
        let wrong = Violation::list(&violations);
        return Fact::fails(READY, INVALID, refusing(&wrong));
    }
    if let Err(why) = &checked.compiled {
        return Fact::fails(READY, INVALID, refusing(&why.to_string()));
    }
    if checked.count > MAX_POLICIES {
        let why = format!(
            "there are {} policies, and the maximum is {MAX_POLICIES}",
            checked.count
        );
        return Fact::fails(READY, TOO_MANY, refusing(&why));
    }
    Fact::holds(READY, "The policy can be evaluated")
}

fn refusing(why: &str) -> String {
    format!("Error: {why}; every request is denied until this is corrected or deleted")
}
