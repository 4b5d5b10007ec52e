//! Reviews of emergencies and of break-glass: oz opens them, one of the permitted reviewers writes
//! the finding, sealed, and they cannot be deleted by users. Attestations of the users who could
//! get access: a user who may create reviews creates one, sealed, and it stays. A finding or an
//! attestation is recorded first.

mod hooks;
mod seal;
mod validate;

use std::iter::empty;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_admission::{Rejection, UserInfo};
use oz_api::AccessReview;
use oz_core::access::emergency;
use oz_core::access::seal::Keys;

use crate::stamp::requester;
use crate::watched::Watched;

pub(crate) use hooks::hooks;

/// Returns the unreviewed emergencies of a user, by the UIDs of their objects, without the object with this metadata. They
/// are those that the watch has shown: the operator checks again, and also counts those of this moment.
pub(crate) async fn unreviewed(
    reviews: &Watched<AccessReview>,
    keys: &Keys,
    user: &UserInfo,
    object: &ObjectMeta,
) -> Result<Vec<String>, Rejection> {
    let (reviews, creator) = (reviews.all().await?, requester(user));
    let (reviews, uid) = (reviews.iter().map(AsRef::as_ref), object.uid.as_deref());
    Ok(emergency::unreviewed(
        keys,
        &creator,
        uid,
        reviews,
        empty(),
        empty(),
    ))
}
