//! Tests of access policies and their combined results: a table, and properties that hold for all of them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use oz_api::{
    AccessConfig, AccessPolicy, AccessPolicySpec, ApprovalRule, CrossVersionObjectReference,
    ExecAccessTemplate, ExecAccessTemplateSpec, PolicyApproval, PolicyDenial, PolicyThen,
    Requester, TargetApiVersion, TargetKind, TicketConfig,
};
use proptest::prelude::*;

use super::combine::{content, missing, shorter};
use super::status::{Checked, INVALID, NotCompiled, Policies, READY, TOO_MANY};
use super::*;
use crate::access::approval::{Answer, ApprovalRequest, Verdict, decide};
use crate::access::decide::Ask;
use crate::access::testing::timestamp;
use crate::access::ticket;
use crate::controller::{Controller as _, Outcome};
use crate::kinds::Rules as _;

fn template(rules: &[ApprovalRule]) -> ExecAccessTemplate {
    let mut template = ExecAccessTemplate::new(
        "shell",
        ExecAccessTemplateSpec {
            access_config: AccessConfig {
                allowed_groups: vec!["devs".into()],
                approval: (!rules.is_empty()).then(|| ApprovalConfig {
                    rules: rules.to_vec(),
                    when: None,
                    timeout: "30m".into(),
                    require_reason: false,
                    unless: Vec::new(),
                }),
                ..AccessConfig::default()
            },
            controller_target_ref: CrossVersionObjectReference {
                api_version: TargetApiVersion::AppsV1,
                kind: TargetKind::Deployment,
                name: "web".into(),
            },
        },
    );
    template.metadata.labels = Some(BTreeMap::from([("tier".into(), "prod".into())]));
    template
}

fn rule(name: &str, users: &[&str], groups: &[&str], approvals: i32) -> ApprovalRule {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    ApprovalRule {
        name: name.into(),
        groups: owned(groups),
        users: owned(users),
        approvals,
        notify: true,
        escalation: None,
    }
}

fn policy(name: &str, then: PolicyThen) -> AccessPolicy {
    let spec = AccessPolicySpec {
        r#match: "true".into(),
        time_zone: None,
        then,
    };
    AccessPolicy::new(name, spec)
}

fn deny(message: &str) -> PolicyThen {
    PolicyThen {
        deny: Some(PolicyDenial {
            message: message.into(),
        }),
        ..PolicyThen::default()
    }
}

fn agree(rules: &[ApprovalRule], timeout: &str) -> PolicyThen {
    PolicyThen {
        approval: Some(PolicyApproval {
            rules: rules.to_vec(),
            timeout: Some(timeout.into()),
            require_reason: false,
            unless: Vec::new(),
        }),
        ..PolicyThen::default()
    }
}

fn at_most(duration: &str) -> PolicyThen {
    PolicyThen {
        max_duration: Some(duration.into()),
        ..PolicyThen::default()
    }
}

fn reasoned() -> PolicyThen {
    PolicyThen {
        require_reason: true,
        ..PolicyThen::default()
    }
}

fn together(
    all: &[(AccessPolicy, Result<bool, String>)],
    template: &ExecAccessTemplate,
) -> Judgement {
    let opinions: Vec<Opinion<'_, _>> = all
        .iter()
        .map(|(policy, matched)| Opinion {
            policy,
            matched: matched.clone(),
        })
        .collect();
    combine(Some(seen(template)), None, &opinions, 0)
}

fn names(config: Option<&ApprovalConfig>) -> String {
    let rules = config.into_iter().flat_map(|config| &config.rules);
    let names: Vec<&str> = rules.map(|rule| rule.name.as_str()).collect();
    names.join(" ")
}

/// Returns on-call checks with these names.
fn checks(names: &[&str]) -> Vec<OnCallCheck> {
    let check = |name: &&str| OnCallCheck {
        check: (*name).to_owned(),
        group: None,
    };
    names.iter().map(check).collect()
}

