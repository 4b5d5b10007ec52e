//! The reduction of the events of a run to the part that leaves its workspace and fits into its status.

use jiff::Timestamp;
use oz_api::harness::RunEvent;

/// The maximum size of all events of a run as JSON, in bytes.
pub const MAX_BYTES: usize = 64 * 1024;
/// The maximum sizes of the texts of an event, in bytes, and the maximum number of its fields.
const VERSION: usize = 8;
const TYPE: usize = 64;
const SUMMARY: usize = 512;
const FIELDS: usize = 16;
const FIELD_NAME: usize = 64;
const FIELD: usize = 1024;
/// The years that the API server accepts in a timestamp: four digits, as in RFC 3339
/// (<https://www.rfc-editor.org/rfc/rfc3339#section-5.6>).
const YEARS: std::ops::RangeInclusive<i16> = 1..=9999;

/// Returns the field of an event of this type with the text of a prompt or a response.
fn private(type_: &str) -> Option<&'static str> {
    match type_ {
        "PromptSubmitted" => Some("text"),
        "Message" => Some("content"),
        _ => None,
    }
}

/// Returns the last `most` events, without the texts of prompts and responses, without control characters, and within
/// the limits of a status: the oldest events are removed first. The API server accepts the result for any input.
#[must_use]
pub fn cleaned(events: Vec<RunEvent>, most: usize) -> Vec<RunEvent> {
    let mut room = MAX_BYTES;
    let mut kept: Vec<RunEvent> = events
        .into_iter()
        .rev()
        .filter(|event| is_of_our_time(event.ts))
        .take(most)
        .map(clean)
        .take_while(|event| {
            // A comma or a bracket with each.
            let bytes = serde_json::to_string(event).map_or(usize::MAX, |text| text.len() + 2);
            let fits = bytes <= room;
            room = room.saturating_sub(bytes);
            fits
        })
        .collect();
    kept.reverse();
    kept
}

fn is_of_our_time(instant: Timestamp) -> bool {
    let year = instant.to_zoned(jiff::tz::TimeZone::UTC).year();
    YEARS.contains(&year)
}

fn clean(event: RunEvent) -> RunEvent {
    let type_ = text(event.type_, TYPE);
    let private = private(&type_);
    let fields = event
        .fields
        .into_iter()
        .map(|(name, value)| (text(name, FIELD_NAME), value))
        .filter(|(name, _)| Some(name.as_str()) != private)
        .take(FIELDS)
        .map(|(name, value)| (name, text(value, FIELD)))
        .collect();
    RunEvent {
        schema_version: text(event.schema_version, VERSION),
        ts: event.ts,
        summary: text(event.summary, SUMMARY),
        type_,
        fields,
    }
}

/// Returns a text with at most `most` bytes, on one line.
fn text(mut text: String, most: usize) -> String {
    if text.contains(char::is_control) {
        text = text.replace(char::is_control, " ");
    }
    text.truncate(text.floor_char_boundary(most));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(type_: &str, fields: &[(&str, &str)]) -> RunEvent {
        RunEvent {
            schema_version: "1".to_owned(),
            ts: "2026-01-01T00:00:00Z".parse().unwrap(),
            type_: type_.to_owned(),
            summary: "did something".to_owned(),
            fields: fields
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    fn bytes(events: &[RunEvent]) -> usize {
        serde_json::to_string(events).unwrap().len()
    }

    #[test]
    fn private_text_of_prompts_and_messages_is_removed_from_report() {
        for (type_, kept) in [
            ("PromptSubmitted", "content"),
            ("Message", "text"),
            // Not to be had by a character that is cleaned away.
            ("Message", "te\nxt"),
        ] {
            let sent = event(type_, &[("text", "a"), ("content", "b"), (kept, "c")]);
            let cleaned = cleaned(vec![sent], 10);
            let names: Vec<_> = cleaned[0].fields.keys().collect();
            assert!(
                !names.contains(&&private(type_).unwrap().to_owned()),
                "{names:?}"
            );
            assert!(names.contains(&&kept.replace('\n', " ")), "{names:?}");
        }
        let both = [("text", "a"), ("content", "b")];
        assert_eq!(
            cleaned(vec![event("ToolUse", &both)], 10),
            [event("ToolUse", &both)]
        );
    }

    #[test]
    fn the_type_and_the_field_are_compared_as_they_are_stored() {
        let long = format!("Message{}", " ".repeat(100));
        let sent = [
            event("Mess\u{0}age", &[("content", "b")]),
            event(&long, &[("content", "b")]),
        ];
        // These are other types to everybody who reads them, and what they say is told as any other field.
        let kept = cleaned(sent.to_vec(), 10);
        assert_eq!(kept[0].type_, "Mess age");
        assert_eq!(kept[1].type_.len(), TYPE);
    }

    #[test]
    fn texts_are_one_line_and_bounded_and_never_cut_through_a_character() {
        let long = "ä\n".repeat(10_000);
        let mut sent = event(&long, &[]);
        sent.schema_version.clone_from(&long);
        sent.summary.clone_from(&long);
        sent.fields = (0..100)
            .map(|at| (format!("{at}{long}"), long.clone()))
            .collect();
        let kept = cleaned(vec![sent], 10).remove(0);
        assert!(kept.summary.len() <= SUMMARY && kept.type_.len() <= TYPE);
        assert!(kept.schema_version.len() <= VERSION);
        assert_eq!(kept.fields.len(), FIELDS);
        for (name, value) in &kept.fields {
            assert!(name.len() <= FIELD_NAME && value.len() <= FIELD);
        }
        assert!(!serde_json::to_string(&kept).unwrap().contains("\\n"));
    }

    #[test]
    fn the_last_ones_stay_in_their_order_within_number_and_bytes() {
        let numbered = |at: usize| {
            let mut one = event("ToolUse", &[("path", &"x".repeat(900))]);
            one.summary = at.to_string();
            one
        };
        let all: Vec<_> = (0..1000).map(numbered).collect();
        let few = cleaned(all.clone(), 10);
        let names: Vec<_> = few.iter().map(|event| event.summary.clone()).collect();
        assert_eq!(
            names,
            (990..1000).map(|at| at.to_string()).collect::<Vec<_>>()
        );
        let many = cleaned(all, 500);
        assert!(
            bytes(&many) <= MAX_BYTES && many.len() > 50,
            "{}",
            many.len()
        );
        assert_eq!(many.last().unwrap().summary, "999");
        assert!(cleaned(vec![numbered(1)], 0).is_empty());
    }

    #[test]
    fn an_instant_that_no_status_holds_is_left_out() {
        let mut ancient = event("ToolUse", &[]);
        ancient.ts = Timestamp::MIN;
        let kept = cleaned(vec![ancient, event("ToolUse", &[])], 10);
        assert_eq!(kept, [event("ToolUse", &[])]);
    }
}
