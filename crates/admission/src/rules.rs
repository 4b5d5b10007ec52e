//! For which resources a hook is called: rules, and rules that change while the process runs.
//!
//! What is followed may come from objects of others. A rule that no API server takes is left out, so that
//! it does not keep all the others from being registered, and so is what is beyond [`MAX_RULES`].

use std::{fmt, sync::Arc};

use futures::{Stream, future::BoxFuture};
use kube::{Resource, core::ApiResource};
use parking_lot::Mutex;
use tokio::sync::watch as channel;

use crate::review::Operation;

/// How many rules of a hook may change: with more, a configuration grows beyond what etcd stores.
pub(crate) const MAX_RULES: usize = 1000;

/// Whether a rule is for namespaced resources, for cluster-wide ones, or for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceScope {
    /// Both.
    #[default]
    Any,
    /// Only resources in namespaces.
    Namespaced,
    /// Only resources of the whole cluster.
    Cluster,
}

/// Which resource a hook is called for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceRule {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) subresources: Vec<String>,
    pub(crate) scope: ResourceScope,
    pub(crate) operations: Option<Vec<Operation>>,
}

impl ResourceRule {
    /// The resource `plural` of `group` (`""` is the core group) in `version`.
    ///
    /// Objects stored through another version of the same resource are converted to this
    /// one before they reach the hook.
    pub fn new(group: &str, version: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            subresources: Vec::new(),
            scope: ResourceScope::Any,
            operations: None,
        }
    }

    /// The resource of a type that knows its own.
    pub fn of<K: Resource<DynamicType: Default>>() -> Self {
        let it = K::DynamicType::default();
        Self::new(&K::group(&it), &K::version(&it), &K::plural(&it))
    }

    /// The resource found by discovery, or put together by hand.
    pub fn of_api(resource: &ApiResource) -> Self {
        Self::new(&resource.group, &resource.version, &resource.plural)
    }

    /// Asks for a subresource *instead of* the resource itself; call again for further ones.
    #[must_use]
    pub fn subresource(mut self, name: &str) -> Self {
        self.subresources.push(name.to_owned());
        self
    }

    /// Restricts the rule to namespaced or to cluster-wide resources.
    #[must_use]
    pub fn scope(mut self, scope: ResourceScope) -> Self {
        self.scope = scope;
        self
    }

    /// Operations for this rule alone, in place of the hook's.
    #[must_use]
    pub fn on(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.operations = Some(operations.into_iter().collect());
        self
    }
}

type Current = dyn Fn() -> Option<Vec<ResourceRule>> + Send + Sync;
type Ready = dyn Fn() -> BoxFuture<'static, ()> + Send + Sync;

/// Rules of a hook that change while the process runs, for [`Hook::rules_from`]. Clones share them.
///
/// Nothing is known of new ones before the first [`set`](Self::set); those of a
/// [`Cache`](crate::Cache::rules) are known once it is complete. A rule that no API server would take, such
/// as one without a plural, is left out, with a warning in the log. At most 1000 are followed: where there
/// are more, what is registered stays as it is, and readiness says so.
#[derive(Clone)]
pub struct Rules {
    current: Arc<Current>,
    set: Arc<Mutex<Option<Vec<ResourceRule>>>>,
    changed: Arc<channel::Sender<()>>,
    /// Where they come from, if they are not set.
    source: Option<Source>,
}

/// What tells of changes, kept as long as somebody follows them.
#[derive(Clone)]
pub(crate) struct Source {
    /// Waits until something is known.
    pub(crate) ready: Arc<Ready>,
    pub(crate) _subscription: Arc<dyn Send + Sync>,
}

impl Default for Rules {
    fn default() -> Self {
        let set = Arc::new(Mutex::new(None));
        let read = Arc::clone(&set);
        Self {
            current: Arc::new(move || read.lock().clone()),
            set,
            changed: Arc::default(),
            source: None,
        }
    }
}

impl Rules {
    /// Those that `current` tells, which is asked again whenever `changed` is sent.
    pub(crate) fn of(
        current: impl Fn() -> Option<Vec<ResourceRule>> + Send + Sync + 'static,
        changed: Arc<channel::Sender<()>>,
        source: Source,
    ) -> Self {
        Self {
            current: Arc::new(current),
            set: Arc::default(),
            changed,
            source: Some(source),
        }
    }

    /// These from now on, in place of all before; none means that no webhook is registered for them. Those
    /// of a cache follow it whatever is set.
    pub fn set(&self, rules: impl IntoIterator<Item = ResourceRule>) {
        *self.set.lock() = Some(rules.into_iter().collect());
        self.changed.send_replace(());
    }

    /// Yields whenever they have become others; never ends.
    pub(crate) fn changes(&self) -> impl Stream<Item = ()> + Send + use<> {
        let ready = self.source.as_ref().map(|source| (source.ready)());
        let begin = Following {
            changed: self.changed.subscribe(),
            last: self.known(),
            rules: self.clone(),
            ready,
        };
        futures::stream::unfold(begin, async |mut following| {
            following.next().await;
            Some(((), following))
        })
    }

    /// In one order, each once; none as long as nothing is known.
    pub(crate) fn known(&self) -> Option<Vec<ResourceRule>> {
        let mut rules = (self.current)()?;
        rules.sort();
        rules.dedup();
        Some(rules)
    }
}

/// Whoever hears of changes.
struct Following {
    rules: Rules,
    changed: channel::Receiver<()>,
    last: Option<Vec<ResourceRule>>,
    ready: Option<BoxFuture<'static, ()>>,
}

impl Following {
    async fn next(&mut self) {
        loop {
            match &mut self.ready {
                Some(ready) => {
                    ready.await;
                    self.ready = None;
                }
                // The sender is in `rules`.
                None => drop(self.changed.changed().await),
            }
            let now = self.rules.known();
            if now != self.last {
                self.last = now;
                return;
            }
        }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rules").field(&self.known()).finish()
    }
}
