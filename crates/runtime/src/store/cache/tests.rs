//! Every order in which a watch and the writes of this process can report a change.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::keep::{AsText, mark};

const ALL: Source = None;

fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("dev".to_owned());
    object.metadata.name = Some(name.to_owned());
    object.metadata.uid = Some(uid.to_owned());
    object.metadata.resource_version = Some(version.to_string());
    object.metadata.labels = Some([("group".to_owned(), uid[..1].to_owned())].into());
    object
}

fn group_of(object: &ConfigMap) -> Option<&str> {
    object
        .metadata
        .labels
        .as_ref()?
        .get("group")
        .map(String::as_str)
}

fn cache() -> Cache<ConfigMap> {
    Cache::new(&Keep {
        group_of: Some(group_of),
        ..Keep::default()
    })
}

/// Returns the changes as `+uid` and `-uid`.
fn describe(changes: impl IntoIterator<Item = Change<ConfigMap>>) -> Vec<String> {
    let told = |change: Change<ConfigMap>| match &change {
        Change::Applied(object) => format!("+{}", uid(&object.metadata).unwrap()),
        Change::Deleted(object) => format!("-{}", uid(&object.metadata).unwrap()),
    };
    changes.into_iter().map(told).collect()
}

fn version_of(cache: &Cache<ConfigMap>, name: &str) -> Option<u64> {
    cache
        .get(&format!("dev/{name}"))
        .map(|object| version(&object.metadata))
}

#[test]
fn object_without_name_or_uid_is_not_stored_and_counts_as_undecodable() {
    let mut cache = cache();
    cache.seen(&ALL, object("a", "u1", 5));
    let mut bad = object("a", "u1", 6);
    bad.metadata.uid = None;
    assert_eq!(describe(cache.seen(&ALL, bad.clone())), ["-u1"]);
    assert!(cache.wrote(bad).is_empty());
    assert_eq!((cache.len(), cache.undecodable()), (0, 1));
    assert_eq!(describe(cache.seen(&ALL, object("a", "u1", 7))), ["+u1"]);
    assert_eq!(cache.undecodable(), 0);

    let mut bad = object("b", "u2", 8);
    bad.metadata.name = Some(String::new());
    let (new, changes) = cache.seen_undecodable(&ALL, &bad.metadata, Some(bad.clone()));
    assert!(new && changes.is_empty());
    assert_eq!((cache.len(), cache.undecodable()), (1, 1));
    cache.list_begins(&ALL);
    assert_eq!(cache.undecodable(), 0);
}

#[test]
fn lean_cache_keeps_no_unused_data_from_writes_or_watches() {
    fn lean(mut object: ConfigMap) -> ConfigMap {
        object.data = None;
        object
    }
    let mut cache = Cache::new(&Keep {
        lean: Some(lean),
        ..Keep::default()
    });
    let full = |version| ConfigMap {
        data: Some([("a".to_owned(), "b".to_owned())].into()),
        ..object("a", "u1", version)
    };
    for changes in [cache.wrote(full(5)), cache.seen(&ALL, full(6))] {
        let [Change::Applied(kept)] = changes.as_slice() else {
            panic!("{changes:?}");
        };
        assert_eq!(kept.data, None);
    }
    assert_eq!(version_of(&cache, "a"), Some(6));
}

#[test]
fn watch_does_not_repeat_own_write() {
    let mut cache = cache();
    assert_eq!(describe(cache.wrote(object("a", "u1", 5))), ["+u1"]);
    assert!(describe(cache.seen(&ALL, object("a", "u1", 5))).is_empty());
    assert_eq!(describe(cache.seen(&ALL, object("a", "u1", 6))), ["+u1"]);
}

#[test]
fn a_watch_that_lags_behind_does_not_undo_our_own_write() {
    let mut cache = cache();
    cache.seen(&ALL, object("a", "u1", 3));
    cache.wrote(object("a", "u1", 5));
    assert!(describe(cache.seen(&ALL, object("a", "u1", 4))).is_empty());
    assert_eq!(version_of(&cache, "a"), Some(5));
}

#[test]
fn an_answer_that_comes_late_does_not_undo_what_the_watch_showed() {
    let mut cache = cache();
    cache.seen(&ALL, object("a", "u1", 7));
    assert!(describe(cache.wrote(object("a", "u1", 5))).is_empty());
    assert_eq!(version_of(&cache, "a"), Some(7));
}

