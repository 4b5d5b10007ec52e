//! The declaration of caches, and the rights that they require.

use kube::{Resource, core::NamespaceResourceScope};
use oz_runtime::{Keep, Kind, Selection};

use super::ManagerBuilder;
use crate::{
    cache::{Cache, Cached},
    watch::Watched,
};

impl ManagerBuilder {
    /// Creates a cache of the objects of `K` in the whole cluster, which hooks, watchers and tasks can
    /// read; see [`Cache`].
    pub fn cache<K>(&mut self, selection: Selection) -> Cache<K>
    where
        K: Watched + Resource<DynamicType = ()>,
    {
        self.cache_of(&Kind::from_type::<K>(), selection)
    }

    /// Creates a cache of the objects of `K` in one namespace; see [`cache`](Self::cache).
    pub fn cache_in<K>(&mut self, namespace: &str, selection: Selection) -> Cache<K>
    where
        K: Watched + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let kind = Kind::from_type::<K>();
        self.caches.push(Cached::new(&kind, Some(namespace)));
        let feeds = self.runtime.feeds();
        Cache::new(feeds.store_in(&kind, namespace, selection))
    }

    /// Creates a cache of a kind that is named at run time, see [`Kind::discover`], such as a cache of
    /// [`DynamicObject`](kube::core::DynamicObject)s.
    pub fn cache_of<K: Watched>(&mut self, kind: &Kind, selection: Selection) -> Cache<K> {
        self.caches.push(Cached::new(kind, None));
        let feeds = self.runtime.feeds();
        Cache::new(feeds.store_of(kind, selection, &Keep::default()))
    }
}
