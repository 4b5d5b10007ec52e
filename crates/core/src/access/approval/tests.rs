//! Tests of requester, rules, approvals and time, and their results: a table, and properties that hold for
//! all of them.

use jiff::{SignedDuration, Timestamp};
use oz_api::{ApprovalConfig, ApprovalRule, Escalation, Requester};
use proptest::prelude::*;

use super::super::testing::{NANOSECOND, timestamp};
use super::decide::waited_for;
use super::{Answer, ApprovalRequest, Verdict, decide, is_named, is_same_person, may_approve};

const TIMEOUT: i64 = 1800;

fn list(text: &str) -> Vec<String> {
    let names = text.split(',').filter(|name| !name.is_empty());
    names.map(ToOwned::to_owned).collect()
}

/// Parses `security=bob,carol sre*2=%sre,dave`: rules with users and, behind `%`, groups, and the required
/// number.
fn rules(text: &str) -> ApprovalConfig {
    let rule = |text: &str| {
        let (name, who) = text.split_once('=').unwrap();
        let (name, approvals) = name.split_once('*').unwrap_or((name, "1"));
        let (groups, users) = list(who)
            .into_iter()
            .partition(|name| name.starts_with('%'));
        let groups: Vec<String> = groups;
        ApprovalRule {
            name: name.to_owned(),
            groups: groups.iter().map(|group| group[1..].to_owned()).collect(),
            users,
            approvals: approvals.parse().unwrap(),
            notify: true,
            escalation: None,
        }
    };
    ApprovalConfig {
        rules: text.split(' ').map(rule).collect(),
        timeout: "30m".to_owned(),
        when: None,
        require_reason: false,
        unless: Vec::new(),
    }
}

/// Parses `bob/u1%sre,ops`: a user name, an optional UID, optional groups.
fn person(text: &str) -> Requester {
    let (name, groups) = text.split_once('%').unwrap_or((text, ""));
    let (user, uid) = name.split_once('/').unwrap_or((name, ""));
    Requester {
        user: user.to_owned(),
        uid: uid.to_owned(),
        groups: list(groups),
    }
}

/// Parses `bob%sre +10`: the user, whether they approve, and after how many seconds; `!` behind it if they
/// approved or denied something other than the request.
fn answer(text: &str) -> Answer {
    let (who, what) = text.split_once(' ').unwrap();
    let (what, digest) = match what.strip_suffix('!') {
        Some(what) => (what, "old"),
        None => (what, "now"),
    };
    Answer {
        name: text.to_owned(),
        by: person(who),
        approves: what.starts_with('+'),
        reason: None,
        digest: digest.to_owned(),
        at: timestamp(what[1..].parse().unwrap()),
        locked_until: None,
    }
}

fn answers(text: &str) -> Vec<Answer> {
    let each = text.split("; ").filter(|text| !text.is_empty());
    each.map(answer).collect()
}

fn verdict(
    requester: &Requester,
    config: &ApprovalConfig,
    answers: &[Answer],
    now: Timestamp,
) -> Verdict {
    let asked = ApprovalRequest {
        requester,
        bound: Vec::new(),
        config,
        digest: "now".to_owned(),
        created: timestamp(0),
        until: timestamp(TIMEOUT),
    };
    decide(&asked, answers, now)
}

fn describe(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Granted { by, at: last } => {
            let by: Vec<String> = by
                .iter()
                .map(|one| format!("{}={}", one.rule, one.user))
                .collect();
            format!(
                "granted {} at {}",
                by.join(" "),
                last.duration_since(timestamp(0)).as_secs()
            )
        }
        Verdict::Waiting { missing, void: 0 } => format!("waiting {}", waited_for(missing)),
        Verdict::Waiting { missing, void } => {
            format!("waiting {}; {void} void", waited_for(missing))
        }
        Verdict::Denied { by, .. } => format!("denied by {}", by.user),
        Verdict::TimedOut { missing } => format!("timed out {}", waited_for(missing)),
    }
}

