//! Watchers: extensions that receive events about objects, and do not decide about requests.
//!
//! A watch of the API server breaks, expires and restarts; a watcher receives no events about this. A
//! watcher must not end unnoticed, so the end of a watcher ends the process.

use std::{fmt::Debug, future::Future, sync::Arc};

use futures::{FutureExt, Stream, future::BoxFuture};
use kube::{
    Resource,
    core::{ApiResource, NamespaceResourceScope},
};
use oz_runtime::{Ages, Gate, Selection, StoreEvent as Event, guarded_watch};
use serde::de::DeserializeOwned;

use crate::{changes::Changes, metrics::Metrics, review::Cx};

/// A type that can be watched. The trait is implemented for every suitable type.
pub trait Watched: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}

impl<K> Watched for K where K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}

/// A change of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent<K> {
    /// The object is new; with [`Replay::Existing`] also: it existed when the watcher started.
    Added(K),
    /// The object differs from the last reported state.
    Modified(K),
    /// The object was deleted. This is its last known state.
    Deleted(K),
}

impl<K> WatchEvent<K> {
    /// Returns the changed object.
    pub fn object(&self) -> &K {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => object,
        }
    }
}

/// The events that a watcher receives about objects that existed before it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replay {
    /// No events: only changes from now on are reported.
    FromNow,
    /// An event for every existing object first, as [`WatchEvent::Added`].
    Existing,
    /// An event for every existing object that was created or changed after this `resourceVersion`, as
    /// [`WatchEvent::Added`]: for a process that has stored the version of the last reported event.
    /// Deletions since that version are not reported.
    Since(String),
}

/// An extension that receives the changes of objects.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::ResourceExt;
/// use oz_admission::{Cx, Replay, Watch, WatchEvent, Watcher};
///
/// struct Diary;
///
/// impl Watch for Diary {
///     type Object = Pod;
///
///     async fn on_event(&self, _: &Cx, event: WatchEvent<Pod>) {
///         if let WatchEvent::Deleted(pod) = event {
///             println!("{} is gone", pod.name_any());
///         }
///     }
/// }
///
/// let watcher = Watcher::new("diary", Replay::FromNow, Diary).labels("app=shop");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a watcher",
    label = "does not implement `Watch`",
    note = "implement `oz_admission::Watch` for it; `watch_fn` makes a watcher of a closure"
)]
pub trait Watch: Send + Sync + 'static {
    /// The watched type.
    type Object: Watched;

    /// Handles one event. Each event is delivered once while the process lives, and the events of one
    /// object in the order of the API server. The next event waits until the function returns.
    fn on_event(&self, cx: &Cx, event: WatchEvent<Self::Object>)
    -> impl Future<Output = ()> + Send;
}

impl<W: Watch> Watch for Arc<W> {
    type Object = W::Object;

    fn on_event(
        &self,
        cx: &Cx,
        event: WatchEvent<Self::Object>,
    ) -> impl Future<Output = ()> + Send {
        W::on_event(self, cx, event)
    }
}

/// The environment of a running watcher.
pub(crate) struct Environment {
    pub(crate) cx: Box<dyn Fn() -> Cx + Send + Sync>,
    pub(crate) client: kube::Client,
    pub(crate) ages: Ages,
    pub(crate) metrics: Metrics,
    /// The gate that opens when the watch has caught up for the first time.
    pub(crate) caught_up: Gate,
}

/// The name of a watcher, the watched objects, and the start of the watch.
#[derive(Clone, Debug)]
struct Scope {
    name: Arc<str>,
    resource: ApiResource,
    namespace: Option<String>,
    selection: Selection,
    replay: Replay,
}

type Run = Arc<dyn Fn(Scope, Environment) -> BoxFuture<'static, ()> + Send + Sync>;

/// The declaration of a watcher.
#[derive(Clone)]
pub struct Watcher {
    scope: Scope,
    run: Run,
}

impl Watcher {
    /// Watches the objects of the handler's type in the whole cluster.
    ///
    /// `name` is used for metrics, logs and the readiness gate `watch <name>`.
    pub fn new<W>(name: &str, replay: Replay, handler: W) -> Self
    where
        W: Watch<Object: Resource<DynamicType: Default + Clone>>,
    {
        let resource = ApiResource::erase::<W::Object>(&Default::default());
        Self::with(name, replay, handler, resource, None)
    }

