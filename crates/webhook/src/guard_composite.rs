//! The hooks of CompositeControllers and RegoControllers: a user who declares one acts with the
//! rights of its account, and so must be allowed to impersonate that account.

use std::marker::PhantomData;

use oz_admission::{Cx, Notes, Operation, Rejection, Review, Validate};
use oz_composites::{Account, Source, author};

use crate::permission;

/// The hook for each created or changed declaration of kind `S`, if composites run.
pub(crate) struct CompositeGuard<S> {
    /// The account with which composites read and write that do not name another account.
    account: Account,
    kind: PhantomData<fn() -> S>,
}

impl<S> CompositeGuard<S> {
    pub(crate) const fn new(account: Account) -> Self {
        Self {
            account,
            kind: PhantomData,
        }
    }
}

impl<S: Source> Validate for CompositeGuard<S> {
    type Object = S;

    async fn validate(&self, cx: &Cx, review: &Review<S>) -> Result<Notes, Rejection> {
        if let (Operation::Update, Some(old), Some(new)) =
            (review.operation, &review.old, &review.object)
            && !author::changes(old, new)
        {
            return Ok(Notes::none());
        }
        let declared = review.object.as_ref();
        let account = declared.map_or_else(
            || self.account.clone(),
            |object| object.account(&self.account),
        );
        let right = author::impersonation(&account);
        if permission::may(&cx.client, &review.user, right).await? {
            return Ok(Notes::none());
        }
        Err(Rejection::forbidden(
            "MayNotImpersonate",
            author::lacks(&review.user.username, &account),
        ))
    }
}