/// Returns an access policy that requires approvals by a rule, unless one of these on-call checks accepts the
/// requester.
fn agree_unless(name: &str, rule: &ApprovalRule, unless: &[&str]) -> AccessPolicy {
    let mut then = agree(std::slice::from_ref(rule), "30m");
    if let Some(approval) = &mut then.approval {
        approval.unless = checks(unless);
    }
    policy(name, then)
}

#[test]
fn on_call_check_replaces_only_rules_of_its_own_source() {
    let (security, sre) = (
        rule("security", &["bob", "carol"], &[], 1),
        rule("sre", &[], &["sre"], 1),
    );
    let mut own = template(std::slice::from_ref(&security));
    let plain = own.clone();
    own.spec.access_config.approval.as_mut().unwrap().unless = checks(&["a"]);
    let none = template(&[]);
    type Row<'a> = (
        &'a ExecAccessTemplate,
        Vec<AccessPolicy>,
        &'a [&'a str],
        &'a str,
    );
    let of = |rule: &ApprovalRule, unless: &[(&str, &[&str])]| -> Vec<AccessPolicy> {
        let policy = |(name, unless): &(&str, &[&str])| agree_unless(name, rule, unless);
        unless.iter().map(policy).collect()
    };
    let rows: Vec<Row<'_>> = vec![
        (&own, vec![], &[], "security"),
        (&own, vec![], &["a"], ""),
        (&own, vec![], &["b"], "security"),
        (&own, of(&sre, &[("p", &["b"])]), &[], "security p/sre"),
        (&own, of(&sre, &[("p", &["b"])]), &["a"], "p/sre"),
        (&own, of(&sre, &[("p", &["b"])]), &["b"], "security"),
        (&own, of(&sre, &[("p", &["b"])]), &["a", "b"], ""),
        // A rule that two sources have in common is required until both are replaced.
        (&own, of(&security, &[("p", &[])]), &[], "security"),
        (&own, of(&security, &[("p", &[])]), &["a"], "p/security"),
        (&plain, of(&security, &[("p", &["a"])]), &["a"], "security"),
        (
            &none,
            of(&security, &[("p", &["a"]), ("q", &["b"])]),
            &[],
            "p/security",
        ),
        (
            &none,
            of(&security, &[("p", &["a"]), ("q", &["b"])]),
            &["a"],
            "q/security",
        ),
        (
            &none,
            of(&security, &[("p", &["a"]), ("q", &[])]),
            &["a"],
            "q/security",
        ),
        (
            &none,
            of(&security, &[("p", &["a"]), ("q", &["a"])]),
            &["a"],
            "",
        ),
    ];
    for (template, policies, accepted, expected) in rows {
        let all = policies.into_iter().map(|one| (one, Ok(true)));
        let all: Vec<(AccessPolicy, Result<bool, String>)> = all.collect();
        let judgement = together(&all, template);
        let left = approval_on_call(Some(&judgement), template, &checks(accepted));
        assert_eq!(names(left.as_ref()), expected, "{accepted:?} {judgement:?}");
    }
}

#[test]
fn escalation_extends_only_the_rule_of_its_own_source() {
    let plain = rule("security", &["bob", "carol"], &[], 1);
    let escalated = ApprovalRule {
        escalation: Some(Escalation {
            after: "10m".into(),
            groups: vec!["leads".into()],
            users: Vec::new(),
            notify: true,
        }),
        ..plain.clone()
    };
    for (of_template, of_policy, expected) in [
        (&escalated, &plain, "security p/security"),
        (&plain, &escalated, "security p/security"),
        (&escalated, &escalated, "security"),
    ] {
        let template = template(std::slice::from_ref(of_template));
        let policy = policy("p", agree(std::slice::from_ref(of_policy), "30m"));
        let judgement = together(&[(policy, Ok(true))], &template);
        let all = approval(Some(&judgement), &template).unwrap();
        assert_eq!(names(Some(&all)), expected);
        let last = all.rules.last().unwrap();
        assert_eq!(last.escalation, of_policy.escalation);
    }
}

