//! The two traits that extensions implement for admission, and the call of a handler.
//!
//! The traits are typed; the server holds extensions of many types. So this module also erases the type,
//! and performs all conversions between raw JSON and the typed object.

use std::{future::Future, sync::Arc};

use futures::future::BoxFuture;
use serde_json::{Value, value::RawValue};

use crate::{
    decode::{Names, UNEXPECTED_KIND, decode},
    patch,
    review::{Cx, Review, Reviewed},
    verdict::{Notes, Rejection},
    wire::{Answer, Request},
};

/// An extension that may change an object before the API server stores it.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use oz_admission::{Cx, Hook, Mutate, Notes, Rejection, Review};
///
/// /// Pods end within ten seconds.
/// struct EndSoon;
///
/// impl Mutate for EndSoon {
///     type Object = Pod;
///
///     async fn mutate(&self, _: &Cx, _: &Review<Pod>, pod: &mut Pod) -> Result<Notes, Rejection> {
///         let spec = pod.spec.get_or_insert_default();
///         let asked = spec.termination_grace_period_seconds.unwrap_or(30);
///         spec.termination_grace_period_seconds = Some(asked.min(10));
///         Ok(if asked > 10 { Notes::none().warn("it will have ten seconds to end") } else { Notes::none() })
///     }
/// }
///
/// let hook = Hook::mutating("end-soon", EndSoon);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of mutating hooks",
    label = "does not implement `Mutate`",
    note = "implement `oz_admission::Mutate` for it; `mutate_fn` makes a handler of a closure"
)]
pub trait Mutate: Send + Sync + 'static {
    /// The reviewed object: `Pod`, a custom resource, `DynamicObject`, the options of a connection, or
    /// `serde_json::Value`.
    type Object: Reviewed;

    /// Changes `object` in place. `review.object` stays as received.
    ///
    /// The function must return the same result when called again on its own result: the API server may
    /// call it again.
    ///
    /// # Errors
    /// A [`Rejection`] denies the request.
    fn mutate(
        &self,
        cx: &Cx,
        review: &Review<Self::Object>,
        object: &mut Self::Object,
    ) -> impl Future<Output = Result<Notes, Rejection>> + Send;
}

/// An extension that may deny a request. It runs after all mutation.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use oz_admission::{Cx, Hook, Notes, Operation, Rejection, Review, Validate};
///
/// /// Keeps what the team `payments` has made from everybody else.
/// struct Theirs;
///
/// impl Validate for Theirs {
///     type Object = ConfigMap;
///
///     async fn validate(&self, _: &Cx, review: &Review<ConfigMap>) -> Result<Notes, Rejection> {
///         if review.user.in_group("payments") {
///             return Ok(Notes::none());
///         }
///         Err(Rejection::forbidden("NotOwner", "ask a member of payments to do it"))
///     }
/// }
///
/// // On DELETE the review has the object in `old`.
/// let hook = Hook::validating("theirs", Theirs).on([Operation::Update, Operation::Delete]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of validating hooks",
    label = "does not implement `Validate`",
    note = "implement `oz_admission::Validate` for it; `validate_fn` and `validate_async_fn` make a handler of a closure"
)]
pub trait Validate: Send + Sync + 'static {
    /// The reviewed object, as in [`Mutate::Object`].
    type Object: Reviewed;

    /// Reviews the request.
    ///
    /// # Errors
    /// A [`Rejection`] denies the request.
    fn validate(
        &self,
        cx: &Cx,
        review: &Review<Self::Object>,
    ) -> impl Future<Output = Result<Notes, Rejection>> + Send;
}

impl<M: Mutate> Mutate for Arc<M> {
    type Object = M::Object;

    fn mutate(
        &self,
        cx: &Cx,
        review: &Review<Self::Object>,
        object: &mut Self::Object,
    ) -> impl Future<Output = Result<Notes, Rejection>> + Send {
        M::mutate(self, cx, review, object)
    }
}

impl<V: Validate> Validate for Arc<V> {
    type Object = V::Object;

    fn validate(
        &self,
        cx: &Cx,
        review: &Review<Self::Object>,
    ) -> impl Future<Output = Result<Notes, Rejection>> + Send {
        V::validate(self, cx, review)
    }
}

