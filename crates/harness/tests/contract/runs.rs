//! What happens in every run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::broker::{Broker, usual};
use crate::world::World;

const ECHO: [&str; 4] = [
    r#"{"kind":"message","text":"ANSWER one"}"#,
    r#"{"kind":"tool","tool":"write","path":"a.txt"}"#,
    r#"{"kind":"error","message":"a hiccup"}"#,
    r#"{"kind":"result","summary":"wrote a.txt","filesChanged":1}"#,
];

fn types(events: &str) -> Vec<String> {
    let events = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    events
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_run_leaves_transcript_log_reports_and_outcome() {
    let world = World::new();
    let broker = Broker::start(usual);
    let container = world.started("runtime", &broker);
    assert_eq!(world.read("paddock/prompt/prompt.txt"), "PROMPT do it");
    let metadata: Value =
        serde_json::from_str(&world.read("workspace/.paddock/runs/hello/metadata.json")).unwrap();
    assert_eq!(metadata["status"], "Running");
    for line in ECHO {
        world.say(line);
    }
    broker.reported("wrote a.txt");
    container.end();

    let events = world.events();
    assert_eq!(
        types(&events),
        ["PromptSubmitted", "Message", "ToolUse", "Error", "Result"]
    );
    assert!(events.contains("PROMPT do it") && events.contains("ANSWER one"));
    assert_eq!(world.read("stdout"), events);
    let raw = fs::read_to_string(world.transcript("raw.jsonl")).unwrap();
    assert_eq!(raw, format!("{}\n", ECHO.join("\n")));
    let reports = broker.reports();
    let told = reports
        .iter()
        .any(|body| body.contains("PROMPT") || body.contains("ANSWER"));
    assert!(!told, "{reports:?}");
    let last: Value = serde_json::from_str(reports.last().unwrap()).unwrap();
    assert_eq!(last["events"].as_array().unwrap().len(), 5);
    let outcome = json!({"filesChanged": 1, "summary": "wrote a.txt"});
    let message: Value = serde_json::from_str(&world.read("termination-log")).unwrap();
    assert_eq!(message, outcome);
    let result = fs::read_to_string(world.transcript("result.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&result).unwrap(), outcome);
    let metadata: Value =
        serde_json::from_str(&world.read("workspace/.paddock/runs/hello/metadata.json")).unwrap();
    assert_eq!(metadata["status"], "Completed");
    assert_eq!(metadata["harness"]["image"], "echo:1");
    let names = ["run", "workspace", "template", "mode", "schemaVersion"];
    let names = names.map(|name| metadata[name].as_str().unwrap());
    assert_eq!(names, ["hello", "demo", "echo-default", "Batch", "1"]);
    assert!(metadata["completedAt"].as_str() >= metadata["startedAt"].as_str());
}

#[test]
fn the_agents_own_result_counts() {
    let world = World::new();
    let broker = Broker::start(usual);
    // Of an earlier attempt.
    fs::create_dir_all(world.transcript("")).unwrap();
    fs::write(world.transcript("result.json"), r#"{"summary":"STALE"}"#).unwrap();
    let container = world.started("runtime", &broker);
    assert!(!world.transcript("result.json").exists());
    world.say(ECHO[3]);
    let own = r#"{"pullRequests":["https://forge.example/pr/1"],"summary":"mine"}"#;
    fs::write(world.transcript("result.json"), own).unwrap();
    container.end();
    assert_eq!(world.read("termination-log"), own);
    assert_eq!(
        fs::read_to_string(world.transcript("result.json")).unwrap(),
        own
    );
}

#[test]
fn a_claude_run_that_failed_says_so() {
    let world = World::new();
    let broker = Broker::start(usual);
    let container = world.started("runtime", &broker);
    world.say(r#"{"type":"system","subtype":"init","session_id":"s","model":"m"}"#);
    world.say(r#"{"type":"assistant","message":{"content":[{"type":"text","text":"ANSWER"}]}}"#);
    world.say(
        r#"{"type":"result","subtype":"error_max_turns","is_error":true,"num_turns":9,"result":"ANSWER"}"#,
    );
    container.end();
    assert_eq!(
        types(&world.events()),
        ["PromptSubmitted", "Message", "Message", "Result"]
    );
    assert!(!broker.reports().concat().contains("ANSWER"));
    let metadata = world.read("workspace/.paddock/runs/hello/metadata.json");
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    assert_eq!(metadata["status"], "Failed");
    assert_eq!(metadata["reason"], "error max turns, 9 turns");
}

#[test]
fn the_prompt_is_asked_for_until_the_broker_answers_with_the_token_as_it_is_then() {
    let world = World::new();
    let gate = Arc::new(Mutex::new(503));
    let status = Arc::clone(&gate);
    let broker = Broker::start(move |line, before| match *status.lock() {
        200 => usual(line, before),
        other => (other, r#"{"code":"Busy","message":"later"}"#.to_owned()),
    });
    let container = world.start("runtime", &broker);
    broker.wait("GET /v1/run", 2);
    assert!(!world.is_ready(&broker));
    *gate.lock() = 429;
    broker.wait("GET /v1/run", 4);
    fs::write(world.path("token"), "token-2").unwrap();
    // One may be on its way with the token before.
    let before = broker.asked("GET /v1/run").len();
    broker.wait("GET /v1/run", before + 2);
    *gate.lock() = 200;
    crate::world::eventually("readiness", || {
        world
            .is_ready(&broker)
            .then_some(())
            .ok_or_else(|| world.read("stderr"))
    });
    container.end();
    let asked = broker.asked("GET /v1/run");
    assert_eq!(asked.first().unwrap().token, "token-1");
    assert_eq!(asked.last().unwrap().token, "token-2");
    assert!(
        world.read("stderr").contains("503"),
        "{}",
        world.read("stderr")
    );
}

#[test]
fn run_ends_with_reason_of_permanent_broker_refusal() {
    let world = World::new();
    let refused = r#"{"code":"RunEnded","message":"run team/hello is over"}"#;
    let broker = Broker::start(move |_, _| (403, refused.to_owned()));
    let status = world.start("runtime", &broker).wait();
    assert_eq!(status.code(), Some(1));
    assert!(!world.is_ready(&broker));
    for file in ["stderr", "termination-log"] {
        let said = world.read(file);
        assert!(said.contains("RunEnded: run team/hello is over"), "{said}");
    }
}

#[test]
fn container_stops_before_prompt_arrives() {
    let world = World::new();
    let broker = Broker::start(|_, _| (500, String::new()));
    let container = world.start("runtime", &broker);
    broker.wait("GET /v1/run", 1);
    container.end();
}

#[test]
fn a_prompt_that_the_kubelet_mounts_is_not_asked_for() {
    let mut world = World::new();
    world.prompt_comes_from_broker = false;
    fs::write(world.path("paddock/prompt/prompt.txt"), "mounted").unwrap();
    let broker = Broker::start(usual);
    world.started("runtime", &broker).end();
    assert!(broker.asked("GET /v1/run").is_empty());
    assert!(world.events().contains("mounted"));
}

#[test]
fn report_mode_next_to_runtime_only_reports() {
    let world = World::new();
    let broker = Broker::start(usual);
    let container = world.started("report", &broker);
    let event = |type_: &str, summary: &str| {
        format!(
            r#"{{"schemaVersion":"1","ts":"2026-01-02T03:04:05Z","type":"{type_}","summary":"{summary}","fields":{{"content":"ANSWER"}}}}"#
        )
    };
    let lines = format!(
        "{}\nno event\n{}\n",
        event("Message", "ANSWER"),
        event("Commit", "sha 1")
    );
    fs::write(world.transcript("events.jsonl"), &lines).unwrap();
    broker.reported("sha 1");
    fs::write(world.transcript("result.json"), r#"{"summary":"mine"}"#).unwrap();
    container.end();
    assert_eq!(world.events(), lines);
    assert_eq!(world.read("stdout"), "");
    assert!(!world.transcript("metadata.json").exists());
    assert!(!world.transcript("raw.jsonl").exists());
    assert_eq!(world.read("termination-log"), r#"{"summary":"mine"}"#);
    let last = broker.reports().pop().unwrap();
    assert!(
        last.contains("answer of 6 bytes") && !last.contains("no event"),
        "{last}"
    );
}

#[test]
fn shared_files_are_writable_by_all_containers() {
    let world = World::new();
    let broker = Broker::start(usual);
    let container = world.started("runtime", &broker);
    container.end();
    let mode = |name: &str| {
        let path = world.path(name);
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    };
    let folders = [
        "workspace/.home",
        "workspace/.paddock",
        "workspace/.paddock/runs",
    ];
    let shared = [
        "workspace/.paddock/runs/hello",
        "paddock/raw",
        "paddock/events",
    ];
    for name in folders.into_iter().chain(shared) {
        assert_eq!(mode(name), 0o2770, "{name}");
    }
    for name in [
        "paddock/raw/out",
        "workspace/.paddock/runs/hello/events.jsonl",
    ] {
        assert_eq!(mode(name), 0o660, "{name}");
    }
    assert_eq!(mode("paddock/prompt/prompt.txt"), 0o440);
}

/// Each way in which published images write.
#[test]
fn agents_append_begin_anew_replace_and_pipe_through_tee() {
    let world = World::new();
    let broker = Broker::start(usual);
    let container = world.started("runtime", &broker);
    let shell = |script: &str| {
        let done = Command::new("/bin/bash")
            .args(["-c", script])
            .env("RAW", world.raw())
            .status();
        assert!(done.unwrap().success());
    };
    shell(r#"echo one-appended >> "$RAW""#);
    world.has_event("one-appended");
    shell(r#"{ echo two-tee; echo three-tee; } | tee -a "$RAW" > /dev/null"#);
    world.has_event("three-tee");
    shell(r#"echo four > "$RAW""#);
    world.has_event("four");
    shell(r#"rm "$RAW"; echo five-replaced > "$RAW""#);
    world.has_event("five-replaced");
    shell(r#"printf six-without-an-end >> "$RAW""#);
    container.end();
    let order = ["PROMPT", "one-", "two-", "three-", "four", "five-", "six-"];
    let events = world.events();
    let lines: Vec<&str> = events.lines().collect();
    assert_eq!(lines.len(), order.len(), "{events}");
    for (line, text) in lines.iter().zip(order) {
        assert!(line.contains(text), "{line} instead of {text}");
    }
    assert_eq!(world.read("stdout"), events);
}
