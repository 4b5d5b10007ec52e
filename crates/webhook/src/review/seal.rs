//! What is found or attested is sealed with who it was, over whatever they put there.

use oz_admission::{Cx, Mutate, Notes, Rejection, Review};
use oz_api::AccessReview;
use oz_core::access::emergency::review::{self, Standing};
use oz_core::access::seal::Keys;

use crate::stamp::requester;

/// Seals reviews in which somebody writes, and attestations.
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
        // Whether it may be written is for the hook that checks it: a change is all that is sealed here.
        let written = match &review.old {
            Some(old) => old.spec.finding.is_none() && object.spec.finding.is_some(),
            None => object.spec.attestation.is_some(),
        };
        if !written || review.user.username.is_empty() {
            return Ok(Notes::none());
        }
        let standing = Standing {
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
