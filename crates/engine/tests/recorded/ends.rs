//! Due objects come before all others, regardless of other passes that hang or are slow.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use oz_core::controller::{Effect, Failure};
use oz_engine::{Engine, Port};
use oz_runtime::{Runtime, SystemClock};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::mock::{Mock, status};
use crate::objects::{BOXES, INNER, OUTER, SECRETS, inner, outer, timebox};
use crate::steps::overdue;
use crate::timebox::{PORT, Timeboxes};

/// A port that never completes an effect.
#[derive(Clone, Default)]
struct Hangs(Arc<AtomicUsize>);

impl Port for Hangs {
    fn carry_out<'a>(&'a self, _: &'a Effect) -> BoxFuture<'a, Result<Value, Failure>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        futures::future::pending().boxed()
    }
}

/// Returns the same object for another box.
fn move_to_box(number: usize, mut object: Value) -> Value {
    let name = format!("b{number}");
    let metadata = &mut object["metadata"];
    let of_box = metadata["name"]
        .as_str()
        .expect("a name")
        .replacen('a', &name, 1);
    metadata["name"] = json!(of_box);
    let uid = metadata["uid"].as_str().expect("a UID");
    metadata["uid"] = json!(format!("{uid}-{number}"));
    if metadata["labels"].is_object() {
        metadata["labels"]["oz.wizardofoz.co/owner-uid"] = json!(format!("box-uid-{number}"));
        metadata["annotations"]["oz.wizardofoz.co/owner-name"] = json!(name);
    }
    object
}

#[tokio::test]
async fn every_access_is_taken_away_although_no_effect_ends() {
    // Many more than the number of concurrent passes.
    const MANY: usize = 60;
    let mock = Mock::default();
    let all = |object: &dyn Fn() -> Value| -> Value {
        (0..MANY)
            .map(|number| move_to_box(number, object()))
            .collect()
    };
    mock.list(
        BOXES,
        all(&|| {
            let mut overdue = timebox(900);
            overdue["spec"]["until"] = json!("2000-01-01T00:00:00Z");
            overdue
        }),
    );
    mock.list("/api/v1/configmaps", all(&|| outer(900)));
    mock.list("/api/v1/secrets", all(&|| inner(901)));
    for number in 0..MANY {
        let path = format!("{SECRETS}/b{number}-inner");
        mock.expect_any_time(Method::DELETE, &path, |_| {
            (404, status(404, "NotFound", "gone already"))
        });
    }
    let hangs = Hangs::default();
    let mut engine = Engine::new(Runtime::new("oz", mock.client(), SystemClock));
    engine.concurrency(1).port(PORT, hangs.clone());
    let controller = Timeboxes {
        effects: true,
        ..Timeboxes::default()
    };
    let running = mock.run_engine(engine, controller);
    // No outer child is deleted: the effect has completed for none of them.
    running.finish().await;
    assert_eq!(hangs.0.load(Ordering::Relaxed), MANY);
}

/// A port that returns the first of the remaining answers, and records the effects.
#[derive(Clone, Default)]
struct QueuedAnswers {
    answers: Arc<Mutex<VecDeque<Result<Value, Failure>>>>,
    asked: Arc<Mutex<Vec<Effect>>>,
}

impl Port for QueuedAnswers {
    fn carry_out<'a>(&'a self, effect: &'a Effect) -> BoxFuture<'a, Result<Value, Failure>> {
        self.asked.lock().push(effect.clone());
        let answer = self.answers.lock().pop_front();
        let none = || Err(Failure::invalid("TooOften", "asked once more"));
        futures::future::ready(answer.unwrap_or_else(none)).boxed()
    }
}

/// Returns an expired box with an inner child that may be deleted before the port has answered; no
/// other child may.
fn ends_with_an_effect(
    port: Option<QueuedAnswers>,
) -> (Mock, impl FnOnce(&Mock) -> crate::running::Running) {
    let mock = overdue();
    mock.expect(Method::DELETE, INNER, |_| {
        (404, status(404, "NotFound", "gone already"))
    });
    let run = |mock: &Mock| {
        let mut engine = Engine::new(Runtime::new("oz", mock.client(), SystemClock));
        if let Some(port) = port {
            engine.port(PORT, port);
        }
        let controller = Timeboxes {
            effects: true,
            ..Timeboxes::default()
        };
        mock.run_engine(engine, controller)
    };
    (mock, run)
}

#[tokio::test]
async fn an_effect_is_tried_again_under_its_key_and_its_answer_reaches_the_status() {
    let port = QueuedAnswers::default();
    let busy = Failure::transient("Busy", "somebody else rings");
    *port.answers.lock() = [Err(busy), Ok(json!("ding"))].into();
    let (mock, run) = ends_with_an_effect(Some(port.clone()));
    mock.expect_status(json!({"phase": "Failed", "reason": "Busy", "children": 1}));
    mock.expect(Method::DELETE, OUTER, |_| {
        (404, status(404, "NotFound", "gone already"))
    });
    mock.expect_status(
        json!({"phase": "Expired", "reason": null, "children": 0, "answer": "ding"}),
    );
    run(&mock).finish().await;
    let effect = Effect {
        port: PORT.to_owned(),
        key: "box-uid".to_owned(),
        payload: json!({"box": "a"}),
    };
    assert_eq!(*port.asked.lock(), [effect.clone(), effect]);
}

#[tokio::test]
async fn effect_for_unregistered_port_ends_plan() {
    let (mock, run) = ends_with_an_effect(None);
    // The outer child remains: it is unknown whether the work that it represents is done.
    mock.expect_status(json!({"phase": "Failed", "reason": "UnknownPort", "children": 1}));
    run(&mock).finish().await;
}

/// Returns the box `a` with both children and an observation that takes longer than any test.
fn observed_for_ever(mock: &Mock, until: Timestamp) {
    let mut hangs = timebox(900);
    hangs["spec"]["slow"] = json!(u64::MAX);
    hangs["spec"]["until"] = json!(until.to_string());
    mock.list(BOXES, json!([hangs]));
    mock.list("/api/v1/configmaps", json!([outer(900)]));
    mock.list("/api/v1/secrets", json!([inner(901)]));
    for path in [INNER, OUTER] {
        mock.expect(Method::DELETE, path, move |_| {
            assert!(Timestamp::now() >= until, "too early");
            (404, status(404, "NotFound", "gone already"))
        });
    }
    mock.expect_status(json!({"phase": "Expired", "reason": null, "children": 0}));
}

#[tokio::test]
async fn due_object_is_ended_although_observation_hangs() {
    let mock = Mock::default();
    observed_for_ever(&mock, Timestamp::now());
    mock.run().finish().await;
}

#[tokio::test]
async fn object_due_during_hanging_observation_is_ended() {
    let mock = Mock::default();
    // The pass begins long before that instant, and its observation would end long after.
    observed_for_ever(&mock, Timestamp::now() + SignedDuration::from_secs(3));
    mock.run().finish().await;
}
