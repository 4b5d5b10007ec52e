//! The observations of a controller: the kinds to watch, and the reads that its decisions need in
//! addition to the object and its children. The operator implements this once per controller.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{GetParams, ListParams};
use kube::core::{ObjectList, Request};
use kube::{Client, Resource};
use oz_api::labels;
use oz_core::controller::{Controller, Failure, Key, Live};
use oz_runtime::{Change, Clock, Identity, Kind, Store, Subscription};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use crate::failure::of_call;
use crate::run::{Lane, Packed};
use crate::signal::Signal;

/// The default timeout of an observation as a whole.
const OBSERVE_TIMEOUT: Duration = Duration::from_secs(15);

/// The edge of one controller: its watches, and the reads for a plan.
pub trait Observe<C: Controller>: Send + Sync + 'static {
    /// Returns the watches. Called once, when the controller is started.
    fn watches(&self) -> Watches<C::Object>;

    /// Receives each child that is created for the object with the UID `owner`, as the API server
    /// returned it. Must not block.
    fn created(&self, owner: &str, child: &Live) {
        let _ = (owner, child);
    }

    /// Receives the key of a child that cannot be created for the object with the UID `owner`, because an
    /// object that does not belong to it has this key. Returns whether the controller would make another
    /// plan now. Must not block.
    fn taken(&self, owner: &str, key: &Key) -> bool {
        let _ = (owner, key);
        false
    }

    /// Receives each status that was written, with the one before. Must not block.
    fn reported(&self, now: Timestamp, before: Option<&C::Status>, after: &C::Status) {
        let _ = (now, before, after);
    }

    /// Returns the timeout for all questions of one pass together.
    fn timeout(&self) -> Duration {
        OBSERVE_TIMEOUT
    }

    /// Returns the facts about an object that are available without a request: the content of
    /// stores. Must not block.
    fn facts(&self, object: &C::Object) -> C::Facts;

    /// Reads the data that a decision needs, and adds it to the facts. This cannot fail: a failed read is
    /// a value inside [`Controller::Facts`], because a decision is needed regardless. The future is
    /// dropped as soon as time alone decides.
    fn answer(
        &self,
        cx: &Cx,
        object: &C::Object,
        question: C::Question,
        facts: &mut C::Facts,
    ) -> impl Future<Output = ()> + Send;
}

/// The watches of one controller.
pub struct Watches<O> {
    pub(crate) objects: Store<O>,
    pub(crate) heeded: Option<Heeded<O>>,
    pub(crate) belonging: Belonging,
    pub(crate) identity: Option<Identity>,
    pub(crate) children: Vec<ChildKind>,
    pub(crate) beside: Vec<BesideKind>,
    pub(crate) related: Vec<Related<O>>,
}

/// The part of objects that must change for a pass, as it was last seen.
pub(crate) struct Heeded<O> {
    part: fn(&O) -> String,
    /// The digest of the part by UID.
    seen: Mutex<HashMap<String, String>>,
}

impl<O: Resource> Heeded<O> {
    fn new(part: fn(&O) -> String) -> Self {
        let seen = Mutex::default();
        Self { part, seen }
    }

    /// Checks whether a change counts.
    pub(crate) fn counts(&self, change: &Change<O>) -> bool {
        let object = change.object();
        let Some(uid) = object.meta().uid.as_deref() else {
            return true;
        };
        let mut seen = self.seen.lock();
        match change {
            Change::Deleted(_) => {
                seen.remove(uid);
                true
            }
            Change::Applied(_) => {
                let now = (self.part)(object);
                let is_same = seen.get(uid) == Some(&now);
                seen.insert(uid.to_owned(), now);
                !is_same
            }
        }
    }
}

/// The property that makes an object the child of another.
#[derive(Clone, Debug)]
pub(crate) enum Belonging {
    /// The labels that oz writes, with this value of [`oz_api::labels::OWNER_KIND`].
    Marked(String),
    /// The controller reference, as the garbage collector interprets it. Objects without one may be
    /// adopted.
    Controlled,
}

impl Belonging {
    /// Returns the function that groups stored children: by the UIDs of objects, or
    /// [`Packed::ORPHAN`].
    pub(crate) fn group_of(&self) -> fn(&Packed) -> Option<&str> {
        match self {
            Self::Marked(_) => Packed::owner,
            Self::Controlled => Packed::controller,
        }
    }

    /// Checks whether children of an unknown object are reconciled: oz's labels mark children as
    /// objects of oz, while any controller may control others, which the garbage collector deletes.
    pub(crate) fn is_ours_alone(&self) -> bool {
        matches!(self, Self::Marked(_))
    }

    /// Returns the UID of the object that this one belongs to.
    pub(crate) fn owner<'a>(&self, metadata: &'a ObjectMeta) -> Option<&'a str> {
        match self {
            Self::Marked(_) => labels::owner_uid(metadata),
            Self::Controlled => {
                labels::controller(metadata).map(|controller| controller.uid.as_str())
            }
        }
    }
}

