//! Declaring caches, and the rights that they need.

use kube::{Resource, core::NamespaceResourceScope};
use oz_runtime::{Keep, Kind, Selection};

use super::ManagerBuilder;
use crate::{
    cache::{Cache, Cached},
    watch::Watched,
};

impl ManagerBuilder {
    /// A cache of the objects of `K` in the whole cluster, for hooks, watchers and tasks to read; see [`Cache`].
    pub fn cache<K>(&mut self, selection: Selection) -> Cache<K>
    where
        K: Watched + Resource<DynamicType = ()>,
    {
        self.cache_of(&Kind::of::<K>(), selection)
    }

    /// The same in one namespace.
    pub fn cache_in<K>(&mut self, namespace: &str, selection: Selection) -> Cache<K>
    where
        K: Watched + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let kind = Kind::of::<K>();
        self.caches.push(Cached::new(&kind, Some(namespace)));
        let feeds = self.runtime.feeds();
        Cache::new(feeds.store_in(&kind, namespace, selection))
    }

    /// A cache of a kind that is named at run time, see [`Kind::discover`], such as of
    /// [`DynamicObject`](kube::core::DynamicObject)s.
    pub fn cache_of<K: Watched>(&mut self, kind: &Kind, selection: Selection) -> Cache<K> {
        self.caches.push(Cached::new(kind, None));
        let feeds = self.runtime.feeds();
        Cache::new(feeds.store_of(kind, selection, &Keep::default()))
    }
}
