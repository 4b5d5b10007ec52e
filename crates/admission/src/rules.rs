//! The resources for which a hook is called: fixed rules, and rules that change while the process runs.
//!
//! Followed rules may derive from objects of other users. A rule that no API server accepts is left out, so
//! that it does not block the registration of all the others. More than [`MAX_RULES`] rules are not
//! registered.

use std::{fmt, sync::Arc};

use futures::{Stream, future::BoxFuture};
use kube::{Resource, core::ApiResource};
use parking_lot::Mutex;
use tokio::sync::watch as channel;

use crate::review::Operation;

/// The limit of followed rules of a hook: with more, a configuration exceeds the size that etcd stores.
pub(crate) const MAX_RULES: usize = 1000;

/// The scope of a rule: namespaced resources, cluster-wide resources, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceScope {
    /// Both scopes.
    #[default]
    Any,
    /// Only resources in namespaces.
    Namespaced,
    /// Only resources of the whole cluster.
    Cluster,
}

/// A resource for which a hook is called.
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
    /// Creates a rule for the resource `plural` of `group` (`""` is the core group) in `version`.
    ///
    /// The API server converts objects of another version of the same resource to this version before it
    /// calls the hook.
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

    /// Creates a rule for the resource of a type that defines its resource.
    pub fn from_type<K: Resource<DynamicType: Default>>() -> Self {
        let it = K::DynamicType::default();
        Self::new(&K::group(&it), &K::version(&it), &K::plural(&it))
    }

    /// Creates a rule for a resource found by discovery, or built manually.
    pub fn of_api(resource: &ApiResource) -> Self {
        Self::new(&resource.group, &resource.version, &resource.plural)
    }

    /// Selects a subresource *instead of* the resource itself; call again for further subresources.
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

    /// Sets operations for this rule only; they replace those of the hook.
    #[must_use]
    pub fn on(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.operations = Some(operations.into_iter().collect());
        self
    }
}

type Current = dyn Fn() -> Option<Vec<ResourceRule>> + Send + Sync;
type Ready = dyn Fn() -> BoxFuture<'static, ()> + Send + Sync;

/// Rules of a hook that change while the process runs, for [`Hook::rules_from`](crate::Hook::rules_from). Clones share
/// them.
///
/// New rules are unknown before the first [`set`](Self::set); those of a [`Cache`](crate::Cache::rules) are
/// known once the cache is complete. A rule that no API server accepts, such as one without a plural, is
/// left out, with a warning in the log. At most 1000 rules are followed: with more, the registered rules
/// stay unchanged, and readiness reports it.
#[derive(Clone)]
pub struct Rules {
    current: Arc<Current>,
    set: Arc<Mutex<Option<Vec<ResourceRule>>>>,
    changed: Arc<channel::Sender<()>>,
    /// The source of the rules, unless they are set.
    source: Option<Source>,
}

/// The source of changes, which exists as long as a hook follows the rules.
#[derive(Clone)]
pub(crate) struct Source {
    /// Waits until the rules are known.
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
    /// Creates rules that `current` returns; it is called again after each message on `changed`.
    pub(crate) fn from_fn(
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

    /// Replaces all rules; an empty set means that no webhook is registered for them. Rules of a cache
    /// always follow the cache and ignore this function.
    pub fn set(&self, rules: impl IntoIterator<Item = ResourceRule>) {
        *self.set.lock() = Some(rules.into_iter().collect());
        self.changed.send_replace(());
    }

    /// Yields after each change of the rules; the stream never ends.
    pub(crate) fn changes(&self) -> impl Stream<Item = ()> + Send + use<> {
        let ready = self.source.as_ref().map(|source| (source.ready)());
        let begin = Following {
            changed: self.changed.subscribe(),
            last: self.current_rules(),
            rules: self.clone(),
            ready,
        };
        futures::stream::unfold(begin, async |mut following| {
            following.next().await;
            Some(((), following))
        })
    }

    /// Returns the rules sorted, each once; `None` until they are known.
    pub(crate) fn current_rules(&self) -> Option<Vec<ResourceRule>> {
        let mut rules = (self.current)()?;
        rules.sort();
        rules.dedup();
        Some(rules)
    }
}

/// A subscriber to changes of rules.
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
                // The sender is a field of `rules`.
                None => drop(self.changed.changed().await),
            }
            let now = self.rules.current_rules();
            if now != self.last {
                self.last = now;
                return;
            }
        }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rules").field(&self.current_rules()).finish()
    }
}