#[test]
fn deleted_object_is_not_restored_by_late_response_or_event() {
    let now = Instant::now();
    let mut cache = cache();
    cache.seen(&ALL, object("a", "u1", 3));
    assert_eq!(describe(cache.gone("u1", now)), ["-u1"]);
    assert!(describe(cache.wrote(object("a", "u1", 9))).is_empty());
    assert!(describe(cache.seen(&ALL, object("a", "u1", 4))).is_empty());
    assert_eq!(describe(cache.gone("u1", now)), [""; 0]);
    assert!(cache.is_gone("u1"));
    // The deletion is not remembered for ever.
    cache.gone("u2", now + REMEMBER_GONE * 2);
    assert!(!cache.is_gone("u1"));
}

#[test]
fn another_object_of_the_same_name_takes_the_place_of_the_first() {
    let mut cache = cache();
    cache.seen(&ALL, object("a", "u1", 3));
    assert_eq!(
        describe(cache.seen(&ALL, object("a", "v2", 8))),
        ["-u1", "+v2"]
    );
    assert!(cache.by_uid("u1").is_none());
    assert!(cache.by_uid("v2").is_some());
    assert_eq!(cache.group("u").count(), 0);
    assert_eq!(cache.group("v").count(), 1);
    // The deletion of the first object arrives last.
    assert!(describe(cache.gone("u1", Instant::now())).is_empty());
    assert_eq!(version_of(&cache, "a"), Some(8));
}

#[test]
fn a_new_list_removes_what_it_lacks() {
    let mut cache = cache();
    cache.seen(&ALL, object("a", "u1", 1));
    cache.seen(&ALL, object("b", "u2", 2));
    cache.list_begins(&ALL);
    cache.seen(&ALL, object("b", "u2", 2));
    assert_eq!(describe(cache.list_ends(&ALL, Instant::now())), ["-u1"]);
    assert_eq!(cache.len(), 1);
}

#[test]
fn a_new_list_keeps_what_we_wrote_after_it_began_and_nothing_older() {
    let mut cache = cache();
    cache.wrote(object("before", "u1", 1));
    cache.list_begins(&ALL);
    cache.wrote(object("after", "u2", 9));
    assert_eq!(describe(cache.list_ends(&ALL, Instant::now())), ["-u1"]);
    assert_eq!(version_of(&cache, "after"), Some(9));
}

#[test]
fn a_list_of_one_namespace_says_nothing_of_another() {
    let (dev, other) = (Some("dev".to_owned()), Some("other".to_owned()));
    let mut cache = cache();
    cache.seen(&dev, object("a", "u1", 1));
    cache.list_begins(&other);
    assert!(describe(cache.list_ends(&other, Instant::now())).is_empty());
    cache.list_begins(&dev);
    assert_eq!(describe(cache.list_ends(&dev, Instant::now())), ["-u1"]);
}

#[test]
fn an_object_that_stops_decoding_counts_as_gone_until_it_decodes_again() {
    let mut cache = cache();
    cache.seen(&ALL, object("a", "u1", 1));
    let bad = object("a", "u1", 2).metadata;
    let (new, changes) = cache.seen_undecodable(&ALL, &bad, None);
    assert!(new);
    assert_eq!(describe(changes), ["-u1"]);
    assert!(cache.is_undecodable("u1") && !cache.is_gone("u1"));
    assert_eq!(version_of(&cache, "a"), None);
    cache.list_begins(&ALL);
    let (new, changes) = cache.seen_undecodable(&ALL, &bad, None);
    assert!(!new && changes.is_empty());
    assert!(describe(cache.list_ends(&ALL, Instant::now())).is_empty());
    assert_eq!(describe(cache.seen(&ALL, object("a", "u1", 3))), ["+u1"]);
    assert_eq!(cache.undecodable(), 0);
    // An older version arrives late.
    let (new, changes) = cache.seen_undecodable(&ALL, &bad, None);
    assert!(!new && changes.is_empty());
}

#[test]
fn substitute_for_undecodable_object_is_removed_with_it() {
    let mut cache = cache();
    let bad = object("a", "u1", 2);
    let (_, changes) = cache.seen_undecodable(&ALL, &bad.metadata, Some(bad.clone()));
    assert_eq!(describe(changes), ["+u1"]);
    assert!(cache.is_undecodable("u1") && cache.len() == 1);
    // An own write replaces the object, and the new version decodes.
    assert_eq!(describe(cache.wrote(object("a", "u1", 3))), ["+u1"]);
    assert_eq!(cache.undecodable(), 0);
    assert_eq!(
        describe(cache.deleted(&bad.metadata, Instant::now())),
        ["-u1"]
    );
}

#[test]
fn undecodable_object_is_forgotten_after_deletion() {
    let mut cache = cache();
    for (name, uid) in [("a", "u1"), ("b", "u2")] {
        cache.seen_undecodable(&ALL, &object(name, uid, 1).metadata, None);
    }
    cache.gone("u1", Instant::now());
    assert_eq!(cache.undecodable(), 1);
    cache.list_begins(&ALL);
    cache.list_ends(&ALL, Instant::now());
    assert_eq!(cache.undecodable(), 0);
}

