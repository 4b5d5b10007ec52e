//! The content of a store as plain data: objects by name and UID, merged from two sources that
//! report the same changes at different times, the watch and the responses to the writes of this
//! process. The module is pure, so that every order of arrival is a table test.

mod identity;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::compact::{Compact, Compactor};
use crate::keep::Keep;
pub(crate) use identity::path;
use identity::{Identity, Path, Uid, path_of, uid, version};

/// The maximum number of decoded objects in a compact store: those that changed or were read last.
const OPEN: usize = 128;

/// The time for which a deletion is remembered, so that the response to a write in progress does
/// not restore the object. Longer than the timeout of any request.
const REMEMBER_GONE: Duration = Duration::from_secs(60);

/// A change of a store.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// The object is new or newer.
    Applied(Arc<K>),
    /// The object is deleted; this is its last known version.
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    /// Returns the object that changed.
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
    /// The path of the object with a UID.
    paths: HashMap<Uid, Path>,
    groups: Option<Groups<K>>,
    /// Returns the part of an object to store.
    lean: Option<fn(K) -> K>,
    marks_of: Option<fn(&K) -> Vec<u64>>,
    until_of: Option<fn(&K) -> Option<Timestamp>>,
    compactor: Option<Compactor<K>>,
    /// The decoded objects, with one entry for each time that an object was decoded; the first is
    /// compacted first.
    open: VecDeque<Path>,
    gone: HashSet<String>,
    gone_since: VecDeque<(Instant, String)>,
    /// The UIDs of objects with a newest version that does not decode, with namespace and path.
    undecodable: HashMap<String, (Source, Path)>,
    /// The objects of each watch that lack a name or a UID since its last list, with the path of those with a name.
    unidentified: HashSet<(Source, Option<Path>)>,
    lists: HashMap<Source, List>,
    writes: u64,
}

/// The scope of one watch: a namespace, or `None` for everything.
pub(crate) type Source = Option<String>;

#[derive(Debug)]
struct Entry<K> {
    uid: Uid,
    held: CachedObject<K>,
    version: u64,
    /// The number of the write of this process that returned this version, until the watch shows it
    /// too.
    unconfirmed: Option<u64>,
    /// The result of [`Keep::marks_of`] for the object.
    marks: Box<[u64]>,
    /// The result of [`Keep::until_of`] for the object.
    until: Option<Timestamp>,
}

/// An object of a store, which is decoded only on request.
#[derive(Debug)]
pub struct Closed<'a, K> {
    entry: &'a Entry<K>,
    compactor: Option<&'a Compactor<K>>,
}

impl<K> Closed<'_, K> {
    /// Returns the UID of the object.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.entry.uid
    }

    /// Returns the expiry of the object, from [`Keep::until_of`].
    #[must_use]
    pub fn until(&self) -> Option<Timestamp> {
        self.entry.until
    }

    /// Checks whether the object has a mark, see [`Keep::marks_of`].
    #[must_use]
    pub fn is_marked(&self, mark: u64) -> bool {
        self.entry.marks.contains(&mark)
    }

    /// Returns the object; `None` if its text does not decode as its kind.
    #[must_use]
    pub fn open(&self) -> Option<Arc<K>> {
        self.entry.held.open(self.compactor)
    }
}

/// An object as stored: at least one of the fields is set.
#[derive(Debug)]
struct CachedObject<K> {
    open: Option<Arc<K>>,
    compact: Option<Arc<Compact>>,
}

impl<K> CachedObject<K> {
    fn open(&self, compactor: Option<&Compactor<K>>) -> Option<Arc<K>> {
        if let Some(object) = &self.open {
            return Some(Arc::clone(object));
        }
        compactor?.open(self.compact.as_deref()?).map(Arc::new)
    }
}

/// A list in progress: its objects so far, and the number of the last own write before it.
#[derive(Debug, Default)]
struct List {
    seen: HashSet<Path>,
    writes_before: u64,
}

/// A secondary index: objects by the result of a function.
#[derive(Debug)]
struct Groups<K> {
    group_of: fn(&K) -> Option<&str>,
    members: HashMap<String, Vec<Path>>,
}