#[test]
fn access_policy_with_fewer_on_call_checks_is_stricter() {
    let sre = rule("sre", &[], &["sre"], 1);
    let template = template(&[]);
    let judged = |unless: &[&str]| {
        let all: [(AccessPolicy, Result<bool, String>); 1] =
            [(agree_unless("p", &sre, unless), Ok(true))];
        together(&all, &template)
    };
    let table: [(&[&str], &[&str], bool); 6] = [
        (&["a"], &["a"], false),
        (&["a"], &[], true),
        (&[], &["a"], false),
        (&["a"], &["b"], true),
        (&["a", "b"], &["a"], true),
        (&["a"], &["a", "b"], false),
    ];
    for (sealed, new, expected) in table {
        let found = stricter(
            Some(&judged(sealed)),
            Some(&judged(new)),
            Ask::default(),
            &template,
        );
        assert_eq!(found.is_some(), expected, "{sealed:?} {new:?}: {found:?}");
    }

    // Two access policies with one rule: it stays required only if b and c accept the requester, and a does not.
    let both = |first: &[&str]| {
        let policies = [
            agree_unless("p", &sre, first),
            agree_unless("q", &sre, &["c"]),
        ];
        let all = policies.map(|policy| (policy, Ok::<_, String>(true)));
        together(&all, &template)
    };
    let (sealed, new) = (both(&["a", "b"]), both(&["a"]));
    for (sealed, new, expected) in [(&sealed, &new, true), (&new, &sealed, false)] {
        let found = stricter(Some(sealed), Some(new), Ask::default(), &template);
        assert_eq!(found.is_some(), expected, "{found:?}");
    }
}

#[test]
fn invalid_on_call_checks_are_rejected() {
    let sre = rule("sre", &[], &["sre"], 1);
    let nine: Vec<String> = (0..9).map(|number| format!("c{number}")).collect();
    let nine: Vec<&str> = nine.iter().map(String::as_str).collect();
    let table: [(&[&str], &str); 4] = [
        (&["duty"], ""),
        (&["Duty!"], "spec.then.approval.unless[0].check"),
        (&["duty", "duty"], "spec.then.approval.unless[1]"),
        (&nine, "spec.then.approval.unless"),
    ];
    for (unless, field) in table {
        let found = agree_unless("p", &sre, unless).violations(Timestamp::UNIX_EPOCH);
        let found: Vec<String> = found.into_iter().map(|one| one.field).collect();
        assert_eq!(found.join(" "), field, "{unless:?}");
    }
}

