//! The unreviewed emergencies of one person: those with an open review, those that are recorded and have none
//! yet, and those that are being granted at this moment. A review is deleted with its namespace: then its
//! finding counts as it was recorded.

use std::collections::BTreeSet;

use oz_api::{AccessReview, Requester};
use oz_trail::Record;

use super::super::person::is_same_person;
use super::{finding, on_record, review};
use crate::lifecycle::seal::Keys;

/// Returns the UIDs of the requests with the unreviewed emergencies of `person`, without that with the UID
/// `except`. `records` are the audit records of emergencies and of findings. `granting` are the emergencies that
/// are being granted: the UID of each request, and the requester.
#[must_use]
pub fn unreviewed<'a>(
    keys: &Keys,
    person: &Requester,
    except: Option<&str>,
    reviews: impl Iterator<Item = &'a AccessReview>,
    records: impl Iterator<Item = &'a Record>,
    granting: impl Iterator<Item = (&'a str, &'a Requester)>,
) -> Vec<String> {
    let (mut closed, mut open) = (BTreeSet::new(), BTreeSet::new());
    let mut theirs = BTreeSet::new();
    for object in reviews {
        // Reviews of break-glass, and attestations, do not concern emergencies.
        let Some(about) = &object.spec.access_request_ref else {
            continue;
        };
        let Some(standing) = review::read(keys, object) else {
            continue;
        };
        let uid = about.uid.as_str();
        if standing.by.is_some() {
            closed.insert(uid);
            continue;
        }
        open.insert(uid);
        if is_same_person(&review::requester(object), person) {
            theirs.insert(uid);
        }
    }
    let mut recorded = BTreeSet::new();
    for record in records {
        if let Some(found) = finding::on_record(keys, record) {
            recorded.insert(found.uid);
        } else if let Some(found) = on_record(keys, record)
            && is_same_person(found.requester, person)
        {
            theirs.insert(&record.request.uid);
        }
    }
    for (uid, requester) in granting {
        if is_same_person(requester, person) {
            theirs.insert(uid);
        }
    }
    if let Some(except) = except {
        theirs.remove(except);
    }
    // A finding is recorded before it is stored: if the review is open, it was not stored.
    let is_reviewed =
        |uid: &str| closed.contains(uid) || recorded.contains(uid) && !open.contains(uid);
    let unreviewed = theirs.into_iter().filter(|uid| !is_reviewed(uid));
    unreviewed.map(str::to_owned).collect()
}
