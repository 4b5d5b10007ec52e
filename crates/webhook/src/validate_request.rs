//! The hook that checks access requests. It denies a new one that the operator would deny
//! permanently; the contents of an existing one are immutable; only the operator writes its status.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use oz_admission::{Cx, Notes, Operation, Rejection, Review, Validate};
use oz_api::{AccessReview, labels};
use oz_audit::Sink;
use oz_core::access::continued::Continued;
use oz_core::access::creation::{NewRequest, RequestQuestion};
use oz_core::access::request::Request;
use oz_core::access::rules::{Creation, NewObject as _, Served};
use oz_core::access::seal::Keys;
use oz_core::kinds::AccessRequest;
use oz_core::validate::REQUEST_METADATA;

use crate::creation::apply;
use crate::limits::{Asking, RequestCounter};
use crate::lock::Locks;
use crate::permission::within_permission_timeout;
use crate::record;
use crate::refusal::{bounded, immutable, namespace, status_is_the_operators};
use crate::review::unreviewed;
use crate::stamp::{is_canary, requester};
use crate::watched::Watched;

/// The hook that checks requests of one kind.
pub(crate) struct RequestValidator<R: AccessRequest> {
    pub(crate) keys: Keys,
    pub(crate) templates: Watched<R::Template>,
    pub(crate) reviews: Watched<AccessReview>,
    /// oz's own namespace, in which oz grants no access.
    pub(crate) namespace: Arc<str>,
    /// The namespaces that the operator serves; empty for all.
    pub(crate) served: Arc<[String]>,
    pub(crate) operator: Arc<str>,
    pub(crate) records: Arc<dyn Sink>,
    pub(crate) counter: RequestCounter,
    pub(crate) locks: Locks,
    pub(crate) kind: PhantomData<fn() -> R>,
}

impl<R: AccessRequest> Validate for RequestValidator<R> {
    type Object = R;

    async fn validate(&self, cx: &Cx, review: &Review<R>) -> Result<Notes, Rejection> {
        let Some(object) = &review.object else {
            return Ok(Notes::none());
        };
        if review.subresource.as_deref() == Some("status") {
            let next = "delete the request to end its access, create another for more access";
            return status_is_the_operators(review, &self.operator, next);
        }
        match (review.operation, &review.old) {
            (Operation::Create, _) => self.create(cx, review, object).await,
            (Operation::Update, Some(old)) => {
                bounded(object.meta(), Some(old.meta()), &REQUEST_METADATA)?;
                unchanged(object, old)
            }
            _ => Ok(Notes::none()),
        }
    }
}

impl<R: AccessRequest> RequestValidator<R> {
    async fn create(&self, cx: &Cx, review: &Review<R>, object: &R) -> Result<Notes, Rejection> {
        let creator = requester(&review.user);
        let creation = Creation {
            now: cx.now,
            creator: &creator,
            namespace: review.namespace.as_deref(),
            served: Served {
                own: Some(&self.namespace),
                namespaces: &self.served,
            },
            is_canary: is_canary(review, &self.operator),
        };
        let mut new = NewRequest::new(&self.keys, creation, object);
        let decided = self.decide(cx, review, &mut new).await;
        if cx.dry_run {
            return decided;
        }
        match decided {
            Ok(notes) => {
                let template = new.found_template();
                let record = record::admitted(cx.now, review, new.request(), template);
                // Without a template, the access policies were not evaluated.
                let record = record::judged(record, template.and(new.judgement()));
                let written = record::write(&*self.records, &record).await;
                if written.is_err() {
                    self.counter.forget(counted_as(review, new.request()));
                }
                written.map(|()| notes)
            }
            Err(rejection) => {
                self.counter.forget(counted_as(review, new.request()));
                let record = record::refused(cx.now, review, new.request(), &rejection);
                record::write_refusal(&*self.records, &record).await;
                Err(rejection)
            }
        }
    }

    async fn decide(
        &self,
        cx: &Cx,
        review: &Review<R>,
        new: &mut NewRequest<'_, R>,
    ) -> Result<Notes, Rejection> {
        loop {
            match apply(R::title(), &*new)? {
                ControlFlow::Break(notes) => return Ok(notes),
                ControlFlow::Continue(question) => self.read(cx, review, new, question).await?,
            }
        }
    }

