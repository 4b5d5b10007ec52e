use std::collections::BTreeMap;

use oz_api::harness::RunEvent;
use oz_api::harness::wire::{MAX_BODY, Report};
use proptest::prelude::*;

use super::Ring;
use crate::convert::{self, convert};
use crate::tail::Line;

fn event(type_: &str, summary: &str, fields: &[(&str, &str)]) -> RunEvent {
    RunEvent {
        schema_version: "1".to_owned(),
        ts: "2026-01-02T03:04:05Z".parse().unwrap(),
        type_: type_.to_owned(),
        summary: summary.to_owned(),
        fields: fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    }
}

fn report(ring: &Ring) -> Report {
    let body = ring.body();
    assert!(body.len() <= MAX_BODY, "{}", body.len());
    serde_json::from_str(&body).unwrap()
}

#[test]
fn the_last_events_are_reported_the_oldest_first() {
    let mut ring = Ring::new(2);
    assert_eq!(report(&ring), Report::default());
    for summary in ["a", "b", "c"] {
        ring.push(&event("ToolUse", summary, &[]));
    }
    let summaries: Vec<String> = report(&ring)
        .events
        .into_iter()
        .map(|one| one.summary)
        .collect();
    assert_eq!(summaries, ["b", "c"]);
}

#[test]
fn the_oldest_go_until_the_body_fits() {
    let mut ring = Ring::new(500);
    for index in 0..500 {
        // Characters that take six bytes each in JSON.
        ring.push(&event(
            "Error",
            &index.to_string(),
            &[("message", &"\u{1}".repeat(5_000))],
        ));
    }
    let events = report(&ring).events;
    assert!(events.len() > 10, "{}", events.len());
    assert_eq!(events.last().unwrap().summary, "499");
}

#[test]
fn single_oversized_event_fits_into_report() {
    let mut ring = Ring::new(500);
    let mut large = event(&"\u{1}".repeat(9_999), &"\u{1}".repeat(9_999), &[]);
    large.schema_version = "\u{1}".repeat(9_999);
    let fields = (0..99).map(|index| {
        (
            format!("{}{index}", "\u{1}".repeat(99)),
            "\u{1}".repeat(9_999),
        )
    });
    large.fields = fields.collect::<BTreeMap<_, _>>();
    ring.push(&large);
    assert_eq!(report(&ring).events.len(), 1);
}

#[test]
fn texts_of_prompts_and_answers_stay_in_the_workspace() {
    let mut ring = Ring::new(50);
    ring.push(&event(
        "PromptSubmitted",
        "SECRET",
        &[("text", "SECRET"), ("seq", "1")],
    ));
    ring.push(&event(
        "Message",
        "SECRET",
        &[("role", "assistant"), ("content", "SECRET")],
    ));
    ring.push(&event("Message", "SECRET", &[("content", "SECRET")]));
    ring.push(&event(
        "Message",
        "SECRET",
        &[("role", "user"), ("content", "SECRET")],
    ));
    ring.push(&event(
        "Message",
        "hello",
        &[("role", "system"), ("content", "hello")],
    ));
    let events = report(&ring).events;
    let summaries: Vec<&str> = events.iter().map(|one| one.summary.as_str()).collect();
    let expected = [
        "prompt of 6 bytes",
        "answer of 6 bytes",
        "answer of 6 bytes",
        "prompt of 6 bytes",
        "hello",
    ];
    assert_eq!(summaries, expected);
    assert!(!ring.body().contains("SECRET"));
    assert_eq!(events[0].fields["seq"], "1");
    assert_eq!(events[4].fields["content"], "hello");
}

/// Returns lines with the text in all forms.
fn lines(text: &str) -> [String; 7] {
    let said = serde_json::to_string(text).unwrap();
    [
        text.replace('\n', " "),
        format!(r#"{{"kind":"message","text":{said}}}"#),
        format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":{said}}}]}}}}"#
        ),
        format!(r#"{{"type":"assistant","message":{{"content":{said}}}}}"#),
        format!(r#"{{"type":"user","message":{{"content":{said}}}}}"#),
        format!(r#"{{"type":"result","subtype":"success","result":{said}}}"#),
        format!(
            r#"{{"schemaVersion":"1","ts":"2026-01-02T03:04:05Z","type":"Message","summary":{said},"fields":{{"role":"assistant","content":{said}}}}}"#
        ),
    ]
}

proptest! {
    #[test]
    fn private_text_never_leaves_workspace_in_any_form(
        before in ".{0,300}",
        after in ".{0,300}",
        cut in any::<bool>(),
    ) {
        let text = format!("{before}SECRET{after}");
        let mut ring = Ring::new(500);
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        ring.push(&convert::prompt(&text, now).unwrap().event);
        for line in lines(&text) {
            let line = Line { bytes: line.as_bytes(), was_cut: cut };
            let events = convert(&line, now);
            prop_assert!(!events.is_empty());
            for event in events {
                prop_assert!(!event.line.contains('\n'));
                ring.push(&event.event);
            }
        }
        let body = ring.body();
        prop_assert!(!body.contains("SECRET"), "{}", body);
    }

    #[test]
    fn converted_events_are_single_json_lines(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let line = Line { bytes: &bytes, was_cut: false };
        for event in convert(&line, "2026-01-02T03:04:05Z".parse().unwrap()) {
            prop_assert!(!event.line.contains('\n'));
            prop_assert!(convert::passed_on(&event.line).is_some(), "{}", event.line);
        }
    }
}
