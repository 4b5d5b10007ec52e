//! No user makes a record that cannot be stored, found or told from another.

use super::support::{at, key, objects, record};
use crate::audit::{Action, Chain, Decision, Query, Writer, label_value};

#[test]
fn a_record_has_a_bounded_size_whatever_a_user_puts_into_it() {
    let writer = Writer::new("oz-webhook", "oz-0", at(0), 1);
    let (mut chain, _) = Chain::begin(writer, at(0), &[], &key());
    let mut huge = record(1);
    huge.message = "ü".repeat(100_000);
    huge.reason = "x".repeat(100_000);
    let user = huge.user.as_mut().unwrap();
    user.user = "u".repeat(100_000);
    user.groups = (0..5_000).map(|n| format!("{n}").repeat(500)).collect();
    for number in 0..1_000 {
        huge = huge.detail(&number.to_string(), "y".repeat(5_000));
    }
    let size = chain.append(huge, None).value().to_string().len();
    assert!(size < 200_000, "{size}");
}

#[test]
fn labels_are_valid_and_tell_users_apart() {
    for name in [
        "alice",
        "alice@example.com",
        "system:serviceaccount:a:b",
        "ü",
        ":::",
        "-x-",
        "",
    ] {
        let value = label_value(name);
        assert!(value.len() <= 63, "{name}");
        let plain = |c: char| c.is_ascii_alphanumeric();
        assert!(
            value.is_empty() || value.starts_with(plain) && value.ends_with(plain),
            "{value}"
        );
        assert!(
            value.chars().all(|c| plain(c) || "-_.".contains(c)),
            "{value}"
        );
    }
    let long = "a".repeat(300);
    assert_ne!(label_value(&long), label_value(&format!("{long}b")));
    assert_ne!(label_value("a@b"), label_value("a:b"));
    assert!(label_value(&long).len() <= 63);
}

#[test]
fn a_query_picks_by_user_grant_pod_time_and_decision() {
    let writer = Writer::new("oz-operator", "oz-0", at(0), 1);
    let (mut chain, _) = Chain::begin(writer, at(0), &[], &key());
    let entry = chain.append(record(5), None);
    let yes = |query: Query| assert!(query.matches(&entry), "{query:?}");
    let no = |query: Query| assert!(!query.matches(&entry), "{query:?}");
    let some = |text: &str| Some(text.to_owned());
    let any = Query::default;
    yes(any());
    yes(Query {
        user: some("user-5@example.com"),
        ..any()
    });
    no(Query {
        user: some("user-6@example.com"),
        ..any()
    });
    yes(Query {
        grant: some("debug-5"),
        pod: some("web-0"),
        namespace: some("shop"),
        ..any()
    });
    yes(Query {
        grant: some("uid-5"),
        pod: some("pod-uid"),
        ..any()
    });
    no(Query {
        pod: some("web-1"),
        ..any()
    });
    no(Query {
        namespace: some("bank"),
        ..any()
    });
    yes(Query {
        decision: Some(Decision::Allow),
        action: Some(Action::AccessGranted),
        ..any()
    });
    no(Query {
        decision: Some(Decision::Deny),
        ..any()
    });
    yes(Query {
        since: Some(at(4)),
        until: Some(at(6)),
        ..any()
    });
    no(Query {
        since: Some(at(6)),
        ..any()
    });
    no(Query {
        until: Some(at(5)),
        ..any()
    });
}

#[test]
fn an_event_has_labels_for_all_that_it_is_looked_for_by() {
    let writer = Writer::new("oz-operator", "oz-0", at(0), 1);
    let (mut chain, _) = Chain::begin(writer, at(0), &[], &key());
    let event = &objects(&[chain.append(record(5), None)])[0];
    let selector = Query {
        user: Some("user-5@example.com".to_owned()),
        decision: Some(Decision::Allow),
        action: Some(Action::AccessGranted),
        ..Query::default()
    }
    .selector();
    for part in selector.split(',') {
        let (key, value) = part.split_once('=').unwrap();
        assert_eq!(event["metadata"]["labels"][key], value);
    }
    assert!(event["metadata"].get("ownerReferences").is_none());
}
