//! The stamp of BrokerPolicies. The webhook seals the authors and the digest of the spec at each change of the spec.
//! Brokers lend credentials only by a policy with the stamped digest: an author of a stamped spec was allowed
//! to read each Secret that the spec names, since the same webhook checked it.

use oz_api::harness::BrokerPolicy;
use oz_api::{Requester, encode};
use oz_core::access::seal::Keys;
use oz_core::access::stamp::{self, StampError};

/// The kind in the stamp of a policy.
pub const KIND: &str = "BrokerPolicy";

/// Returns the digest of the spec of a policy.
#[must_use]
pub fn digest(policy: &BrokerPolicy) -> String {
    encode::digest(&policy.spec)
}

/// Returns the authors of the current spec of a policy in the order of their last changes: the last of them wrote the
/// current spec.
///
/// # Errors
/// A [`StampError`] with the reason why the authors are unknown.
pub fn verify(keys: &Keys, policy: &BrokerPolicy) -> Result<Vec<Requester>, StampError> {
    stamp::authors(keys, KIND, &policy.metadata, &digest(policy))
}

/// Returns the next step for a policy without a valid stamp. A user with the right to get its Secrets creates it again: a
/// change of a policy that may have been written by any user does not make its author responsible for the rest.
#[must_use]
pub fn create_again(name: &str, namespace: &str) -> String {
    format!(
        "check its content and create it again: kubectl get brokerpolicy {name} -n {namespace} -o yaml | kubectl \
         replace --force -f -"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
    use oz_api::harness::BrokerPolicySpec;
    use oz_api::labels;
    use oz_core::access::stamp::Stamp;

    use super::*;

    const CREATED: &str = "2026-01-01T12:00:00Z";

    fn keys() -> Keys {
        Keys::with_every_owner([[9; 32]])
    }

    fn user(name: &str) -> Requester {
        Requester {
            user: name.into(),
            ..Requester::default()
        }
    }

    fn policy() -> BrokerPolicy {
        BrokerPolicy {
            metadata: ObjectMeta {
                name: Some("claude".into()),
                namespace: Some("shop".into()),
                uid: Some("1".into()),
                creation_timestamp: Some(Time(CREATED.parse().unwrap())),
                ..ObjectMeta::default()
            },
            spec: BrokerPolicySpec {
                applies_to_templates: vec!["claude-*".into()],
                ..BrokerPolicySpec::default()
            },
            status: None,
        }
    }

    fn stamped(change: impl FnOnce(&mut Stamp)) -> BrokerPolicy {
        let mut policy = policy();
        let mut stamp = Stamp {
            requester: user("alice"),
            also: vec![user("bob")],
            kind: KIND.into(),
            namespace: "shop".into(),
            name: "claude".into(),
            object_uid: "1".into(),
            spec_digest: digest(&policy),
            at: "2026-03-01T12:00:00Z".parse().unwrap(),
            nonce: "n".into(),
            ..Stamp::default()
        };
        change(&mut stamp);
        let sealed = stamp.seal(&keys()).unwrap();
        policy.metadata.annotations =
            Some(BTreeMap::from([(labels::REQUESTER.to_owned(), sealed)]));
        policy
    }

    #[test]
    fn stamp_names_all_authors_of_the_spec() {
        let authors = verify(&keys(), &stamped(|_| ())).unwrap();
        assert_eq!(authors, [user("alice"), user("bob")]);
    }

    #[test]
    fn status_and_labels_are_not_part_of_the_digest() {
        let mut policy = stamped(|_| ());
        policy.status = Some(oz_api::harness::PolicyStatus::default());
        policy.metadata.labels = Some(BTreeMap::from([("team".into(), "shop".into())]));
        assert!(verify(&keys(), &policy).is_ok());
    }

    #[test]
    fn stamp_of_another_spec_is_refused() {
        let mut policy = stamped(|_| ());
        policy.spec.applies_to_templates.push("*".into());
        let refused = verify(&keys(), &policy);
        assert_eq!(refused, Err(StampError::OtherRequest("the spec")));
    }

    #[test]
    fn stamp_of_another_policy_is_refused() {
        type Change = fn(&mut BrokerPolicy);
        let cases: [(&str, Change); 3] = [
            ("the UID", |policy| policy.metadata.uid = Some("2".into())),
            ("the name", |policy| {
                policy.metadata.name = Some("other".into());
            }),
            ("the namespace", |policy| {
                policy.metadata.namespace = Some("other".into());
            }),
        ];
        for (field, change) in cases {
            let mut policy = stamped(|_| ());
            change(&mut policy);
            assert_eq!(
                verify(&keys(), &policy),
                Err(StampError::OtherRequest(field))
            );
        }
        let run = stamped(|stamp| stamp.kind = "HarnessRun".into());
        assert_eq!(
            verify(&keys(), &run),
            Err(StampError::OtherRequest("the kind"))
        );
    }

    #[test]
    fn missing_forged_and_unverifiable_stamps_differ() {
        assert_eq!(verify(&keys(), &policy()), Err(StampError::Missing));
        let others = Keys::with_every_owner([[1; 32]]);
        let forged = verify(&others, &stamped(|_| ())).unwrap_err();
        assert_eq!(forged.reason(), "StampForged");
        let unverified = verify(&Keys::default(), &stamped(|_| ())).unwrap_err();
        assert_eq!(unverified.reason(), "StampUnverified");
    }
}
