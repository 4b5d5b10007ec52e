//! Handlers without a dedicated type: closures, and one function for each operation.

use std::{future::Future, marker::PhantomData};

use crate::{
    handler::{Mutate, Validate},
    review::{Cx, Operation, Review, Reviewed},
    verdict::{Notes, Rejection},
    watch::{Watch, WatchEvent, Watched},
};

/// A handler that calls a function: see [`mutate_fn`] and [`validate_fn`].
pub struct FromFn<K, F> {
    function: F,
    object: PhantomData<fn(K)>,
}

impl<K, F> FromFn<K, F> {
    fn new(function: F) -> Self {
        Self {
            function,
            object: PhantomData,
        }
    }
}

impl<K, F> std::fmt::Debug for FromFn<K, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FromFn")
    }
}

/// Creates a mutating handler from a synchronous function, which makes no calls to servers.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::ResourceExt;
/// use oz_admission::{Hook, Notes, mutate_fn};
///
/// let hook = Hook::mutating("team", mutate_fn(|_, review, pod: &mut Pod| {
///     pod.labels_mut().insert("asked-by".into(), review.user.username.clone());
///     Ok(Notes::none())
/// }));
/// ```
pub fn mutate_fn<K, F>(function: F) -> FromFn<K, F>
where
    K: Reviewed,
    F: Fn(&Cx, &Review<K>, &mut K) -> Result<Notes, Rejection> + Send + Sync + 'static,
{
    FromFn::new(function)
}

/// Creates a validating handler from a synchronous function, which makes no calls to servers.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use oz_admission::{Hook, Notes, Rejection, Review, validate_fn};
///
/// let hook = Hook::validating("small", validate_fn(|_, review: &Review<ConfigMap>| {
///     match review.object.as_ref().and_then(|it| it.data.as_ref()) {
///         Some(data) if data.len() > 100 => Err(Rejection::invalid("TooMany", "at most 100 keys")),
///         _ => Ok(Notes::none()),
///     }
/// }));
/// ```
pub fn validate_fn<K, F>(function: F) -> FromFn<K, F>
where
    K: Reviewed,
    F: Fn(&Cx, &Review<K>) -> Result<Notes, Rejection> + Send + Sync + 'static,
{
    FromFn::new(function)
}

impl<K, F> Mutate for FromFn<K, F>
where
    K: Reviewed,
    F: Fn(&Cx, &Review<K>, &mut K) -> Result<Notes, Rejection> + Send + Sync + 'static,
{
    type Object = K;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<K>,
        object: &mut K,
    ) -> Result<Notes, Rejection> {
        (self.function)(cx, review, object)
    }
}

impl<K, F> Validate for FromFn<K, F>
where
    K: Reviewed,
    F: Fn(&Cx, &Review<K>) -> Result<Notes, Rejection> + Send + Sync + 'static,
{
    type Object = K;

    async fn validate(&self, cx: &Cx, review: &Review<K>) -> Result<Notes, Rejection> {
        (self.function)(cx, review)
    }
}

/// A handler that calls an asynchronous function: see [`validate_async_fn`] and [`watch_fn`].
pub struct FromAsyncFn<K, F>(FromFn<K, F>);

impl<K, F> std::fmt::Debug for FromAsyncFn<K, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FromAsyncFn")
    }
}

/// Creates a validating handler from an asynchronous function. The function receives a copy of the review.
///
/// ```
/// use k8s_openapi::api::core::v1::{Namespace, Pod};
/// use kube::{Api, ResourceExt};
/// use oz_admission::{Cx, Hook, Notes, Rejection, Review, validate_async_fn};
///
/// let hook = Hook::validating("open", validate_async_fn(|cx: Cx, review: Review<Pod>| async move {
///     let namespaces = Api::<Namespace>::all(cx.client);
///     // An API server that does not answer is no decision: the failure policy follows.
///     let namespace = namespaces.get(review.namespace.as_deref().unwrap_or_default()).await?;
///     if namespace.labels().contains_key("closed") {
///         return Err(Rejection::forbidden("Closed", "this namespace takes no pods"));
///     }
///     Ok(Notes::none())
/// }));
/// ```
pub fn validate_async_fn<K, F, Decision>(function: F) -> FromAsyncFn<K, F>
where
    K: Reviewed,
    F: Fn(Cx, Review<K>) -> Decision + Send + Sync + 'static,
    Decision: Future<Output = Result<Notes, Rejection>> + Send,
{
    FromAsyncFn(FromFn::new(function))
}

impl<K, F, Decision> Validate for FromAsyncFn<K, F>
where
    K: Reviewed,
    F: Fn(Cx, Review<K>) -> Decision + Send + Sync + 'static,
    Decision: Future<Output = Result<Notes, Rejection>> + Send,
{
    type Object = K;

    fn validate(
        &self,
        cx: &Cx,
        review: &Review<K>,
    ) -> impl Future<Output = Result<Notes, Rejection>> + Send {
        (self.0.function)(cx.clone(), review.clone())
    }
}

