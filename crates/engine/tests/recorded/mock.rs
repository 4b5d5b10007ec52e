//! An API server that follows a script. The test provides the content of lists and watches; every
//! other call must be the next one of the script.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures::StreamExt;
use futures::channel::mpsc;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::objects::{BOX_STATUS, BOXES, stored};

/// A call that the script expects, and the response to it.
struct Expected {
    method: Method,
    path: String,
    answer: Answer,
    /// True if the call may occur before earlier expected calls.
    any_time: bool,
}

type Answer = Box<dyn FnOnce(&Call) -> (u16, Value) + Send>;

/// A call that was made.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) body: Value,
}

#[derive(Default)]
struct State {
    script: VecDeque<Expected>,
    lists: Vec<(String, Value)>,
    refused: Vec<(String, u16)>,
    reads: Vec<(String, u16, usize)>,
    watches: Vec<(String, mpsc::UnboundedSender<Value>)>,
    problems: String,
    version: u64,
}

/// The scripted API server.
#[derive(Clone, Default)]
pub(crate) struct Mock {
    state: Arc<Mutex<State>>,
    advanced: Arc<Notify>,
}

impl Mock {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Expects a call as the next one, and sets its response.
    pub(crate) fn expect(
        &self,
        method: Method,
        path: &str,
        answer: impl FnOnce(&Call) -> (u16, Value) + Send + 'static,
    ) -> &Self {
        self.state().script.push_back(Expected {
            method,
            path: path.to_owned(),
            answer: Box::new(answer),
            any_time: false,
        });
        self
    }

    /// Expects a call at any time, and sets its response.
    pub(crate) fn expect_any_time(
        &self,
        method: Method,
        path: &str,
        answer: impl FnOnce(&Call) -> (u16, Value) + Send + 'static,
    ) -> &Self {
        self.expect(method, path, answer);
        if let Some(last) = self.state().script.back_mut() {
            last.any_time = true;
        }
        self
    }

    /// Expects as the next call one that creates the object in its body.
    pub(crate) fn expect_create(&self, path: &str, uid: &'static str) -> &Self {
        let version = self.next_version();
        self.expect(Method::POST, path, move |call| {
            (201, stored(&call.body, uid, version))
        })
    }

    /// Expects as the next call one that patches the status of the box `a` with this.
    pub(crate) fn expect_status(&self, expected: Value) -> &Self {
        let version = self.next_version();
        let mock = self.clone();
        self.expect(Method::PATCH, BOX_STATUS, move |call| {
            assert_eq!(
                call.body["metadata"],
                json!({"uid": "box-uid"}),
                "no UID to guard it"
            );
            assert!(
                call.query.contains("fieldManager=oz%2Ftimebox"),
                "{}",
                call.query
            );
            assert_eq!(call.body["status"], expected);
            let mut state = mock.state();
            let (_, boxes) = state
                .lists
                .iter_mut()
                .find(|(path, _)| path == BOXES)
                .expect("boxes");
            let timebox = &mut boxes[0];
            for (field, value) in expected.as_object().expect("fields") {
                timebox["status"][field] = value.clone();
            }
            timebox["metadata"]["resourceVersion"] = json!(version.to_string());
            (200, timebox.clone())
        })
    }

    /// Sets the objects in a list. `path` is the collection's, with `?need` for the needs.
    pub(crate) fn list(&self, path: &str, items: Value) -> &Self {
        self.state().lists.push((path.to_owned(), items));
        self
    }

    /// Removes this kind from the API server, until [`Mock::listed`].
    pub(crate) fn unknown(&self, path: &str) {
        self.refused(path, 404);
    }

    /// Responds to lists and watches with this code, until [`Mock::listed`].
    pub(crate) fn refused(&self, path: &str, code: u16) {
        self.state().refused.push((path.to_owned(), code));
    }

    /// Responds to all reads of this path with this code.
    pub(crate) fn read(&self, path: &str, code: u16) {
        self.state().reads.push((path.to_owned(), code, 0));
    }

    /// Waits until the path was read.
    pub(crate) async fn asked(&self, path: &str) {
        let was = |(read, _, times): &(String, u16, usize)| read == path && *times > 0;
        self.until(|state| state.reads.iter().any(was)).await;
    }

    pub(crate) fn listed(&self, path: &str) {
        self.state().refused.retain(|(refused, _)| refused != path);
    }

