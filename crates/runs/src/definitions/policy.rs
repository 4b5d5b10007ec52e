//! BrokerPolicies: whether runs are admitted by them, whether brokers lend by them, and where their discovery stands.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::conditions;
use oz_api::harness::{BrokerPolicy, PolicyStatus, VerifiedSpec};
use oz_api::instant::instant;
use oz_core::access::seal::Keys;
use oz_core::access::stamp::StampError;
use oz_core::controller::{Controller, Decision, Live, Outcome, Plan, Transition, Verdict};

use super::ready::{self, READY, Unusable, reason};
use super::secrets::{CHECK_AGAIN_AFTER, CHECK_MISSING_AFTER, Readable, SECRETS_READABLE, later};
use super::unserved;
use crate::policy::{Discovery, discovery, policy_name};
use crate::provider::read_by_brokers;
use crate::{admission, policy_stamp};

/// Policy: its discovery has not ended.
pub const DISCOVERY_ACTIVE: &str = "DiscoveryModeActive";
/// Policy: its discovery has ended, and is still there.
pub const DISCOVERY_EXPIRED: &str = "DiscoveryExpired";

/// Policy: its spec is the one that the webhook stamped.
pub const VERIFIED: &str = "Verified";

/// The controller of BrokerPolicies.
#[derive(Clone)]
pub struct Policies {
    /// The keys that open stamps.
    pub keys: Keys,
    /// The user name of brokers.
    pub broker: String,
}

/// The facts about a policy in addition to its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyFacts {
    /// The permissions of brokers on its Secrets.
    pub readable: Option<Readable>,
}

/// The question about a policy: which of these Secrets brokers may get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyQuestion(pub BTreeSet<String>);

/// The state of a policy at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyStands {
    /// The condition Ready: the error states why the policy admits no run.
    pub ready: Result<(), Unusable>,
    /// The stamped spec, or the reason why the stamp is not valid.
    pub verified: Result<VerifiedSpec, StampError>,
    /// The permissions of brokers on its Secrets.
    pub readable: Readable,
    /// The state of its discovery.
    pub discovery: Discovery,
}

impl Controller for Policies {
    type Object = BrokerPolicy;
    type Facts = PolicyFacts;
    type Question = PolicyQuestion;
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
        facts: &PolicyFacts,
        _: &[Live],
    ) -> Verdict<PolicyQuestion, Decision<PolicyStands>> {
        let secrets = read_by_brokers(object);
        let readable = match &facts.readable {
            _ if secrets.is_empty() => Readable::All(secrets),
            Some(readable) => readable.clone(),
            None => {
                return Verdict::Need {
                    question: PolicyQuestion(secrets),
                    until: None,
                };
            }
        };
        let verified = self.verified(object);
        let discovery = discovery(object, now);
        let plan = match discovery {
            Discovery::Active(ends) => Plan::default().wake_at(ends),
            Discovery::None | Discovery::Expired(_) => Plan::default(),
        };
        // A key of the webhook may be new, or no longer valid.
        let plan = plan.wake_at(readable.next(now)).wake_at(later(
            now,
            match verified {
                Err(StampError::Unverified(_)) => CHECK_MISSING_AFTER,
                _ => CHECK_AGAIN_AFTER,
            },
        ));
        let state = PolicyStands {
            ready: usable(object, discovery),
            verified,
            readable,
            discovery,
        };
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
        let mut usable = "runs are admitted by its grants".to_owned();
        let unserved = unserved::features(&object.spec);
        if !unserved.is_empty() {
            usable.push_str(&format!("; not served yet: {}", unserved.join(", ")));
        }
        ready::set(conditions, &stands.ready, usable, generation, now);
        let (holds, reason, message) = said(object, &stands.verified);
        conditions::set(
            conditions, VERIFIED, holds, reason, message, generation, now,
        );
        stands.readable.set(conditions, object, &self.broker, now);
        let (is_active, is_expired) = match stands.discovery {
            Discovery::None => (false, false),
            Discovery::Active(_) => (true, false),
            Discovery::Expired(_) => (false, true),
        };
        let (reason, message) = describe_discovery(stands.discovery);
        for (type_, holds) in [
            (DISCOVERY_ACTIVE, is_active),
            (DISCOVERY_EXPIRED, is_expired),
        ] {
            conditions::set(conditions, type_, holds, reason, &message, generation, now);
        }
        status.verified = stands.verified.as_ref().ok().cloned();
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
        let verified = ["PolicyVerified", "PolicyNotVerified"];
        let verified = ready::lapse(before, after, VERIFIED, verified, "VerifyPolicy");
        let readable = ["SecretsReadable", "SecretsNotReadable"];
        let readable = ready::lapse(before, after, SECRETS_READABLE, readable, "CheckSecrets");
        let of_lending = verified.into_iter().chain(readable);
        ready
            .into_iter()
            .chain(of_lending)
            .chain(of_discovery)
            .collect()
    }
}