#[test]
fn escalation_adds_approvers_to_its_rule_from_its_time_on() {
    let mut config = rules("security=bob sre=dave");
    config.rules[0].escalation = Some(Escalation {
        after: "10m".to_owned(),
        groups: vec!["leads".to_owned()],
        users: vec!["carol".to_owned()],
        notify: true,
    });
    let early = "waiting security: bob may; sre: dave may";
    let late = "waiting security: bob, carol, group leads may; sre: dave may";
    for (given, now, expected) in [
        ("", 599, early),
        ("", 600, late),
        // An approval or denial from before that time does not count later either.
        ("carol +599", 599, early),
        ("carol +599", 700, late),
        ("carol -599", 700, late),
        ("carol -600", 700, "denied by carol"),
        (
            "carol +600; dave +601",
            700,
            "granted security=carol sre=dave at 601",
        ),
        (
            "erin%leads +600; dave +601",
            700,
            "granted security=erin sre=dave at 601",
        ),
        (
            "bob +10; dave +11",
            12,
            "granted security=bob sre=dave at 11",
        ),
        // The other rule has no further approvers, and a person counts once.
        ("bob +10; carol +600", 700, "waiting sre: dave may"),
        ("carol +600; erin%leads +601", 700, "waiting sre: dave may"),
        // The requester counts for no rule.
        ("alice%leads +600", 700, late),
        (
            "",
            1800,
            "timed out security: bob, carol, group leads may; sre: dave may",
        ),
    ] {
        let found = verdict(&person("alice"), &config, &answers(given), timestamp(now));
        assert_eq!(describe(&found), expected, "{given:?} at {now}");
    }
}

/// Requester, rules, approvals and denials, seconds since the request was created, and the result.
type Row = (&'static str, &'static str, &'static str, i64, &'static str);

const ONE: &str = "security=bob,carol";
const GROUP: &str = "sre=%sre";
const MIXED: &str = "security=bob,%sec";
const TWO: &str = "security*2=bob,carol,dave";
const BOTH: &str = "security=bob,carol sre=bob,dave";
const TIGHT: &str = "security=bob,carol sre=bob";
const GROUPS: &str = "sre=%sre security=%sec";
const CHAIN: &str = "one=bob,carol two=carol,dave three=dave,erin";
const ROBOT: &str = "gate=system:serviceaccount:ci:gate";
const ROBOTS: &str = "gate=%system:serviceaccounts";