    /// Watches the objects of the handler's type in one namespace.
    pub fn in_namespace<W>(name: &str, namespace: &str, replay: Replay, handler: W) -> Self
    where
        W: Watch<Object: Resource<DynamicType: Default + Clone, Scope = NamespaceResourceScope>>,
    {
        let resource = ApiResource::erase::<W::Object>(&Default::default());
        Self::with(name, replay, handler, resource, Some(namespace))
    }

    /// Watches a resource found by discovery, or built manually, in one namespace.
    pub fn of_api_in_namespace<W>(
        name: &str,
        resource: &ApiResource,
        namespace: &str,
        replay: Replay,
        handler: W,
    ) -> Self
    where
        W: Watch<Object: Resource<DynamicType = ApiResource>>,
    {
        Self::with(name, replay, handler, resource.clone(), Some(namespace))
    }

    /// Watches a resource found by discovery, or built manually, in the whole cluster.
    pub fn of_api<W>(name: &str, resource: &ApiResource, replay: Replay, handler: W) -> Self
    where
        W: Watch<Object: Resource<DynamicType = ApiResource>>,
    {
        Self::with(name, replay, handler, resource.clone(), None)
    }

    fn with<W: Watch>(
        name: &str,
        replay: Replay,
        handler: W,
        resource: ApiResource,
        namespace: Option<&str>,
    ) -> Self {
        let handler = Arc::new(handler);
        let run: Run = Arc::new(move |scope, environment| {
            supervise(scope, environment, handler.clone()).boxed()
        });
        Self {
            scope: Scope {
                name: name.into(),
                resource,
                namespace: namespace.map(str::to_owned),
                selection: Selection::default(),
                replay,
            },
            run,
        }
    }

    /// Restricts the watcher to objects with these labels, in the form of `kubectl -l`.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        self.scope.selection = self.scope.selection.labels(selector);
        self
    }

    /// Restricts the watcher to objects with these fields, in the form of `kubectl --field-selector`.
    #[must_use]
    pub fn fields(mut self, selector: &str) -> Self {
        self.scope.selection = self.scope.selection.fields(selector);
        self
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.scope.name
    }

    /// Returns the group and the plural of the watched resource.
    pub(crate) fn resource(&self) -> (&str, &str) {
        (&self.scope.resource.group, &self.scope.resource.plural)
    }

    /// Returns the watched namespace, if the watcher is restricted to one.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.scope.namespace.as_deref()
    }

    /// Runs the watcher until it dies; the future has no other end.
    pub(crate) fn run(&self, environment: Environment) -> BoxFuture<'static, ()> {
        (self.run)(self.scope.clone(), environment)
    }
}

impl Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

async fn supervise<W: Watch>(scope: Scope, environment: Environment, handler: Arc<W>) {
    let Environment {
        cx,
        client,
        ages,
        metrics,
        caught_up,
    } = environment;
    let (mut watch, health) = guarded_watch::<W::Object>(
        &client,
        &scope.resource,
        scope.namespace.as_deref(),
        scope.selection,
    );
    ages.add(&health);
    let mut changes = Changes::new(scope.replay);
    loop {
        // The watch restarts automatically, with a list if necessary (410 Gone).
        let event = watch
            .next(|error| {
                metrics.watch_error(&scope.name);
                tracing::warn!(watcher = %scope.name, %error, "a watch broke; starting over");
            })
            .await;
        let done = matches!(event, Event::InitDone);
        for change in changes.absorb(event) {
            metrics.watch_event(&scope.name);
            handler.on_event(&cx(), change).await;
        }
        if done {
            caught_up.open();
        }
    }
}

/// Yields after every event of a watch, regardless of its content; the stream never ends.
pub(crate) fn touched<K>(
    client: &kube::Client,
    namespace: Option<&str>,
    selection: Selection,
) -> impl Stream<Item = ()> + Send + use<K>
where
    K: Resource<DynamicType: Default> + DeserializeOwned + Send + 'static,
{
    let resource = ApiResource::erase::<K>(&Default::default());
    let (watch, _) = guarded_watch::<K>(client, &resource, namespace, selection);
    futures::stream::unfold(watch, async |mut watch| {
        while let Event::Init | Event::InitApply(_) = watch.next(|_| {}).await {}
        Some(((), watch))
    })
}