/// Formats the result of several access policies: refusal, rules, maximum duration, and requirement of a
/// reason.
fn describe(judgement: &Judgement, template: &ExecAccessTemplate) -> String {
    let refused = judgement.refused.as_ref().map(|refused| {
        let mark = if refused.failed { "!" } else { "" };
        format!("{}{mark}", refused.policy)
    });
    let longest = judgement.longest.as_ref();
    format!(
        "refused={} rules={} max={} reason={} applied={}",
        refused.unwrap_or_default(),
        names(approval(Some(judgement), template).as_ref()),
        longest.map_or(String::new(), |it| format!(
            "{}({})",
            it.duration, it.policy
        )),
        judgement.require_reason.clone().unwrap_or_default(),
        judgement.names(),
    )
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn the_strictest_of_each_holds() {
    let security = rule("security", &["bob", "carol"], &[], 1);
    let sre = rule("sre", &[], &["sre"], 1);
    let own = template(std::slice::from_ref(&security));
    let none = template(&[]);
    let yes = || Ok(true);
    let broken = || Err("No such key: tier".to_owned());
    type Rows<'a> = Vec<(
        &'a ExecAccessTemplate,
        Vec<(AccessPolicy, Result<bool, String>)>,
        &'a str,
    )>;
    let rows: Rows<'_> = vec![
        (&none, vec![], "refused= rules= max= reason= applied="),
        (
            &own,
            vec![],
            "refused= rules=security max= reason= applied=",
        ),
        (
            &none,
            vec![(policy("a", deny("no")), Ok(false))],
            "refused= rules= max= reason= applied=",
        ),
        (
            &none,
            vec![(policy("a", deny("no")), yes())],
            "refused=a rules= max= reason= applied=a",
        ),
        (
            &own,
            vec![
                (policy("b", at_most("1h")), yes()),
                (policy("a", deny("no")), yes()),
            ],
            "refused=a rules=security max=1h(b) reason= applied=a, b",
        ),
        (
            &none,
            vec![
                (policy("a", at_most("1h")), yes()),
                (policy("b", at_most("30m")), yes()),
            ],
            "refused= rules= max=30m(b) reason= applied=a, b",
        ),
        (
            &none,
            vec![
                (policy("a", at_most("30m")), yes()),
                (policy("b", at_most("1h")), yes()),
            ],
            "refused= rules= max=30m(a) reason= applied=a, b",
        ),
        (
            &own,
            vec![(policy("a", agree(std::slice::from_ref(&sre), "30m")), yes())],
            "refused= rules=security a/sre max= reason= applied=a",
        ),
        // The same rule under another name counts with it.
        (
            &own,
            vec![(
                policy("a", agree(&[rule("x", &["carol", "bob"], &[], 1)], "30m")),
                yes(),
            )],
            "refused= rules=security max= reason= applied=a",
        ),
        (
            &none,
            vec![
                (policy("a", agree(std::slice::from_ref(&sre), "30m")), yes()),
                (
                    policy("b", agree(&[sre.clone(), security.clone()], "30m")),
                    yes(),
                ),
            ],
            "refused= rules=a/sre b/security max= reason= applied=a, b",
        ),
        // Two equal rules of one source require two persons.
        (
            &none,
            vec![(
                policy(
                    "a",
                    agree(&[sre.clone(), rule("two", &[], &["sre"], 1)], "30m"),
                ),
                yes(),
            )],
            "refused= rules=a/sre a/two max= reason= applied=a",
        ),
        (
            &none,
            vec![
                (policy("a", reasoned()), yes()),
                (policy("b", reasoned()), yes()),
            ],
            "refused= rules= max= reason=a applied=a, b",
        ),
        (
            &none,
            vec![(policy("a", at_most("1h")), broken())],
            "refused=a! rules= max= reason= applied=",
        ),
        // A refusal that an administrator wrote takes precedence over one because of a mistake.
        (
            &none,
            vec![
                (policy("a", reasoned()), broken()),
                (policy("b", deny("no")), yes()),
            ],
            "refused=b rules= max= reason= applied=b",
        ),
        // An invalid access policy refuses, whether or not it would match.
        (
            &none,
            vec![(policy("a", PolicyThen::default()), Ok(false))],
            "refused=a! rules= max= reason= applied=",
        ),
    ];
    for (template, policies, expected) in rows {
        let judgement = together(&policies, template);
        assert_eq!(describe(&judgement, template), expected, "{policies:?}");
        let mut reversed = policies.clone();
        reversed.reverse();
        assert_eq!(
            together(&reversed, template),
            judgement,
            "the order does not matter"
        );
    }
}

