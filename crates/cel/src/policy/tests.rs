use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::duration::GoDuration;
use oz_api::{
    ExecAccessRequest, ExecAccessRequestSpec, ExecAccessTemplate, PolicyDenial, PolicyThen,
    Requester,
};
use oz_core::access::decide::Ask;
use oz_core::access::extra::Extra;
use oz_core::access::policy::{DENIED, FAILED, When, holds};
use oz_core::kinds::AccessRequest as _;

use super::*;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// Returns the situation in which Alice of the devs requests an hour in shop, where she has a grant; it is 17:30 in
/// UTC on a Friday.
fn situation() -> Situation {
    let request = ExecAccessRequest {
        metadata: ObjectMeta {
            name: Some("debug".into()),
            namespace: Some("shop".into()),
            ..ObjectMeta::default()
        },
        spec: ExecAccessRequestSpec {
            template_name: "shell".into(),
            duration: Some("1h".into()),
            reason: Some("INC-42".into()),
            ..ExecAccessRequestSpec::default()
        },
        status: None,
    };
    let mut template: ExecAccessTemplate = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "shell", "namespace": "shop" },
        "spec": {
            "accessConfig": { "allowedGroups": ["devs"], "operations": ["Exec", "Log"] },
            "controllerTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        },
    }))
    .unwrap();
    template.metadata.labels = Some(BTreeMap::from([("tier".into(), "prod".into())]));
    let requester = Requester {
        user: "alice".into(),
        uid: "u-1".into(),
        groups: vec!["devs".into()],
    };
    let now = "2026-01-02T17:30:00Z".parse().unwrap();
    let labels = BTreeMap::from([("env".to_owned(), "prod".to_owned())]);
    let grant = Active {
        kind: "ExecAccessRequest".into(),
        namespace: "shop".into(),
        template: "shell".into(),
        pod: "web-1".into(),
        request: "earlier".into(),
        until: "2026-01-02T18:00:00Z".parse().unwrap(),
    };
    Situation::from_request(now, &requester, &request.view(), Some(&template))
        .in_namespace(&labels)
        .having(vec![grant])
}

fn policy(name: &str, text: &str, zone: Option<&str>) -> AccessPolicy {
    let then = PolicyThen {
        deny: Some(PolicyDenial {
            message: "not now".into(),
        }),
        ..PolicyThen::default()
    };
    let spec = AccessPolicySpec {
        r#match: text.into(),
        time_zone: zone.map(ToOwned::to_owned),
        then,
    };
    AccessPolicy::new(name, spec)
}

fn judged(text: &str, zone: Option<&str>) -> Judgement {
    Case {
        policies: vec![Arc::new(policy("one", text, zone))],
        when: None,
        template: Some("digest".into()),
        unreadable: 0,
        situation: situation(),
    }
    .judge(
        None::<Result<bool, CelError>>,
        &Expressions::default(),
        soon(),
    )
}

#[test]
fn a_policy_sees_who_asks_for_what_and_when() {
    for (text, zone, matches) in [
        (
            "requester.user == 'alice' && requester.uid == 'u-1'",
            None,
            true,
        ),
        ("'devs' in requester.groups", None, true),
        (
            "requester.groups.exists(g, g.startsWith('sre'))",
            None,
            false,
        ),
        (
            "request.kind == 'ExecAccessRequest' && request.name == 'debug'",
            None,
            true,
        ),
        ("request.namespace in ['prod', 'stage']", None, false),
        ("request.reason.matches('^INC-[0-9]+$')", None, true),
        (
            "request.template == 'shell' && request.pod == ''",
            None,
            true,
        ),
        ("request.duration > duration('30m')", None, true),
        ("request.duration > duration('1h')", None, false),
        ("template.kind == 'ExecAccessTemplate'", None, true),
        (
            "'tier' in template.labels && template.labels['tier'] == 'prod'",
            None,
            true,
        ),
        ("namespaceLabels['env'] == 'prod'", None, true),
        (
            "'Log' in operations && !('Attach' in operations)",
            None,
            true,
        ),
        ("size(active) >= 1", None, true),
        (
            "active.exists(a, a.template == request.template && a.until > now)",
            None,
            true,
        ),
        (
            "active.filter(a, a.namespace == 'bank').size() > 0",
            None,
            false,
        ),
        ("now.getHours() >= 18", None, false),
        ("now.getHours() >= 18", Some("Europe/Berlin"), true),
        ("now.getHours() < 12", Some("America/Los_Angeles"), true),
        (
            "now.getDayOfWeek() == 5 && now.getFullYear() == 2026",
            None,
            true,
        ),
        ("now.getDayOfWeek() == 6", Some("Pacific/Auckland"), true),
        (
            "now > timestamp('2026-01-02T17:29:59Z')",
            Some("Asia/Tokyo"),
            true,
        ),
    ] {
        let refused = judged(text, zone).refused;
        let failed = refused.as_ref().filter(|refused| refused.failed);
        assert!(failed.is_none(), "{text}: {failed:?}");
        assert_eq!(refused.is_some(), matches, "{text} in {zone:?}");
    }
}

