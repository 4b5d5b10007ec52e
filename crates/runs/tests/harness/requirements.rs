//! Whether what a template requires is granted.

use oz_api::harness::{EgressNeed, ProviderKind};
use oz_runs::policy::Matching;
use oz_runs::requires::{Shortfall, admitted, gaps};
use oz_runs::scaffold::{scaffold, suffices};
use oz_runs::template::{Resolved, resolve};
use proptest::prelude::*;
use serde_json::{Value, json};
use strum::IntoEnumIterator as _;

use crate::{now, policy, template};

pub(crate) fn requiring(requires: Value) -> Resolved {
    resolve(&template(json!({"requires": requires})), None).unwrap()
}

fn need(host: &str, ports: &[i32]) -> EgressNeed {
    EgressNeed {
        host: host.to_owned(),
        ports: ports.to_vec(),
    }
}

#[test]
fn ungranted_egress_is_reported_per_port() {
    let all = [
        policy(
            "a",
            json!({"grants": {"egress": [
                {"host": "api.example.com", "ports": [443]}, {"host": "*.any.example.com"},
            ]}}),
        ),
        policy(
            "b",
            json!({"grants": {"egress": [{"host": "*.example.com", "ports": [80, 22]}]}}),
        ),
    ];
    let granted = Matching::from_policies(&all, "parrot");
    for (host, ports, lacking) in [
        ("api.example.com", &[443][..], None),
        // Two policies, one port each.
        ("api.example.com", &[443, 80], None),
        ("api.example.com", &[443, 8443], Some(vec![8443])),
        ("api.example.com", &[], Some(vec![])),
        ("api.example.com", &[0], Some(vec![0])),
        ("www.any.example.com", &[], None),
        ("*.any.example.com", &[9], None),
        ("*.example.com", &[22], None),
        ("*.example.com", &[443], Some(vec![443])),
        ("example.com", &[80], Some(vec![80])),
        ("10.0.0.1", &[80], Some(vec![80])),
    ] {
        let resolved = requiring(json!({"egress": [{"host": host, "ports": ports}]}));
        let lacking: Vec<EgressNeed> = lacking.iter().map(|ports| need(host, ports)).collect();
        assert_eq!(
            gaps(&resolved, &granted).egress,
            lacking,
            "{host} {ports:?}"
        );
    }
}

#[test]
fn a_shortfall_names_the_gaps_and_the_command_that_scaffolds_the_policy() {
    let resolved = requiring(json!({
        "credentials": [{"name": "KEY"}, {"name": "TOKEN"}],
        "egress": [{"host": "api.example.com", "ports": [443, 80]}, {"host": "*.example.org"}, {"host": "*.example.org"}],
    }));
    let all = [policy(
        "a",
        json!({"grants": {
            "credentials": [{"name": "TOKEN", "provider": {"kind": "AnthropicAPI"}}],
            "egress": [{"host": "api.example.com", "ports": [443]}],
        }}),
    )];
    let matching = Matching::from_policies(&all, "parrot");
    let refused = admitted("parrot", "birds", &resolved, &matching, now()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "no BrokerPolicy of namespace birds grants what template parrot requires: credential KEY; egress to \
         api.example.com:80; egress to *.example.org on any port; ozctl run policy scaffold parrot -n birds \
         prints a policy that does"
    );
    let nothing = requiring(json!({}));
    assert_eq!(
        admitted(
            "parrot",
            "birds",
            &nothing,
            &Matching::from_policies([], "parrot"),
            now()
        ),
        Ok(())
    );
}

#[test]
fn a_discovery_that_has_expired_does_not_count_and_is_said_where_it_is_all_there_is() {
    let resolved = requiring(json!({"credentials": [{"name": "KEY"}]}));
    let with = |name, ends| {
        policy(
            name,
            json!({
                "grants": {"credentials": [{"name": "KEY", "provider": {"kind": "AnthropicAPI"}}]},
                "egressDiscovery": {"accepted": true, "reason": "a reason of twenty letters or more", "expiresAt": ends},
            }),
        )
    };
    let outcome = |all: &[_]| {
        admitted(
            "parrot",
            "birds",
            &resolved,
            &Matching::from_policies(all, "parrot"),
            now(),
        )
    };
    assert_eq!(outcome(&[with("a", "2026-02-01T00:00:00Z")]), Ok(()));
    let (old, older) = (
        with("b", "2026-01-31T09:00:00Z"),
        with("a", "2026-01-01T00:00:00Z"),
    );
    let refused = outcome(&[old.clone(), older]).unwrap_err();
    assert_eq!(
        refused,
        Shortfall::Expired {
            template: "parrot".to_owned(),
            policies: "a, b".to_owned()
        }
    );
    let refused = outcome(&[old, policy("c", json!({}))]).unwrap_err();
    assert!(matches!(refused, Shortfall::Lacking { .. }), "{refused}");
}

fn requirements() -> impl Strategy<Value = Value> {
    let names = proptest::collection::btree_set("[A-Z_]{1,8}", 0..4);
    let host = "(\\*\\.)?([a-c]\\.){0,2}example\\.com";
    let egress = proptest::collection::vec((host, proptest::collection::vec(0..4_i32, 0..3)), 0..4);
    (names, egress).prop_map(|(names, egress)| {
        let names: Vec<Value> = names
            .into_iter()
            .map(|name| json!({"name": name}))
            .collect();
        let egress: Vec<Value> = egress
            .into_iter()
            .map(|(host, ports)| json!({"host": host, "ports": ports}))
            .collect();
        json!({"credentials": names, "egress": egress})
    })
}

fn providers() -> impl Strategy<Value = Option<ProviderKind>> {
    proptest::option::of(proptest::sample::select(
        ProviderKind::iter().collect::<Vec<_>>(),
    ))
}

proptest! {
    #[test]
    fn a_scaffolded_policy_leaves_no_gap(requires in requirements(), provider in providers(), name in "[a-z*?\\[\\\\-]{1,12}") {
        let resolved = requiring(requires);
        let all = [scaffold("scaffold", &name, &resolved, provider)];
        let matching = Matching::from_policies(&all, &name);
        prop_assert!(!matching.is_empty());
        prop_assert!(gaps(&resolved, &matching).is_empty());
        prop_assert!(suffices(&all[0], &name, &resolved));
        // A template cannot require a variable of oz's own.
        if !resolved.credentials.contains(&"HOME".to_owned()) {
            prop_assert_eq!(oz_runs::admission::policy(&all[0], None, now()), vec![]);
        }
        prop_assert_eq!(admitted(&name, "birds", &resolved, &matching, now()), Ok(()));
        let longer = name.clone() + "x";
        prop_assert!(Matching::from_policies(&all, &longer).is_empty());
    }

    #[test]
    fn another_policy_never_opens_a_gap(requires in requirements(), grants in requirements(), provider in providers()) {
        let resolved = requiring(requires);
        let one = policy("a", json!({"grants": {"egress": grants["egress"]}}));
        let two = scaffold("b", "parrot", &resolved, provider);
        let few = [one.clone()];
        let many = [one, two];
        let lacking = |all| gaps(&resolved, &Matching::from_policies(all, "parrot"));
        let before = lacking(&few[..]);
        for gap in lacking(&many[..]).egress {
            prop_assert!(before.egress.contains(&gap));
        }
    }
}