#[test]
fn excess_or_unreadable_access_policies_refuse_request() {
    let template = template(&[]);
    let many: Vec<_> = (0..=MAX_POLICIES)
        .map(|number| (policy(&format!("p{number}"), reasoned()), Ok(false)))
        .collect();
    assert!(together(&many[1..], &template).refused.is_none());
    let refused = together(&many, &template).refused.unwrap();
    assert!(
        refused.message.contains("the maximum is 64"),
        "{}",
        refused.message
    );
    let long = |number: usize| format!("{number:0>512}");
    let users: Vec<String> = (0..40).map(long).collect();
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    let large = [(
        policy("a", agree(&[rule("x", &users, &[], 1)], "30m")),
        Ok(true),
    )];
    let judgement = together(&large, &template);
    assert!(
        judgement
            .refused
            .unwrap()
            .message
            .contains("name groups instead of users")
    );
    assert!(judgement.approval.is_none());
    let rules: Vec<_> = (0..3)
        .map(|number| {
            let rule = |at: usize| rule(&format!("r{at}"), &[], &[&format!("g{number}-{at}")], 1);
            let rules: Vec<ApprovalRule> = (0..8).map(rule).collect();
            (
                policy(&format!("p{number}"), agree(&rules, "30m")),
                Ok(true),
            )
        })
        .collect();
    assert!(together(&rules[..2], &template).refused.is_none());
    assert!(together(&rules, &template).refused.is_some());
    let unread = combine::<String>(Some(seen(&template)), None, &[], 1)
        .refused
        .unwrap();
    assert!(
        unread
            .message
            .contains("failed to read 1 AccessPolicies of the cluster")
    );
}

#[test]
fn policies_are_not_asked_about_a_template_that_is_not_there() {
    let one = policy("a", reasoned());
    let opinion = Opinion::<String> {
        policy: &one,
        matched: Ok(false),
    };
    let refused = combine(None, None, &[opinion], 0).refused.unwrap();
    assert!(refused.message.contains("the template does not exist"));
    assert!(combine::<String>(None, None, &[], 0).is_empty());
}

#[test]
fn a_judgement_is_stricter_if_it_asks_for_anything_more() {
    let sre = rule("sre", &[], &["sre"], 1);
    let template = template(std::slice::from_ref(&rule("security", &["bob"], &[], 1)));
    let sealed = [
        (
            policy("a", agree(std::slice::from_ref(&sre), "20m")),
            Ok(true),
        ),
        (policy("b", at_most("1h")), Ok(true)),
    ];
    let before = together(&sealed, &template);
    let now = |more: &[(AccessPolicy, Result<bool, String>)]| {
        let judgement = together(&[&sealed, more].concat(), &template);
        stricter(Some(&before), Some(&judgement), Ask::default(), &template)
    };
    for (more, why) in [
        (vec![], None),
        (vec![(policy("c", at_most("2h")), Ok(true))], None),
        (
            vec![(
                policy("c", agree(std::slice::from_ref(&sre), "25m")),
                Ok(true),
            )],
            None,
        ),
        (vec![(policy("c", deny("no")), Ok(false))], None),
        (
            vec![(policy("c", deny("the freeze")), Ok(true))],
            Some("the freeze"),
        ),
        (
            vec![(policy("c", deny("no")), Err("x".to_owned()))],
            Some("failed to evaluate AccessPolicy"),
        ),
        (
            vec![(policy("c", at_most("59m")), Ok(true))],
            Some("the maximum duration is 59m0s"),
        ),
        (
            vec![(
                policy("c", agree(&[rule("x", &["eve"], &[], 1)], "20m")),
                Ok(true),
            )],
            Some("rule c/x"),
        ),
        (
            vec![(
                policy("c", agree(std::slice::from_ref(&sre), "10m")),
                Ok(true),
            )],
            Some("by approval is 10m"),
        ),
        (
            vec![(policy("c", reasoned()), Ok(true))],
            Some("requires a reason"),
        ),
    ] {
        let found = now(&more);
        match why {
            None => assert_eq!(found, None, "{more:?}"),
            Some(why) => assert!(
                found.as_ref().unwrap().to_string().contains(why),
                "{more:?}: {found:?}"
            ),
        }
    }
    // A more lenient access policy has no effect now: the sealed judgement holds.
    assert_eq!(
        stricter(Some(&before), None, Ask::default(), &template),
        None
    );
    let mut other = template.clone();
    other.metadata.labels = None;
    let judgement = together(&sealed, &template);
    assert!(stricter(Some(&before), Some(&judgement), Ask::default(), &other).is_some());
}

