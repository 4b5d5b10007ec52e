//! The hook that checks access requests. It denies a new one that the operator would deny
//! permanently; the contents of an existing one are immutable; only the operator writes its status.

use std::iter::empty;
use std::marker::PhantomData;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use oz_admission::{Cx, Notes, Operation, Rejection, Review, Validate};
use oz_api::duration::GoDuration;
use oz_api::{AccessConfig, AccessReview, Requester, labels};
use oz_audit::Sink;
use oz_core::access::continued::{self, Continued};
use oz_core::access::lock::Access;
use oz_core::access::policy::{self, Judgement};
use oz_core::access::request::Request;
use oz_core::access::seal::Keys;
use oz_core::access::window::{Source, Window};
use oz_core::access::{decide, emergency};
use oz_core::kinds::{AccessRequest, AccessTemplate, Kind as _};
use oz_core::validate::REQUEST_METADATA;

use crate::limits::{Asking, RequestCounter};
use crate::lock::Locks;
use crate::permission::within_permission_timeout;
use crate::record;
use crate::refusal::{
    bounded, denied, forbidden, immutable, invalid, namespace, own_namespace, served,
    status_is_the_operators,
};
use crate::stamp::{is_canary, is_who_asks, requester};
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
        let request = object.view();
        let decided = self.decide(cx, review, object, &request).await;
        let decided = decided.and_then(|admitted| {
            self.counted(cx, review, object)?;
            Ok(admitted)
        });
        if cx.dry_run {
            return decided.map(|admitted| admitted.notes);
        }
        match decided {
            Ok(Admitted {
                notes,
                template,
                judgement,
            }) => {
                let record = record::admitted(cx.now, review, &request, template.as_deref());
                let record = record::judged(record, judgement.as_ref());
                record::write(&*self.records, &record).await?;
                Ok(notes)
            }
            Err(rejection) => {
                let record = record::refused(cx.now, review, &request, &rejection);
                record::write_refusal(&*self.records, &record).await;
                Err(rejection)
            }
        }
    }

    /// Checks whether one more request is allowed. A user without the right to request access does
    /// not learn the number of requests.
    fn counted(&self, cx: &Cx, review: &Review<R>, object: &R) -> Result<(), Rejection> {
        if is_canary(review, &self.operator) {
            return Ok(());
        }
        let asking = Asking {
            user: &review.user.username,
            namespace: namespace(review)?,
            uid: object.meta().uid.as_deref().unwrap_or(&review.uid),
            extends: object.terms().extends,
        };
        self.counter.admit(&asking, cx.now, cx.dry_run)
    }

    /// Checks whether the request is admitted, by the rules of its template if the template exists.
    async fn decide(
        &self,
        cx: &Cx,
        review: &Review<R>,
        object: &R,
        request: &Request<'_>,
    ) -> Result<Admitted<R::Template>, Rejection> {
        let canary = is_canary(review, &self.operator);
        if !canary {
            if review.namespace.as_deref() == Some(&*self.namespace) {
                return Err(own_namespace(&self.namespace));
            }
            served(&self.served, review.namespace.as_deref())?;
        }
        bounded(object.meta(), None, &REQUEST_METADATA)?;
        let violations = object.violations(cx.now);
        if !violations.is_empty() {
            return Err(invalid(request.kind, &violations));
        }
        let stamp = request.stamp(&self.keys);
        let stamped = stamp.as_ref().map(|stamp| stamp.requester.clone());
        is_who_asks(
            stamped.map_err(Clone::clone),
            &review.user,
            "create the request",
        )?;
        let judgement = stamp.ok().and_then(|stamp| stamp.judgement);
        self.continues(cx, review, request).await?;
        let template = self
            .templates
            .find(review.namespace.as_deref(), request.template)
            .await?;
        let person = requester(&review.user);
        if !canary {
            let config = template.as_deref().map(AccessTemplate::config);
            let access = Access::asked(request, review.namespace.as_deref(), &person, config);
            self.locks.admit(&access, cx.now).await?;
        }
        let Some(template) = template else {
            if let Some(refused) = judgement.and_then(|judgement| judgement.refused) {
                return Err(Rejection::forbidden(policy::FAILED, refused.message));
            }
            let warning = format!(
                "{} {} does not exist; the request stays Pending until it does",
                R::Template::title(),
                request.template
            );
            return Ok(Admitted {
                notes: Notes::none().warn(warning),
                template: None,
                judgement: None,
            });
        };
        let config = template.config();
        decide::may(&person, request.template, config, request.ask)
            .and_then(|()| policy::holds(judgement.as_ref(), request.ask, &*template))
            .map_err(denied)?;
        self.has_room(&person, request, config).await?;
        let notes = warnings(request, cx.now, template.as_ref(), judgement.as_ref());
        Ok(Admitted {
            notes,
            template: Some(template),
            judgement,
        })
    }

    /// Checks whether the requester has few enough unreviewed emergencies for another one, as the
    /// watch has shown them: the operator checks again, and also counts those of this moment.
    async fn has_room(
        &self,
        person: &Requester,
        request: &Request<'_>,
        config: &AccessConfig,
    ) -> Result<(), Rejection> {
        let terms = emergency::Terms::from_config(config).filter(|_| request.ask.emergency);
        let Some(terms) = terms else {
            return Ok(());
        };
        let reviews = self.reviews.all().await?;
        let reviews = reviews.iter().map(AsRef::as_ref);
        let uid = request.metadata.uid.as_deref();
        let uids = emergency::unreviewed(&self.keys, person, uid, reviews, empty(), empty());
        let source = format!("template {}", request.template);
        emergency::has_room(person, &source, terms.most, &uids).map_err(denied)
    }

    /// Checks that the request that it extends is the requester's own, and still in effect. The
    /// hook reads it from the API server: a watch may not have shown yet the request that a waiting
    /// user extends.
    async fn continues(
        &self,
        cx: &Cx,
        review: &Review<R>,
        request: &Request<'_>,
    ) -> Result<(), Rejection> {
        let Some(name) = request.extends else {
            return Ok(());
        };
        let namespace = namespace(review)?;
        let requests = Api::<R>::namespaced(cx.client.clone(), namespace);
        let found = within_permission_timeout(&review.user, requests.get_opt(name)).await?;
        let found = found.map(|found| Continued::from_request(&self.keys, &found.view()));
        let requester = requester(&review.user);
        continued::may(&requester, request, cx.now, found.as_ref())
            .map_err(|denial| forbidden(denial.reason, "spec.extends", &denial.message))
    }
}

