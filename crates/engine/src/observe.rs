//! What a controller wants to see: the kinds to watch, and the reads that its decisions need besides
//! the object and its children. Implemented by the operator, once per controller.

use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;
use kube::api::{GetParams, ListParams};
use kube::core::{ObjectList, Request};
use kube::{Client, Resource};
use oz_core::controller::{Controller, Failure, Live};
use oz_runtime::{Change, Clock, Kind, Store, Subscription};
use serde::de::DeserializeOwned;

use crate::failure::of_call;

/// The edge of one controller: what is watched for it, and what is read for a plan.
pub trait Observe<C: Controller>: Send + Sync + 'static {
    /// What is watched. Asked once, when the controller is started.
    fn watches(&self) -> Watches<C::Object>;

    /// Hears of each child that is created for the object with the UID `owner`, as the API server
    /// answered. Must not block.
    fn created(&self, owner: &str, child: &Live) {
        let _ = (owner, child);
    }

    /// What is known of an object without asking anybody: what stores hold. Must not block.
    fn known(&self, object: &C::Object) -> C::Facts;

    /// Finds out what a decision needs, and adds it to what is known. It cannot fail: what could not be
    /// read is a value inside [`Controller::Facts`], because a decision is needed all the same. Dropped as
    /// soon as time alone decides.
    fn answer(
        &self,
        cx: &Cx,
        object: &C::Object,
        question: C::Question,
        facts: &mut C::Facts,
    ) -> impl Future<Output = ()> + Send;
}

/// What is watched for one controller.
pub struct Watches<O> {
    pub(crate) objects: Store<O>,
    /// What marks the children as made for objects of this kind.
    pub(crate) mark: String,
    pub(crate) children: Vec<ChildKind>,
    pub(crate) related: Vec<Related<O>>,
}

/// A kind of child.
#[derive(Clone, Debug)]
pub(crate) struct ChildKind {
    pub(crate) kind: Kind,
    pub(crate) grace_seconds: Option<u32>,
}

/// Starts calling back with the objects that an event of another kind concerns.
pub(crate) type Related<O> = Box<dyn FnOnce(Callback<O>) -> Box<dyn Ready> + Send>;
pub(crate) type Callback<O> = Arc<dyn Fn(&O) + Send + Sync>;

/// Something whose first list must be complete before a controller starts.
pub(crate) trait Ready: Send + Sync {
    fn ready(&self) -> futures::future::BoxFuture<'_, ()>;
}

/// A store whose changes concern objects of another.
struct Followed<K> {
    store: Store<K>,
    _subscription: Subscription,
}

impl<K: Send + Sync + 'static> Ready for Followed<K> {
    fn ready(&self) -> futures::future::BoxFuture<'_, ()> {
        Box::pin(self.store.ready())
    }
}

