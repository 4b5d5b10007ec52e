//! What a store knows, as plain data: objects by name and UID, merged from two sides that tell of
//! the same changes at different times, the watch and the answers to our own writes. Pure, so
//! that every order of arrival is a table test.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

/// How long a deletion is remembered, so that the answer to a write that was under way does not
/// bring the object back. Longer than any request may take.
const REMEMBER_GONE: Duration = Duration::from_secs(60);

/// One change of what a store holds.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// The object is new or newer.
    Applied(Arc<K>),
    /// The object is gone; this is the last that was known of it.
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    /// The object that changed.
    #[must_use]
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Applied(object) | Self::Deleted(object) => object,
        }
    }
}

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct Cache<K> {
    entries: HashMap<Path, Entry<K>>,
    /// Where the object with a UID is.
    paths: HashMap<String, Path>,
    groups: Option<Groups<K>>,
    /// What is kept of an object.
    lean: Option<fn(K) -> K>,
    gone: HashSet<String>,
    gone_since: VecDeque<(Instant, String)>,
    /// UIDs of objects whose newest version does not decode, with namespace and path.
    undecodable: HashMap<String, (Source, Path)>,
    lists: HashMap<Source, List>,
    writes: u64,
}

/// Namespace and name as one string, shared by the indexes.
type Path = Arc<str>;

/// The scope of one watch: a namespace, or `None` for everything.
pub(crate) type Source = Option<String>;

#[derive(Debug)]
struct Entry<K> {
    object: Arc<K>,
    version: u64,
    /// The number of our write that this is the answer to, until the watch shows it too.
    unconfirmed: Option<u64>,
}

/// A list that is being read: what it held so far, and which of our writes came before it.
#[derive(Debug, Default)]
struct List {
    seen: HashSet<Path>,
    writes_before: u64,
}

/// A secondary index: objects by what a function says of them.
#[derive(Debug)]
struct Groups<K> {
    group_of: fn(&K) -> Option<&str>,
    members: HashMap<String, Vec<Path>>,
}

