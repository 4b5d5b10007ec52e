//! The subject of a review: the audit record of an emergency, or of a break-glass connection.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{
    AccessRequestReference, AccessReview, AccessReviewSpec, RecordsSoFar, Requester, Reviewed,
    labels,
};
use oz_trail::{Action, Record};

use super::super::grant::object_name;
use super::break_glass::{self, Opening};
use super::review::{ReviewState, put_seal};
use super::{OnRecord, on_record};
use crate::lifecycle::seal::{Keys, SealError};
use crate::lifecycle::window::after;

/// The subject of a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// The audit record of an emergency.
    Emergency(OnRecord<'a>),
    /// The audit record of an action with break-glass, and the terms of its review.
    BreakGlass(Opening<'a>, &'a break_glass::Terms),
}

impl<'a> Subject<'a> {
    /// Reads the subject of a review from an audit record; `None` if it has none, or was not written by oz.
    #[must_use]
    pub fn from_record(
        keys: &Keys,
        record: &'a Record,
        terms: &'a break_glass::Terms,
    ) -> Option<Self> {
        match break_glass::on_record(keys, record) {
            Some(opening) => Some(Self::BreakGlass(opening, terms)),
            None => on_record(keys, record).map(Self::Emergency),
        }
    }

    /// Returns the requester, or the user of break-glass.
    #[must_use]
    pub fn requester(&self) -> &'a Requester {
        match self {
            Self::Emergency(found) => found.requester,
            Self::BreakGlass(opening, _) => opening.requester,
        }
    }

    /// Returns the audit record.
    #[must_use]
    pub fn record(&self) -> &'a Record {
        match self {
            Self::Emergency(found) => found.record,
            Self::BreakGlass(opening, _) => opening.record,
        }
    }

    /// Returns the spec of its review; `None` if requests of this kind are not reviewed.
    fn spec(&self, records: RecordsSoFar) -> Option<AccessReviewSpec> {
        let (record, requester) = (self.record(), self.requester());
        let common = AccessReviewSpec {
            requester: Reviewed {
                user: requester.user.clone(),
                uid: requester.uid.clone(),
            },
            granted_at: record.time,
            records,
            ..AccessReviewSpec::default()
        };
        Some(match self {
            Self::Emergency(found) => AccessReviewSpec {
                access_request_ref: Some(AccessRequestReference {
                    kind: record.request.kind.parse().ok()?,
                    name: record.request.name.clone(),
                    uid: record.request.uid.clone(),
                }),
                template: record.template.clone(),
                emergency: record.details.get("reason").cloned().unwrap_or_default(),
                due_at: found.emergency.due_at,
                reviewers: found.emergency.reviewers.clone(),
                ..common
            },
            Self::BreakGlass(opening, terms) => AccessReviewSpec {
                break_glass: Some(opening.window.clone()),
                emergency: record.message.clone(),
                due_at: after(opening.window.until, terms.within),
                reviewers: terms.reviewers.clone(),
                ..common
            },
        })
    }
}

/// Returns the name of the review for an audit record; `None` if it has no review.
#[must_use]
pub fn name_of(record: &Record) -> Option<String> {
    match record.action {
        Action::BreakGlassOpened => break_glass::name_of(record),
        _ => Some(object_name(&record.request.name, &record.request.uid)),
    }
}

/// Creates the review for a subject, in the namespace of the subject, or in oz's `own` namespace if one is given;
/// `None` if requests of this kind are not reviewed.
///
/// # Errors
/// Only if it does not serialise, which its types rule out.
pub fn opened(
    keys: &Keys,
    subject: &Subject<'_>,
    records: RecordsSoFar,
    own: Option<&str>,
) -> Result<Option<AccessReview>, SealError> {
    let record = subject.record();
    let (Some(name), Some(mut spec)) = (name_of(record), subject.spec(records)) else {
        return Ok(None);
    };
    let reviewed = &record.request.namespace;
    spec.reviewed_namespace = own.map(|_| reviewed.clone());
    let mut labels = BTreeMap::from([(labels::MANAGED_BY.to_owned(), labels::OZ.to_owned())]);
    if spec.access_request_ref.is_some() {
        let uid = labels::value(&record.request.uid);
        labels.insert(labels::REQUEST_UID.to_owned(), uid);
    }
    let mut review = AccessReview::new(&name, spec);
    review.metadata = ObjectMeta {
        namespace: Some(own.unwrap_or(reviewed).to_owned()),
        labels: Some(labels),
        ..review.metadata
    };
    put_seal(keys, &mut review, ReviewState::default())?;
    Ok(Some(review))
}
