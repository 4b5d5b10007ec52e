use jiff::Timestamp;

use super::{Event, convert, passed_on};
use crate::tail::Line;

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

fn events(text: &str) -> Vec<Event> {
    let line = Line {
        bytes: text.as_bytes(),
        was_cut: false,
    };
    convert(&line, now())
}

/// Returns the type, the summary and the fields of each event of a line.
fn describe(text: &str) -> Vec<String> {
    let shown = events(text).into_iter().map(|event| {
        let event = event.event;
        let fields = event.fields.iter();
        let fields: Vec<String> = fields
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        format!("{}|{}|{}", event.type_, event.summary, fields.join(","))
    });
    shown.collect()
}

#[test]
fn each_form_is_found_out_by_its_line() {
    let table: [(&str, &[&str]); 19] = [
        ("", &[]),
        ("  \t", &[]),
        (
            "hello  you",
            &["Message|hello you|content=hello  you,role=assistant"],
        ),
        // Echo.
        (
            r#"{"kind":"message","text":"Hi"}"#,
            &["Message|Hi|content=Hi,role=assistant"],
        ),
        (
            r#"{"kind":"tool","tool":"write","path":"a.txt"}"#,
            &["ToolUse|write a.txt|path=a.txt,tool=write"],
        ),
        (
            r#"{"kind":"tool","tool":"ls","summary":"looks"}"#,
            &["ToolUse|looks|tool=ls"],
        ),
        (
            r#"{"kind":"result","summary":"done","filesChanged":3}"#,
            &["Result|done|filesChanged=3"],
        ),
        (
            r#"{"kind":"error","message":"no"}"#,
            &["Error|no|message=no"],
        ),
        // Claude.
        (
            r#"{"type":"system","subtype":"init","session_id":"s","model":"m","tools":["Bash"]}"#,
            &[
                "Message|session started, model m|content=session started, model m,model=m,role=system,session=s",
            ],
        ),
        (
            r#"{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"x"},{"type":"text","text":"I look"},{"type":"tool_use","id":"t","name":"Edit","input":{"file_path":"src/a.rs"}}]}}"#,
            &[
                "Message|I look|content=I look,role=assistant",
                r#"FileEdit|Edit src/a.rs|id=t,input={"file_path":"src/a.rs"},path=src/a.rs,tool=Edit"#,
            ],
        ),
        (
            r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"Bash","input":{"command":"ls -l"}}]}}"#,
            &[r#"ToolUse|Bash ls -l|id=t,input={"command":"ls -l"},tool=Bash"#],
        ),
        (
            r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"fine"}]}}"#,
            &[],
        ),
        (
            r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","is_error":true,"content":"bad"}]}}"#,
            &[r#"Error|a tool failed|content="bad",id=t"#],
        ),
        (
            r#"{"type":"user","message":{"content":"do it"}}"#,
            &["PromptSubmitted|prompt of 5 bytes|text=do it"],
        ),
        (
            r#"{"type":"result","subtype":"success","is_error":false,"num_turns":2,"duration_ms":7,"result":"All done"}"#,
            &["Result|success, 2 turns|content=All done,durationMs=7,subtype=success,turns=2"],
        ),
        (
            r#"{"type":"result","subtype":"error_max_turns","is_error":true,"num_turns":9}"#,
            &["Result|error max turns, 9 turns|isError=true,subtype=error_max_turns,turns=9"],
        ),
        (
            r#"{"type":"stream_event","session_id":"s","event":{}}"#,
            &[],
        ),
        // Neither.
        (
            r#"{"type":"other"}"#,
            &[r#"Message|{"type":"other"}|content={"type":"other"},role=assistant"#],
        ),
        (
            r#"{"kind":"tool""#,
            &[r#"Message|{"kind":"tool"|content={"kind":"tool",role=assistant"#],
        ),
    ];
    for (line, expected) in table {
        assert_eq!(describe(line), expected, "{line}");
    }
}

#[test]
fn an_event_is_passed_on_byte_for_byte() {
    let line = r#"{"type":"Commit", "ts":"2026-01-02T03:04:05.5Z","schemaVersion":"1","new":[1], "summary":"c","fields":{"sha":"1"}}"#;
    let found = events(line);
    let [event] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(event.line, line);
    assert_eq!(event.event.type_, "Commit");
    assert_eq!(event.event.fields["sha"], "1");
}

#[test]
fn a_line_that_is_too_long_or_no_text_is_a_message_that_says_so() {
    let long = Line {
        bytes: br#"{"kind":"message","text":"aaa"#,
        was_cut: true,
    };
    let found = convert(&long, now());
    assert!(found[0].event.fields["note"].contains("longer than 1048576 bytes"));
    let invalid = Line {
        bytes: b"a\xffb\0c",
        was_cut: false,
    };
    let found = convert(&invalid, now());
    assert_eq!(found[0].event.fields["content"], "a\u{fffd}b\0c");
    assert!(!found[0].line.contains('\0'));
}

#[test]
fn excessive_input_is_converted_to_bounded_events() {
    let blocks = vec![r#"{"type":"text","text":"x"}"#; 30_000].join(",");
    let many = events(&format!(
        r#"{{"type":"assistant","message":{{"content":[{blocks}]}}}}"#
    ));
    assert_eq!(many.len(), 64);
    let fields: Vec<String> = (0..50_000)
        .map(|index| format!(r#""f{index}":"""#))
        .collect();
    let event = passed_on(&format!(
        r#"{{"schemaVersion":"1","ts":"2026-01-02T03:04:05Z","type":"X","fields":{{{}}}}}"#,
        fields.join(",")
    ));
    assert_eq!(event.unwrap().event.fields.len(), 64);
    let deep = format!("{}{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    assert_eq!(events(&deep)[0].event.type_, "Message");
    let text = format!(r#"{{"kind":"message","text":"{}"}}"#, "a".repeat(1_000_000));
    assert!(events(&text)[0].line.len() < 300 * 1024);
}
