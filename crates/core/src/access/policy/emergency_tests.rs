//! Tests of emergencies of objects without a template: a table, and the property that an additional access policy never
//! permits more.

use oz_api::duration::GoDuration;
use oz_api::{
    AccessPolicy, AccessPolicySpec, ApprovalRule, EmergencyConfig, PolicyApproval, PolicyThen,
    Requester, ReviewConfig, TicketConfig,
};
use proptest::prelude::*;

use super::*;
use crate::access::decide::Ask;
use crate::kinds::Rules as _;

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Returns terms for the user alice, or for other users, which these groups review.
fn terms(users: &[&str], reviewers: &[&str]) -> EmergencyConfig {
    EmergencyConfig {
        groups: Vec::new(),
        users: owned(users),
        max_duration: "1h".into(),
        review: ReviewConfig {
            deadline: "24h".into(),
            groups: owned(reviewers),
            users: Vec::new(),
        },
        open_reviews: 2,
    }
}

fn approval() -> PolicyApproval {
    PolicyApproval {
        rules: vec![ApprovalRule {
            name: "security".into(),
            groups: vec!["security".into()],
            users: Vec::new(),
            approvals: 1,
            notify: true,
            escalation: None,
        }],
        ..PolicyApproval::default()
    }
}

/// Returns an effect with an approval, a change ticket, and terms for emergencies.
fn effect(approved: bool, ticket: bool, emergency: Option<EmergencyConfig>) -> PolicyThen {
    PolicyThen {
        approval: approved.then(approval),
        require_ticket: ticket.then(TicketConfig::default),
        // At least one effect is required.
        require_reason: true,
        emergency,
        ..PolicyThen::default()
    }
}

fn policy(name: &str, then: PolicyThen) -> AccessPolicy {
    let spec = AccessPolicySpec {
        r#match: "true".into(),
        time_zone: None,
        then,
    };
    let policy = AccessPolicy::new(name, spec);
    let violations = policy.violations(jiff::Timestamp::UNIX_EPOCH);
    assert!(violations.is_empty(), "{violations:?}");
    policy
}

fn together(effects: &[PolicyThen]) -> Judgement {
    let numbered = effects.iter().enumerate();
    let policies: Vec<AccessPolicy> = numbered
        .map(|(number, then)| policy(&format!("p{number}"), then.clone()))
        .collect();
    let opinions = policies.iter().map(|policy| Opinion {
        policy,
        matched: Ok::<_, String>(true),
    });
    let opinions: Vec<Opinion<'_, String>> = opinions.collect();
    combine(Some("sha256:0".into()), None, &opinions, 0)
}

fn alice() -> Requester {
    Requester {
        user: "alice".into(),
        ..Requester::default()
    }
}

fn described(effects: &[PolicyThen]) -> String {
    match emergency_terms(Some(&together(effects)), &alice()) {
        Ok(terms) => format!(
            "{} {} {} {}",
            terms.longest,
            terms.within,
            terms.most,
            terms.reviewers.groups.join("+")
        ),
        Err(denial) => denial.reason.to_owned(),
    }
}

#[test]
fn strictest_terms_of_all_policies_apply_to_an_emergency() {
    let plain = || Some(terms(&["alice"], &["security", "leads"]));
    let short = EmergencyConfig {
        max_duration: "10m".into(),
        open_reviews: 1,
        review: ReviewConfig {
            deadline: "2h".into(),
            groups: owned(&["leads", "sre"]),
            users: Vec::new(),
        },
        ..terms(&["alice"], &[])
    };
    let rows: [(Vec<PolicyThen>, &str); 10] = [
        (vec![], "EmergencyAccessDisabled"),
        (vec![effect(false, false, None)], "EmergencyAccessDisabled"),
        (
            vec![effect(false, false, plain())],
            "1h0m0s 24h0m0s 2 security+leads",
        ),
        (
            vec![effect(true, true, plain())],
            "1h0m0s 24h0m0s 2 security+leads",
        ),
        // A policy that requires nothing does not decide about emergencies.
        (
            vec![effect(true, false, plain()), effect(false, false, None)],
            "1h0m0s 24h0m0s 2 security+leads",
        ),
        (
            vec![effect(false, false, plain()), effect(true, false, None)],
            "EmergencyAccessDisabled",
        ),
        (
            vec![effect(false, true, None), effect(true, false, plain())],
            "EmergencyAccessDisabled",
        ),
        (
            vec![
                effect(true, false, plain()),
                effect(true, false, Some(short)),
            ],
            "10m0s 2h0m0s 1 leads",
        ),
        (
            vec![
                effect(true, false, plain()),
                effect(true, false, Some(terms(&["alice"], &["sre"]))),
            ],
            "EmergencyConfigInvalid",
        ),
        (
            vec![
                effect(true, false, plain()),
                effect(true, false, Some(terms(&["carol"], &["security"]))),
            ],
            "EmergencyNotAllowed",
        ),
    ];
    for (effects, expected) in rows {
        assert_eq!(described(&effects), expected, "{effects:?}");
    }
}

