//! Table tests for `changes`: each event once, regardless of restarts of the watch.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;

use super::*;

fn object(name: &str, version: u32) -> Guarded<ConfigMap> {
    Guarded(Ok(ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(format!("uid-{name}")),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }))
}

/// Plays events and returns the resulting ones, as `+a1 ~a2 -a2`.
fn played(replay: Replay, events: Vec<Event<Guarded<ConfigMap>>>) -> String {
    let mut changes = Changes::new(replay);
    let told: Vec<_> = events
        .into_iter()
        .flat_map(|event| changes.absorb(event))
        .map(|event| {
            let sign = match &event {
                WatchEvent::Added(_) => '+',
                WatchEvent::Modified(_) => '~',
                WatchEvent::Deleted(_) => '-',
            };
            let object = event.object();
            format!(
                "{sign}{}{}",
                object.name_any(),
                object.resource_version().unwrap()
            )
        })
        .collect();
    told.join(" ")
}

#[test]
fn existing_objects_are_reported_only_on_request() {
    let events = || {
        vec![
            Event::Init,
            Event::InitApply(object("a", 1)),
            Event::InitDone,
        ]
    };
    assert_eq!(played(Replay::Existing, events()), "+a1");
    assert_eq!(played(Replay::FromNow, events()), "");
}

#[test]
fn changes_of_an_object_that_was_not_replayed_are_modifications() {
    let events = vec![
        Event::Init,
        Event::InitApply(object("a", 1)),
        Event::InitDone,
        Event::Apply(object("a", 2)),
        Event::Delete(object("a", 3)),
    ];
    assert_eq!(played(Replay::FromNow, events), "~a2 -a3");
}

#[test]
fn relist_reports_only_changes_during_interrupted_watch() {
    let events = vec![
        Event::Init,
        Event::InitApply(object("same", 1)),
        Event::InitApply(object("changed", 2)),
        Event::InitApply(object("gone", 3)),
        Event::InitDone,
        Event::Init,
        Event::InitApply(object("same", 1)),
        Event::InitApply(object("changed", 5)),
        Event::InitApply(object("new", 6)),
        Event::InitDone,
    ];
    assert_eq!(played(Replay::FromNow, events), "~changed5 +new6 -gone3",);
}

#[test]
fn an_object_created_again_under_its_old_name_is_gone_and_new() {
    let mut again = object("a", 9);
    again.0.as_mut().unwrap().metadata.uid = Some("other".to_owned());
    let events = vec![
        Event::Init,
        Event::InitApply(object("a", 1)),
        Event::InitDone,
        Event::Init,
        Event::InitApply(again),
        Event::InitDone,
    ];
    assert_eq!(played(Replay::Existing, events), "+a1 +a9 -a1");
}

#[test]
fn a_list_that_broke_off_is_forgotten() {
    let events = vec![
        Event::Init,
        Event::InitApply(object("a", 1)),
        Event::InitDone,
        Event::Init,
        Event::Init,
        Event::InitApply(object("a", 1)),
        Event::InitDone,
    ];
    assert_eq!(played(Replay::Existing, events), "+a1");
}

#[test]
fn objects_older_than_given_version_are_not_reported() {
    let events = vec![
        Event::Init,
        Event::InitApply(object("old", 8)),
        Event::InitApply(object("new", 11)),
        Event::InitDone,
        Event::Apply(object("old", 12)),
        Event::Init,
        Event::InitApply(object("old", 12)),
        Event::InitApply(object("another", 9)),
        Event::InitDone,
    ];
    let told = played(Replay::Since("9".to_owned()), events);
    assert_eq!(told, "+new11 ~old12 +another9 -new11");
}