impl Policies {
    /// Returns the stamped spec of a policy.
    fn verified(&self, policy: &BrokerPolicy) -> Result<VerifiedSpec, StampError> {
        let authors = policy_stamp::verify(&self.keys, policy)?;
        let author = authors.into_iter().next_back();
        Ok(VerifiedSpec {
            digest: policy_stamp::digest(policy),
            author: author.map(|author| author.user).unwrap_or_default(),
        })
    }
}

/// The status, the reason and the message of [`VERIFIED`].
fn said(
    policy: &BrokerPolicy,
    verified: &Result<VerifiedSpec, StampError>,
) -> (bool, &'static str, String) {
    let metadata = &policy.metadata;
    let name = policy_name(policy);
    let namespace = metadata.namespace.as_deref().unwrap_or("NAMESPACE");
    match verified {
        Ok(spec) => (
            true,
            reason::SUCCESS,
            format!("the spec is stamped, and its author is {}", spec.author),
        ),
        // The keys come without a step of a user.
        Err(error @ StampError::Unverified(_)) => (false, error.reason(), error.to_string()),
        Err(error) => (
            false,
            error.reason(),
            format!(
                "oz-webhook did not stamp this spec ({}), and brokers lend no credential by it: {}",
                error.reason(),
                policy_stamp::create_again(name, namespace)
            ),
        ),
    }
}

/// Checks whether runs are admitted by a policy. An expired discovery prevents admission, also of granted credentials
/// and hosts.
fn usable(policy: &BrokerPolicy, discovery: Discovery) -> Result<(), Unusable> {
    let found = admission::standing_policy(policy);
    if let Some(unusable) = Unusable::by(reason::INVALID, &found) {
        return Err(unusable);
    }
    match discovery {
        Discovery::None | Discovery::Active(_) => Ok(()),
        Discovery::Expired(_) => Err(Unusable {
            reason: reason::EXPIRED,
            message: describe_discovery(discovery).1,
        }),
    }
}

/// The reason and the message of both conditions of a discovery.
fn describe_discovery(discovery: Discovery) -> (&'static str, String) {
    match discovery {
        Discovery::None => (
            reason::NO_DISCOVERY,
            "only granted hosts are permitted".to_owned(),
        ),
        Discovery::Active(ends) => (
            reason::ACTIVE,
            format!(
                "discovery is not served yet, so that only granted hosts are permitted; it is \
                 accepted until {ends}"
            ),
        ),
        Discovery::Expired(ended) if ended == Timestamp::MIN => (
            reason::EXPIRED,
            "the expiry of the discovery cannot be read, so that it counts as expired: correct \
             spec.egressDiscovery.expiresAt, or remove spec.egressDiscovery"
                .to_owned(),
        ),
        Discovery::Expired(ended) => (
            reason::EXPIRED,
            format!(
                "the discovery expired at {ended}, and no run is admitted by this policy until it \
                 is removed: add grants for the hosts that it found (kubectl paddock policy \
                 suggest --all) and remove spec.egressDiscovery"
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
