//! Failures apart from the agent: of this container, and of the broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oz_api::harness::wire::MAX_BODY;
use rustix::process::Signal;
use serde_json::Value;

use crate::broker::{Broker, usual};
use crate::world::World;

#[test]
fn killed_container_resumes_without_loss() {
    let world = World::new();
    let broker = Broker::start(usual);
    let container = world.started("runtime", &broker);
    world.say("before-1");
    world.has_event("before-1");
    broker.reported("answer of 8 bytes");
    container.signal(Signal::KILL);
    container.wait();
    // The agent notices nothing.
    world.say("meanwhile-2");
    let container = world.started("runtime", &broker);
    world.say("after-3");
    world.has_event("after-3");
    container.end();
    let events = world.events();
    let count = |text: &str| events.matches(text).count();
    // In summary and content.
    let counts = ["PROMPT", "before-1", "meanwhile-2", "after-3"].map(count);
    assert_eq!(counts, [1, 2, 2, 2], "{events}");
    assert_eq!(world.read("stdout"), events);
    assert_eq!(broker.asked("GET /v1/run").len(), 1);
    let last: Value = serde_json::from_str(&broker.reports().pop().unwrap()).unwrap();
    assert_eq!(last["events"].as_array().unwrap().len(), 4, "{last}");
}

#[test]
fn a_line_that_was_begun_before_the_restart_is_read_whole_after_it() {
    let world = World::new();
    let broker = Broker::start(usual);
    let container = world.started("runtime", &broker);
    std::fs::write(world.raw(), "whole\n{\"kind\":\"message\",").unwrap();
    world.has_event("whole");
    container.signal(Signal::KILL);
    container.wait();
    let container = world.started("runtime", &broker);
    world.say(r#""text":"joined"}"#);
    world.has_event("joined");
    container.end();
    let events = world.events();
    assert!(events.contains(r#""summary":"joined""#), "{events}");
    assert_eq!(events.lines().count(), 3, "{events}");
}

#[test]
fn a_broker_that_is_down_costs_reports_and_nothing_else() {
    let world = World::new();
    let is_down = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&is_down);
    let broker = Broker::start(move |line, before| match state.load(Ordering::SeqCst) {
        true => (503, String::new()),
        false => usual(line, before),
    });
    let container = world.started("runtime", &broker);
    broker.reported("PromptSubmitted");
    is_down.store(true, Ordering::SeqCst);
    for index in 0..3_000 {
        world.say(format!(
            r#"{{"kind":"error","message":"{index} {}"}}"#,
            "x".repeat(900)
        ));
    }
    world.say(r#"{"kind":"result","summary":"done"}"#);
    world.has_event("done");
    // What was not taken comes again, without news.
    let before = broker.reports().len();
    broker.wait("POST /v1/report", before + 2);
    is_down.store(false, Ordering::SeqCst);
    world.say(r#"{"kind":"error","message":"back"}"#);
    broker.reported("back");
    container.end();
    let last = broker.reports().pop().unwrap();
    assert!(
        last.contains("done") && last.len() <= MAX_BODY,
        "{}",
        last.len()
    );
    assert_eq!(world.read("termination-log"), r#"{"summary":"done"}"#);
    assert_eq!(world.read("stdout"), world.events());
    assert_eq!(world.events().lines().count(), 3_003);
}

#[test]
fn a_broker_that_never_answers_does_not_keep_the_pod() {
    let world = World::new();
    let broker = Broker::start(|line, before| {
        if line.starts_with("POST") {
            // Until the test is over.
            loop {
                std::thread::park();
            }
        }
        usual(line, before)
    });
    let container = world.started("runtime", &broker);
    broker.wait("POST /v1/report", 1);
    world.say(r#"{"kind":"result","summary":"done"}"#);
    container.end();
    assert_eq!(world.read("termination-log"), r#"{"summary":"done"}"#);
    assert!(
        world
            .read("stderr")
            .contains("has not received the last events")
    );
}
