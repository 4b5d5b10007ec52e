//! The published events and their form.

use std::convert::Infallible;

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;
use tower::service_fn;

use super::*;

#[test]
fn a_note_is_cut_between_characters_and_only_if_it_is_too_long() {
    let fits = "ä".repeat(NOTE_BYTES / 2);
    assert_eq!(shortened(fits.clone()), fits);
    let cut = shortened(format!("x{fits}"));
    assert!(cut.len() <= NOTE_BYTES && cut.ends_with("ä…"), "{cut}");
}

#[test]
fn the_event_of_an_object_with_the_longest_name_has_a_name_that_is_allowed() {
    let now = Timestamp::now();
    let longest = event_name(&"a".repeat(NAME_BYTES), now);
    assert_eq!(longest.len(), NAME_BYTES);
    let dots = format!("{}.-.{}", "a".repeat(233), "b".repeat(17));
    assert!(!event_name(&dots, now).contains("-."));
    assert!(event_name("web", now).starts_with("web."));
}

/// The calls, as method, name of the event and body, of an API server that responds to PATCH with
/// `patched`.
#[derive(Clone)]
struct Server {
    calls: Arc<Mutex<Vec<(Method, String, Value)>>>,
    patched: u16,
}

impl Server {
    fn new(patched: u16) -> (Self, Recorder) {
        let server = Self {
            calls: Arc::default(),
            patched,
        };
        let answering = server.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = answering.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let client = Client::new(service, "default");
        (server, Recorder::new(client, "acme", Some("acme-0")))
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let status = match head.method {
            Method::PATCH => self.patched,
            _ => 201,
        };
        let answer = match status {
            404 => {
                json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"})
            }
            _ => json!({"metadata": {}, "eventTime": null}),
        };
        let path = head.uri.path().rsplit('/').next().unwrap().to_owned();
        self.calls.lock().push((head.method, path, body));
        let answer = Body::from(answer.to_string().into_bytes());
        Response::builder().status(status).body(answer).unwrap()
    }

    fn calls(&self) -> Vec<(Method, String, Value)> {
        self.calls.lock().clone()
    }
}

fn event(reason: &str) -> Event {
    Event {
        type_: EventType::Warning,
        reason: reason.to_owned(),
        note: Some(format!("{reason}, at length")),
        action: "Check".to_owned(),
        secondary: None,
    }
}

fn pod(name: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: Some("shop".to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

#[tokio::test]
async fn repeated_event_is_counted_in_first_event() {
    let (server, recorder) = Server::new(200);
    for reason in ["Slow", "Slow", "Gone", "Slow"] {
        recorder.publish(&event(reason), &pod("web")).await.unwrap();
    }
    recorder.publish(&event("Slow"), &pod("db")).await.unwrap();
    let calls = server.calls();
    let methods: Vec<_> = calls.iter().map(|(method, ..)| method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "POST", "PATCH", "POST"]);
    let (_, _, first) = &calls[0];
    assert_eq!(first["note"], "Slow, at length");
    assert_eq!(first["type"], "Warning");
    assert_eq!(first["regarding"]["name"], "web");
    assert_eq!(first["reportingController"], "acme");
    assert_eq!(first["reportingInstance"], "acme-0");
    for (at, count) in [(1, 2), (3, 3)] {
        let (_, name, body) = &calls[at];
        assert_eq!(first["metadata"]["name"], name.as_str());
        assert_eq!(body["series"]["count"], count);
        assert!(body["series"]["lastObservedTime"].is_string(), "{body}");
    }
}

#[tokio::test]
async fn removed_event_is_created_again() {
    let (server, recorder) = Server::new(404);
    for _ in 0..2 {
        recorder.publish(&event("Slow"), &pod("web")).await.unwrap();
    }
    let calls = server.calls();
    let methods: Vec<_> = calls.iter().map(|(method, ..)| method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "POST"]);
    recorder.publish(&event("Slow"), &pod("web")).await.unwrap();
    let (method, name, body) = &server.calls()[3];
    assert_eq!(method, Method::PATCH);
    assert_eq!(calls[2].2["metadata"]["name"], name.as_str());
    assert_eq!(body["series"]["count"], 2);
}

#[tokio::test]
async fn remembered_events_are_bounded() {
    let (_, recorder) = Server::new(200);
    for number in 0..2 * MEMORY {
        let pod = pod(&format!("web-{number}"));
        recorder.publish(&event("Slow"), &pod).await.unwrap();
    }
    let known = recorder.series();
    assert_eq!(known.len(), MEMORY);
    assert_eq!(known[0].regarding, pod(&format!("web-{MEMORY}")));
}