impl<K: Resource> Cache<K> {
    pub(crate) fn new(keep: &Keep<K>) -> Self {
        Self {
            entries: HashMap::new(),
            paths: HashMap::new(),
            groups: keep.group_of.map(|group_of| Groups {
                group_of,
                members: HashMap::new(),
            }),
            lean: keep.lean,
            marks_of: keep.marks_of,
            until_of: keep.until_of,
            compactor: keep.compact.map(Compactor::new),
            open: VecDeque::new(),
            gone: HashSet::new(),
            gone_since: VecDeque::new(),
            undecodable: HashMap::new(),
            unidentified: HashSet::new(),
            lists: HashMap::new(),
            writes: 0,
        }
    }

    pub(crate) fn get(&self, path: &str) -> Option<Arc<K>> {
        self.opened(self.entries.get(path)?)
    }

    /// Returns the object with this UID, and its path if it should stay decoded, see
    /// [`Cache::stays_open`].
    pub(crate) fn by_uid(&self, uid: &str) -> Option<(Arc<K>, Option<Path>)> {
        let path = self.paths.get(uid)?;
        let entry = self.entries.get(path)?;
        let closed = entry.held.open.is_none();
        let object = self.opened(entry)?;
        Some((object, closed.then(|| Arc::clone(path))))
    }

    /// Stores the decoded form of a compact object, unless the object has changed.
    pub(crate) fn stays_open(&mut self, path: Path, object: &Arc<K>) {
        if let Some(entry) = self.entries.get_mut(&path)
            && entry.held.open.is_none()
            && entry.version == version(object.meta())
            && uid(object.meta()) == Some(&*entry.uid)
        {
            entry.held.open = Some(Arc::clone(object));
            self.is_open(path);
        }
    }

    fn opened(&self, entry: &Entry<K>) -> Option<Arc<K>> {
        entry.held.open(self.compactor.as_ref())
    }

    pub(crate) fn group(&self, name: &str) -> impl Iterator<Item = Arc<K>> {
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

    pub(crate) fn objects(&self) -> impl Iterator<Item = Arc<K>> {
        self.entries.values().filter_map(|entry| self.opened(entry))
    }

    pub(crate) fn closed(&self) -> impl Iterator<Item = Closed<'_, K>> {
        let compactor = self.compactor.as_ref();
        let entries = self.entries.values();
        entries.map(move |entry| Closed { entry, compactor })
    }

    /// Returns the objects with a mark, or those without it. Returns all objects if the store has
    /// no marks.
    pub(crate) fn marked(&self, mark: u64, has: bool) -> impl Iterator<Item = Arc<K>> {
        let unknown = self.marks_of.is_none();
        self.entries
            .values()
            .filter(move |entry| unknown || entry.marks.contains(&mark) == has)
            .filter_map(|entry| self.opened(entry))
    }

