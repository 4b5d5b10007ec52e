//! The number of unreviewed emergencies of one person: those with an open review, those that are recorded and
//! have none yet, and those that are being granted at this moment.

use std::collections::BTreeSet;

use oz_api::{AccessReview, Requester};
use oz_trail::Record;

use super::super::person::is_same_person;
use super::{on_record, review};
use crate::lifecycle::seal::Keys;

/// Counts the emergencies of `person` that are unreviewed, without that of the request with the UID `except`.
/// `granting` are those that are being granted: the UID of each request, and the requester.
#[must_use]
pub fn unreviewed<'a>(
    keys: &Keys,
    person: &Requester,
    except: Option<&str>,
    reviews: impl Iterator<Item = &'a AccessReview>,
    records: impl Iterator<Item = &'a Record>,
    granting: impl Iterator<Item = (&'a str, &'a Requester)>,
) -> usize {
    let mut closed = BTreeSet::new();
    let mut theirs = BTreeSet::new();
    for object in reviews {
        // Reviews of break-glass, and attestations, do not concern emergencies.
        let Some(about) = &object.spec.access_request_ref else {
            continue;
        };
        let uid = about.uid.as_str();
        match review::read(keys, object) {
            Some(standing) if standing.by.is_some() => {
                closed.insert(uid);
            }
            Some(_) if is_same_person(&review::requester(object), person) => {
                theirs.insert(uid);
            }
            _ => {}
        }
    }
    for record in records {
        if let Some(found) = on_record(keys, record)
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
    theirs.difference(&closed).count()
}
