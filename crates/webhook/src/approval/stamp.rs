//! The hook that stamps approvals and denials with their authors.

use oz_admission::{Cx, Mutate, Notes, Rejection, Review};
use oz_api::{AccessRequestApproval as Answer, labels};
use oz_core::access::extra::Extra;
use oz_core::kinds::Kind as _;

use crate::stamp::{Sealing, Subject};

/// The hook that stamps approvals and denials.
pub(super) struct Stamper(pub(super) Sealing);

impl Mutate for Stamper {
    type Object = Answer;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<Answer>,
        object: &mut Answer,
    ) -> Result<Notes, Rejection> {
        let subject = Subject {
            kind: Answer::title().to_owned(),
            spec_digest: object.spec_digest(),
            judgement: None,
            extra: Extra::new(),
        };
        let about = labels::value(&object.spec.access_request_ref.uid);
        let metadata = &mut object.metadata;
        metadata.owner_references = None;
        let all = metadata.labels.get_or_insert_default();
        all.insert(labels::REQUEST_UID.to_owned(), about);
        self.0.stamp(cx, review, subject, metadata)?;
        Ok(Notes::none())
    }
}