#[test]
fn judgement_without_terms_is_that_of_earlier_releases() {
    let judgement = together(&[effect(true, true, None)]);
    let value = serde_json::to_value(&judgement).unwrap();
    assert_eq!(value.get("emergencies"), None);
    assert_eq!(
        serde_json::from_value::<Judgement>(value).unwrap(),
        judgement
    );
    assert_eq!(emergency_longest(Some(&judgement)), None);
}

#[test]
fn terms_that_are_too_large_refuse_the_object() {
    let users: Vec<String> = (0..64).map(|number| format!("{number:0>512}")).collect();
    let large = EmergencyConfig {
        users,
        ..terms(&[], &["security"])
    };
    let judgement = together(&[effect(true, false, Some(large))]);
    assert!(judgement.refused.unwrap().failed);
    assert!(judgement.emergencies.is_empty());
}

#[test]
fn further_ticket_check_or_rule_is_stricter_for_an_object_with_a_ticket() {
    let ask = Ask {
        reason: Some("it is needed"),
        ticket: Some("INC-1"),
        ..Ask::default()
    };
    let with_check = |check: &str| PolicyThen {
        require_ticket: Some(TicketConfig {
            pattern: None,
            check: Some(check.to_owned()),
        }),
        ..effect(true, false, None)
    };
    let (one, both) = (
        together(&[with_check("jira")]),
        together(&[with_check("jira"), with_check("snow")]),
    );
    assert_eq!(stricter_ask(Some(&both), Some(&one), ask, &[]), None);
    let stricter = stricter_ask(Some(&one), Some(&both), ask, &[]);
    assert_eq!(stricter, Some(Stricter::TicketCheck("snow".to_owned())));
    let unnamed = Ask {
        ticket: None,
        ..ask
    };
    assert!(matches!(
        stricter_ask(Some(&one), Some(&one), unnamed, &[]),
        Some(Stricter::Denied(denial)) if denial.reason == "TicketRequired"
    ));
    let approved = together(&[effect(true, false, None)]);
    let free = together(&[effect(false, false, None)]);
    assert_eq!(
        stricter_ask(Some(&free), Some(&approved), ask, &[]),
        Some(Stricter::Approval)
    );
}

const USERS: [&str; 3] = ["alice", "bob", "carol"];
const REVIEWERS: [&str; 3] = ["security", "leads", "sre"];

fn some_terms() -> impl Strategy<Value = EmergencyConfig> {
    let users = proptest::sample::subsequence(&USERS[..], 1..=3);
    let reviewers = proptest::sample::subsequence(&REVIEWERS[..], 1..=3);
    let durations = || proptest::sample::select(vec!["5m", "30m", "2h"]);
    let parts = (users, reviewers, durations(), durations(), 1..4_i32);
    parts.prop_map(
        |(users, reviewers, max_duration, deadline, open_reviews)| EmergencyConfig {
            max_duration: max_duration.into(),
            open_reviews,
            review: ReviewConfig {
                deadline: deadline.into(),
                groups: owned(&reviewers),
                users: Vec::new(),
            },
            ..terms(&users, &[])
        },
    )
}

fn some_effects() -> impl Strategy<Value = Vec<PolicyThen>> {
    let emergency = proptest::option::weighted(0.7, some_terms());
    let one = (any::<bool>(), any::<bool>(), emergency);
    let one = one.prop_map(|(approved, ticket, emergency)| effect(approved, ticket, emergency));
    proptest::collection::vec(one, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn additional_policy_never_permits_more_to_an_emergency(
        all in some_effects(),
        more in some_effects(),
    ) {
        let before = together(&all);
        let after = together(&[all, more].concat());
        let Ok(now) = emergency_terms(Some(&after), &alice()) else {
            return Ok(());
        };
        let Ok(known) = emergency_terms(Some(&before), &alice()) else {
            // Nothing was required that the emergency would replace.
            prop_assert!(rules(Some(&before)).is_none() && before.tickets.is_empty());
            return Ok(());
        };
        prop_assert!(now.longest <= known.longest && now.within <= known.within);
        prop_assert!(now.most <= known.most);
        let reviewers = &known.reviewers.groups;
        prop_assert!(now.reviewers.groups.iter().all(|group| reviewers.contains(group)));
        prop_assert!(!now.reviewers.groups.is_empty());
        prop_assert_eq!(emergency_longest(Some(&after)), Some(now.longest));
        prop_assert!(now.longest > GoDuration::ZERO);
    }
}
