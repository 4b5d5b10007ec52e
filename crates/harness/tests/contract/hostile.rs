//! An agent that means harm: what it puts in the way costs itself, and nothing outside of its transcript is read
//! or written.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use serde_json::Value;

use crate::broker::{Broker, usual};
use crate::world::World;

const FILES: [&str; 4] = ["events.jsonl", "raw.jsonl", "metadata.json", "result.json"];

/// Makes something at a path.
type Make = fn(&Path);

fn pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

fn clear(world: &World) {
    for name in FILES {
        let _ = fs::remove_file(world.transcript(name));
    }
}

/// Asserts that the run continues: its log, its reports and its end.
fn goes_on(world: &World, broker: &Broker, container: crate::world::Container) {
    world.say(r#"{"kind":"result","summary":"still here"}"#);
    broker.reported("still here");
    container.end();
    let log = world.read("stdout");
    assert!(log.contains("still here"), "{log}");
}

#[test]
fn links_are_not_followed() {
    let world = World::new();
    let broker = Broker::start(usual);
    let secret = r#"{"summary":"SECRET"}"#;
    fs::write(world.path("secret"), secret).unwrap();
    let container = world.started("runtime", &broker);
    clear(&world);
    for name in FILES {
        symlink(world.path("secret"), world.transcript(name)).unwrap();
    }
    goes_on(&world, &broker, container);
    assert_eq!(world.read("secret"), secret);
    assert_eq!(world.read("termination-log"), r#"{"summary":"still here"}"#);
    let said = world.read("stderr");
    assert!(
        said.contains("events.jsonl is not used: it is a link"),
        "{said}"
    );
    assert!(
        said.contains("result.json is not used: it is a link"),
        "{said}"
    );
}

#[test]
fn a_link_in_the_place_of_a_folder_is_not_followed() {
    for name in [
        "workspace/.paddock",
        "workspace/.paddock/runs",
        "workspace/.paddock/runs/hello",
    ] {
        let world = World::new();
        let broker = Broker::start(usual);
        let container = world.started("runtime", &broker);
        fs::create_dir_all(world.path("elsewhere/runs/hello")).unwrap();
        fs::create_dir_all(world.path("elsewhere/hello")).unwrap();
        for folder in ["", "hello", "runs/hello"] {
            let file = world.path("elsewhere").join(folder).join("result.json");
            fs::write(file, r#"{"summary":"SECRET"}"#).unwrap();
        }
        fs::rename(world.path(name), world.path("moved")).unwrap();
        symlink(world.path("elsewhere"), world.path(name)).unwrap();
        goes_on(&world, &broker, container);
        for folder in ["", "hello", "runs/hello"] {
            let folder = world.path("elsewhere").join(folder);
            assert!(!folder.join("events.jsonl").exists(), "{name}");
        }
        assert!(!world.read("termination-log").contains("SECRET"), "{name}");
    }
}

#[test]
fn a_raw_output_that_is_a_link_is_not_read() {
    let world = World::new();
    let broker = Broker::start(usual);
    fs::write(world.path("out"), "SECRET\n").unwrap();
    let container = world.started("runtime", &broker);
    world.say("before");
    world.has_event("before");
    fs::remove_file(world.raw()).unwrap();
    symlink(world.path("out"), world.raw()).unwrap();
    crate::world::eventually("a complaint", || {
        let said = world.read("stderr");
        let is_said = said.contains("out is not used: it is a link");
        is_said.then_some(()).ok_or(said)
    });
    // The folder instead of the file.
    fs::rename(world.path("paddock/raw"), world.path("paddock/old")).unwrap();
    symlink(world.path(""), world.path("paddock/raw")).unwrap();
    container.end();
    assert!(!world.events().contains("SECRET"));
    assert!(!broker.reports().concat().contains("SECRET"));
}

#[test]
fn a_result_that_is_no_plain_small_json_is_not_waited_for() {
    let cases: [(&str, Make); 6] = [
        ("not a plain file", pipe),
        ("not a plain file", |path| fs::create_dir(path).unwrap()),
        ("more than", |path| {
            let file = fs::File::create(path).unwrap();
            file.set_len(1 << 40).unwrap();
        }),
        ("not a JSON object", |path| {
            fs::write(path, "[".repeat(200_000)).unwrap()
        }),
        ("not a JSON object", |path| {
            fs::write(path, b"{\"summary\":\"\xff").unwrap()
        }),
        ("not a JSON object", |path| fs::write(path, "").unwrap()),
    ];
    for (said, make) in cases {
        let world = World::new();
        let broker = Broker::start(usual);
        let container = world.started("runtime", &broker);
        make(&world.transcript("result.json"));
        goes_on(&world, &broker, container);
        assert_eq!(world.read("termination-log"), r#"{"summary":"still here"}"#);
        let log = world.read("stderr");
        assert!(log.contains(said), "{said}: {log}");
    }
}

#[test]
fn a_result_with_too_much_in_it_is_cut_to_what_the_kubelet_keeps() {
    let world = World::new();
    let broker = Broker::start(usual);
    let container = world.started("runtime", &broker);
    let request = "https://forge.example/pr/1";
    let artifacts: Vec<String> = (0..5_000)
        .map(|index| format!("artifact-{index}"))
        .collect();
    let result = serde_json::json!({
        "pullRequests": [request],
        "summary": "ä\u{1}".repeat(9_000),
        "artifacts": artifacts,
    });
    fs::write(world.transcript("result.json"), result.to_string()).unwrap();
    container.end();
    let message = world.read("termination-log");
    assert!(message.len() <= 4096, "{}", message.len());
    let message: Value = serde_json::from_str(&message).unwrap();
    assert_eq!(message["pullRequests"][0], request);
}

#[test]
fn unwritable_files_are_reported_and_skipped() {
    let world = World::new();
    let broker = Broker::start(usual);
    let container = world.started("runtime", &broker);
    clear(&world);
    pipe(&world.transcript("events.jsonl"));
    fs::create_dir(world.transcript("metadata.json")).unwrap();
    fs::create_dir(world.transcript("raw.jsonl")).unwrap();
    goes_on(&world, &broker, container);
    let said = world.read("stderr");
    for name in FILES.into_iter().take(3) {
        assert!(said.contains(name), "{name}: {said}");
    }
}

#[test]
fn a_transcript_that_is_removed_is_begun_anew() {
    let world = World::new();
    let broker = Broker::start(usual);
    let container = world.started("runtime", &broker);
    world.say("before");
    world.has_event("before");
    fs::remove_dir_all(world.path("workspace/.paddock")).unwrap();
    world.say("behind");
    world.has_event("behind");
    goes_on(&world, &broker, container);
    assert!(world.read("stdout").ends_with(&world.events()));
    assert!(world.transcript("metadata.json").exists());
    assert!(world.transcript("result.json").exists());
}

#[test]
fn a_line_without_an_end_is_cut_and_the_next_one_is_whole() {
    let world = World::new();
    let broker = Broker::start(usual);
    let container = world.started("runtime", &broker);
    world.say("x".repeat(5 * 1024 * 1024));
    world.say([b"no text: \xff\xfe".as_slice(), "\u{85}".as_bytes()].concat());
    world.has_event("no text");
    goes_on(&world, &broker, container);
    let events = world.events();
    assert_eq!(events.lines().count(), 4);
    assert!(
        events
            .lines()
            .nth(1)
            .unwrap()
            .contains("longer than 1048576 bytes")
    );
    assert_eq!(world.read("stdout"), events);
    let raw = fs::metadata(world.transcript("raw.jsonl")).unwrap().len();
    assert!(raw > 5 * 1024 * 1024);
}

/// On a full disk, the container only observes that a write fails after a part of its data.
#[test]
fn a_full_disk_costs_the_transcript_and_not_the_log() {
    let mut world = World::new();
    // No file beyond 8 KiB; the log is a pipe.
    world.limits = "trap '' XFSZ; ulimit -f 8;";
    let broker = Broker::start(usual);
    let container = world.started("runtime", &broker);
    for index in 0..200 {
        world.say(format!(
            r#"{{"kind":"message","text":"{index} {}"}}"#,
            "x".repeat(90)
        ));
    }
    goes_on(&world, &broker, container);
    assert_eq!(world.read("stdout").lines().count(), 202);
    assert!(world.events().len() <= 8 * 1024);
    assert_eq!(world.read("termination-log"), r#"{"summary":"still here"}"#);
    let said = world.read("stderr");
    assert!(said.contains("lines are missing in events.jsonl"), "{said}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// For any output, in any pieces.
    #[test]
    fn log_and_transcript_are_the_same_byte_for_byte(
        pieces in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..300),
                Just(b"\n".to_vec()),
                Just(br#"{"kind":"message","text":"ANSWER"}"#.to_vec()),
                Just(b"{\"kind\":\"tool\",\"tool\":\"ls\"}\n".to_vec()),
            ],
            0..40,
        ),
    ) {
        use std::io::Write as _;

        let world = World::new();
        let broker = Broker::start(usual);
        let container = world.started("runtime", &broker);
        let mut raw = fs::OpenOptions::new().append(true).open(world.raw()).unwrap();
        for piece in &pieces {
            raw.write_all(piece).unwrap();
        }
        container.end();
        prop_assert_eq!(world.read("stdout"), world.events());
        let copy = fs::read(world.transcript("raw.jsonl")).unwrap_or_default();
        prop_assert_eq!(copy, pieces.concat());
        let lines = world.events();
        for line in lines.lines() {
            prop_assert!(serde_json::from_str::<Value>(line).is_ok(), "{}", line);
        }
        prop_assert!(!broker.reports().concat().contains("ANSWER"));
    }
}
