//! The hook that seals a finding or an attestation with its author, over any value from the user.

use oz_admission::{Cx, Mutate, Notes, Rejection, Review};
use oz_api::AccessReview;
use oz_core::access::emergency::review::{self, ReviewState};
use oz_core::access::seal::Keys;

use crate::stamp::requester;

/// The hook that seals reviews with a new finding, and attestations.
pub(super) struct Sealer {
    pub(super) keys: Keys,
}

impl Mutate for Sealer {
    type Object = AccessReview;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<AccessReview>,
        object: &mut AccessReview,
    ) -> Result<Notes, Rejection> {
        // The validating hook checks whether the finding may be written; this hook seals any new
        // one.
        let written = match &review.old {
            Some(old) => old.spec.finding.is_none() && object.spec.finding.is_some(),
            None => object.spec.attestation.is_some(),
        };
        // A review that the API server is about to name cannot be sealed: the validating hook denies it.
        let is_nameless = object.metadata.name.is_none();
        if !written || is_nameless || review.user.username.is_empty() {
            return Ok(Notes::none());
        }
        let standing = ReviewState {
            by: Some(requester(&review.user)),
            at: Some(cx.now),
        };
        review::put_seal(&self.keys, object, standing).map_err(|error| {
            let message = format!("failed to seal the review: {error}");
            Rejection::new(500, "SealFailed", message)
        })?;
        Ok(Notes::none())
    }
}