#[rustfmt::skip]
const TABLE: &[Row] = &[
    // Without approvals and denials.
    ("alice", ONE, "", 0, "waiting security: bob, carol may"),
    ("alice", ONE, "", 1799, "waiting security: bob, carol may"),
    ("alice", ONE, "", 1800, "timed out security: bob, carol may"),
    ("alice", ONE, "", 9999, "timed out security: bob, carol may"),
    ("alice", GROUP, "", 5, "waiting sre: group sre may"),
    ("alice", MIXED, "", 5, "waiting security: bob, group sec may"),
    ("alice", TWO, "", 5, "waiting security (0 of 2): bob, carol, dave may"),
    ("alice", BOTH, "", 5, "waiting security: bob, carol may; sre: bob, dave may"),
    ("bob", ONE, "", 5, "waiting security: carol may"),
    ("bob", TIGHT, "", 5, "waiting security: carol may; sre: no other approver is left"),
    ("alice", ROBOT, "", 5, "waiting gate: system:serviceaccount:ci:gate may"),
    // One rule, one approval or denial.
    ("alice", ONE, "bob +10", 11, "granted security=bob at 10"),
    ("alice", ONE, "carol +10", 11, "granted security=carol at 10"),
    ("alice", ONE, "dave +10", 11, "waiting security: bob, carol may"),
    ("alice", ONE, "bob -10", 11, "denied by bob"),
    ("alice", ONE, "dave -10", 11, "waiting security: bob, carol may"),
    ("alice", GROUP, "erin%sre +10", 11, "granted sre=erin at 10"),
    ("alice", GROUP, "erin%dev,sre +10", 11, "granted sre=erin at 10"),
    ("alice", GROUP, "erin%dev +10", 11, "waiting sre: group sre may"),
    ("alice", GROUP, "sre +10", 11, "waiting sre: group sre may"),
    ("alice", MIXED, "erin%sec +10", 11, "granted security=erin at 10"),
    ("alice", MIXED, "bob +10", 11, "granted security=bob at 10"),
    // The requester's own.
    ("bob", ONE, "bob +10", 11, "waiting security: carol may"),
    ("bob/u1", ONE, "carol/u1 +10", 11, "waiting security: carol may"),
    ("bob/u1", ONE, "bob/u2 +10", 11, "waiting security: carol may"),
    ("bob", ONE, "bob -10", 11, "waiting security: carol may"),
    ("bob/u1", GROUP, "rob/u1%sre +10", 11, "waiting sre: group sre may"),
    ("bob/u1", GROUP, "rob/u1%sre -10", 11, "waiting sre: group sre may"),
    ("bob/u1", GROUP, "rob/u2%sre +10", 11, "granted sre=rob at 10"),
    ("bob", GROUP, "rob%sre +10", 11, "granted sre=rob at 10"),
    // A user with a name of the requester in one approval is the requester in the other.
    ("alice/u1", "sre*2=%sre", "rob/u2%sre +10; rob/u1%sre +11; erin%sre +12", 13, "waiting sre (1 of 2): group sre may"),
    // Time.
    ("alice", ONE, "bob +1799", 1799, "granted security=bob at 1799"),
    ("alice", ONE, "bob +1799", 9999, "granted security=bob at 1799"),
    ("alice", ONE, "bob +1800", 1800, "timed out security: bob, carol may"),
    ("alice", ONE, "bob +1801", 1802, "timed out security: bob, carol may"),
    ("alice", ONE, "bob -1800", 1801, "timed out security: bob, carol may"),
    ("alice", TWO, "bob +10; carol +1800", 1801, "timed out security (1 of 2): carol, dave may"),
    // The digest.
    ("alice", ONE, "bob +10!", 11, "waiting security: bob, carol may; 1 void"),
    ("alice", ONE, "bob -10!", 11, "waiting security: bob, carol may; 1 void"),
    ("alice", ONE, "bob +10!; carol +12", 13, "granted security=carol at 12"),
    ("alice", ONE, "bob +10!; bob +12", 13, "granted security=bob at 12"),
    ("alice", ONE, "dave +10!", 11, "waiting security: bob, carol may"),
    ("alice", ONE, "bob +10!", 1800, "timed out security: bob, carol may"),
    // Denials.
    ("alice", ONE, "bob +10; carol -10", 11, "denied by carol"),
    ("alice", ONE, "carol -10; bob +10", 11, "denied by carol"),
    ("alice", ONE, "bob +10; carol -500", 501, "denied by carol"),
    ("alice", ONE, "bob +10; bob -20", 21, "denied by bob"),
    ("alice", TWO, "bob +10; carol -20", 21, "denied by carol"),
    ("alice", BOTH, "bob +10; dave +11; carol -12", 13, "denied by carol"),
    ("alice", ONE, "bob -20; carol -10", 21, "denied by carol"),
    // The number of approvals.
    ("alice", TWO, "bob +10", 11, "waiting security (1 of 2): carol, dave may"),
    ("alice", TWO, "bob +10; bob +11", 12, "waiting security (1 of 2): carol, dave may"),
    ("alice", TWO, "bob +10; carol +12", 13, "granted security=bob security=carol at 12"),
    ("alice", TWO, "bob/u1 +10; carol/u1 +12", 13, "waiting security (1 of 2): dave may"),
    ("alice", TWO, "bob +10; carol +12; dave +14", 15, "granted security=bob security=carol at 12"),
    // Each person counts once, for the rule that needs them most.
    ("alice", BOTH, "bob +10", 11, "waiting sre: dave may"),
    ("alice", BOTH, "bob +10; dave +11", 12, "granted security=bob sre=dave at 11"),
    ("alice", BOTH, "bob +10; carol +11", 12, "granted security=carol sre=bob at 11"),
    ("alice", TIGHT, "bob +10; carol +11", 12, "granted security=carol sre=bob at 11"),
    ("alice", TIGHT, "carol +10; bob +11", 12, "granted security=carol sre=bob at 11"),
    ("alice", TIGHT, "bob +10; bob +11", 12, "waiting sre: no other approver is left"),
    ("alice", GROUPS, "bob%sre,sec +10", 11, "waiting security: group sec may"),
    ("alice", GROUPS, "bob%sre,sec +10; erin%sre +11", 12, "granted sre=erin security=bob at 11"),
    ("alice", GROUPS, "bob%sre,sec +10; erin%sec +11", 12, "granted sre=bob security=erin at 11"),
    ("alice", GROUPS, "bob/u1%sre +10; rob/u1%sec +11", 12, "waiting security: group sec may"),
    ("alice", CHAIN, "carol +10; dave +11; erin +12", 13, "granted one=carol two=dave three=erin at 12"),
    ("alice", CHAIN, "carol +10; dave +11; bob +12", 13, "granted one=bob two=carol three=dave at 12"),
    // Service accounts, by their own names only.
    ("alice", ROBOT, "system:serviceaccount:ci:gate +10", 11, "granted gate=system:serviceaccount:ci:gate at 10"),
    ("alice", ROBOT, "system:serviceaccount:ci:other +10", 11, "waiting gate: system:serviceaccount:ci:gate may"),
    ("alice", ROBOTS, "system:serviceaccount:ci:gate%system:serviceaccounts +10", 11, "waiting gate: group system:serviceaccounts may"),
    ("alice", ROBOTS, "system:serviceaccount:ci:gate%system:serviceaccounts -10", 11, "waiting gate: group system:serviceaccounts may"),
];