/// Creates a watcher from a function.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::ResourceExt;
/// use oz_admission::{Cx, Replay, WatchEvent, Watcher, watch_fn};
///
/// let watcher = Watcher::new("pods", Replay::FromNow, watch_fn(|_: Cx, event: WatchEvent<Pod>| async move {
///     tracing::info!(pod = event.object().name_any(), "something happened");
/// }));
/// ```
pub fn watch_fn<K, F, Handled>(function: F) -> FromAsyncFn<K, F>
where
    K: Watched,
    F: Fn(Cx, WatchEvent<K>) -> Handled + Send + Sync + 'static,
    Handled: Future<Output = ()> + Send,
{
    FromAsyncFn(FromFn::new(function))
}

impl<K, F, Handled> Watch for FromAsyncFn<K, F>
where
    K: Watched,
    F: Fn(Cx, WatchEvent<K>) -> Handled + Send + Sync + 'static,
    Handled: Future<Output = ()> + Send,
{
    type Object = K;

    fn on_event(&self, cx: &Cx, event: WatchEvent<K>) -> impl Future<Output = ()> + Send {
        (self.0.function)(cx.clone(), event)
    }
}

/// A validating handler with one function for each operation, as in controller-runtime. A function that is
/// not implemented allows the request. [`each_operation`] converts it into a [`Validate`].
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use oz_admission::{Cx, Hook, Notes, Operation, Rejection, Review, ValidateEach, each_operation};
///
/// /// What a ConfigMap has once, it keeps.
/// struct Grows;
///
/// impl ValidateEach for Grows {
///     type Object = ConfigMap;
///
///     async fn update(
///         &self,
///         _: &Cx,
///         _: &Review<ConfigMap>,
///         old: &ConfigMap,
///         new: &ConfigMap,
///     ) -> Result<Notes, Rejection> {
///         let new = new.data.clone().unwrap_or_default();
///         match old.data.iter().flatten().find(|(key, _)| !new.contains_key(*key)) {
///             Some((key, _)) => Err(Rejection::invalid("Lost", "this key stays")
///                 .cause(format!("data.{key}"), "FieldValueRequired", "it may not be removed")),
///             None => Ok(Notes::none()),
///         }
///     }
/// }
///
/// let hook = Hook::validating("grows", each_operation(Grows)).on([Operation::Update]);
/// ```
pub trait ValidateEach: Send + Sync + 'static {
    /// The reviewed object, as in [`Validate::Object`].
    type Object: Reviewed;

    /// Reviews a new object, or the options of a connection.
    ///
    /// # Errors
    /// A [`Rejection`] denies the request.
    fn create(
        &self,
        _: &Cx,
        _: &Review<Self::Object>,
        _: &Self::Object,
    ) -> impl Future<Output = Result<Notes, Rejection>> + Send {
        std::future::ready(Ok(Notes::none()))
    }

    /// Reviews a change from `old` to `new`.
    ///
    /// # Errors
    /// A [`Rejection`] denies the request.
    fn update(
        &self,
        _: &Cx,
        _: &Review<Self::Object>,
        _old: &Self::Object,
        _new: &Self::Object,
    ) -> impl Future<Output = Result<Notes, Rejection>> + Send {
        std::future::ready(Ok(Notes::none()))
    }

    /// Reviews the removal of `old`.
    ///
    /// # Errors
    /// A [`Rejection`] denies the request.
    fn delete(
        &self,
        _: &Cx,
        _: &Review<Self::Object>,
        _old: &Self::Object,
    ) -> impl Future<Output = Result<Notes, Rejection>> + Send {
        std::future::ready(Ok(Notes::none()))
    }
}

/// A handler with one function for each operation: see [`each_operation`].
#[derive(Clone, Debug)]
pub struct EachOperation<V>(V);

/// Converts a handler with one function for each operation into a [`Validate`].
pub fn each_operation<V: ValidateEach>(handler: V) -> EachOperation<V> {
    EachOperation(handler)
}

impl<V: ValidateEach> Validate for EachOperation<V> {
    type Object = V::Object;

    async fn validate(&self, cx: &Cx, review: &Review<V::Object>) -> Result<Notes, Rejection> {
        let (old, new) = (review.old.as_ref(), review.object.as_ref());
        match (review.operation, old, new) {
            (Operation::Create | Operation::Connect, _, Some(new)) => {
                self.0.create(cx, review, new).await
            }
            (Operation::Update, Some(old), Some(new)) => self.0.update(cx, review, old, new).await,
            (Operation::Delete, Some(old), _) => self.0.delete(cx, review, old).await,
            _ => Err(Rejection::bad_request(
                "NoObject",
                format!("a {} request without its objects", review.operation),
            )),
        }
    }
}
