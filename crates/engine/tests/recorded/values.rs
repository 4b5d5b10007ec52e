//! The name of a controller, and the client and field manager of its writes.

use http::Method;
use oz_engine::{Engine, Setup, StartError};
use oz_runtime::{Runtime, SystemClock};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::mock::Mock;
use crate::objects::{BOX_STATUS, BOXES, MAPS, SECRETS, stored, timebox};
use crate::timebox::{ObserveTimeboxes, Timeboxes};

#[tokio::test]
async fn a_controller_writes_with_its_own_client_and_field_manager() {
    // The engine sends only lists and watches here.
    let shared = Mock::default();
    shared.list(BOXES, json!([timebox(900)]));
    let own = Mock::default();
    for (path, uid) in [(MAPS, "outer-uid"), (SECRETS, "inner-uid")] {
        own.expect(Method::POST, path, move |call| {
            assert!(
                call.query.contains("fieldManager=team%2Fboxes"),
                "{}",
                call.query
            );
            (201, stored(&call.body, uid, 1_500))
        });
    }
    own.expect(Method::PATCH, BOX_STATUS, |call| {
        assert!(
            call.query.contains("fieldManager=team%2Fboxes"),
            "{}",
            call.query
        );
        let mut written = timebox(1_600);
        written["status"] = call.body["status"].clone();
        (200, written)
    });

    let engine = Engine::new(Runtime::new("oz", shared.client(), SystemClock));
    let observe = ObserveTimeboxes::new(engine.controllers().feeds());
    let setup = Setup::new(Timeboxes::default(), observe)
        .field_manager("team/boxes")
        .client(own.client());
    let running = engine.controllers().start(setup).expect("a free name");
    let controllers = engine.controllers().clone();
    let stop = CancellationToken::new();
    let task = tokio::spawn(engine.run(stop.clone()));
    own.played().await;
    running.stop().await;
    stop.cancel();
    task.await.expect("no panic").expect("the engine failed");
    shared.nothing_else();
    own.nothing_else();

    let observe = ObserveTimeboxes::new(controllers.feeds());
    let late = controllers.start(Setup::new(Timeboxes::default(), observe));
    let stopped = StartError::EngineStopped("timebox".to_owned());
    assert_eq!(late.map(|_| ()), Err(stopped));
}

#[tokio::test]
async fn two_controllers_of_one_name_are_no_engine() {
    let mut engine = Engine::new(Runtime::new("oz", Mock::default().client(), SystemClock));
    for _ in 0..2 {
        let observe = ObserveTimeboxes::new(engine.controllers().feeds());
        engine.controller(Timeboxes::default(), observe);
    }
    let failed = engine.run(CancellationToken::new()).await;
    let failed = failed.expect_err("one name is taken");
    let why = std::error::Error::source(&failed).map(ToString::to_string);
    assert!(why.is_some_and(|why| why.contains("timebox")), "{failed}");
}
