//! BrokerPolicies: whether runs are admitted by them, and where their discovery stands.

use std::convert::Infallible;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::conditions;
use oz_api::harness::{BrokerPolicy, PolicyStatus};
use oz_api::instant::instant;
use oz_core::controller::{Controller, Decision, Live, Outcome, Plan, Transition, Verdict};

use super::ready::{self, READY, Unusable, reason};
use crate::admission;
use crate::policy::{Discovery, discovery};

/// Policy: any host is let through now, and recorded.
pub const DISCOVERY_ACTIVE: &str = "DiscoveryModeActive";
/// Policy: its discovery has ended, and is still there.
pub const DISCOVERY_EXPIRED: &str = "DiscoveryExpired";

/// The controller of BrokerPolicies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policies;

/// Where a policy stands at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyStands {
    /// Whether runs are admitted by it.
    pub ready: Result<(), Unusable>,
    /// Where its discovery stands.
    pub discovery: Discovery,
}

impl Controller for Policies {
    type Object = BrokerPolicy;
    type Facts = ();
    type Question = Infallible;
    type State = PolicyStands;
    type Status = PolicyStatus;

    fn name(&self) -> &'static str {
        "brokerpolicy"
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, object: &BrokerPolicy) -> Option<PolicyStatus> {
        object.status.clone()
    }

    fn decide(
        &self,
        now: Timestamp,
        object: &BrokerPolicy,
        (): &(),
        _: &[Live],
    ) -> Verdict<Infallible, Decision<PolicyStands>> {
        let discovery = discovery(object, now);
        let plan = match discovery {
            Discovery::Active(ends) => Plan::default().wake_at(ends),
            Discovery::None | Discovery::Expired(_) => Plan::default(),
        };
        let ready = usable(object, discovery);
        let state = PolicyStands { ready, discovery };
        Verdict::Decided(Decision { plan, state })
    }

    fn status(
        &self,
        now: Timestamp,
        object: &BrokerPolicy,
        decision: &Decision<PolicyStands>,
        _: &Outcome,
    ) -> PolicyStatus {
        let mut status = object.status.clone().unwrap_or_default();
        let generation = object.metadata.generation;
        let (conditions, stands) = (&mut status.conditions, &decision.state);
        let usable = "runs are admitted by what it grants".to_owned();
        ready::set(conditions, &stands.ready, usable, generation, now);
        let (is_active, is_expired) = match stands.discovery {
            Discovery::None => (false, false),
            Discovery::Active(_) => (true, false),
            Discovery::Expired(_) => (false, true),
        };
        let (reason, message) = told(stands.discovery);
        for (type_, holds) in [
            (DISCOVERY_ACTIVE, is_active),
            (DISCOVERY_EXPIRED, is_expired),
        ] {
            conditions::set(conditions, type_, holds, reason, &message, generation, now);
        }
        status.observed_generation = generation;
        status
    }

    fn transitions(
        &self,
        object: &BrokerPolicy,
        before: Option<&PolicyStatus>,
        after: &PolicyStatus,
    ) -> Vec<Transition> {
        let before = before.map(|status| status.conditions.as_slice());
        let after = after.conditions.as_slice();
        let of_discovery = of_discovery(object, before, after);
        let names = ["PolicyReady", "PolicyNotReady"];
        // That its discovery has ended is told once.
        let is_told = conditions::find(after, READY).is_some_and(|it| it.reason == reason::EXPIRED);
        let ready = ready::transition(before, after, names, "VerifyPolicy");
        let ready = ready.filter(|_| !is_told);
        ready.into_iter().chain(of_discovery).collect()
    }
}

/// Whether runs are admitted by a policy. While it has a discovery that is over none are, whatever it grants.
fn usable(policy: &BrokerPolicy, discovery: Discovery) -> Result<(), Unusable> {
    let found = admission::standing_policy(policy);
    if let Some(unusable) = Unusable::by(reason::INVALID, &found) {
        return Err(unusable);
    }
    match discovery {
        Discovery::None | Discovery::Active(_) => Ok(()),
        Discovery::Expired(_) => Err(Unusable {
            reason: reason::EXPIRED,
            message: told(discovery).1,
        }),
    }
}

/// The reason and the message of both conditions of a discovery.
fn told(discovery: Discovery) -> (&'static str, String) {
    match discovery {
        Discovery::None => (
            reason::NO_DISCOVERY,
            "only what is granted is let through".to_owned(),
        ),
        Discovery::Active(ends) => (
            reason::ACTIVE,
            format!("any host is let through, and recorded, until {ends}"),
        ),
        Discovery::Expired(ended) if ended == Timestamp::MIN => (
            reason::EXPIRED,
            "the end of the discovery cannot be read, so that it counts as over: correct \
             spec.egressDiscovery.expiresAt, or remove spec.egressDiscovery"
                .to_owned(),
        ),
        Discovery::Expired(ended) => (
            reason::EXPIRED,
            format!(
                "the discovery ended at {ended}, and no run is admitted by this policy until it is gone: turn what \
                 it found into grants (kubectl paddock policy suggest --all) and remove spec.egressDiscovery"
            ),
        ),
    }
}

/// The event for a change of what the discovery lets through, if there is one.
fn of_discovery(
    object: &BrokerPolicy,
    before: Option<&[Condition]>,
    after: &[Condition],
) -> Option<Transition> {
    let then = before.and_then(|before| conditions::find(before, DISCOVERY_ACTIVE));
    let now = conditions::find(after, DISCOVERY_ACTIVE)?;
    let was = then.map_or(reason::NO_DISCOVERY, |then| then.reason.as_str());
    // Another end is another discovery; other words of ours for the same are none.
    let is_other = then.is_some_and(|then| {
        then.observed_generation != now.observed_generation && then.message != now.message
    });
    let event = |warning, reason| Transition {
        warning,
        reason,
        action: "Discover",
        note: now.message.clone(),
        due: None,
    };
    match now.reason.as_str() {
        is if is == was && !(is_other && is == reason::ACTIVE) => None,
        reason::ACTIVE => Some(event(true, "DiscoveryActive")),
        reason::EXPIRED => {
            let ends = object.spec.egress_discovery.as_ref();
            let ended = ends.and_then(|ends| instant(&ends.expires_at).ok());
            Some(Transition {
                // Who was not there while it was active is not late.
                due: ended.filter(|_| was == reason::ACTIVE),
                ..event(true, "DiscoveryExpired")
            })
        }
        _ => Some(event(false, "DiscoveryRemoved")),
    }
}