#[test]
fn versions_that_are_no_numbers_are_all_taken_as_newer() {
    let mut cache = cache();
    for _ in 0..2 {
        let mut odd = object("a", "u1", 0);
        odd.metadata.resource_version = Some("odd".to_owned());
        assert_eq!(describe(cache.seen(&ALL, odd)), ["+u1"]);
    }
}

#[test]
fn object_that_changes_group_is_deleted_from_previous_group() {
    let mut cache = cache();
    cache.list_begins(&ALL);
    cache.seen(&ALL, object("a", "u1", 5));
    cache.list_ends(&ALL, Instant::now());
    let mut moved = object("a", "u1", 6);
    moved.metadata.labels = Some([("group".to_owned(), "x".to_owned())].into());
    assert_eq!(describe(cache.seen(&ALL, moved)), ["-u1", "+u1"]);
    assert_eq!(cache.group("u").count(), 0);
    assert_eq!(cache.group("x").count(), 1);
    assert!(cache.by_uid("u1").is_some());
}

/// Returns the expiry of an object; some have none.
fn until(object: &ConfigMap) -> Option<Timestamp> {
    let version = i64::try_from(version(&object.metadata)).ok()?;
    let until = Timestamp::from_second(version).ok();
    until.filter(|_| version % 3 > 0)
}

/// Two caches receive the same changes; one of them stores most objects in compact form.
#[test]
fn compact_cache_reports_and_finds_objects_like_plain_cache() {
    fn name_of(object: &ConfigMap) -> Vec<u64> {
        vec![mark(object.metadata.name.as_deref())]
    }
    let keep = Keep {
        group_of: Some(group_of),
        marks_of: Some(name_of),
        until_of: Some(until),
        ..Keep::default()
    };
    let mut plain = Cache::new(&keep);
    let mut compact = Cache::new(&Keep {
        compact: Some(AsText::json()),
        ..keep
    });
    let (now, names, mut state) = (Instant::now(), 3 * OPEN as u64, 7_u64);
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    plain.list_begins(&ALL);
    compact.list_begins(&ALL);
    for step in 0..20 * names {
        let (name, life) = (random(names), random(3));
        let object = object(&name.to_string(), &format!("{life}-{name}"), step);
        let id = uid(&object.metadata).unwrap().to_owned();
        let what = random(8);
        let change = |cache: &mut Cache<ConfigMap>| match what {
            0 if step > 10 * names => describe(cache.gone(&id, now)),
            1..=3 => describe(cache.wrote(object.clone())),
            4..=6 => describe(cache.seen(&ALL, object.clone())),
            _ => {
                if let Some((object, Some(path))) = cache.by_uid(&id) {
                    cache.stays_open(path, &object);
                }
                Vec::new()
            }
        };
        assert_eq!(change(&mut plain), change(&mut compact));
        if step == 10 * names {
            let end = |cache: &mut Cache<ConfigMap>| describe(cache.list_ends(&ALL, now));
            assert_eq!(end(&mut plain), end(&mut compact));
        }
    }
    assert!(plain.len() > 2 * OPEN && plain.len() == compact.len());
    let open = |cache: &Cache<ConfigMap>| {
        let entries = cache.entries.values();
        entries.filter(|entry| entry.held.open.is_some()).count()
    };
    assert!(open(&plain) == plain.len() && open(&compact) <= OPEN);
    for object in plain.objects() {
        let Identity {
            path: name,
            uid: id,
        } = Identity::from_metadata(&object.metadata).unwrap();
        assert_eq!(compact.get(&name).as_ref(), Some(&object));
        assert_eq!(compact.by_uid(&id).unwrap().0, object);
        let mut marked = compact.marked(mark(object.metadata.name.as_deref()), true);
        assert_eq!((marked.next(), marked.next()), (Some(object), None));
    }
    for closed in compact.closed() {
        let object = closed.open().unwrap();
        assert_eq!(plain.by_uid(closed.uid()).unwrap().0, object);
        assert_eq!(closed.until(), until(&object));
    }
    for group in ["0", "1", "2"] {
        let members = [&plain, &compact].map(|cache| {
            let mut found: Vec<_> = cache
                .group(group)
                .map(|found| path_of(found.meta()))
                .collect();
            found.sort_unstable();
            found
        });
        assert!(!members[0].is_empty() && members[0] == members[1]);
        let others = compact.marked(mark("no name"), false);
        assert_eq!(others.count(), compact.len());
    }
}
