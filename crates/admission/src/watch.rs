//! Watchers: extensions that are told what happened, rather than asked whether it may.
//!
//! A watch of the API server breaks, expires and starts over; a watcher notices none of
//! it. What it must not do is die unnoticed, so its end is the end of the process.

use std::{fmt::Debug, future::Future, sync::Arc};

use futures::{FutureExt, Stream, future::BoxFuture};
use kube::{
    Resource,
    core::{ApiResource, NamespaceResourceScope},
};
use oz_runtime::{Ages, Gate, Selection, StoreEvent as Event, guarded_watch};
use serde::de::DeserializeOwned;

use crate::{changes::Changes, metrics::Metrics, review::Cx};

/// Anything that can be watched. Implemented for every type that fits.
pub trait Watched: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}

impl<K> Watched for K where K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}

/// What happened to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent<K> {
    /// It is new; with [`Replay::Existing`] also: it was there when the watcher started.
    Added(K),
    /// It is different from what was last told of it.
    Modified(K),
    /// It is gone. This is its last known state.
    Deleted(K),
}

impl<K> WatchEvent<K> {
    /// The object it happened to.
    pub fn object(&self) -> &K {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => object,
        }
    }
}

/// Whether a watcher is told of what was there before it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replay {
    /// Only of what happens from now on.
    FromNow,
    /// Of every existing object first, as [`WatchEvent::Added`].
    Existing,
    /// Of every existing object that was made or changed after this `resourceVersion`, as
    /// [`WatchEvent::Added`]: for a process that has kept the version of what it was last told of. What was
    /// deleted meanwhile is not told of.
    Since(String),
}

/// An extension that is told what happens to objects.
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
    message = "`{Self}` is no watcher",
    label = "does not implement `Watch`",
    note = "implement `oz_admission::Watch` for it; `watch_fn` makes a watcher of a closure"
)]
pub trait Watch: Send + Sync + 'static {
    /// What is watched.
    type Object: Watched;

    /// Called for one event after the other, each once while the process lives, in the
    /// order of the API server for any one object. The next event waits for this one.
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

/// What a watcher runs with.
pub(crate) struct Environment {
    pub(crate) cx: Box<dyn Fn() -> Cx + Send + Sync>,
    pub(crate) client: kube::Client,
    pub(crate) ages: Ages,
    pub(crate) metrics: Metrics,
    /// Opened when the watch has caught up for the first time.
    pub(crate) caught_up: Gate,
}

/// A watcher's name, what it watches and from when.
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
    /// `name` is for metrics, logs and the readiness gate `watch <name>`.
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

    /// The same in one namespace.
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

    /// Watches a resource found by discovery, or put together by hand.
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

    /// Only objects with these labels, in the form of `kubectl -l`.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        self.scope.selection = self.scope.selection.labels(selector);
        self
    }

    /// Only objects with these fields, in the form of `kubectl --field-selector`.
    #[must_use]
    pub fn fields(mut self, selector: &str) -> Self {
        self.scope.selection = self.scope.selection.fields(selector);
        self
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.scope.name
    }

    /// The group and the plural of what is watched.
    pub(crate) fn resource(&self) -> (&str, &str) {
        (&self.scope.resource.group, &self.scope.resource.plural)
    }

    /// The one namespace in which it is, if it is one.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.scope.namespace.as_deref()
    }

    /// Runs until it dies; it has no other end.
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
        // It starts over by itself, with a list if need be (410 Gone).
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

/// Yields at every sign of life of a watch, whatever it was about; never ends.
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