/// An admitted request.
struct Admitted<T> {
    notes: Notes,
    template: Option<Arc<T>>,
    judgement: Option<Judgement>,
}

/// Returns the warnings for the requester of an admitted request.
fn warnings<T: AccessTemplate>(
    request: &Request<'_>,
    now: Timestamp,
    template: &T,
    judgement: Option<&Judgement>,
) -> Notes {
    let created = request.metadata.creation_timestamp.as_ref();
    let created = created.map_or(now, |time| time.0);
    let approval = policy::approval(judgement, template);
    let notes = match policy::note(judgement, approval.as_ref()) {
        Some(note) => Notes::none().warn(note),
        None => Notes::none(),
    };
    if let Some(violation) = template.violations(created).first() {
        return notes.warn(format!(
            "template {} cannot be used: {}: {}; the request stays Pending until the template is \
                corrected",
            request.template, violation.field, violation.message
        ));
    }
    let config = template.config();
    let (Ok(asked), Ok(default), Ok(max)) = (
        request.asked(),
        config.default_duration.parse(),
        config.max_duration.parse::<GoDuration>(),
    ) else {
        return notes;
    };
    let longest = emergency::longest(config, request.ask.emergency, max);
    let max = policy::longest(judgement, longest);
    let window = Window::new(created, asked, default, max);
    match window.source {
        Source::Clamped(_) => notes.warn(format!(
            "{}; access will last {}",
            window.message(),
            window.length()
        )),
        Source::Default | Source::Requested => notes,
    }
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
