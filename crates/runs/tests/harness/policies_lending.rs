//! What the status of policies reports about lending: the stamped spec, and the Secrets that brokers may read.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oz_api::harness::BrokerPolicy;
use oz_api::{Requester, labels};
use oz_core::access::seal::Keys;
use oz_core::access::stamp::Stamp;
use oz_core::controller::{Controller, Failure};
use oz_runs::definitions::{Policies, PolicyFacts, Readable, SECRETS_READABLE, VERIFIED, review};
use oz_runs::policy_stamp;
use oz_runs::provider::read_by_brokers;
use serde_json::{Value, json};

use crate::definitions::{line, names, pass, policies};
use crate::{now, policy};

const BROKER: &str = "system:serviceaccount:oz-system:oz-broker";

fn credential(name: &str, kind: &str, secret: &str, delivery: Value) -> Value {
    let mut provider = json!({"kind": kind, "secretRef": {"name": secret, "key": "value"}});
    if !delivery.is_null() {
        provider["deliveryMode"] = delivery;
    }
    json!({"name": name, "provider": provider})
}

fn injected() -> Value {
    json!({"proxyInjected": {"hosts": ["api.example.com"], "header": {"name": "Authorization"}}})
}

fn lending() -> BrokerPolicy {
    let accepted = json!({"accepted": true, "reason": "the tool signs requests with it"});
    let mut policy = policy(
        "a",
        json!({
            "appliesToTemplates": ["claude-*", "parrot"],
            "grants": {"credentials": [
                credential("KEY", "AnthropicAPI", "anthropic", Value::Null),
                credential("TOKEN", "UserSuppliedSecret", "tokens", injected()),
                credential("OTHER", "UserSuppliedSecret", "tokens", injected()),
                credential("SIGNING", "UserSuppliedSecret", "mounted", json!({"inContainer": accepted})),
                credential("APP", "GitHubApp", "app", Value::Null),
            ]},
        }),
    );
    policy.metadata.namespace = Some("shop".to_owned());
    policy.metadata.uid = Some("u-1".to_owned());
    policy.metadata.creation_timestamp = Some(Time(now()));
    policy
}

fn stamped(mut policy: BrokerPolicy, keys: &Keys) -> BrokerPolicy {
    let user = |name: &str| Requester {
        user: name.to_owned(),
        ..Requester::default()
    };
    let stamp = Stamp {
        requester: user("alice"),
        also: vec![user("bob")],
        kind: policy_stamp::KIND.to_owned(),
        namespace: "shop".to_owned(),
        name: "a".to_owned(),
        object_uid: "u-1".to_owned(),
        spec_digest: policy_stamp::digest(&policy),
        at: now(),
        nonce: "n".to_owned(),
        ..Stamp::default()
    };
    let sealed = stamp.seal(keys).unwrap();
    policy.metadata.annotations = Some(BTreeMap::from([(labels::REQUESTER.to_owned(), sealed)]));
    policy
}

fn all(names: &[&str]) -> std::collections::BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn facts(readable: Readable) -> PolicyFacts {
    PolicyFacts {
        readable: Some(readable),
    }
}

#[test]
fn only_secrets_of_injected_credentials_are_read_by_brokers() {
    assert_eq!(read_by_brokers(&lending()), all(&["anthropic", "tokens"]));
    assert!(read_by_brokers(&policy("a", json!({}))).is_empty());
}

#[test]
fn permission_is_asked_for_the_account_of_brokers_with_its_groups() {
    let asked = review(BROKER, "shop", "anthropic").spec;
    assert_eq!(asked.user.as_deref(), Some(BROKER));
    let groups = asked.groups.unwrap();
    for group in [
        "system:authenticated",
        "system:serviceaccounts",
        "system:serviceaccounts:oz-system",
    ] {
        assert!(groups.iter().any(|one| one == group), "{group}");
    }
    let right = asked.resource_attributes.unwrap();
    assert_eq!(right.verb.as_deref(), Some("get"));
    assert_eq!(right.resource.as_deref(), Some("secrets"));
    assert_eq!(right.name.as_deref(), Some("anthropic"));
    assert_eq!(right.namespace.as_deref(), Some("shop"));
}

#[test]
fn policy_reports_spec_and_author_of_its_stamp() {
    let readable = facts(Readable::All(all(&["anthropic", "tokens"])));
    let object = stamped(lending(), &policies().keys);
    let (status, _, events) = pass(&policies(), now(), &object, &readable);
    let verified = status.verified.clone().unwrap();
    assert_eq!(verified.author, "bob");
    assert_eq!(verified.digest, policy_stamp::digest(&object));
    assert_eq!(
        line(&status.conditions, VERIFIED),
        "True Success: the spec is stamped, and its author is bob"
    );
    assert!(!names(&events).contains(&"PolicyNotVerified"));
    // Another spec with the same stamp.
    let mut other = object;
    other.status = Some(status);
    other.spec.applies_to_templates.push("*".to_owned());
    let (status, _, events) = pass(&policies(), now(), &other, &readable);
    assert_eq!(status.verified, None);
    let said = line(&status.conditions, VERIFIED);
    assert!(said.starts_with("False StampOfAnotherRequest: "), "{said}");
    let command = "kubectl get brokerpolicy a -n shop -o yaml | kubectl replace --force -f -";
    assert!(said.contains(command), "{said}");
    assert_eq!(names(&events), ["PolicyNotVerified"]);
    assert!(events[0].warning);
}

#[test]
fn stamp_is_verified_again_soon_while_keys_are_unknown() {
    let object = stamped(lending(), &policies().keys);
    let unknown = Policies {
        keys: Keys::default(),
        ..policies()
    };
    let readable = facts(Readable::All(all(&["anthropic", "tokens"])));
    let (status, wake, _) = pass(&unknown, now(), &object, &readable);
    let said = line(&status.conditions, VERIFIED);
    assert!(said.starts_with("False StampUnverified: "), "{said}");
    assert_eq!(wake, Some(now() + SignedDuration::from_secs(30)));
}

#[test]
fn unreadable_secrets_are_named_with_the_command_and_checked_again() {
    let object = stamped(lending(), &policies().keys);
    let secrets = read_by_brokers(&object);
    let question = policies().decide(now(), &object, &PolicyFacts::default(), &[]);
    assert_eq!(question.question().unwrap().0, secrets);
    let soon = now() + SignedDuration::from_secs(30);
    let later = now() + SignedDuration::from_mins(5);
    let failure = Failure::transient("Timeout", "no response in time");
    for (readable, expected, at) in [
        (
            Readable::All(secrets),
            "True Success: brokers may get Secrets anthropic, tokens",
            later,
        ),
        (
            Readable::Missing(all(&["tokens"])),
            "False MissingPermission: system:serviceaccount:oz-system:oz-broker may not get Secret tokens in namespace \
             shop, and brokers lend no credential from there: ozctl run policy scaffold parrot --role -n shop | kubectl \
             apply -f -",
            soon,
        ),
        (
            Readable::Unknown(failure),
            "Unknown PermissionsUnknown: no response in time",
            soon,
        ),
    ] {
        let (status, wake, _) = pass(&policies(), now(), &object, &facts(readable));
        assert_eq!(line(&status.conditions, SECRETS_READABLE), expected);
        assert_eq!(wake, Some(at));
    }
}

#[test]
fn policy_without_injected_credentials_asks_nothing() {
    let object = policy("a", json!({}));
    let (status, _, _) = pass(&policies(), now(), &object, &PolicyFacts::default());
    assert_eq!(
        line(&status.conditions, SECRETS_READABLE),
        "True Success: brokers read no Secret for this policy"
    );
}