    /// Checks whether the object with this UID has a mark.
    pub(crate) fn is_marked(&self, uid: &str, mark: u64) -> Option<bool> {
        self.marks_of?;
        let entry = self.entries.get(self.paths.get(uid)?)?;
        Some(entry.marks.contains(&mark))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_undecodable(&self, uid: &str) -> bool {
        self.undecodable.contains_key(uid)
    }

    pub(crate) fn undecodable(&self) -> usize {
        self.undecodable.len() + self.unidentified.len()
    }

    /// Applies an object that the watch shows, during a list or after it.
    pub(crate) fn seen(&mut self, source: &Source, object: K) -> Vec<Change<K>> {
        let metadata = object.meta();
        let (Some(uid), Some(path)) = (uid(metadata), path_of(metadata)) else {
            return self.seen_unidentified(source, metadata).1;
        };
        if let Some(list) = self.lists.get_mut(source) {
            list.seen.insert(Arc::clone(&path));
        }
        if !self.unidentified.is_empty() {
            let is_this = |known: &Option<Path>| known.as_ref() == Some(&path);
            self.unidentified.retain(|(_, known)| !is_this(known));
        }
        if !self.undecodable.is_empty() {
            self.undecodable.remove(uid);
        }
        if self.gone.contains(uid) {
            return Vec::new();
        }
        let seen = version(metadata);
        if let Some(entry) = self.entries.get_mut(&path)
            && seen != 0
            && entry.version >= seen
        {
            // The object is an echo of an own write, or older than that.
            if entry.version == seen {
                entry.unconfirmed = None;
            }
            return Vec::new();
        }
        let uid = uid.into();
        self.put(Identity { uid, path }, object, None)
    }

    /// Applies an object of the watch that does not decode. The object counts as deleted, so that
    /// dependent access ends, or as `stand_in`, if there is one. Returns whether that is new.
    pub(crate) fn seen_undecodable(
        &mut self,
        source: &Source,
        metadata: &ObjectMeta,
        stand_in: Option<K>,
    ) -> (bool, Vec<Change<K>>) {
        let Some(identity) = Identity::from_metadata(metadata) else {
            return self.seen_unidentified(source, metadata);
        };
        let Identity { uid, path } = &identity;
        if let Some(list) = self.lists.get_mut(source) {
            list.seen.insert(Arc::clone(path));
        }
        if self.is_older(path, metadata) || self.gone.contains(&**uid) {
            return (false, Vec::new());
        }
        let place = (metadata.namespace.clone(), Arc::clone(path));
        let new = self.undecodable.insert((**uid).to_owned(), place).is_none();
        let changes = match stand_in {
            Some(object) => self.put(identity, object, None),
            None => self.leave(uid).into_iter().collect(),
        };
        (new, changes)
    }

    /// Applies an object of the watch that lacks a name or a UID, which no API server stores. It is not stored, and the
    /// object that has its name counts as deleted. Returns whether that is new.
    fn seen_unidentified(
        &mut self,
        source: &Source,
        metadata: &ObjectMeta,
    ) -> (bool, Vec<Change<K>>) {
        let path = path_of(metadata);
        if let (Some(path), Some(list)) = (&path, self.lists.get_mut(source)) {
            list.seen.insert(Arc::clone(path));
        }
        let older = |path: &Path| self.is_older(path, metadata);
        if path.as_ref().is_some_and(older) {
            return (false, Vec::new());
        }
        let known = path.as_ref().and_then(|path| self.entries.get(path));
        let known = known.map(|entry| Arc::clone(&entry.uid));
        let new = self.unidentified.insert((source.clone(), path));
        let change = known.and_then(|uid| self.leave(&uid));
        (new, change.into_iter().collect())
    }

    /// Checks whether a version of an object is older than the stored one.
    fn is_older(&self, path: &Path, metadata: &ObjectMeta) -> bool {
        let seen = version(metadata);
        let known = self.entries.get(path);
        known.is_some_and(|entry| seen != 0 && entry.version > seen)
    }

    /// Applies a deletion that the watch shows.
    pub(crate) fn deleted(&mut self, metadata: &ObjectMeta, now: Instant) -> Option<Change<K>> {
        // Without a UID the deleted object is not identified; the next list shows its absence.
        self.gone(metadata.uid.as_deref()?, now)
    }

    /// Starts a new list.
    pub(crate) fn list_begins(&mut self, source: &Source) {
        let list = List {
            seen: HashSet::new(),
            writes_before: self.writes,
        };
        self.lists.insert(source.clone(), list);
        // The list shows those that still exist.
        self.unidentified.retain(|(of, _)| of != source);
    }

    /// Completes a list: objects that are not in it are deleted, unless this process wrote them
    /// after the list began.
    pub(crate) fn list_ends(&mut self, source: &Source, now: Instant) -> Vec<Change<K>> {
        let Some(list) = self.lists.remove(source) else {
            return Vec::new();
        };
        let missing: Vec<Uid> = self
            .entries
            .iter()
            .filter(|(path, entry)| {
                in_scope(path, source)
                    && !list.seen.contains(*path)
                    && entry
                        .unconfirmed
                        .is_none_or(|write| write <= list.writes_before)
            })
            .map(|(_, entry)| Arc::clone(&entry.uid))
            .collect();
        self.undecodable.retain(|_, (namespace, path)| {
            (source.is_some() && namespace != source) || list.seen.contains(path)
        });
        missing
            .iter()
            .filter_map(|uid| self.gone(uid, now))
            .collect()
    }

    /// Applies the API server's response to a write of this process.
    pub(crate) fn wrote(&mut self, object: K) -> Vec<Change<K>> {
        let Some(identity) = Identity::from_metadata(object.meta()) else {
            return Vec::new();
        };
        let written = version(object.meta());
        let known = self.entries.get(&identity.path);
        if self.gone.contains(&*identity.uid)
            || known.is_some_and(|entry| written != 0 && entry.version >= written)
        {
            return Vec::new();
        }
        self.writes += 1;
        self.undecodable.remove(&*identity.uid);
        self.put(identity, object, Some(self.writes))
    }

    /// Applies the deletion of an object, from the API server's response to a deletion by this
    /// process or from the watch.
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
        let object = self.opened(&entry)?;
        self.leave_group(&object, &path);
        Some(Change::Deleted(object))
    }

