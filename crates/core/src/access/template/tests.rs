//! Tests of the events of templates.

use super::*;

fn status(generation: i64, failure: Option<&str>) -> TemplateStatus {
    let metadata = ObjectMeta {
        generation: Some(generation),
        ..ObjectMeta::default()
    };
    let failure = failure.map(|message| Failure::invalid(reason::NOT_FOUND, message));
    let facts = [
        target(failure.as_ref()),
        durations(&[]),
        config(Vec::new(), None),
    ];
    with_facts(Timestamp::UNIX_EPOCH, &metadata, None, facts)
}

fn events(before: &TemplateStatus, after: &TemplateStatus) -> Vec<&'static str> {
    let events = transitions(Some(before), after);
    events.iter().map(|event| event.reason).collect()
}

#[test]
fn corrected_message_publishes_no_event() {
    let missing = status(1, Some("no Deployment web"));
    assert!(events(&missing, &status(1, Some("Deployment web does not exist"))).is_empty());
    let mut reworded = status(1, None);
    for condition in &mut reworded.conditions {
        condition.message = "reworded".to_owned();
    }
    assert!(events(&reworded, &status(1, None)).is_empty());
    // A change of the spec without another change of the status is no event either.
    assert!(events(&reworded, &status(2, None)).is_empty());
}

#[test]
fn new_condition_and_changed_failure_publish_events() {
    let (well, missing) = (status(1, None), status(1, Some("no Deployment web")));
    let first = transitions(None, &well);
    assert_eq!(first.len(), 3);
    assert_eq!(events(&well, &missing), ["TargetVerified"]);
    assert_eq!(events(&missing, &well), ["TargetVerified"]);
    let again = status(2, Some("no Deployment wbe"));
    assert_eq!(events(&missing, &again), ["TargetVerified"]);
}