/// The kind for which a hook was declared, if a type declared it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedKind {
    pub(crate) group: String,
    pub(crate) kind: String,
}

/// A handler with an erased type.
pub(crate) trait Handle: Send + Sync + 'static {
    fn handle<'a>(&'a self, cx: &'a Cx, request: &'a Request<'a>) -> BoxFuture<'a, Answer>;
}

pub(crate) struct Mutating<M>(pub(crate) M);

impl<M: Mutate> Handle for Mutating<M> {
    fn handle<'a>(&'a self, cx: &'a Cx, request: &'a Request<'a>) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            match mutate(&self.0, cx, request).await {
                Ok((patch, notes)) => Answer::Allowed {
                    patch: Some(patch),
                    notes,
                },
                Err(rejection) => Answer::Denied(rejection),
            }
        })
    }
}

async fn mutate<M: Mutate>(
    handler: &M,
    cx: &Cx,
    request: &Request<'_>,
) -> Result<(json_patch::Patch, Notes), Rejection> {
    let mut review = review::<M::Object>(request)?;
    let (Some(raw), Some(original)) = (request.object, review.object.as_ref()) else {
        return Err(Rejection::bad_request(
            "NoObject",
            format!(
                "failed to mutate: a {} request carries no object",
                request.operation
            ),
        ));
    };
    let mut object = original.clone();
    let notes = handler.mutate(cx, &review, &mut object).await?;
    let original = review.object.take();
    let patch = patch_of(raw, original, object).map_err(|error| {
        Rejection::new(
            500,
            "InternalError",
            format!("failed to make a patch: {error}"),
        )
    })?;
    Ok((patch, notes))
}

/// Computes the patch, and drops each object as soon as its next form exists: objects may be large.
fn patch_of<K: Reviewed>(
    raw: &RawValue,
    before: Option<K>,
    after: K,
) -> Result<json_patch::Patch, serde_json::Error> {
    let after = serde_json::to_value(after)?;
    let before = serde_json::to_value(before)?;
    if before == after {
        return Ok(json_patch::Patch(Vec::new()));
    }
    let raw: Value = serde_json::from_str(raw.get())?;
    Ok(patch::diff(&raw, &before, &after))
}

pub(crate) struct Validating<V>(pub(crate) V);

impl<V: Validate> Handle for Validating<V> {
    fn handle<'a>(&'a self, cx: &'a Cx, request: &'a Request<'a>) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let outcome = match review::<V::Object>(request) {
                Ok(review) => self.0.validate(cx, &review).await,
                Err(rejection) => Err(rejection),
            };
            match outcome {
                Ok(notes) => Answer::Allowed { patch: None, notes },
                Err(rejection) => Answer::Denied(rejection),
            }
        })
    }
}

/// Denies an object of a kind for which the hook was not declared.
pub(crate) fn check_kind(
    expected: Option<&ExpectedKind>,
    request: &Request<'_>,
) -> Result<(), Rejection> {
    let Some(expected) = expected else {
        return Ok(());
    };
    if expected.group == request.kind.group && expected.kind == request.kind.kind {
        return Ok(());
    }
    Err(Rejection::bad_request(
        UNEXPECTED_KIND,
        format!(
            "failed to review a {}.{}: this hook is for {}.{}",
            request.kind.kind, request.kind.group, expected.kind, expected.group
        ),
    ))
}

fn review<K: Reviewed>(request: &Request<'_>) -> Result<Review<K>, Rejection> {
    let object = request
        .object
        .map(|raw| decode(raw, &request.kind, "object"))
        .transpose()?;
    let old = request
        .old_object
        .map(|raw| decode(raw, &request.kind, "oldObject"))
        .transpose()?;
    // The API server sends "" for a value that is not known yet or does not apply.
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let names = Names::parse_lenient(request.object.or(request.old_object)).metadata;
    Ok(Review {
        uid: request.uid.clone(),
        operation: request.operation,
        user: request.user_info.clone(),
        kind: request.kind.clone(),
        resource: request.resource.clone(),
        subresource: given(&request.sub_resource),
        namespace: given(&request.namespace).or_else(|| given(&names.namespace)),
        name: given(&request.name).or_else(|| given(&names.name)),
        generate_name: given(&names.generate_name),
        object,
        old,
        options: request.options.clone(),
        dry_run: request.dry_run.unwrap_or(false),
    })
}