#[test]
fn a_condition_that_exempted_and_does_not_any_more_is_stricter() {
    let mut template = template(&[rule("security", &["bob"], &[], 1)]);
    let config = template.spec.access_config.approval.as_mut().unwrap();
    config.when = Some("now.getHours() > 18".into());
    let judged = |when: bool| combine::<String>(Some(seen(&template)), Some(Ok(when)), &[], 0);
    let (exempt, applies) = (judged(false), judged(true));
    assert_eq!(approval(Some(&exempt), &template), None);
    assert!(stricter(Some(&exempt), Some(&applies), Ask::default(), &template).is_some());
    assert_eq!(
        stricter(Some(&applies), Some(&exempt), Ask::default(), &template),
        None
    );
}

#[test]
fn the_status_says_whether_a_policy_can_be_asked() {
    let good = policy("a", reasoned());
    let bad = policy("a", PolicyThen::default());
    for (object, compiled, count, reason, ready) in [
        (&good, Ok(()), 1, "Success", true),
        (&good, Ok(()), MAX_POLICIES, "Success", true),
        (&good, Ok(()), MAX_POLICIES + 1, TOO_MANY, false),
        (
            &good,
            Err(NotCompiled::Attempt("no variable x".to_owned())),
            1,
            INVALID,
            false,
        ),
        (&bad, Ok(()), 1, INVALID, false),
    ] {
        let now = timestamp(0);
        assert!(
            Policies
                .decide(now, object, &None, &[])
                .question()
                .is_some()
        );
        let facts = Some(Checked { compiled, count });
        let decision = Policies.decide(now, object, &facts, &[]).decided().unwrap();
        let status = Policies.status(now, object, &decision, &Outcome::default());
        assert_eq!(
            (status.conditions[0].reason.as_str(), status.ready),
            (reason, ready)
        );
        assert_eq!(status.conditions[0].type_, READY);
        let told = Policies.transitions(object, None, &status);
        assert_eq!(told[0].warning, !ready);
    }
}

/// The users that rules may name, and who may approve.
const PEOPLE: [&str; 4] = ["bob", "carol", "dave", "erin"];

fn some_rule() -> impl Strategy<Value = ApprovalRule> {
    (proptest::sample::subsequence(&PEOPLE[..], 1..=3), 1..=2_i32).prop_map(|(users, approvals)| {
        let approvals = approvals.min(i32::try_from(users.len()).unwrap());
        rule("r", &users, &[], approvals)
    })
}

fn some_then() -> impl Strategy<Value = PolicyThen> {
    let deny = proptest::option::weighted(
        0.1,
        Just(PolicyDenial {
            message: "no".into(),
        }),
    );
    let timeout = proptest::option::of(proptest::sample::select(vec!["5m", "20m", "2h"]));
    let rules = proptest::option::of((some_rule(), timeout, any::<bool>()));
    let longest = proptest::option::of(proptest::sample::select(vec!["5m", "30m", "1h", "3h"]));
    let pattern = proptest::option::of(proptest::sample::select(vec!["INC-.*", "CHG-.*"]));
    let check = proptest::option::of(proptest::sample::select(vec!["jira", "snow"]));
    let ticket = (pattern, check).prop_map(|(pattern, check)| TicketConfig {
        pattern: pattern.map(ToOwned::to_owned),
        check: check.map(ToOwned::to_owned),
    });
    let parts = (
        deny,
        rules,
        any::<bool>(),
        longest,
        proptest::option::weighted(0.3, ticket),
    );
    parts.prop_map(
        |(deny, rules, require_reason, longest, require_ticket)| PolicyThen {
            require_ticket,
            deny,
            approval: rules.map(|(rule, timeout, require_reason)| PolicyApproval {
                rules: vec![rule],
                timeout: timeout.map(ToOwned::to_owned),
                require_reason,
                unless: Vec::new(),
            }),
            require_reason,
            emergency: None,
            max_duration: longest.map(ToOwned::to_owned),
        },
    )
}