/// A kind of child.
#[derive(Clone, Debug)]
pub(crate) struct ChildKind {
    pub(crate) kind: Kind,
    pub(crate) grace_seconds: Option<u32>,
    /// Removes the parts of a child that no decision reads.
    pub(crate) lean: Option<fn(Packed) -> Packed>,
}

/// A kind of child with a watch for objects that other components created.
#[derive(Clone, Debug)]
pub(crate) struct BesideKind {
    pub(crate) kind: Kind,
    /// The marks of the children of other controllers that are watched anyway.
    pub(crate) marks: Vec<String>,
    /// Returns the part to store of an object without any of these marks.
    pub(crate) lean: fn(Packed) -> Packed,
}

/// Starts calls with the objects that an event of another kind concerns.
pub(crate) type Related<O> = Box<dyn FnOnce(Callback<O>) -> Box<dyn Ready> + Send>;
/// Receives the function that finds these objects, which takes time if there are many: the callback
/// need not call it.
pub(crate) type Callback<O> = Arc<dyn Fn(&dyn Fn() -> Vec<Arc<O>>, Lane) + Send + Sync>;

/// A source that must have a complete first list before a controller starts.
pub(crate) trait Ready: Send + Sync {
    fn ready(&self) -> futures::future::BoxFuture<'_, ()>;
}

/// A store with changes that concern objects of another.
struct Followed<K> {
    store: Store<K>,
    _subscription: Subscription,
}

impl<K: Send + Sync + 'static> Ready for Followed<K> {
    fn ready(&self) -> futures::future::BoxFuture<'_, ()> {
        Box::pin(self.store.ready())
    }
}

/// A source that is always ready.
struct Always;

impl Ready for Always {
    fn ready(&self) -> futures::future::BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl<O> Watches<O>
where
    O: Send + Sync + 'static,
{
    /// Watches the objects themselves, through a store from [`oz_runtime::Feeds::store`].
    #[must_use]
    pub fn new(objects: &Store<O>) -> Self {
        Self {
            objects: objects.clone(),
            heeded: None,
            belonging: Belonging::Marked(objects.resource().kind.clone()),
            identity: None,
            children: Vec::new(),
            beside: Vec::new(),
            related: Vec::new(),
        }
    }

    /// Reconciles an object only when the digest from `part` has changed, and not at each change of the object.
    /// Children, signals, other kinds and time still cause a pass.
    #[must_use]
    pub fn heeding(mut self, part: fn(&O) -> String) -> Self
    where
        O: Resource,
    {
        self.heeded = Some(Heeded::new(part));
        self
    }

    /// Sets the mark of children, see [`oz_api::labels::OWNER_KIND`], if it is not the kind of the
    /// objects: kinds of two groups may have one name.
    #[must_use]
    pub fn marked(mut self, mark: &str) -> Self {
        self.belonging = Belonging::Marked(mark.to_owned());
        self
    }

    /// Identifies children by their controller reference, not by oz's labels. All objects of their
    /// kinds are watched, since those without a controller may be adopted, see [`Controller::selects`].
    #[must_use]
    pub fn controlled(mut self) -> Self {
        self.belonging = Belonging::Controlled;
        self
    }

    /// Watches children with this account; see [`oz_runtime::Feeds::store_as`] for the objects.
    #[must_use]
    pub fn identity(mut self, identity: &Identity) -> Self {
        self.identity = Some(identity.clone());
        self
    }

    /// Watches the children of kind `K`, selected by [`oz_api::labels::children_of`]. Call this in
    /// the order in which a plan creates the kinds: among children that were created within the
    /// same second, a plan finds them in that order.
    #[must_use]
    pub fn child<K>(self) -> Self
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        self.child_of(Kind::from_type::<K>())
    }

    /// Does the same as [`Watches::child`], for a kind that is named at run time, see
    /// [`Kind::discover`].
    #[must_use]
    pub fn child_of(self, kind: Kind) -> Self {
        self.child_kind(kind, None, None)
    }