/// The conditions of docs/guides/policies.md for a second factor and for a login of the last 15 minutes.
const NO_FRESH_MFA: &str = "!('example.org/acr' in requester.extra) \
     || !('mfa' in requester.extra['example.org/acr']) \
     || !('example.org/auth-time' in requester.extra) \
     || requester.extra['example.org/auth-time'].size() != 1 \
     || timestamp(requester.extra['example.org/auth-time'][0]) < now - duration('15m')";

/// Extra attributes, by key.
type Attributes<'a> = [(&'a str, &'a [&'a str])];

/// Returns the judgement of a policy that denies, for these extra attributes.
fn judged_with(text: &str, extra: &Attributes<'_>) -> Judgement {
    let attribute = |(key, values): &(&str, &[&str])| {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        ((*key).to_owned(), values)
    };
    let extra: Extra = extra.iter().map(attribute).collect();
    Case {
        policies: vec![Arc::new(policy("one", text, None))],
        when: None,
        template: Some("digest".into()),
        unreadable: 0,
        situation: situation().with_extra(&extra),
    }
    .judge(
        None::<Result<bool, CelError>>,
        &Expressions::default(),
        soon(),
    )
}

#[test]
fn policy_requires_fresh_second_factor() {
    let (acr, at) = ("example.org/acr", "example.org/auth-time");
    let cases: [(&Attributes<'_>, bool); 8] = [
        (&[(acr, &["mfa"]), (at, &["2026-01-02T17:20:00Z"])], false),
        (
            &[(acr, &["pwd", "mfa"]), (at, &["2026-01-02T19:20:00+02:00"])],
            false,
        ),
        // Without attributes, without a second factor, with an old login, or with two times of it.
        (&[], true),
        (&[(at, &["2026-01-02T17:20:00Z"])], true),
        (&[(acr, &["mfa"])], true),
        (&[(acr, &["pwd"]), (at, &["2026-01-02T17:20:00Z"])], true),
        (&[(acr, &["mfa"]), (at, &["2026-01-02T17:14:59Z"])], true),
        (
            &[
                (acr, &["mfa"]),
                (at, &["2026-01-02T17:20:00Z", "2026-01-02T17:20:00Z"]),
            ],
            true,
        ),
    ];
    for (extra, denied) in cases {
        let refused = judged_with(NO_FRESH_MFA, extra).refused;
        let failed = refused.as_ref().filter(|refused| refused.failed);
        assert!(failed.is_none(), "{extra:?}: {failed:?}");
        assert_eq!(refused.is_some(), denied, "{extra:?}");
    }
    assert!(check(&policy("one", NO_FRESH_MFA, None).spec, soon()).is_ok());
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let guide = words(include_str!("../../../../docs/guides/policies.md"));
    assert!(guide.contains(&words(NO_FRESH_MFA)), "another condition");
}

#[test]
fn extra_attributes_are_map_of_lists_of_texts() {
    let extra: &Attributes<'_> = &[("acr", &["mfa"]), ("none", &[])];
    for (text, matches) in [
        ("size(requester.extra) == 2", true),
        ("requester.extra['acr'] == ['mfa']", true),
        ("requester.extra.acr[0] == 'mfa'", true),
        ("size(requester.extra.none) == 0", true),
        ("requester.extra.exists(key, key == 'acr')", true),
        ("'amr' in requester.extra", false),
    ] {
        let refused = judged_with(text, extra).refused;
        let failed = refused.as_ref().filter(|refused| refused.failed);
        assert!(failed.is_none(), "{text}: {failed:?}");
        assert_eq!(refused.is_some(), matches, "{text}");
    }
    // An absent key, an absent value, and a value that is no time deny the request.
    for text in [
        "requester.extra['amr'][0] == 'otp'",
        "requester.extra.none[0] == 'otp'",
        "timestamp(requester.extra['acr'][0]) < now",
    ] {
        let refused = judged_with(text, extra).refused.unwrap();
        assert!(refused.failed, "{text}");
    }
    // Without configured keys, the map is empty.
    assert!(
        judged_with("size(requester.extra) == 0", &[])
            .refused
            .is_some()
    );
}

#[test]
fn a_policy_that_cannot_be_evaluated_refuses_and_names_itself() {
    for (text, why) in [
        ("template.labels['team'] == 'shop'", "No such key"),
        ("request.duration", "does not return true or false"),
        ("1 / 0 == 1", ""),
        ("active[7].pod == 'x'", "Index out of bounds"),
        ("nobody == 'x'", "no variable nobody"),
        ("request.name ==", ""),
        ("request.name.matches('[')", "regular expression"),
    ] {
        let refused = judged(text, None).refused.unwrap();
        assert!(
            refused.failed && refused.message.contains("AccessPolicy one"),
            "{text}"
        );
        assert!(refused.message.contains(why), "{text}: {}", refused.message);
        assert!(refused.message.contains("oz-policy-manager"), "{text}");
    }
    let refused = judged("true", Some("Europe/Nowhere")).refused.unwrap();
    assert!(refused.failed && refused.message.contains("no time zone Europe/Nowhere"));
}

#[test]
fn costly_policy_is_rejected_before_evaluation() {
    let groups = "requester.groups";
    for text in [
        "(".repeat(400),
        format!("{}true", "!".repeat(900)),
        format!("'{}' == request.name", "x".repeat(1024)),
        "x".repeat(1024 * 1024),
        format!("{groups}.all(a, {groups}.all(b, {groups}.all(c, a == b)))"),
        format!("[{groups}]{}.size() == 1", ".map(a,[a,a])".repeat(30)),
        format!("size(request.reason{}) > 0", " + request.reason".repeat(30)),
        format!("{groups}.all(a, a.matches(a))"),
        format!("{}true", format!("{groups}.all(a, a == '') || ").repeat(9)),
    ] {
        let refused = judged(&text, None).refused.unwrap();
        assert!(refused.failed, "{}", &text[..40]);
        assert!(check(&policy("one", &text, None).spec, soon()).is_err());
        assert!(check_condition(&text, soon()).is_err());
    }
}

#[test]
fn oversized_requester_groups_fail_judgement_and_condition() {
    let mut situation = situation();
    let groups: Vec<String> = (0..20_000)
        .map(|number| format!("group-{number:010}"))
        .collect();
    situation.variables["requester"]["groups"] = groups.into();
    let case = Case {
        policies: vec![Arc::new(policy("one", "false", None))],
        when: Some("false".into()),
        template: Some("digest".into()),
        unreadable: 0,
        situation,
    };
    let when = case.condition(&Expressions::default(), soon());
    let judgement = case.judge(when, &Expressions::default(), soon());
    assert!(judgement.refused.unwrap().message.contains("too many"));
    assert!(matches!(judgement.when, Some(When::Failed(_))));
}

#[test]
fn when_time_is_up_nothing_is_asked_any_more() {
    let case = Case {
        policies: vec![Arc::new(policy("one", "false", None))],
        when: Some("false".into()),
        template: Some("digest".into()),
        unreadable: 0,
        situation: situation(),
    };
    let now = Instant::now();
    let when = case.condition(&Expressions::default(), now);
    let judgement = case.judge(when, &Expressions::default(), now);
    assert!(judgement.refused.unwrap().message.contains("time is up"));
    assert_eq!(judgement.when, Some(When::Failed("time is up".into())));
}

#[test]
fn the_condition_of_rules_exempts_only_if_it_gives_false() {
    for (text, expected) in [
        ("request.namespace == 'shop'", When::Applies),
        ("request.namespace == 'prod'", When::Exempts),
        ("request.duration > duration('30m')", When::Applies),
    ] {
        let case = Case {
            policies: Vec::new(),
            when: Some(text.into()),
            template: None,
            unreadable: 0,
            situation: situation(),
        };
        let when = case.condition(&Expressions::default(), soon());
        let judgement = case.judge(when, &Expressions::default(), soon());
        assert_eq!(judgement.when, Some(expected), "{text}");
    }
}

#[test]
fn policy_that_cannot_be_evaluated_is_rejected_when_written() {
    for (text, zone, right) in [
        ("request.namespace == 'prod'", None, true),
        ("template.labels['tier'] == 'prod'", None, true),
        ("requester.extra['acr'][0] == 'mfa'", None, true),
        ("requester.extras['acr'][0] == 'mfa'", None, false),
        ("active[3].pod == 'x'", None, true),
        ("true", Some("Europe/Berlin"), true),
        ("true", Some("Mars/Phobos"), false),
        ("requester", None, false),
        ("request.name > 1", None, false),
        ("request.name", None, false),
        ("request.nmae == 'x'", None, false),
        ("labels['a'] == 'x'", None, false),
        ("request.name ==", None, false),
    ] {
        let answer = check(&policy("one", text, zone).spec, soon());
        assert_eq!(answer.is_ok(), right, "{text}: {answer:?}");
    }
}

#[test]
fn refusal_distinguishes_denial_from_policy_failure() {
    let template: ExecAccessTemplate = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "shell" },
        "spec": {
            "accessConfig": { "allowedGroups": ["devs"] },
            "controllerTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        },
    }))
    .unwrap();
    for (text, reason) in [("true", DENIED), ("1 / 0 == 1", FAILED)] {
        let judgement = judged(text, None);
        let denial = holds(Some(&judgement), Ask::default(), &template).unwrap_err();
        assert_eq!(denial.reason, reason);
    }
    assert_eq!(situation().duration, GoDuration::from_secs(3600));
}