    fn put(
        &mut self,
        Identity { uid, path }: Identity,
        object: K,
        unconfirmed: Option<u64>,
    ) -> Vec<Change<K>> {
        let mut changes = Vec::with_capacity(1);
        let object = Arc::new(match self.lean {
            Some(lean) => lean(object),
            None => object,
        });
        let marks = self.marks_of.map(|marks_of| marks_of(&object));
        let until = self.until_of.and_then(|until_of| until_of(&object));
        let entry = Entry {
            uid: Arc::clone(&uid),
            version: version(object.meta()),
            held: CachedObject {
                open: Some(Arc::clone(&object)),
                compact: None,
            },
            unconfirmed,
            marks: marks.map_or_else(Box::default, Into::into),
            until,
        };
        let before = self.entries.insert(Arc::clone(&path), entry);
        let mut enters = true;
        let before_opened = |entry: &Entry<K>| Some((Arc::clone(&entry.uid), self.opened(entry)?));
        if let Some((before_uid, before)) = before.as_ref().and_then(before_opened) {
            let moved = self
                .groups
                .as_ref()
                .is_some_and(|groups| (groups.group_of)(&before) != (groups.group_of)(&object));
            // A group may be large; most changes do not move an object to another group.
            enters = moved;
            if moved {
                self.leave_group(&before, &path);
            }
            if before_uid != uid {
                self.paths.remove(&before_uid);
                changes.push(Change::Deleted(before));
            } else if moved {
                // The object is deleted from the view of its former group.
                changes.push(Change::Deleted(before));
            }
        }
        if enters
            && let Some(groups) = &mut self.groups
            && let Some(group) = (groups.group_of)(&object)
        {
            // Most groups have one member.
            let members = groups.members.entry(group.to_owned());
            members
                .or_insert_with(|| Vec::with_capacity(1))
                .push(Arc::clone(&path));
        }
        self.paths.insert(uid, Arc::clone(&path));
        self.is_open(path);
        changes.push(Change::Applied(object));
        changes
    }

    /// Records that the object of this path is decoded; compacts others for it.
    fn is_open(&mut self, path: Path) {
        let Some(compactor) = &mut self.compactor else {
            return;
        };
        self.open.push_back(path);
        while self.open.len() > OPEN
            && let Some(first) = self.open.pop_front()
        {
            let Some(Entry { held, .. }) = self.entries.get_mut(&first) else {
                continue;
            };
            if held.compact.is_none()
                && let Some(object) = &held.open
            {
                held.compact = compactor.compact(object).map(Arc::new);
            }
            if held.compact.is_some() {
                held.open = None;
            }
        }
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

fn in_scope(path: &str, source: &Source) -> bool {
    let namespace = path.split_once('/').map(|(namespace, _)| namespace);
    source.is_none() || namespace == source.as_deref()
}

#[cfg(test)]
mod tests;
