//! Tests of limits: no user can cause a record that cannot be stored, found or distinguished from another.

use oz_api::{Requester, labels};

use super::support::{key, objects, record, timestamp};
use crate::{Action, Chain, Decision, PodRef, Query, Record, Repeated, RequestRef, Writer};

/// Returns a record with `text` in every field that a user or a cluster can set. Every field is named, so that a new
/// field must be considered here.
fn full(text: &str) -> Record {
    let some = || text.to_owned();
    Record {
        id: some(),
        time: timestamp(0),
        action: Action::SessionRefused,
        decision: Decision::Deny,
        reason: some(),
        message: some(),
        user: Some(Requester {
            user: some(),
            uid: some(),
            groups: (0..200).map(|_| some()).collect(),
        }),
        request: RequestRef {
            kind: some(),
            namespace: some(),
            name: some(),
            uid: some(),
        },
        template: some(),
        template_digest: Some(some()),
        pod: Some(PodRef {
            name: some(),
            uid: some(),
            container: Some(some()),
        }),
        until: Some(timestamp(0)),
        details: (0..100)
            .map(|number| (format!("{number:03}{text}"), some()))
            .collect(),
        repeated: Some(Repeated {
            count: u64::MAX,
            first: timestamp(0),
            last: timestamp(0),
            samples: (0..100).map(|_| some()).collect(),
        }),
    }
}

#[test]
fn record_size_is_bounded_for_any_user_content() {
    /// The limit of etcd, less the additions of the API server, which stores the name of each detail once more.
    const ETCD: usize = 1_572_864 - 64 * 6 * 512 - 10_000;
    for text in ["x", "ü", "\u{1}", "\""] {
        let writer = Writer::new("oz-webhook", "oz-0", timestamp(0), 1);
        let (mut chain, _) = Chain::begin(writer, timestamp(0), &[], &key());
        let entry = chain.append(full(&text.repeat(1_000_000)), &key());
        let size = objects(&[entry])[0].to_string().len();
        assert!(size < ETCD, "{text:?}: {size}");
    }
    let writer = Writer::new("oz-webhook", "oz-0", timestamp(0), 1);
    let (mut chain, _) = Chain::begin(writer, timestamp(0), &[], &key());
    let short = full("as it is");
    let kept = chain.append(short.clone(), &key()).record;
    assert_eq!(kept.request, short.request);
    assert_eq!(kept.pod, short.pod);
}

#[test]
fn label_values_are_valid_and_distinguish_users() {
    for name in [
        "alice",
        "alice@example.com",
        "system:serviceaccount:a:b",
        "ü",
        ":::",
        "-x-",
        "",
    ] {
        let value = labels::value(name);
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
    assert_ne!(labels::value(&long), labels::value(&format!("{long}b")));
    assert_ne!(labels::value("a@b"), labels::value("a:b"));
    assert!(labels::value(&long).len() <= 63);
}

#[test]
fn a_query_picks_by_user_grant_pod_time_and_decision() {
    let writer = Writer::new("oz-operator", "oz-0", timestamp(0), 1);
    let (mut chain, _) = Chain::begin(writer, timestamp(0), &[], &key());
    let entry = chain.append(record(5), &key());
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
        since: Some(timestamp(4)),
        until: Some(timestamp(6)),
        ..any()
    });
    no(Query {
        since: Some(timestamp(6)),
        ..any()
    });
    no(Query {
        until: Some(timestamp(5)),
        ..any()
    });
}

#[test]
fn an_event_has_labels_for_all_that_it_is_looked_for_by() {
    let writer = Writer::new("oz-operator", "oz-0", timestamp(0), 1);
    let (mut chain, _) = Chain::begin(writer, timestamp(0), &[], &key());
    let event = &objects(&[chain.append(record(5), &key())])[0];
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
