//! Tests of records that were written before actions were renamed (docs/reference/renamed.md). The file is one chain,
//! signed with the key of the tests.

use serde_json::Value;

use super::support::{checkpoint, faults, judged, judged_objects, key, objects, record, terms};
use crate::verify::Fault;
use crate::{Action, Chain, Entry, Query, Writer};

const TRAIL: &str = include_str!("data/former_names.jsonl");
const ACTIONS: [(&str, Action); 4] = [
    ("WriterStarted", Action::WriterStarted),
    ("SessionCut", Action::SessionTerminated),
    ("SessionHeld", Action::SessionPaused),
    ("RightCopied", Action::GrantCopied),
];

fn values() -> Vec<Value> {
    let lines = TRAIL.lines();
    lines.map(|it| serde_json::from_str(it).unwrap()).collect()
}

fn entries() -> Vec<Entry> {
    let values = values().into_iter();
    values
        .map(|it| serde_json::from_value(it).unwrap())
        .collect()
}

/// Returns the records as the cluster has stored them: with the former names in the spec and in the label.
fn stored() -> Vec<Value> {
    let mut objects = objects(&entries());
    for (object, value) in objects.iter_mut().zip(values()) {
        object["metadata"]["labels"]["oz.wizardofoz.co/kind"] = value["action"].clone();
        object["spec"] = value;
    }
    objects
}

#[test]
fn former_name_is_read_as_renamed_action() {
    for ((name, action), (value, entry)) in ACTIONS.iter().zip(values().iter().zip(entries())) {
        assert_eq!(value["action"], *name);
        assert_eq!(entry.record.action, *action);
    }
}

#[test]
fn log_with_former_names_verifies() {
    let lines: Vec<String> = TRAIL.lines().map(str::to_owned).collect();
    let report = judged(&lines, entries().last().map(checkpoint).as_ref());
    assert!(report.is_whole(), "{:?}", report.problems);
    assert_eq!(report.chains[0].complete_through, 4);

    let renamed: Vec<String> = lines
        .iter()
        .map(|line| line.replace("SessionCut", "SessionTerminated"))
        .collect();
    let found = faults(&judged(&renamed, None));
    assert!(found.contains(&(Fault::Altered, Some(2))), "{found:?}");
}

#[test]
fn stored_event_with_former_name_verifies() {
    let last = entries().last().map(checkpoint).unwrap();
    let report = judged_objects(&stored(), std::slice::from_ref(&last), &terms());
    assert!(report.is_whole(), "{:?}", report.problems);

    let mut relabelled = stored();
    relabelled[1]["metadata"]["labels"]["oz.wizardofoz.co/kind"] = "SessionTerminated".into();
    let report = judged_objects(&relabelled, &[last], &terms());
    assert_eq!(faults(&report), [(Fault::Relabelled, Some(2))]);
}

#[test]
fn exported_record_keeps_former_name() {
    for (value, entry) in values().iter().zip(entries()) {
        assert_eq!(entry.written_value(), *value);
    }
    let writer = Writer::new("oz-operator", "oz-0", record(0).time, 1);
    let (mut chain, _) = Chain::begin(writer, record(0).time, &[], &key());
    let mut paused = record(1);
    paused.action = Action::SessionPaused;
    let entry = chain.append(paused, &key());
    assert_eq!(entry.written_value(), entry.value());
}

#[test]
fn selector_of_renamed_action_includes_former_name() {
    let query = Query {
        action: Some(Action::SessionTerminated),
        ..Query::default()
    };
    assert_eq!(
        query.selector(),
        "oz.wizardofoz.co/kind in (SessionTerminated,SessionCut)"
    );
}