impl<O> Watches<O>
where
    O: Send + Sync + 'static,
{
    /// Watches the objects themselves, through a store made by [`oz_runtime::Feeds::store`].
    #[must_use]
    pub fn new(objects: &Store<O>) -> Self {
        Self {
            objects: objects.clone(),
            mark: objects.resource().kind.clone(),
            children: Vec::new(),
            related: Vec::new(),
        }
    }

    /// As what children are marked, see [`oz_core::labels::OWNER_KIND`], if not by the kind of the
    /// objects: kinds of two groups may have one name.
    #[must_use]
    pub fn marked(mut self, mark: &str) -> Self {
        mark.clone_into(&mut self.mark);
        self
    }

    /// Watches the children of kind `K`, selected by [`oz_core::labels::children_of`]. Kinds are
    /// named in the order in which a plan creates them: among children made within the same
    /// second, that is the order in which a plan finds them.
    #[must_use]
    pub fn child<K>(self) -> Self
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        self.child_of(Kind::of::<K>())
    }

    /// As [`Watches::child`], for a kind that is named at run time, see [`Kind::discover`].
    #[must_use]
    pub fn child_of(self, kind: Kind) -> Self {
        self.child_kind(kind, None)
    }

    /// As [`Watches::child`]; deletions give a child this many seconds to end.
    #[must_use]
    pub fn child_with_grace<K>(self, grace_seconds: u32) -> Self
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        self.child_kind(Kind::of::<K>(), Some(grace_seconds))
    }

    fn child_kind(mut self, kind: Kind, grace_seconds: Option<u32>) -> Self {
        self.children.push(ChildKind {
            kind,
            grace_seconds,
        });
        self
    }

    /// Looks at objects again when something of another kind changes that they refer to. `map`
    /// says which; it finds them in the store that it is given.
    #[must_use]
    pub fn related<K, F>(mut self, store: &Store<K>, map: F) -> Self
    where
        K: Send + Sync + 'static,
        F: Fn(&K, &Store<O>) -> Vec<Arc<O>> + Send + Sync + 'static,
    {
        let store = store.clone();
        let objects = self.objects.clone();
        self.related.push(Box::new(move |concerned: Callback<O>| {
            let subscription = store.subscribe(move |change: &Change<K>| {
                for object in map(change.object(), &objects) {
                    concerned(&object);
                }
            });
            Box::new(Followed {
                store,
                _subscription: subscription,
            })
        }));
        self
    }
}

/// What an observation may use.
#[derive(Clone)]
pub struct Cx {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Cx {
    /// What an engine with this client and this clock lets observations use.
    pub fn new(client: Client, clock: impl Clock) -> Self {
        let clock = Arc::new(clock);
        Self { client, clock }
    }

    /// The client, for reads that [`Cx::get`] and [`Cx::list`] do not cover. Each must have its
    /// own time limit.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The present instant.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Reads one object; `None` if there is none of that name.
    ///
    /// # Errors
    ///
    /// A transient failure when the API server cannot be reached or refuses.
    pub async fn get<K>(&self, namespace: Option<&str>, name: &str) -> Result<Option<K>, Failure>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.get_with(namespace, name, &()).await
    }

    /// As [`Cx::get`], for a kind that is named at run time.
    ///
    /// # Errors
    ///
    /// As [`Cx::get`].
    pub async fn get_with<K>(
        &self,
        namespace: Option<&str>,
        name: &str,
        kind: &K::DynamicType,
    ) -> Result<Option<K>, Failure>
    where
        K: Resource + Clone + Debug + DeserializeOwned,
    {
        let what = || {
            let place = namespace.map(|namespace| format!("{namespace}/"));
            format!(
                "failed to read {} {}{name}",
                K::kind(kind),
                place.unwrap_or_default()
            )
        };
        let request = Request::new(K::url_path(kind, namespace)).get(name, &GetParams::default());
        within(
            async {
                match self
                    .client
                    .request(request.map_err(kube::Error::BuildRequest)?)
                    .await
                {
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
                    answer => answer.map(Some),
                }
            },
            what,
        )
        .await
    }

    /// Lists objects.
    ///
    /// # Errors
    ///
    /// As [`Cx::get`].
    pub async fn list<K>(
        &self,
        namespace: Option<&str>,
        selection: &ListParams,
    ) -> Result<Vec<K>, Failure>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let what = || {
            format!(
                "failed to list {} in {}",
                K::plural(&()),
                namespace.unwrap_or("all namespaces")
            )
        };
        let request = Request::new(K::url_path(&(), namespace)).list(selection);
        let list: ObjectList<K> = within(
            async {
                let request = request.map_err(kube::Error::BuildRequest)?;
                self.client.request(request).await
            },
            what,
        )
        .await?;
        Ok(list.items)
    }
}

/// Bounds a call in time and names what failed.
pub(crate) async fn within<T>(
    call: impl Future<Output = kube::Result<T>>,
    what: impl Fn() -> String,
) -> Result<T, Failure> {
    oz_runtime::within(call, what).await.map_err(of_call)
}