fn some_policies() -> impl Strategy<Value = Vec<(AccessPolicy, Result<bool, String>)>> {
    let matched = prop_oneof![
        6 => Just(Ok(true)),
        2 => Just(Ok(false)),
        1 => Just(Err("no".to_owned())),
    ];
    proptest::collection::vec((some_then(), matched), 0..6).prop_map(|all| {
        let numbered = all.into_iter().enumerate();
        numbered
            .map(|(number, (then, matched))| (policy(&format!("p{number}"), then), matched))
            .collect()
    })
}

/// Checks whether these approvals, given after a minute, grant the request.
fn is_granted(
    judgement: &Judgement,
    template: &ExecAccessTemplate,
    ask: Ask<'_>,
    by: &[&str],
) -> bool {
    if holds(Some(judgement), ask, template).is_err() {
        return false;
    }
    let Some(config) = approval(Some(judgement), template) else {
        return true;
    };
    let alice = Requester {
        user: "alice".into(),
        ..Requester::default()
    };
    let asked = ApprovalRequest {
        requester: &alice,
        bound: Vec::new(),
        config: &config,
        digest: "now".into(),
        created: timestamp(0),
        until: Timestamp::MAX,
    };
    let answers: Vec<Answer> = by
        .iter()
        .map(|&user| Answer {
            name: user.into(),
            by: Requester {
                user: user.into(),
                ..Requester::default()
            },
            approves: true,
            reason: None,
            digest: "now".into(),
            at: timestamp(60),
            locked_until: None,
        })
        .collect();
    matches!(
        decide(&asked, &answers, timestamp(61)),
        Verdict::Granted { .. }
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn additional_access_policy_never_permits_more(
        all in some_policies(),
        more in some_policies(),
        own in proptest::collection::vec(some_rule(), 0..2),
        by in proptest::sample::subsequence(&PEOPLE[..], 0..=4),
        reason in proptest::option::of(Just("it is needed")),
        ticket in proptest::option::of(proptest::sample::select(vec!["INC-1", "CHG-1"])),
    ) {
        let template = template(&own);
        let ask = Ask { reason, ticket, ..Ask::default() };
        let more = more.into_iter().map(|(mut policy, matched)| {
            let name = format!("more-{}", policy.metadata.name.unwrap_or_default());
            policy.metadata.name = Some(name);
            (policy, matched)
        });
        let before = together(&all, &template);
        let after = together(&all.iter().cloned().chain(more).collect::<Vec<_>>(), &template);
        if is_granted(&after, &template, ask, &by) {
            prop_assert!(is_granted(&before, &template, ask, &by));
        }
        if let Some(longest) = ceiling(Some(&before)) {
            prop_assert!(ceiling(Some(&after)).is_some_and(|after| after <= longest));
        }
        if let (Some(one), Some(other)) =
            (approval(Some(&before), &template), approval(Some(&after), &template))
        {
            let known: Vec<String> = other.rules.iter().map(content).collect();
            prop_assert!(missing(&known, &one.rules).is_empty());
            prop_assert_eq!(shorter(&one.timeout, &other.timeout), other.timeout.clone());
            prop_assert!(other.require_reason || !one.require_reason);
        }
        let asked = ticket::checks(Some(&after), &template);
        if after.refused.is_none() {
            let known = ticket::checks(Some(&before), &template);
            prop_assert!(known.iter().all(|check| asked.contains(check)));
        }
        // Each stricter judgement is detected.
        if stricter(Some(&before), Some(&after), ask, &template).is_none() {
            prop_assert!(holds(Some(&after), ask, &template).is_ok());
            let known = ticket::checks(Some(&before), &template);
            prop_assert!(asked.iter().all(|check| known.contains(check)));
            if is_granted(&before, &template, ask, &by) {
                prop_assert!(is_granted(&after, &template, ask, &by));
            }
        }
    }
}