/// Namespace and name as one string; a slash is in neither.
pub(crate) fn path(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

fn path_of(metadata: &ObjectMeta) -> String {
    path(
        metadata.namespace.as_deref(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

/// Resource versions grow, within one kind: Kubernetes promises that they compare as numbers
/// (since 1.35, KEP-5504; true of every etcd-backed API server before). Zero if this one does not.
fn version(metadata: &ObjectMeta) -> u64 {
    metadata
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

fn uid(metadata: &ObjectMeta) -> &str {
    metadata.uid.as_deref().unwrap_or_default()
}

impl<K: Resource> Cache<K> {
    pub(crate) fn new(group_of: Option<fn(&K) -> Option<&str>>, lean: Option<fn(K) -> K>) -> Self {
        Self {
            entries: HashMap::new(),
            paths: HashMap::new(),
            groups: group_of.map(|group_of| Groups {
                group_of,
                members: HashMap::new(),
            }),
            lean,
            gone: HashSet::new(),
            gone_since: VecDeque::new(),
            undecodable: HashMap::new(),
            lists: HashMap::new(),
            writes: 0,
        }
    }

    pub(crate) fn get(&self, path: &str) -> Option<&Arc<K>> {
        self.entries.get(path).map(|entry| &entry.object)
    }

    pub(crate) fn by_uid(&self, uid: &str) -> Option<&Arc<K>> {
        self.get(self.paths.get(uid)?)
    }

    pub(crate) fn group(&self, name: &str) -> impl Iterator<Item = &Arc<K>> {
        self.groups
            .as_ref()
            .and_then(|groups| groups.members.get(name))
            .into_iter()
            .flatten()
            .filter_map(|path| self.get(path))
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = &String> {
        self.groups.iter().flat_map(|groups| groups.members.keys())
    }

    pub(crate) fn is_gone(&self, uid: &str) -> bool {
        self.gone.contains(uid)
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = &Arc<K>> {
        self.entries.values().map(|entry| &entry.object)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_undecodable(&self, uid: &str) -> bool {
        self.undecodable.contains_key(uid)
    }

    pub(crate) fn undecodable(&self) -> usize {
        self.undecodable.len()
    }

    /// The watch shows an object, during a list or after it.
    pub(crate) fn seen(&mut self, source: &Source, object: K) -> Vec<Change<K>> {
        let path: Path = path_of(object.meta()).into();
        if let Some(list) = self.lists.get_mut(source) {
            list.seen.insert(Arc::clone(&path));
        }
        if !self.undecodable.is_empty() {
            self.undecodable.remove(uid(object.meta()));
        }
        if self.gone.contains(uid(object.meta())) {
            return Vec::new();
        }
        let seen = version(object.meta());
        if let Some(entry) = self.entries.get_mut(&path)
            && seen != 0
            && entry.version >= seen
        {
            // An echo of our own write, or older than that.
            if entry.version == seen {
                entry.unconfirmed = None;
            }
            return Vec::new();
        }
        self.put(path, object, None)
    }

    /// The watch shows an object that does not decode. It counts as gone, so that what hangs on it
    /// ends, or as `stand_in`, if there is one. Says whether that is new.
    pub(crate) fn seen_undecodable(
        &mut self,
        source: &Source,
        metadata: &ObjectMeta,
        stand_in: Option<K>,
    ) -> (bool, Vec<Change<K>>) {
        let path: Path = path_of(metadata).into();
        if let Some(list) = self.lists.get_mut(source) {
            list.seen.insert(Arc::clone(&path));
        }
        let (uid, seen) = (uid(metadata), version(metadata));
        let known = self.entries.get(&path);
        let older = known.is_some_and(|entry| seen != 0 && entry.version > seen);
        if older || self.gone.contains(uid) {
            return (false, Vec::new());
        }
        let place = (metadata.namespace.clone(), Arc::clone(&path));
        let new = self.undecodable.insert(uid.to_owned(), place).is_none();
        let changes = match stand_in {
            Some(object) => self.put(path, object, None),
            None => self.leave(uid).into_iter().collect(),
        };
        (new, changes)
    }

    /// The watch shows that an object is gone.
    pub(crate) fn deleted(&mut self, metadata: &ObjectMeta, now: Instant) -> Option<Change<K>> {
        // Without a UID nobody knows what is gone: the next list does.
        self.gone(metadata.uid.as_deref()?, now)
    }

    /// A new list begins.
    pub(crate) fn list_begins(&mut self, source: &Source) {
        let list = List {
            seen: HashSet::new(),
            writes_before: self.writes,
        };
        self.lists.insert(source.clone(), list);
    }

    /// The list is complete: what it lacks is gone, unless we wrote it after the list began.
    pub(crate) fn list_ends(&mut self, source: &Source, now: Instant) -> Vec<Change<K>> {
        let Some(list) = self.lists.remove(source) else {
            return Vec::new();
        };
        let missing: Vec<String> = self
            .entries
            .iter()
            .filter(|(path, entry)| {
                in_scope(entry.object.meta(), source)
                    && !list.seen.contains(*path)
                    && entry
                        .unconfirmed
                        .is_none_or(|write| write <= list.writes_before)
            })
            .map(|(_, entry)| uid(entry.object.meta()).to_owned())
            .collect();
        self.undecodable.retain(|_, (namespace, path)| {
            (source.is_some() && namespace != source) || list.seen.contains(path)
        });
        missing
            .iter()
            .filter_map(|uid| self.gone(uid, now))
            .collect()
    }

    /// The API server answered one of our writes with this object.
    pub(crate) fn wrote(&mut self, object: K) -> Vec<Change<K>> {
        let path: Path = path_of(object.meta()).into();
        let written = version(object.meta());
        let known = self.entries.get(&path);
        if self.gone.contains(uid(object.meta()))
            || known.is_some_and(|entry| written != 0 && entry.version >= written)
        {
            return Vec::new();
        }
        self.writes += 1;
        self.undecodable.remove(uid(object.meta()));
        self.put(path, object, Some(self.writes))
    }

    /// An object is gone, by the API server's answer to our deletion or by the watch.
    pub(crate) fn gone(&mut self, uid: &str, now: Instant) -> Option<Change<K>> {
        while let Some((since, _)) = self.gone_since.front()
            && now.saturating_duration_since(*since) > REMEMBER_GONE
        {
            if let Some((_, forgotten)) = self.gone_since.pop_front() {
                self.gone.remove(&forgotten);
            }
        }
        if self.gone.insert(uid.to_owned()) {
            self.gone_since.push_back((now, uid.to_owned()));
        }
        self.undecodable.remove(uid);
        self.leave(uid)
    }

    fn leave(&mut self, uid: &str) -> Option<Change<K>> {
        let path = self.paths.remove(uid)?;
        let entry = self.entries.remove(&path)?;
        self.leave_group(&entry.object, &path);
        Some(Change::Deleted(entry.object))
    }

    fn put(&mut self, path: Path, object: K, unconfirmed: Option<u64>) -> Vec<Change<K>> {
        let mut changes = Vec::with_capacity(1);
        let object = Arc::new(match self.lean {
            Some(lean) => lean(object),
            None => object,
        });
        let entry = Entry {
            version: version(object.meta()),
            object: Arc::clone(&object),
            unconfirmed,
        };
        let mut enters = true;
        if let Some(before) = self.entries.insert(Arc::clone(&path), entry) {
            let moved = self.groups.as_ref().is_some_and(|groups| {
                (groups.group_of)(&before.object) != (groups.group_of)(&object)
            });
            // A group may be large; most changes leave an object where it is.
            enters = moved;
            if moved {
                self.leave_group(&before.object, &path);
            }
            if uid(before.object.meta()) != uid(object.meta()) {
                self.paths.remove(uid(before.object.meta()));
                changes.push(Change::Deleted(before.object));
            } else if moved {
                // For the group that it was in, it is gone.
                changes.push(Change::Deleted(before.object));
            }
        }
        if enters
            && let Some(groups) = &mut self.groups
            && let Some(group) = (groups.group_of)(&object)
        {
            groups
                .members
                .entry(group.to_owned())
                .or_default()
                .push(Arc::clone(&path));
        }
        self.paths.insert(uid(object.meta()).to_owned(), path);
        changes.push(Change::Applied(object));
        changes
    }

    fn leave_group(&mut self, object: &K, path: &str) {
        if let Some(groups) = &mut self.groups
            && let Some(group) = (groups.group_of)(object)
            && let Some(members) = groups.members.get_mut(group)
        {
            members.retain(|member| **member != *path);
            if members.is_empty() {
                groups.members.remove(group);
            }
        }
    }
}

fn in_scope(metadata: &ObjectMeta, source: &Source) -> bool {
    source.is_none() || metadata.namespace == *source
}

#[cfg(test)]
mod tests;
