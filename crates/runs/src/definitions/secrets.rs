//! The Secrets that brokers read for a policy. Brokers have no right to Secrets but those that a Role of the namespace
//! gives them: the condition reports the missing ones before a run waits for them.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::Requester;
use oz_api::conditions::{self, Status};
use oz_api::harness::BrokerPolicy;
use oz_core::controller::Failure;
use oz_core::transient;

use super::ready::reason;

/// Policy: brokers may read the Secrets of its credentials.
pub const SECRETS_READABLE: &str = "SecretsReadable";

/// The time after which the permissions are checked again if one is missing or unknown.
pub const CHECK_MISSING_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// The time after which they are checked again if none is missing.
pub(super) const CHECK_AGAIN_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// The permissions of brokers on the Secrets of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readable {
    /// Brokers may get these Secrets, which are all.
    All(BTreeSet<String>),
    /// Brokers may not get these Secrets.
    Missing(BTreeSet<String>),
    /// The check failed.
    Unknown(Failure),
}

/// Returns the review of whether the broker with this user name may get a Secret.
#[must_use]
pub fn review(broker: &str, namespace: &str, secret: &str) -> SubjectAccessReview {
    let mut requester = Requester {
        user: broker.to_owned(),
        groups: vec!["system:authenticated".to_owned()],
        ..Requester::default()
    };
    if let Some((namespace, _)) = requester.service_account() {
        let of_namespace = format!("system:serviceaccounts:{namespace}");
        requester
            .groups
            .extend(["system:serviceaccounts".to_owned(), of_namespace]);
    }
    let right = ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        verb: Some("get".to_owned()),
        resource: Some("secrets".to_owned()),
        name: Some(secret.to_owned()),
        ..ResourceAttributes::default()
    };
    transient::review(&requester, right)
}

pub(super) fn later(now: Timestamp, after: SignedDuration) -> Timestamp {
    now.saturating_add(after).unwrap_or(Timestamp::MAX)
}

impl Readable {
    /// Returns the instant of the next check.
    pub(super) fn next(&self, now: Timestamp) -> Timestamp {
        let after = match self {
            Self::All(_) => CHECK_AGAIN_AFTER,
            Self::Missing(_) | Self::Unknown(_) => CHECK_MISSING_AFTER,
        };
        later(now, after)
    }

    /// Sets [`SECRETS_READABLE`].
    pub(super) fn set(
        &self,
        conditions: &mut Vec<Condition>,
        policy: &BrokerPolicy,
        broker: &str,
        now: Timestamp,
    ) {
        let (status, reason, message) = match self {
            Self::All(all) if all.is_empty() => (
                Status::True,
                reason::SUCCESS,
                "brokers read no Secret for this policy".to_owned(),
            ),
            Self::All(all) => (
                Status::True,
                reason::SUCCESS,
                format!("brokers may get {}", format_secrets(all)),
            ),
            Self::Missing(missing) => (
                Status::False,
                reason::MISSING_PERMISSION,
                not_readable(policy, broker, missing),
            ),
            Self::Unknown(failure) => (
                Status::Unknown,
                reason::PERMISSIONS_UNKNOWN,
                failure.message.clone(),
            ),
        };
        let generation = policy.metadata.generation;
        conditions::set(
            conditions,
            SECRETS_READABLE,
            status,
            reason,
            message,
            generation,
            now,
        );
    }
}

/// Returns the message for Secrets that brokers may not get, with the command that prints a Role.
fn not_readable(policy: &BrokerPolicy, broker: &str, missing: &BTreeSet<String>) -> String {
    let namespace = policy.metadata.namespace.as_deref().unwrap_or("NAMESPACE");
    let is_name = |text: &&String| !text.contains(['*', '?', '[', '\\']);
    let mut templates = policy.spec.applies_to_templates.iter();
    let template = templates
        .find(is_name)
        .map_or("TEMPLATE", |name| name.as_str());
    format!(
        "{broker} may not get {} in namespace {namespace}, and brokers lend no credential from there: ozctl run \
         policy scaffold {template} --role -n {namespace} | kubectl apply -f -",
        format_secrets(missing)
    )
}

/// Checks whether the status of a policy states, for its current spec, that brokers may not read a Secret.
#[must_use]
pub fn is_unreadable(policy: &BrokerPolicy, secret: &str) -> bool {
    let status = policy.status.as_ref();
    let readable = status.and_then(|status| conditions::find(&status.conditions, SECRETS_READABLE));
    readable.is_some_and(|readable| {
        let is_current = readable.observed_generation == policy.metadata.generation;
        is_current && readable.status == "False" && is_about(&readable.message, secret)
    })
}

/// Checks whether a message of [`not_readable`] is about a Secret: the policy may name others as well. A message that names
/// none is about each.
fn is_about(message: &str, secret: &str) -> bool {
    let Some((_, rest)) = message.split_once(" may not get Secret") else {
        return true;
    };
    let names = rest
        .split_once(" in namespace ")
        .map_or(rest, |(names, _)| names);
    let names = names.strip_prefix('s').unwrap_or(names);
    names.split(',').any(|name| name.trim() == secret)
}

fn format_secrets(secrets: &BTreeSet<String>) -> String {
    let names: Vec<&str> = secrets.iter().map(String::as_str).collect();
    match names.as_slice() {
        [one] => format!("Secret {one}"),
        all => format!("Secrets {}", all.join(", ")),
    }
}