#[test]
fn approvals_and_denials_give_expected_verdict() {
    assert!(TABLE.len() >= 60, "{}", TABLE.len());
    for &(requester, config, given, now, expected) in TABLE {
        let verdict = verdict(
            &person(requester),
            &rules(config),
            &answers(given),
            timestamp(now),
        );
        assert_eq!(
            describe(&verdict),
            expected,
            "{requester} asks by {config}; {given:?}; at {now}"
        );
    }
}

#[test]
fn an_approval_counts_until_a_nanosecond_before_the_time_is_over() {
    for (after, granted) in [
        (-NANOSECOND, true),
        (SignedDuration::ZERO, false),
        (NANOSECOND, false),
    ] {
        let mut given = answers("bob +10");
        given[0].at = timestamp(TIMEOUT) + after;
        let verdict = verdict(
            &person("alice"),
            &rules(ONE),
            &given,
            timestamp(TIMEOUT) + after,
        );
        assert_eq!(
            matches!(verdict, Verdict::Granted { .. }),
            granted,
            "{after}"
        );
    }
}

/// What a list of open approvals shows, too: no answer is left out there as the requester's own.
#[test]
fn requester_may_not_approve_under_any_name() {
    let config = rules("sre=%sre,bob");
    for (requester, who, may) in [
        ("bob/u1", "bob/u1", false),
        ("alice/u1%sre", "bob/u1", false),
        ("bob", "bob/u2%sre", false),
        ("alice/u1", "bob/u2", true),
        ("alice/u1%sre", "carol/u2%sre", true),
        ("alice/u1", "carol/u2", false),
    ] {
        let (requester, who) = (person(requester), person(who));
        let asked = ApprovalRequest {
            requester: &requester,
            bound: Vec::new(),
            config: &config,
            digest: "now".to_owned(),
            created: timestamp(0),
            until: timestamp(TIMEOUT),
        };
        assert_eq!(may_approve(&asked, &who, timestamp(1)), may, "{who:?}");
    }
}

#[test]
fn bound_user_may_not_approve_under_any_name() {
    let requester = person("alice");
    for (bound, config, given, expected) in [
        ("bob", ONE, "", "waiting security: carol may"),
        ("bob", ONE, "bob +10", "waiting security: carol may"),
        ("bob", ONE, "bob/u1 -10", "waiting security: carol may"),
        ("bob", ONE, "carol +10", "granted security=carol at 10"),
        (
            "bob,carol",
            ONE,
            "bob +10; carol +11",
            "waiting security: no other approver is left",
        ),
        // A name of the same person.
        (
            "bob",
            "sre*2=%sre",
            "bob/u1%sre +10; rob/u1%sre +11; erin%sre +12",
            "waiting sre (1 of 2): group sre may",
        ),
        ("bob", "sre=%sre", "rob/u2%sre +10", "granted sre=rob at 10"),
        (
            "system:serviceaccount:ci:gate",
            ROBOT,
            "system:serviceaccount:ci:gate +10",
            "waiting gate: no other approver is left",
        ),
    ] {
        let config = rules(config);
        let asked = ApprovalRequest {
            requester: &requester,
            bound: list(bound).iter().map(|name| person(name)).collect(),
            config: &config,
            digest: "now".to_owned(),
            created: timestamp(0),
            until: timestamp(TIMEOUT),
        };
        let found = decide(&asked, &answers(given), timestamp(13));
        assert_eq!(describe(&found), expected, "{bound} is bound; {given:?}");
        for name in list(bound) {
            assert!(!may_approve(&asked, &person(&name), timestamp(1)), "{name}");
        }
    }
}

#[test]
fn missing_approvers_are_listed_in_limited_length() {
    let users: Vec<String> = (0..64).map(|n| format!("{n}{}", "ü".repeat(200))).collect();
    let mut config = rules("r1=x r2=x r3=x r4=x r5=x r6=x r7=x r8=x");
    for rule in &mut config.rules {
        rule.users.clone_from(&users);
    }
    let Verdict::Waiting { missing, .. } = verdict(&person("alice"), &config, &[], timestamp(1))
    else {
        panic!("nobody has answered")
    };
    assert!(waited_for(&missing).len() <= 512);
    let one = waited_for(&missing[..1]);
    assert!(one.contains("and 59 more may"), "{one}");
}