    /// Does the same as [`Watches::child`], but stores only the part of a child that `lean` returns. Plans are
    /// based on that part.
    #[must_use]
    pub fn child_kept_as<K>(self, lean: fn(Packed) -> Packed) -> Self
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        self.child_kind(Kind::from_type::<K>(), None, Some(lean))
    }

    /// Does the same as [`Watches::child`]; deletions give a child this many seconds to end.
    #[must_use]
    pub fn child_with_grace<K>(self, grace_seconds: u32) -> Self
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        self.child_kind(Kind::from_type::<K>(), Some(grace_seconds), None)
    }

    /// Watches also the objects of kind `K` that this controller did not create: a plan that looks for objects [as
    /// a watch shows them](oz_core::controller::Sought::watched) then needs no list. Other controllers watch the
    /// children with `marks`, as [`Watches::child`] does; of the others, `lean` returns the part to store.
    #[must_use]
    pub fn beside<K>(mut self, marks: &[String], lean: fn(Packed) -> Packed) -> Self
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        self.beside.push(BesideKind {
            kind: Kind::from_type::<K>(),
            marks: marks.to_vec(),
            lean,
        });
        self
    }

    fn child_kind(
        mut self,
        kind: Kind,
        grace_seconds: Option<u32>,
        lean: Option<fn(Packed) -> Packed>,
    ) -> Self {
        self.children.push(ChildKind {
            kind,
            grace_seconds,
            lean,
        });
        self
    }

    /// Reconciles an object when the signal is raised for it.
    #[must_use]
    pub fn signalled(mut self, signal: &Signal) -> Self
    where
        O: Resource + Clone,
    {
        let (signal, objects) = (signal.clone(), self.objects.clone());
        self.related.push(Box::new(move |concerned: Callback<O>| {
            signal.listen(move |uid| {
                let object = || objects.by_uid(uid).into_iter().collect();
                concerned(&object, Lane::Ordinary);
            });
            Box::new(Always)
        }));
        self
    }

    /// Reconciles objects when an object of another kind that they refer to changes. `map` returns
    /// these objects, from the store that it receives.
    #[must_use]
    pub fn related<K, F>(self, store: &Store<K>, map: F) -> Self
    where
        K: Send + Sync + 'static,
        F: Fn(&K, &Store<O>) -> Vec<Arc<O>> + Send + Sync + 'static,
    {
        self.follow(store, Lane::Ordinary, map)
    }

    /// Does the same as [`Watches::related`], for a kind that ends the objects that it concerns: they are reconciled as
    /// if their time were over, before objects that only changed.
    #[must_use]
    pub fn ended_by<K, F>(self, store: &Store<K>, map: F) -> Self
    where
        K: Send + Sync + 'static,
        F: Fn(&K, &Store<O>) -> Vec<Arc<O>> + Send + Sync + 'static,
    {
        self.follow(store, Lane::Urgent, map)
    }

    fn follow<K, F>(mut self, store: &Store<K>, lane: Lane, map: F) -> Self
    where
        K: Send + Sync + 'static,
        F: Fn(&K, &Store<O>) -> Vec<Arc<O>> + Send + Sync + 'static,
    {
        let store = store.clone();
        let objects = self.objects.clone();
        self.related.push(Box::new(move |concerned: Callback<O>| {
            let subscription = store.subscribe(move |change: &Change<K>| {
                concerned(&|| map(change.object(), &objects), lane);
            });
            Box::new(Followed {
                store,
                _subscription: subscription,
            })
        }));
        self
    }
}

/// The client and the clock of an observation.
#[derive(Clone)]
pub struct Cx {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Cx {
    /// Creates the context of observations in an engine with this client and this clock.
    pub fn new(client: Client, clock: impl Clock) -> Self {
        let clock = Arc::new(clock);
        Self { client, clock }
    }

    /// Returns the client, for reads that [`Cx::get`] and [`Cx::list`] do not cover. Each must have
    /// its own timeout.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the same context with another client and its rights.
    #[must_use]
    pub fn by(&self, client: &Client) -> Self {
        Self {
            client: client.clone(),
            clock: Arc::clone(&self.clock),
        }
    }

    /// Returns the present instant.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Reads one object; returns `None` if no object has that name.
    ///
    /// # Errors
    ///
    /// A transient failure when the API server cannot be reached or rejects the request.
    pub async fn get<K>(&self, namespace: Option<&str>, name: &str) -> Result<Option<K>, Failure>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.get_with(namespace, name, &()).await
    }

    /// Does the same as [`Cx::get`], for a kind that is named at run time.
    ///
    /// # Errors
    ///
    /// The same as for [`Cx::get`].
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
            let kind = K::kind(kind);
            match namespace {
                Some(namespace) => format!("failed to read {kind} {namespace}/{name}"),
                None => format!("failed to read {kind} {name}"),
            }
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
    /// The same as for [`Cx::get`].
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

/// Bounds the duration of a call and describes the operation if it fails.
pub(crate) async fn within<T>(
    call: impl Future<Output = kube::Result<T>>,
    what: impl Fn() -> String,
) -> Result<T, Failure> {
    oz_runtime::within(call, what).await.map_err(of_call)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    use super::*;

    #[test]
    fn related_objects_are_searched_only_on_demand() {
        let (objects, needs) = (Store::fixed([Secret::default()]), Store::fixed([]));
        let (looked, found, asks) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let counts = Arc::clone(&looked);
        let watches = Watches::new(&objects).related(&needs, move |_, objects| {
            counts.fetch_add(1, Ordering::SeqCst);
            objects.objects()
        });
        let (asked, finds) = (Arc::clone(&asks), Arc::clone(&found));
        let concerned: Callback<Secret> = Arc::new(move |objects, _| {
            if asked.load(Ordering::SeqCst) {
                finds.fetch_add(objects().len(), Ordering::SeqCst);
            }
        });
        let _followed: Vec<_> = watches
            .related
            .into_iter()
            .map(|relate| relate(Arc::clone(&concerned)))
            .collect();
        for (name, asked) in [("early", false), ("late", true)] {
            asks.store(asked, Ordering::SeqCst);
            let mut need = ConfigMap::default();
            need.metadata.name = Some(name.to_owned());
            needs.wrote(need, None);
        }
        let counted = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        assert_eq!((counted(&looked), counted(&found)), (1, 1));
    }
}