    /// Breaks every watch of this path.
    pub(crate) fn break_watches(&self, path: &str) {
        self.state().watches.retain(|(watched, _)| watched != path);
    }

    /// Sends an event on a watch.
    pub(crate) fn show(&self, path: &str, kind: &str, object: &Value) {
        let event = json!({"type": kind, "object": object});
        for (watched, sender) in &self.state().watches {
            if watched == path {
                let _ = sender.unbounded_send(event.clone());
            }
        }
    }

    /// Waits until the watch of a collection has begun.
    pub(crate) async fn watched(&self, path: &str) {
        self.until(|state| state.watches.iter().any(|(watched, _)| watched == path))
            .await;
    }

    pub(crate) fn next_version(&self) -> u64 {
        let mut state = self.state();
        state.version += 1;
        1_000 + state.version
    }

    /// Waits until every expected call was made.
    pub(crate) async fn played(&self) {
        self.until(|state| state.script.is_empty()).await;
    }

    async fn until(&self, reached: impl Fn(&State) -> bool) {
        let waited = tokio::time::timeout(Duration::from_secs(20), async {
            while !reached(&self.state()) {
                self.advanced.notified().await;
            }
        });
        if waited.await.is_err() {
            let state = self.state();
            let next = state.script.front().map(|next| (&next.method, &next.path));
            panic!("waited for {next:?}; {}", state.problems);
        }
    }

    /// Fails if an unexpected call was made.
    pub(crate) fn nothing_else(&self) {
        let problems = self.state().problems.clone();
        assert!(problems.is_empty(), "{problems}");
    }

    pub(crate) fn client(&self) -> Client {
        let mock = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let mock = mock.clone();
            async move { Ok::<_, Infallible>(mock.answer(request).await) }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes());
        let call = Call {
            method: parts.method,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default(),
        };
        let response = self.respond(&call);
        self.advanced.notify_waiters();
        self.advanced.notify_one();
        response
    }

    fn respond(&self, call: &Call) -> Response<Body> {
        let mut state = self.state();
        let is_need = call.query.contains("need");
        let list = if is_need {
            format!("{}?need", call.path)
        } else {
            call.path.clone()
        };
        let is_list = call.query.contains("limit=") || call.query.contains("watch=true");
        if call.method == Method::GET && is_list {
            let refused = state.refused.iter().find(|(path, _)| *path == list);
            if let Some((_, code)) = refused {
                return respond(*code, &status(*code, "Refused", "no list of that"));
            }
            if call.query.contains("watch=true") {
                let (sender, receiver) = mpsc::unbounded::<Value>();
                state.watches.push((list, sender));
                let lines = receiver.map(|event| Ok::<_, Infallible>(format!("{event}\n")));
                return Response::new(Body::from_stream(lines));
            }
            let items = state.lists.iter().find(|(path, _)| *path == list);
            let items = items.map_or(json!([]), |(_, items)| items.clone());
            let list = json!({"metadata": {"resourceVersion": "1000"}, "items": items});
            return respond(200, &list);
        }
        if call.path.contains("events.k8s.io") {
            return respond(201, &call.body);
        }
        let mut reads = state.reads.iter_mut();
        let read = reads.find(|(path, ..)| *path == call.path);
        if let (&Method::GET, Some((_, code, times))) = (&call.method, read) {
            *times += 1;
            return respond(*code, &status(*code, "Refused", "no read of that"));
        }
        let is_next = |one: &Expected| one.method == call.method && one.path == call.path;
        let mut script = state.script.iter();
        let early = script.position(|one| one.any_time && is_next(one));
        let expected = state.script.remove(early.unwrap_or_default());
        drop(state);
        let problem = match expected {
            Some(next) if is_next(&next) => {
                // A failed assertion of the script belongs to the test, not to the engine.
                let answer = std::panic::AssertUnwindSafe(|| (next.answer)(call));
                match std::panic::catch_unwind(answer) {
                    Ok((code, body)) => return respond(code, &body),
                    Err(_) => format!("an assertion failed at {call:?}"),
                }
            }
            Some(next) => format!("expected {} {}, got {call:?}", next.method, next.path),
            None => format!("not expected: {call:?}"),
        };
        let _ = writeln!(self.state().problems, "{problem}");
        respond(500, &status(500, "InternalError", "not in the script"))
    }
}

fn respond(code: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).expect("a status code");
    response
}

/// Returns a `Status` in the form of the API server.
pub(crate) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message})
}
