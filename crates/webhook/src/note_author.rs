//! The hook that notes the author of a template on it, over any value from the user: the operator
//! can then have a pod admitted as for its author.

use oz_admission::{Cx, Notes, Rejection, Review};
use oz_core::access::author;
use oz_core::kinds::AccessTemplate;

use crate::stamp::requester;

/// Notes the author of a template.
pub(crate) fn note_author<T: AccessTemplate>(
    _: &Cx,
    review: &Review<T>,
    object: &mut T,
) -> Result<Notes, Rejection> {
    let digest = object.spec_digest();
    match &review.old {
        Some(old) if old.spec_digest() == digest => author::keep(object.meta_mut(), old.meta()),
        _ => author::write(object.meta_mut(), &requester(&review.user), &digest),
    }
    Ok(Notes::none())
}