    /// Answers a question of the rules.
    async fn read(
        &self,
        cx: &Cx,
        review: &Review<R>,
        new: &mut NewRequest<'_, R>,
        question: RequestQuestion,
    ) -> Result<(), Rejection> {
        match question {
            RequestQuestion::Template => {
                let (namespace, name) = (review.namespace.as_deref(), new.request().template);
                new.facts.template = Some(self.templates.find(namespace, name).await?);
            }
            RequestQuestion::Locks => new.facts.locks = Some(self.locks.read().await?),
            RequestQuestion::Continued(name) => {
                new.facts.continued = Some(self.continued(cx, review, &name).await?);
            }
            RequestQuestion::Count => {
                let asking = Asking {
                    user: &review.user.username,
                    namespace: namespace(review)?,
                    uid: counted_as(review, new.request()),
                    extends: new.request().extends,
                };
                let counted = self.counter.admit(&asking, cx.now, cx.dry_run);
                new.facts.counted = Some(counted);
            }
            RequestQuestion::Reviews => {
                let (keys, object) = (&self.keys, new.request().metadata);
                let found = unreviewed(&self.reviews, keys, &review.user, object).await?;
                new.facts.unreviewed = Some(found);
            }
        }
        Ok(())
    }

    /// Reads the request that a new one extends from the API server: a watch may not have shown yet
    /// the request that a waiting user extends.
    async fn continued(
        &self,
        cx: &Cx,
        review: &Review<R>,
        name: &str,
    ) -> Result<Option<Continued>, Rejection> {
        let requests = Api::<R>::namespaced(cx.client.clone(), namespace(review)?);
        let found = within_permission_timeout(&review.user, requests.get_opt(name)).await?;
        Ok(found.map(|found| Continued::from_request(&self.keys, &found.view())))
    }
}

/// Returns the UID by which the request counts.
fn counted_as<'a, R>(review: &'a Review<R>, request: &Request<'a>) -> &'a str {
    let uid = request.metadata.uid.as_deref();
    uid.unwrap_or(&review.uid)
}

/// Denies a change of the requested contents, or of the requester.
fn unchanged<R: AccessRequest>(object: &R, old: &R) -> Result<Notes, Rejection> {
    if let Some(change) = object.change(old) {
        return Err(immutable(change.field, change.message));
    }
    same_requester(old.meta(), object.meta())?;
    if old.meta().owner_references != object.meta().owner_references {
        // With its owner references, a request is deleted together with its template.
        let message = "error - only oz changes metadata.ownerReferences of a request";
        return Err(immutable("metadata.ownerReferences", message));
    }
    Ok(Notes::none())
}

/// Denies new owner references: with these, Kubernetes' garbage collector deletes an object for a
/// user without the right to delete. References may be removed, as the garbage collector does with
/// `--cascade=orphan`.
/// See <https://kubernetes.io/docs/concepts/architecture/garbage-collection/#owners-dependents>.
pub(crate) fn no_owner_added(old: &ObjectMeta, new: &ObjectMeta) -> Result<(), Rejection> {
    let had = old.owner_references.as_deref().unwrap_or(&[]);
    // With another name, the same UID is an owner that does not exist.
    let is_same = |one: &OwnerReference, other: &OwnerReference| {
        (&one.uid, &one.name) == (&other.uid, &other.name)
            && (&one.kind, &one.api_version) == (&other.kind, &other.api_version)
    };
    let is_added = |owner: &&OwnerReference| !had.iter().any(|one| is_same(one, owner));
    let Some(owner) = new.owner_references.iter().flatten().find(is_added) else {
        return Ok(());
    };
    let message = format!(
        "metadata.ownerReferences may not get {} {}: Kubernetes would delete this object with that one; delete this \
         object instead, for which you need the right to delete it",
        owner.kind, owner.name
    );
    Err(immutable("metadata.ownerReferences", &message))
}

/// Denies a change of the requester.
pub(crate) fn same_requester(old: &ObjectMeta, new: &ObjectMeta) -> Result<(), Rejection> {
    let read = |key| (annotation(old, key), annotation(new, key));
    let (was, is) = read(labels::REQUESTED_BY);
    if was != is {
        let (was, is) = (was.unwrap_or_default(), is.unwrap_or_default());
        // The wording of the original.
        let detail = format!("({was:?}), cannot update to {is:?}");
        return Err(annotation_is_immutable(labels::REQUESTED_BY, &detail));
    }
    let (was, is) = read(labels::REQUESTER);
    if was != is {
        let detail = "the annotation identifies the user who created the request; create a new \
            request instead";
        return Err(annotation_is_immutable(labels::REQUESTER, detail));
    }
    Ok(())
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn annotation_is_immutable(key: &str, detail: &str) -> Rejection {
    let message = format!("error - {key} is an immutable annotation {detail}");
    let field = format!("metadata.annotations[{key}]");
    immutable(&field, &message)
}
