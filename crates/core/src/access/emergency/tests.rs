//! Tests of emergencies: their grants, the creation of reviews, the reviewers, and the further states of a
//! review.

#![allow(
    clippy::too_many_lines,
    clippy::type_complexity,
    reason = "tables whose rows the formatter spreads over many lines"
)]

use jiff::{SignedDuration, Timestamp};
use oz_api::{
    AccessReview, AccessReviewSpec, ApprovalConfig, Attestation, EmergencyConfig, Finding,
    RecordsSoFar, Requester, ReviewConfig, conditions, labels,
};
use oz_trail::{Decision, RequestRef};

use super::super::decide::{Ask, may as may_ask};
use super::super::testing::{keys, timestamp};
use super::review::{self, ReviewState, Upkeep};
use super::*;
use crate::lifecycle::seal::Keys;

const DAY: SignedDuration = SignedDuration::from_hours(24);

pub(super) fn person(user: &str, uid: &str, groups: &[&str]) -> Requester {
    Requester {
        user: user.into(),
        uid: uid.into(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
    }
}

fn config() -> AccessConfig {
    AccessConfig {
        allowed_groups: vec!["devs".into()],
        approval: Some(ApprovalConfig {
            rules: Vec::new(),
            when: None,
            timeout: "30m".into(),
            require_reason: false,
            unless: Vec::new(),
        }),
        emergency: Some(EmergencyConfig {
            groups: vec!["oncall".into(), "system:serviceaccounts".into()],
            users: vec!["carol".into(), "system:serviceaccount:ci:mend".into()],
            max_duration: "30m".into(),
            review: ReviewConfig {
                deadline: "24h".into(),
                groups: vec!["security".into(), "system:serviceaccounts".into()],
                users: vec!["alice".into(), "system:serviceaccount:ci:look".into()],
            },
            open_reviews: 2,
        }),
        allow_service_accounts: true,
        ..AccessConfig::default()
    }
}

pub(super) fn terms() -> Terms {
    Terms::from_template("shell", config().emergency.as_ref()).unwrap()
}

#[test]
fn emergency_is_permitted_to_named_users_with_reason_only() {
    let none = AccessConfig {
        emergency: None,
        ..config()
    };
    let (mend, other) = (
        "system:serviceaccount:ci:mend",
        "system:serviceaccount:ci:other",
    );
    let no_accounts = AccessConfig {
        allow_service_accounts: false,
        ..config()
    };
    let config = config();
    let why = Some("INC-42");
    let long = "x".repeat(600);
    let rows: [(
        &str,
        &[&str],
        &AccessConfig,
        Option<&str>,
        bool,
        Option<&str>,
    ); 18] = [
        ("dana", &["oncall"], &config, why, true, None),
        ("carol", &[], &config, why, true, None),
        // Not allowed to request otherwise.
        ("dana", &["oncall"], &config, why, false, Some("NotAllowed")),
        ("alice", &["devs"], &config, why, false, None),
        ("alice", &["devs"], &config, None, false, None),
        // Allowed to request otherwise, and not named here.
        (
            "alice",
            &["devs"],
            &config,
            why,
            true,
            Some("EmergencyNotAllowed"),
        ),
        (
            "oncall",
            &[],
            &config,
            why,
            true,
            Some("EmergencyNotAllowed"),
        ),
        (
            "dana",
            &["oncall "],
            &config,
            why,
            true,
            Some("EmergencyNotAllowed"),
        ),
        ("", &[], &config, why, true, Some("EmergencyNotAllowed")),
        (
            "dana",
            &["oncall"],
            &config,
            None,
            true,
            Some("ReasonRequired"),
        ),
        (
            "dana",
            &["oncall"],
            &config,
            Some(" \n"),
            true,
            Some("ReasonRequired"),
        ),
        (
            "dana",
            &["oncall"],
            &none,
            why,
            true,
            Some("EmergencyAccessDisabled"),
        ),
        (
            "carol",
            &[],
            &none,
            why,
            true,
            Some("EmergencyAccessDisabled"),
        ),
        (mend, &["system:serviceaccounts"], &config, why, true, None),
        (
            other,
            &["system:serviceaccounts", "oncall"],
            &config,
            why,
            true,
            Some("EmergencyNotAllowed"),
        ),
        (
            mend,
            &[],
            &no_accounts,
            why,
            true,
            Some("ServiceAccountsNotAllowed"),
        ),
        (&long, &["oncall"], &config, why, true, Some("NameTooLong")),
        (&long, &["devs"], &config, why, false, None),
    ];
    for (user, groups, config, reason, emergency, refused) in rows {
        let ask = Ask {
            reason,
            emergency,
            ..Ask::default()
        };
        let answer = may_ask(&person(user, "", groups), "shell", config, ask);
        let answer = answer.err().map(|denial| denial.reason);
        assert_eq!(answer, refused, "{user} {groups:?} {reason:?} {emergency}");
    }
}

#[test]
fn there_is_room_below_the_number_that_the_template_says() {
    let alice = person("alice", "", &[]);
    for (most, unreviewed, room) in [
        (1, 0, true),
        (1, 1, false),
        (2, 1, true),
        (2, 2, false),
        (2, 3, false),
        (16, 15, true),
    ] {
        let uids = vec!["uid".to_owned(); unreviewed];
        let answer = Terms { most, ..terms() }.has_room(&alice, &uids);
        assert_eq!(answer.is_ok(), room, "{unreviewed} of {most}");
    }
}

fn request(name: &str, uid: &str) -> RequestRef {
    RequestRef {
        kind: "ExecAccessRequest".into(),
        namespace: "shop".into(),
        name: name.into(),
        uid: uid.into(),
    }
}

/// Creates the audit record of an emergency of this person, which identifies the request.
pub(super) fn record(who: &Requester, uid: &str) -> Record {
    let action = Action::EmergencyGranted;
    let record = Record {
        user: Some(who.clone()),
        request: request("inc", uid),
        template: "shell".into(),
        ..Record::about(
            timestamp(0),
            action,
            Decision::Allow,
            uid,
            "Success",
            "EMERGENCY",
        )
    };
    let record = record.detail("reason", "INC-42");
    let granted = terms().granted(timestamp(0));
    proven(&keys(), record, Some(&granted)).unwrap()
}

pub(super) fn dana() -> Requester {
    person("dana", "u-dana", &["oncall"])
}

pub(super) fn opened(uid: &str) -> AccessReview {
    let record = record(&dana(), uid);
    let found = subject::Subject::Emergency(on_record(&keys(), &record).unwrap());
    let records = review::records_so_far(vec!["b".into(), "a".into()]);
    let review = subject::opened(&keys(), &found, records, None);
    let mut review = review.unwrap().unwrap();
    review.metadata.uid = Some(format!("review-of-{uid}"));
    review
}

/// Returns the review with a finding, as the webhook seals it.
pub(super) fn written(mut review: AccessReview, by: &Requester, when: Timestamp) -> AccessReview {
    review.spec.finding = Some(Finding::Justified);
    review.spec.reason = Some("seen".into());
    let standing = ReviewState {
        by: Some(by.clone()),
        at: Some(when),
    };
    review::put_seal(&keys(), &mut review, standing).unwrap();
    review
}

#[test]
fn a_review_is_what_the_record_of_the_grant_says_and_the_same_each_time() {
    let review = opened("uid-00000001");
    assert_eq!(review, opened("uid-00000001"));
    assert_eq!(review.metadata.name.as_deref(), Some("inc-uid-0000"));
    assert_eq!(review.metadata.namespace.as_deref(), Some("shop"));
    let spec = &review.spec;
    assert_eq!(spec.requester.user, "dana");
    assert_eq!(spec.requester.uid, "u-dana");
    assert_eq!(
        (spec.template.as_str(), spec.emergency.as_str()),
        ("shell", "INC-42")
    );
    assert_eq!(spec.due_at, timestamp(0) + DAY);
    assert_eq!(
        spec.reviewers.groups,
        ["security", "system:serviceaccounts"]
    );
    assert_eq!(
        spec.records,
        review::records_so_far(vec!["a".into(), "b".into()])
    );
    assert_eq!(review::read(&keys(), &review), Some(ReviewState::default()));
}

#[test]
fn a_record_that_says_something_else_than_was_sealed_opens_no_review() {
    type Change = fn(&mut Record);
    let mallory = |record: &mut Record| record.user = Some(person("mallory", "", &[]));
    let changes: [(Change, bool); 11] = [
        (|_| {}, true),
        (|record| record.message = "another".into(), true),
        (|record| record.action = Action::AccessGranted, false),
        (mallory, false),
        (|record| record.user = None, false),
        (|record| record.request.uid = "other".into(), false),
        (|record| record.request.uid.clear(), false),
        (|record| record.request.namespace = "other".into(), false),
        (
            |record| {
                *record = record
                    .clone()
                    .detail("reviewers", r#"{"users":["mallory"]}"#)
            },
            false,
        ),
        (
            |record| *record = record.clone().detail("reviewDueAt", "2126-01-01T00:00:00Z"),
            false,
        ),
        (|record| drop(record.details.remove("proof")), false),
    ];
    for (number, (change, opens)) in changes.into_iter().enumerate() {
        let mut record = record(&dana(), "uid-1");
        change(&mut record);
        assert_eq!(on_record(&keys(), &record).is_some(), opens, "{number}");
    }
    let others = Keys::with_every_owner([[9; 32]]);
    assert_eq!(on_record(&others, &record(&dana(), "uid-1")), None);
}

#[test]
fn a_review_that_was_changed_or_copied_is_believed_no_more() {
    type Change = fn(&mut AccessReview);
    let changes: [Change; 9] = [
        |review| review.metadata.name = Some("other".into()),
        |review| review.metadata.namespace = Some("other".into()),
        |review| review.metadata.annotations = None,
        |review| review.spec.access_request_ref.as_mut().unwrap().uid = "other".into(),
        |review| review.spec.requester.user = "mallory".into(),
        |review| review.spec.due_at = timestamp(1_000_000),
        |review| review.spec.reviewers.users.push("mallory".into()),
        |review| review.spec.finding = Some(Finding::Justified),
        |review| {
            let annotations = review.metadata.annotations.as_mut().unwrap();
            let text = annotations[labels::REVIEW].replace("inc", "ink");
            annotations.insert(labels::REVIEW.into(), text);
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut review = opened("uid-1");
        change(&mut review);
        assert_eq!(review::read(&keys(), &review), None, "{number}");
        let mut review = written(
            opened("uid-1"),
            &person("erin", "", &["security"]),
            timestamp(9),
        );
        change(&mut review);
        // The existing finding is no change.
        assert_eq!(
            review::read(&keys(), &review).is_some(),
            number == 7,
            "{number}"
        );
    }
    let mut back = written(
        opened("uid-1"),
        &person("erin", "", &["security"]),
        timestamp(9),
    );
    back.spec.finding = Some(Finding::Unjustified);
    assert_eq!(review::read(&keys(), &back), None);
}

#[test]
fn access_review_is_written_once_by_reviewer_other_than_requester() {
    let look = "system:serviceaccount:ci:look";
    let open = opened("uid-1");
    let erin = person("erin", "u-erin", &["security"]);
    let with = |finding| {
        let mut new = open.clone();
        new.spec.finding = finding;
        new.spec.reason = Some("seen".into());
        new
    };
    let good = with(Some(Finding::Unjustified));
    let mut later = with(Some(Finding::Justified));
    later.spec.due_at = timestamp(9_999_999);
    let closed = written(open.clone(), &erin, timestamp(9));
    let mut forged = open.clone();
    forged.spec.reviewers.users.push("mallory".into());
    let mut into_forged = forged.clone();
    into_forged.spec.finding = Some(Finding::Justified);
    let mut changed = closed.clone();
    changed.spec.finding = Some(Finding::FollowUp);
    let rows: [(Requester, &AccessReview, &AccessReview, Option<&str>); 16] = [
        (erin.clone(), &open, &good, None),
        (person("alice", "", &[]), &open, &good, None),
        (person(look, "", &[]), &open, &good, None),
        (
            person(look, "", &["system:serviceaccounts"]),
            &open,
            &good,
            None,
        ),
        (
            person(
                "system:serviceaccount:ci:other",
                "",
                &["system:serviceaccounts"],
            ),
            &open,
            &good,
            Some("NotAReviewer"),
        ),
        (
            person("bob", "", &["devs"]),
            &open,
            &good,
            Some("NotAReviewer"),
        ),
        (
            person("security", "", &[]),
            &open,
            &good,
            Some("NotAReviewer"),
        ),
        (
            person("root", "", &["system:masters"]),
            &open,
            &good,
            Some("NotAReviewer"),
        ),
        // The requester, also under another name with their UID or another UID with their name.
        (
            person("dana", "u-dana", &["security"]),
            &open,
            &good,
            Some("SelfReview"),
        ),
        (
            person("alice", "u-dana", &["security"]),
            &open,
            &good,
            Some("SelfReview"),
        ),
        (
            person("dana", "u-2", &["security"]),
            &open,
            &good,
            Some("SelfReview"),
        ),
        (erin.clone(), &open, &with(None), Some("FindingMissing")),
        (erin.clone(), &open, &later, Some("Immutable")),
        (erin.clone(), &closed, &changed, Some("AlreadyReviewed")),
        (
            person("alice", "", &[]),
            &closed,
            &changed,
            Some("AlreadyReviewed"),
        ),
        (
            person("mallory", "", &[]),
            &forged,
            &into_forged,
            Some("ReviewForged"),
        ),
    ];
    for (number, (who, old, new, refused)) in rows.into_iter().enumerate() {
        let answer = review::may(&keys(), &who, old, new, timestamp(9)).err();
        let answer = answer.map(|denial| denial.reason);
        assert_eq!(answer, refused, "{number} {}", who.user);
    }
}

/// Counts for combinations of reviews, audit records and pending grants.
#[test]
fn unreviewed_emergency_counts_once_across_all_sources() {
    let erin = person("erin", "", &["security"]);
    let alter = person("alter", "u-dana", &[]);
    let renamed = person("dana", "u-2", &[]);
    let other = person("oscar", "u-oscar", &[]);
    let open = |uid: &str| opened(uid);
    let closed = |uid: &str| written(opened(uid), &erin, timestamp(9));
    let mut forged = opened("uid-9");
    forged.spec.requester.user = "oscar".into();
    let none: Vec<Record> = Vec::new();
    let dana = &dana();
    let on_record = |uid: &str| record(dana, uid);
    let rows: Vec<(
        &Requester,
        Vec<AccessReview>,
        Vec<Record>,
        Vec<(&str, Requester)>,
        usize,
    )> = vec![
        (dana, vec![], none.clone(), vec![], 0),
        (dana, vec![open("uid-1")], none.clone(), vec![], 1),
        (&alter, vec![open("uid-1")], none.clone(), vec![], 1),
        (&renamed, vec![open("uid-1")], none.clone(), vec![], 1),
        (&other, vec![open("uid-1")], none.clone(), vec![], 0),
        (dana, vec![closed("uid-1")], none.clone(), vec![], 0),
        (
            dana,
            vec![open("uid-1"), open("uid-2")],
            none.clone(),
            vec![],
            2,
        ),
        (
            dana,
            vec![open("uid-1"), closed("uid-2")],
            none.clone(),
            vec![],
            1,
        ),
        (dana, vec![], vec![on_record("uid-1")], vec![], 1),
        // Known from its audit record twice, its review and the process that grants it.
        (
            dana,
            vec![open("uid-1")],
            vec![on_record("uid-1"), on_record("uid-1")],
            vec![("uid-1", dana.clone())],
            1,
        ),
        (
            dana,
            vec![closed("uid-1")],
            vec![on_record("uid-1")],
            vec![("uid-1", dana.clone())],
            0,
        ),
        (
            dana,
            vec![open("uid-1")],
            vec![on_record("uid-2")],
            vec![("uid-3", dana.clone())],
            3,
        ),
        (
            dana,
            vec![],
            none.clone(),
            vec![("uid-3", other.clone())],
            0,
        ),
        // Their own request does not count against itself.
        (
            dana,
            vec![open("mine")],
            vec![on_record("mine")],
            vec![("mine", dana.clone())],
            0,
        ),
        (&other, vec![forged], none, vec![], 0),
    ];
    for (number, (who, reviews, records, granting, count)) in rows.into_iter().enumerate() {
        let granting = granting.iter().map(|(uid, who)| (*uid, who));
        let found = unreviewed(
            &keys(),
            who,
            Some("mine"),
            reviews.iter(),
            records.iter(),
            granting,
        );
        assert_eq!(found.len(), count, "{number}");
    }
}

#[test]
fn upkeep_of_access_review_follows_due_time() {
    let keep = SignedDuration::from_hours(48);
    let erin = person("erin", "", &["security"]);
    let due = timestamp(0) + DAY;
    let nanosecond = SignedDuration::from_nanos(1);
    let told = |mut review: AccessReview, overdue| {
        review.status = Some(review::status(&review, overdue, due));
        review
    };
    let open = opened("uid-1");
    // The operator immediately seals again a review that the webhook sealed.
    let sealed_again = |mut review: AccessReview, now| {
        let standing = review::read(&keys(), &review).unwrap();
        let found = review::upkeep(&keys(), &review, &standing, now, keep);
        let Some(Upkeep::Sealed(text)) = found else {
            panic!("{found:?}")
        };
        let annotations = review.metadata.annotations.as_mut().unwrap();
        annotations.insert(labels::REVIEW.into(), text);
        assert_eq!(review::read(&keys(), &review), Some(standing));
        review
    };
    let closed = sealed_again(written(open.clone(), &erin, timestamp(60)), timestamp(60));
    let late = sealed_again(written(open.clone(), &erin, due + DAY), due + DAY);
    let mut leaving = open.clone();
    leaving.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(due));
    for (review, now, expected) in [
        (&open, due - nanosecond, None),
        (&open, due, Some(Upkeep::Overdue)),
        (&leaving, due, None),
        (&told(open.clone(), true), due + DAY, None),
        (&told(open.clone(), true), due + DAY * 1000, None),
        (&closed, due + DAY / 2, None),
        (&told(late.clone(), true), due + DAY, Some(Upkeep::Settled)),
        (&told(late.clone(), false), due + DAY, None),
        (&closed, timestamp(60) + keep - nanosecond, None),
        (&closed, timestamp(60) + keep, Some(Upkeep::Over)),
    ] {
        let standing = review::read(&keys(), review).unwrap();
        let found = review::upkeep(&keys(), review, &standing, now, keep);
        assert_eq!(found, expected, "{now} {:?}", standing.by);
    }
    let status = review::status(&told(open, true), false, due + DAY);
    assert!(!conditions::is_true(
        &status.conditions,
        conditions::OVERDUE
    ));
}

#[test]
fn a_review_is_sealed_again_when_the_key_is_replaced() {
    let (old, new) = ([3; 32], [4; 32]);
    let both = Keys::with_every_owner([new, old]);
    let review = written(
        opened("uid-1"),
        &person("erin", "", &["security"]),
        timestamp(9),
    );
    let standing = review::read(&both, &review).unwrap();
    let found = review::upkeep(&both, &review, &standing, timestamp(10), DAY);
    let Some(Upkeep::Sealed(text)) = found else {
        panic!("{found:?}")
    };
    let mut again = review;
    let annotations = again.metadata.annotations.as_mut().unwrap();
    annotations.insert(labels::REVIEW.into(), text);
    let alone = Keys::with_every_owner([new]);
    assert_eq!(review::read(&alone, &again), Some(standing.clone()));
    assert_eq!(
        review::upkeep(&alone, &again, &standing, timestamp(10), DAY),
        None
    );
    assert_eq!(
        again.spec.records,
        RecordsSoFar {
            count: 2,
            ..again.spec.records.clone()
        }
    );
}

/// Returns the terms for reviews of break-glass.
pub(super) fn break_glass_terms(users: &[&str]) -> break_glass::Terms {
    break_glass::Terms {
        within: DAY,
        reviewers: Reviewers {
            groups: Vec::new(),
            users: users.iter().map(ToString::to_string).collect(),
        },
    }
}

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// Creates the audit record of a break-glass connection, this many seconds after the hour.
pub(super) fn opening(who: &Requester, namespace: &str, seconds: i64) -> Record {
    let (action, allow) = (Action::BreakGlassOpened, Decision::Allow);
    let mut record = Record::about(
        timestamp(seconds),
        action,
        allow,
        "review",
        "BreakGlass",
        "root may",
    );
    record.user = Some(who.clone());
    record.request.namespace = namespace.into();
    break_glass::proven(&keys(), record, HOUR).unwrap()
}

fn opened_by_glass(record: &Record, terms: &break_glass::Terms) -> AccessReview {
    let subject = subject::Subject::from_record(&keys(), record, terms).unwrap();
    let records = review::records_so_far(vec!["a".into()]);
    subject::opened(&keys(), &subject, records, None)
        .unwrap()
        .unwrap()
}

#[test]
fn break_glass_of_one_user_namespace_and_hour_is_one_review() {
    let root = person("root", "u-root", &["system:masters"]);
    let renamed = person("root", "u-2", &["system:masters"]);
    let start = break_glass::window(timestamp(0), HOUR);
    assert!(start.from <= timestamp(0) && timestamp(0) < start.until);
    assert_eq!(start.until.duration_since(start.from), HOUR);
    let in_window = start.until.duration_since(timestamp(0)).as_secs();
    let name = |record: &Record| subject::name_of(record).unwrap();
    let first = name(&opening(&root, "shop", 0));
    assert!(first.starts_with("break-glass-"), "{first}");
    assert_eq!(first, name(&opening(&root, "shop", in_window - 1)));
    let others = [
        opening(&root, "shop", in_window),
        opening(&root, "other", 0),
        opening(&renamed, "shop", 0),
        opening(&dana(), "shop", 0),
    ];
    for other in &others {
        assert_ne!(first, name(other), "{other:?}");
    }
    let review = opened_by_glass(&opening(&root, "shop", 0), &break_glass_terms(&["erin"]));
    assert_eq!(review.spec.break_glass.as_ref(), Some(&start));
    assert_eq!(review.spec.due_at, start.until + DAY);
    assert_eq!(review.spec.requester.user, "root");
    assert_eq!(review.metadata.namespace.as_deref(), Some("shop"));
    assert_eq!(review::read(&keys(), &review), Some(ReviewState::default()));
    // They are not emergencies.
    let none = (std::iter::empty(), std::iter::empty());
    let uids = unreviewed(&keys(), &root, None, [&review].into_iter(), none.0, none.1);
    assert!(uids.is_empty(), "{uids:?}");
}

#[test]
fn a_record_of_break_glass_that_was_changed_opens_no_review() {
    type Change = fn(&mut Record);
    let changes: [(Change, bool); 8] = [
        (|_| {}, true),
        (|record| record.message = "another".into(), true),
        (|record| record.action = Action::SessionOpened, false),
        (|record| record.user = Some(dana()), false),
        (|record| record.user = None, false),
        (|record| record.request.namespace = "other".into(), false),
        (
            |record| {
                drop(
                    record
                        .details
                        .insert("reviewUntil".into(), "2126-01-01T00:00:00Z".into()),
                )
            },
            false,
        ),
        (|record| drop(record.details.remove("proof")), false),
    ];
    let root = person("root", "", &["system:masters"]);
    let terms = break_glass_terms(&[]);
    for (number, (change, opens)) in changes.into_iter().enumerate() {
        let mut record = opening(&root, "shop", 0);
        change(&mut record);
        let found = subject::Subject::from_record(&keys(), &record, &terms);
        assert_eq!(found.is_some(), opens, "{number}");
    }
    let others = Keys::with_every_owner([[9; 32]]);
    let record = opening(&root, "shop", 0);
    assert_eq!(
        subject::Subject::from_record(&others, &record, &terms),
        None
    );
}

#[test]
fn break_glass_review_requires_other_user_and_end_of_window() {
    let root = person("root", "u-root", &["system:masters"]);
    let record = opening(&root, "shop", 0);
    let until = break_glass::window(timestamp(0), HOUR).until;
    let before = until - SignedDuration::from_nanos(1);
    let account = "system:serviceaccount:ci:look";
    let rows: [(&[&str], Requester, Timestamp, Option<&str>); 9] = [
        (&["erin"], person("erin", "", &[]), until, None),
        (
            &["erin"],
            person("erin", "", &[]),
            before,
            Some("ReviewWindowOpen"),
        ),
        (
            &["erin"],
            person("bob", "", &[]),
            until,
            Some("NotAReviewer"),
        ),
        (
            &["root"],
            person("root", "", &[]),
            until,
            Some("SelfReview"),
        ),
        (&[account], person(account, "", &[]), until, None),
        // No reviewers are named: any user with the RBAC right, but no service account and not the user of
        // break-glass.
        (&[], person("bob", "", &[]), until, None),
        (
            &[],
            person("alter", "u-root", &[]),
            until,
            Some("SelfReview"),
        ),
        (&[], person("root", "u-2", &[]), until, Some("SelfReview")),
        (&[], person(account, "", &[]), until, Some("NotAReviewer")),
    ];
    for (number, (named, who, now, refused)) in rows.into_iter().enumerate() {
        let old = opened_by_glass(&record, &break_glass_terms(named));
        let mut new = old.clone();
        new.spec.finding = Some(Finding::Justified);
        new.spec.reason = Some("seen".into());
        let answer = review::may(&keys(), &who, &old, &new, now).err();
        assert_eq!(answer.map(|denial| denial.reason), refused, "{number}");
    }
    // It is overdue, and reported as overdue, like any other.
    let open = opened_by_glass(&record, &break_glass_terms(&[]));
    let due = until + DAY;
    let standing = ReviewState::default();
    let found = review::upkeep(&keys(), &open, &standing, due, DAY);
    assert_eq!(found, Some(Upkeep::Overdue));
    let told = review::overdue(&open, due);
    assert!(
        told.message.contains("the use of break-glass by root"),
        "{}",
        told.message
    );
    assert!(
        told.message.contains("oz-review-access"),
        "{}",
        told.message
    );
}

#[test]
fn an_attestation_is_written_as_soon_as_it_is_there() {
    let spec = AccessReviewSpec {
        attestation: Some(Attestation {
            kept: 1,
            ..Attestation::default()
        }),
        ..AccessReviewSpec::default()
    };
    let mut object = AccessReview::new("attestation", spec);
    object.metadata.namespace = Some("oz-system".into());
    let erin = person("erin", "", &[]);
    let standing = ReviewState {
        by: Some(erin.clone()),
        at: Some(timestamp(0)),
    };
    review::put_seal(&keys(), &mut object, standing.clone()).unwrap();
    assert_eq!(review::read(&keys(), &object), Some(standing.clone()));
    assert!(!review::is_overdue(&object, &standing, timestamp(9)));
    assert!(!review::is_reviewer(&object, &person("bob", "", &[])));
    let mut again = object.clone();
    again.spec.finding = Some(Finding::Justified);
    let answer = review::may(
        &keys(),
        &person("bob", "", &[]),
        &object,
        &again,
        timestamp(9),
    );
    assert_eq!(answer.unwrap_err().reason, "AlreadyReviewed");
    let over = review::upkeep(&keys(), &object, &standing, timestamp(0) + DAY, DAY);
    assert_eq!(over, Some(Upkeep::Over));
    let mut unsealed = object;
    unsealed.metadata.annotations = None;
    assert_eq!(review::read(&keys(), &unsealed), None);
}
