//! The policies that apply to a template, and the sum of their grants.

use oz_api::harness::{BrokerPolicy, GitAccess};
use oz_runs::policy::{Discovery, Matching, Mode, PodSecurity, discovery};
use serde_json::{Value, json};

use crate::{now, policy};

const REASON: &str = "a reason of twenty letters or more";

fn policy_name(policy: &BrokerPolicy) -> &str {
    policy.metadata.name.as_deref().unwrap()
}

fn credential(secret: &str) -> Value {
    json!({"name": "KEY", "provider": {"kind": "AnthropicAPI", "secretRef": {"name": secret, "key": "k"}}})
}

#[test]
fn policies_speak_for_the_templates_that_their_globs_match() {
    let with = |name, globs: Value| policy(name, json!({"appliesToTemplates": globs}));
    let mut gone = with("gone", json!(["*"]));
    gone.metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2026-01-31T09:00:00Z")).unwrap());
    let all = [
        with("c-star", json!(["par*"])),
        with("b-two", json!(["crow", "parrot"])),
        with("a-none", json!(["crow"])),
        with("d-broken", json!(["["])),
        gone,
    ];
    let matching = Matching::from_policies(&all, "parrot");
    assert_eq!(
        matching.iter().map(policy_name).collect::<Vec<_>>(),
        ["b-two", "c-star"]
    );
    assert!(Matching::from_policies(&all, "owl").is_empty());
}

#[test]
fn a_credential_is_the_first_policys_and_hosts_are_everybodys() {
    let grants = |secret, host| json!({"grants": {"credentials": [credential(secret)], "egress": [{"host": host, "ports": [443]}]}});
    // Whatever order they come in.
    let all = [
        policy("b", grants("two", "two.example.com")),
        policy("a", grants("one", "*.one.example.com")),
    ];
    let matching = Matching::from_policies(&all, "parrot");
    let (by, grant) = matching.credential("KEY").unwrap();
    assert_eq!(policy_name(by), "a");
    assert_eq!(grant.provider.secret_ref.as_ref().unwrap().name, "one");
    assert!(matching.credential("key").is_none());
    for (host, port, by) in [
        ("two.example.com", 443, Some("b")),
        ("TWO.example.com", 443, Some("b")),
        ("api.one.example.com", 443, Some("a")),
        ("one.example.com", 443, None),
        ("two.example.com", 80, None),
        ("three.example.com", 443, None),
    ] {
        assert_eq!(
            matching.egress(host, port).map(policy_name),
            by,
            "{host}:{port}"
        );
    }
}

#[test]
fn no_ports_and_port_0_are_any_port_and_a_host_that_is_none_grants_nothing() {
    let all = [policy(
        "a",
        json!({"grants": {"egress": [
            {"host": "none.example.com"}, {"host": "zero.example.com", "ports": [0]}, {"host": "*"}, {"host": "10.0.0.1"},
        ]}}),
    )];
    let matching = Matching::from_policies(&all, "parrot");
    assert!(matching.egress("none.example.com", 22).is_some());
    assert!(matching.egress("zero.example.com", 65_535).is_some());
    assert!(matching.egress("other.example.com", 443).is_none());
    assert!(matching.egress("10.0.0.1", 443).is_none());
}

#[test]
fn any_policy_may_allow_interaction_the_least_limit_counts_and_the_most_of_a_repository() {
    let all = [
        policy(
            "a",
            json!({"grants": {"gitRepos": [{"owner": "o", "repo": "r"}, {"owner": "o", "repo": "b"}]}, "limits": {"concurrentRuns": 3}}),
        ),
        policy(
            "b",
            json!({"grants": {"runs": {"interact": true}, "gitRepos": [{"owner": "o", "repo": "r", "access": "write"}]}, "limits": {"concurrentRuns": 2}}),
        ),
        policy("c", json!({"grants": {"runs": {"interact": false}}})),
    ];
    let matching = Matching::from_policies(&all, "parrot");
    assert!(matching.may_interact());
    assert!(!Matching::from_policies(&all[2..], "parrot").may_interact());
    assert_eq!(matching.concurrent_runs(), Some(2));
    let repositories: Vec<_> = matching
        .repositories()
        .into_iter()
        .map(|one| (one.repo, one.access))
        .collect();
    assert_eq!(
        repositories,
        [
            ("b".to_owned(), GitAccess::Read),
            ("r".to_owned(), GitAccess::Write)
        ]
    );
}

#[test]
fn discovery_is_over_at_its_instant() {
    let with = |accepted: bool, ends: &str| {
        let discovery = json!({"accepted": accepted, "reason": REASON, "expiresAt": ends});
        policy("a", json!({"egressDiscovery": discovery}))
    };
    let at = |text: &str| text.parse().unwrap();
    for (accepted, ends, stands) in [
        (
            true,
            "2026-01-31T09:00:01Z",
            Discovery::Active(at("2026-01-31T09:00:01Z")),
        ),
        (
            true,
            "2026-01-31T09:00:00Z",
            Discovery::Expired(at("2026-01-31T09:00:00Z")),
        ),
        (
            true,
            "2026-01-30T09:00:00Z",
            Discovery::Expired(at("2026-01-30T09:00:00Z")),
        ),
        (true, "soon", Discovery::Expired(jiff::Timestamp::MIN)),
        (false, "2026-02-01T09:00:00Z", Discovery::None),
    ] {
        let policy = with(accepted, ends);
        assert_eq!(discovery(&policy, now()), stands, "{accepted} {ends}");
        let is_active = matches!(stands, Discovery::Active(_));
        let all = [policy];
        assert_eq!(
            Matching::from_policies(&all, "parrot")
                .discovering(now())
                .is_some(),
            is_active,
            "{ends}"
        );
    }
}

#[test]
fn interception_is_cooperative_only_where_every_policy_accepts_it() {
    let accepts = |name| {
        policy(
            name,
            json!({"interception": {"cooperativeAccepted": {"accepted": true, "reason": REASON}}}),
        )
    };
    let silent = policy("silent", json!({}));
    let refuses = policy(
        "refuses",
        json!({"interception": {"cooperativeAccepted": {"accepted": false, "reason": REASON}}}),
    );
    let transparent = policy("transparent", json!({"interception": {"transparent": {}}}));
    let mode = |all: &[BrokerPolicy]| Matching::from_policies(all, "parrot").interception();
    assert_eq!(mode(&[]), Mode::Transparent);
    for other in [silent, refuses, transparent] {
        assert_eq!(
            mode(&[accepts("a"), other.clone()]),
            Mode::Transparent,
            "{}",
            policy_name(&other)
        );
    }
    let both = mode(&[accepts("b"), accepts("a")]);
    let reason = |name: &str| (name.to_owned(), REASON.to_owned());
    assert_eq!(both, Mode::Cooperative(vec![reason("a"), reason("b")]));
    for level in [
        PodSecurity::Privileged,
        PodSecurity::Baseline,
        PodSecurity::Restricted,
    ] {
        assert!(both.available(level).is_ok());
        let is_privileged = level == PodSecurity::Privileged;
        assert_eq!(
            Mode::Transparent.available(level).is_ok(),
            is_privileged,
            "{level}"
        );
    }
}
