//! BrokerPolicies at the edge: the permissions of brokers on the Secrets of policies.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use oz_api::harness::BrokerPolicy;
use oz_core::controller::Failure;
use oz_engine::{Cx, Observe, Watches};
use oz_runs::definitions::{
    CHECK_MISSING_AFTER, Policies, PolicyFacts, PolicyQuestion, Readable, review,
};
use oz_runtime::Store;
use parking_lot::Mutex;

use crate::roles::may;

/// The maximum number of concurrent checks for one policy.
const AT_ONCE: usize = 16;
/// The number of stored results from which old ones are removed.
const MANY: usize = 1_024;

pub(crate) struct PolicyObjects {
    pub(crate) policies: Store<BrokerPolicy>,
    /// The user name of brokers.
    pub(crate) broker: Arc<str>,
    pub(crate) checked: Checked,
}

/// The recent results of checks, by namespace and Secret: a policy may change many times a second.
#[derive(Default)]
pub(crate) struct Checked(Mutex<HashMap<(String, String), (Timestamp, bool)>>);

impl Checked {
    fn recent(&self, now: Timestamp, namespace: &str, secret: &str) -> Option<bool> {
        let key = (namespace.to_owned(), secret.to_owned());
        let all = self.0.lock();
        let (at, allowed) = all.get(&key)?;
        is_recent(now, *at).then_some(*allowed)
    }

    fn note(&self, now: Timestamp, namespace: &str, secret: &str, allowed: bool) {
        let mut all = self.0.lock();
        if all.len() >= MANY {
            all.retain(|_, (at, _)| is_recent(now, *at));
        }
        let key = (namespace.to_owned(), secret.to_owned());
        all.insert(key, (now, allowed));
    }
}

fn is_recent(now: Timestamp, at: Timestamp) -> bool {
    let age = now.duration_since(at);
    age >= SignedDuration::ZERO && age < CHECK_MISSING_AFTER
}

impl Observe<Policies> for PolicyObjects {
    fn watches(&self) -> Watches<BrokerPolicy> {
        Watches::new(&self.policies)
    }

    fn facts(&self, _: &BrokerPolicy) -> PolicyFacts {
        PolicyFacts::default()
    }

    async fn answer(
        &self,
        cx: &Cx,
        policy: &BrokerPolicy,
        PolicyQuestion(secrets): PolicyQuestion,
        facts: &mut PolicyFacts,
    ) {
        // A store keeps no object without a namespace; a review without one would be about the whole cluster.
        let Some(namespace) = policy.namespace() else {
            return;
        };
        let missing = self.missing(cx, &namespace, &secrets).await;
        facts.readable = Some(match missing {
            Ok(missing) if missing.is_empty() => Readable::All(secrets),
            Ok(missing) => Readable::Missing(missing),
            Err(failure) => Readable::Unknown(failure),
        });
    }
}

impl PolicyObjects {
    /// Returns the Secrets that brokers may not get.
    async fn missing(
        &self,
        cx: &Cx,
        namespace: &str,
        secrets: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>, Failure> {
        let secrets: Vec<&String> = secrets.iter().collect();
        let mut missing = BTreeSet::new();
        for some in secrets.chunks(AT_ONCE) {
            let answers = some.iter().map(async |secret| {
                let allowed = self.may_get(cx, namespace, secret).await?;
                Ok::<_, Failure>((*secret, allowed))
            });
            let answers = try_join_all(answers).await?;
            let denied = answers.into_iter().filter(|(_, allowed)| !allowed);
            missing.extend(denied.map(|(secret, _)| secret.clone()));
        }
        Ok(missing)
    }

    async fn may_get(&self, cx: &Cx, namespace: &str, secret: &str) -> Result<bool, Failure> {
        if let Some(allowed) = self.checked.recent(cx.now(), namespace, secret) {
            return Ok(allowed);
        }
        let allowed = may(cx, &review(&self.broker, namespace, secret)).await?;
        self.checked.note(cx.now(), namespace, secret, allowed);
        Ok(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_of_check_is_used_until_the_next_check_is_due() {
        let checked = Checked::default();
        let start = Timestamp::UNIX_EPOCH;
        checked.note(start, "shop", "key", false);
        let just_before = start + CHECK_MISSING_AFTER - SignedDuration::from_nanos(1);
        assert_eq!(checked.recent(just_before, "shop", "key"), Some(false));
        assert_eq!(checked.recent(just_before, "shop", "other"), None);
        assert_eq!(checked.recent(just_before, "other", "key"), None);
        let due = start + CHECK_MISSING_AFTER;
        assert_eq!(checked.recent(due, "shop", "key"), None);
    }

    #[test]
    fn old_results_are_removed() {
        let checked = Checked::default();
        for number in 0..3 * MANY {
            let seconds = i64::try_from(number).unwrap();
            let now = Timestamp::from_second(seconds).unwrap();
            checked.note(now, "shop", &number.to_string(), true);
        }
        assert!(checked.0.lock().len() <= MANY);
    }
}
