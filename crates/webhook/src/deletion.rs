//! The hook that observes deletions of requested objects, which end access, bindings and runs
//! early: it records the user who deletes, and denies the deletion of another user's object without
//! the right to revoke. A failure of this hook blocks no deletion; oz's policy `oz-deletions`
//! denies the same without the webhook.

use std::fmt::Debug;
use std::sync::Arc;

use kube::Resource;
use kube::core::{ObjectMeta, PartialObjectMeta};
use oz_admission::{Cx, Notes, Rejection, Review, Validate};
use oz_api::labels;
use oz_audit::Sink;
use oz_trail::{Action, Decision, Record, RequestRef};

use crate::stamp::requester;
use crate::{permission, record};

/// The hook for deletions by users only: deletions by oz and Kubernetes, which end access, do not
/// call it.
pub(crate) struct DeletionObserver<R> {
    records: Arc<dyn Sink>,
    kind: std::marker::PhantomData<fn() -> R>,
}

impl<R> DeletionObserver<R> {
    pub(crate) fn new(records: Arc<dyn Sink>) -> Self {
        Self {
            records,
            kind: std::marker::PhantomData,
        }
    }
}

impl<R> Validate for DeletionObserver<R>
where
    R: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    /// A request can be deleted regardless of its contents.
    type Object = PartialObjectMeta<R>;

    async fn validate(&self, cx: &Cx, review: &Review<Self::Object>) -> Result<Notes, Rejection> {
        let Some(old) = &review.old else {
            return Ok(Notes::none());
        };
        let annotations = old.metadata.annotations.as_ref();
        let whose = annotations.and_then(|all| all.get(labels::REQUESTED_BY));
        let refusal = match whose {
            Some(owner) if *owner != review.user.username => self.others(cx, review, owner).await,
            _ => None,
        };
        if !cx.dry_run {
            let record = record_of::<R>(cx, review, whose, refusal.as_ref());
            record::write_if_possible(&*self.records, &record).await;
        }
        refusal.map_or(Ok(Notes::none()), Err)
    }
}

impl<R: Resource<DynamicType = ()>> DeletionObserver<R> {
    /// Returns the reason why the user may not delete a request of `owner`. A failed check is no
    /// reason: oz's policy asks the API server itself.
    async fn others(
        &self,
        cx: &Cx,
        review: &Review<PartialObjectMeta<R>>,
        owner: &str,
    ) -> Option<Rejection> {
        let namespace = review.namespace.as_deref();
        let (group, plural) = (R::group(&()), R::plural(&()));
        let right = (&*group, &*plural);
        match permission::may_revoke(&cx.client, &review.user, namespace, right).await {
            Ok(false) => Some(Rejection::forbidden(
                "NotRequester",
                format!(
                    "{} may not delete the request of {owner}: that requires the right to revoke \
                     {plural}, which the ClusterRole oz-revoke-access grants",
                    review.user.username
                ),
            )),
            Ok(true) => None,
            Err(error) => {
                tracing::warn!(%error, "failed to check whether a request may be deleted");
                None
            }
        }
    }
}

fn record_of<R: Resource<DynamicType = ()>>(
    cx: &Cx,
    review: &Review<PartialObjectMeta<R>>,
    owner: Option<&String>,
    refusal: Option<&Rejection>,
) -> Record {
    let user = &review.user.username;
    let old = review.old.as_ref().map(|old| &old.metadata);
    let uid = old.and_then(|old| old.uid.as_ref());
    let (decision, reason, message) = match refusal {
        Some(refusal) => (
            Decision::Deny,
            refusal.reason.to_string(),
            refusal.message.clone(),
        ),
        None => (
            Decision::End,
            "Deleted".to_owned(),
            match owner {
                Some(owner) if owner != user => {
                    format!("{user} deleted a {} of {owner}", R::kind(&()))
                }
                _ => format!("{user} deleted the {}", R::kind(&())),
            },
        ),
    };
    // The user may retry a deletion that was denied.
    let subject = match (refusal, uid) {
        (None, Some(uid)) => uid,
        _ => &review.uid,
    };
    let action = Action::RequestDeleted;
    let mut record = Record::about(cx.now, action, decision, subject, &reason, message);
    record.user = Some(requester(&review.user));
    let none = ObjectMeta::default();
    record.request = RequestRef::new_object(&R::kind(&()), old.unwrap_or(&none));
    record::set_namespace(&mut record, review);
    match owner {
        Some(owner) => record.detail("requester", owner.clone()),
        None => record,
    }
}
