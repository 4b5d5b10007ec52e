//! Tests of reviews of deleted namespaces: the recorded finding counts in place of the review, and a review without a
//! finding is opened in oz's own namespace.

#![allow(
    clippy::type_complexity,
    reason = "tables whose rows the formatter spreads over many lines"
)]

use oz_api::AccessReview;
use oz_trail::{Action, Decision, Record};

use super::super::testing::{keys, timestamp};
use super::finding::{self, FindingOnRecord};
use super::review::{self, ReviewState};
use super::tests::{break_glass_terms, dana, opened, opening, person, record, terms, written};
use super::{subject, unreviewed};
use crate::lifecycle::seal::Keys;

const OWN: &str = "oz-system";

fn erin() -> oz_api::Requester {
    person("erin", "", &["security"])
}

/// Returns the audit record of a finding, as the webhook writes it.
fn finding_record(review: &AccessReview) -> Record {
    let now = timestamp(9);
    let (action, allow) = (Action::ReviewGiven, Decision::Allow);
    let record = review::record(review, now, action, allow, "Justified", "seen");
    let record = Record {
        user: Some(erin()),
        ..record.detail("finding", "Justified")
    };
    finding::proven(&keys(), record, review).unwrap()
}

/// Returns the review of a deleted namespace, as the operator opens it.
fn moved(record: &Record) -> AccessReview {
    let (keys, terms) = (keys(), break_glass_terms(&[]));
    let found = subject::Subject::from_record(&keys, record, &terms).unwrap();
    let records = review::records_so_far(vec!["a".into()]);
    let review = subject::opened(&keys, &found, records, Some(OWN));
    review.unwrap().unwrap()
}

#[test]
fn review_of_deleted_namespace_counts_by_its_audit_record() {
    let dana = &dana();
    let granted = |uid: &str| record(dana, uid);
    let found = |uid: &str| finding_record(&opened(uid));
    let closed = |uid: &str| written(opened(uid), &erin(), timestamp(9));
    let forged = |uid: &str| {
        let mut record = found(uid);
        record.details.remove("proof");
        record
    };
    let elsewhere = |uid: &str| moved(&record(dana, uid));
    let rows: [(Vec<AccessReview>, Vec<Record>, &[&str]); 10] = [
        // Both reviewed, both namespaces deleted.
        (
            vec![],
            vec![
                granted("uid-1"),
                found("uid-1"),
                granted("uid-2"),
                found("uid-2"),
            ],
            &[],
        ),
        // One of two reviewed.
        (
            vec![],
            vec![granted("uid-1"), found("uid-1"), granted("uid-2")],
            &["uid-2"],
        ),
        (vec![], vec![found("uid-1"), granted("uid-1")], &[]),
        (
            vec![closed("uid-1")],
            vec![granted("uid-1"), found("uid-1")],
            &[],
        ),
        (vec![closed("uid-1")], vec![granted("uid-1")], &[]),
        // The API server did not store the finding after admission.
        (
            vec![opened("uid-1")],
            vec![granted("uid-1"), found("uid-1")],
            &["uid-1"],
        ),
        // A record that oz did not write.
        (vec![], vec![granted("uid-1"), forged("uid-1")], &["uid-1"]),
        // In oz's namespace, open and written.
        (vec![elsewhere("uid-1")], vec![granted("uid-1")], &["uid-1"]),
        (
            vec![written(elsewhere("uid-1"), &erin(), timestamp(9))],
            vec![granted("uid-1")],
            &[],
        ),
        // Only the finding of this emergency counts for it.
        (vec![], vec![granted("uid-1"), found("uid-2")], &["uid-1"]),
    ];
    for (number, (reviews, records, expected)) in rows.into_iter().enumerate() {
        let granting = std::iter::empty();
        let uids = unreviewed(
            &keys(),
            dana,
            None,
            reviews.iter(),
            records.iter(),
            granting,
        );
        assert_eq!(uids, expected, "{number}");
    }
}

#[test]
fn changed_record_of_a_finding_proves_no_review() {
    type Change = fn(&mut Record);
    let changes: [(Change, bool); 8] = [
        (|_| {}, true),
        (|record| record.message = "another".into(), true),
        (|record| record.action = Action::ReviewRefused, false),
        (|record| record.request.uid = "other".into(), false),
        (|record| record.request.namespace = "other".into(), false),
        (
            |record| *record = record.clone().detail("finding", "Unjustified"),
            false,
        ),
        (
            |record| *record = record.clone().detail("review", "other"),
            false,
        ),
        (|record| drop(record.details.remove("proof")), false),
    ];
    let review = opened("uid-1");
    for (number, (change, proves)) in changes.into_iter().enumerate() {
        let mut record = finding_record(&review);
        change(&mut record);
        let found = finding::on_record(&keys(), &record);
        assert_eq!(found.is_some(), proves, "{number}");
    }
    let others = Keys::with_every_owner([[9; 32]]);
    assert_eq!(finding::on_record(&others, &finding_record(&review)), None);
    // The seal of a review is no proof: its author may have written it for another purpose.
    let mut copied = finding_record(&review);
    let sealed = written(review, &erin(), timestamp(9));
    let seal = review::seal_of(&sealed.metadata).unwrap().to_owned();
    copied.details.insert("proof".into(), seal);
    assert_eq!(finding::on_record(&keys(), &copied), None);
}

#[test]
fn proof_of_a_finding_fits_into_a_detail() {
    let mut review = opened("uid-1");
    review.metadata.name = Some("n".repeat(253));
    review.metadata.namespace = Some("s".repeat(63));
    let uid = "9cd5a2fc-0000-4000-8000-5f3a00000001";
    review.spec.access_request_ref.as_mut().unwrap().uid = uid.into();
    let proof = finding_record(&review).details["proof"].len();
    // A longer detail of an audit record is truncated.
    assert!(proof <= 1024, "{proof}");
}

#[test]
fn review_of_deleted_namespace_is_in_the_namespace_of_oz() {
    let root = person("root", "u-root", &["system:masters"]);
    for granted in [record(&dana(), "uid-00000001"), opening(&root, "shop", 0)] {
        let review = moved(&granted);
        assert_eq!(review.metadata.namespace.as_deref(), Some(OWN));
        assert_eq!(review.metadata.name, subject::name_of(&granted));
        assert_eq!(review.reviewed_namespace(), Some("shop"));
        assert_eq!(review::read(&keys(), &review), Some(ReviewState::default()));
        let mut other = review.clone();
        other.spec.reviewed_namespace = Some("other".into());
        assert_eq!(review::read(&keys(), &other), None);
        // The records of its finding are those of the reviewed namespace.
        let given = finding_record(&review);
        let found = FindingOnRecord {
            namespace: "shop",
            review: review.metadata.name.as_deref().unwrap(),
            uid: &given.request.uid,
        };
        assert_eq!(finding::on_record(&keys(), &given), Some(found));
    }
}

#[test]
fn denial_for_open_reviews_names_each_and_the_next_step() {
    let uids = ["uid-1".to_owned(), "uid-2".to_owned()];
    let denial = terms().has_room(&dana(), &uids).unwrap_err();
    assert_eq!(denial.reason, "TooManyOpenReviews");
    for part in [
        "2 emergencies of dana have no review",
        "UIDs uid-1, uid-2",
        "template shell denies another one from 2 on",
        "`ozctl review UID`",
        "`ozctl reviews --all -A`",
    ] {
        assert!(denial.message.contains(part), "{part}: {}", denial.message);
    }
}