/// Generates approvals and denials of a few persons who share names, UIDs and groups.
fn any_answer() -> impl Strategy<Value = Answer> {
    let names = prop::sample::select(vec!["alice", "bob", "carol", "dave", "erin"]);
    let uids = prop::sample::select(vec!["", "u-alice", "u1", "u2"]);
    let groups = prop::sample::subsequence(vec!["sre", "sec"], 0..=2);
    (names, uids, groups, 0..2000_i64, any::<bool>()).prop_map(
        |(user, uid, groups, second, now)| Answer {
            name: format!("{user}-{second}"),
            by: Requester {
                user: user.to_owned(),
                uid: uid.to_owned(),
                groups: groups.into_iter().map(ToOwned::to_owned).collect(),
            },
            approves: true,
            reason: None,
            digest: if now { "now" } else { "old" }.to_owned(),
            at: timestamp(second),
            locked_until: None,
        },
    )
}

fn any_rules() -> impl Strategy<Value = ApprovalConfig> {
    let texts = vec![
        ONE,
        GROUP,
        MIXED,
        TWO,
        BOTH,
        TIGHT,
        GROUPS,
        CHAIN,
        "sre*3=%sre,%sec",
    ];
    prop::sample::select(texts).prop_map(rules)
}

proptest! {
    #[test]
    fn request_is_granted_only_by_all_rules_and_each_approver_counts_once(
        config in any_rules(),
        given in prop::collection::vec(any_answer(), 0..8),
        now in 0..4000_i64,
    ) {
        let requester = person("alice/u-alice");
        if let Verdict::Granted { by, at: last } = verdict(&requester, &config, &given, timestamp(now)) {
            for rule in &config.rules {
                let count = by.iter().filter(|one| one.rule == rule.name).count();
                prop_assert_eq!(count, usize::try_from(rule.approvals).unwrap());
            }
            for (number, one) in by.iter().enumerate() {
                let own = Requester { user: one.user.clone(), uid: one.uid.clone(), groups: Vec::new() };
                prop_assert!(!is_same_person(&own, &requester));
                let source = given.iter().find(|answer| {
                    answer.by.user == one.user && answer.by.uid == one.uid && answer.at == one.at
                });
                let source = source.unwrap();
                prop_assert!(source.digest == "now" && source.at < timestamp(TIMEOUT) && source.at <= last);
                for other in &by[..number] {
                    let other = Requester { user: other.user.clone(), uid: other.uid.clone(), groups: Vec::new() };
                    prop_assert!(!is_same_person(&own, &other));
                }
                // A person may be known by several names; one of them is in the rule.
                let rule = config.rules.iter().find(|rule| rule.name == one.rule).unwrap();
                prop_assert!(given.iter().any(|answer| is_named(rule, &answer.by)));
            }
        }
    }

    #[test]
    fn verdict_is_independent_of_order_of_approvals(
        config in any_rules(),
        given in prop::collection::vec(any_answer(), 0..8).prop_shuffle(),
        now in 0..4000_i64,
    ) {
        let requester = person("alice/u-alice");
        let mut sorted = given.clone();
        sorted.sort_by(|one, other| (one.at, &one.name, &one.by.uid).cmp(&(other.at, &other.name, &other.by.uid)));
        sorted.dedup_by(|one, other| one.name == other.name);
        let mut reversed = sorted.clone();
        reversed.reverse();
        prop_assert_eq!(
            verdict(&requester, &config, &sorted, timestamp(now)),
            verdict(&requester, &config, &reversed, timestamp(now))
        );
    }

    #[test]
    fn a_denial_wins_over_any_approvals(
        config in any_rules(),
        mut given in prop::collection::vec(any_answer(), 0..8),
        second in 0..TIMEOUT,
    ) {
        given.push(Answer {
            approves: false,
            ..answer(&format!("frank%sre,sec +{second}"))
        });
        let named = config.rules.iter().any(|rule| is_named(rule, &person("frank%sre,sec")));
        let verdict = verdict(&person("alice/u-alice"), &config, &given, timestamp(second));
        prop_assert_eq!(matches!(verdict, Verdict::Denied { .. }), named);
    }
}
