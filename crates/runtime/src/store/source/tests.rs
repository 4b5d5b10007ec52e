//! A list and a watch with the data of a hostile user.

use std::convert::Infallible;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::store::Retried;

/// Starts a server that sends one response per request in order, and records the requests.
fn server(answers: Vec<(u16, String)>) -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let answers = Arc::new(Mutex::new(answers.into_iter()));
    let seen = Arc::clone(&asked);
    let service = service_fn(move |request: Request<Body>| {
        seen.lock().push(request.uri().to_string());
        let answer = answers.lock().next();
        async move {
            let Some((code, text)) = answer else {
                return std::future::pending().await;
            };
            let answer = Response::builder().status(code);
            Ok::<_, Infallible>(answer.body(Body::from(text.into_bytes())).unwrap())
        }
    });
    (Client::new(service, "default"), asked)
}

fn watch(client: &Client) -> Watch<ConfigMap> {
    let health = Health::new("the watch of ConfigMap".to_owned(), "ConfigMap");
    let resource = ApiResource::erase::<ConfigMap>(&());
    let ours = Selection::default().labels("a=b");
    Watch::new(client, &resource, Some("dev"), ours, health)
}

fn map(name: &str, version: u32) -> String {
    let version = version.to_string();
    json!({ "metadata": { "name": name, "uid": name, "resourceVersion": version } }).to_string()
}

fn poison(name: &str, version: u32) -> String {
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    map(name, version).replacen('{', &format!(r#"{{"data":{deep},"#), 1)
}

fn page(items: &[String], metadata: &Value) -> (u16, String) {
    let items = items.join(",");
    (
        200,
        format!(r#"{{"metadata":{metadata},"items":[{items}]}}"#),
    )
}

fn describe(event: &StoreEvent<Guarded<ConfigMap>>) -> String {
    let object = |sign: &str, object: &Guarded<ConfigMap>| {
        let name = object.metadata().name.clone().unwrap_or_default();
        let poison = if object.0.is_err() { "!" } else { "" };
        format!("{sign}{name}{poison}")
    };
    match event {
        StoreEvent::Init => "list".to_owned(),
        StoreEvent::InitApply(one) => object("", one),
        StoreEvent::InitDone => "listed".to_owned(),
        StoreEvent::Apply(one) => object("+", one),
        StoreEvent::Delete(one) => object("-", one),
    }
}

#[tokio::test]
async fn object_without_uid_counts_as_one_that_does_not_decode() {
    let bad = json!({ "metadata": { "name": "a", "resourceVersion": "1" } }).to_string();
    let (client, _) = server(vec![page(&[bad], &json!({ "resourceVersion": "1" }))]);
    let mut watch = watch(&client);
    let _init = watch.next().await.unwrap();
    let StoreEvent::InitApply(Guarded(Err(bad))) = watch.next().await.unwrap() else {
        panic!("it decodes");
    };
    assert_eq!(bad.metadata.name.as_deref(), Some("a"));
    assert_eq!(
        bad.to_string(),
        "it has no metadata.uid; the API server stores no such object"
    );
}

#[tokio::test]
async fn undecodable_objects_stop_neither_list_nor_watch() {
    let event = |kind: &str, object: &str| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
    let events = [
        event("ADDED", &poison("c", 11)),
        event("MODIFIED", &map("a", 12)),
        event("DELETED", &poison("c", 13)),
        event(
            "BOOKMARK",
            r#"{"metadata":{"resourceVersion":"20"},"data":null}"#,
        ),
    ];
    let gone = json!({ "code": 410, "message": "too old" }).to_string();
    let (client, asked) = server(vec![
        page(
            &[map("a", 1), poison("b", 2)],
            &json!({ "continue": "next" }),
        ),
        page(
            &[map("d", 3)],
            &json!({ "resourceVersion": "10", "continue": "" }),
        ),
        (200, events.concat()),
        (200, event("ERROR", &gone)),
        page(&[map("e", 30)], &json!({ "resourceVersion": "31" })),
    ]);
    let mut watch = watch(&client);
    let mut seen = Vec::new();
    while seen.last().is_none_or(|last| last != "e") {
        seen.push(match watch.next().await {
            Ok(event) => describe(&event),
            Err(error) => error.to_string(),
        });
    }
    assert_eq!(
        seen,
        [
            "list",
            "a",
            "b!",
            "d",
            "listed",
            "+c!",
            "+a",
            "-c!",
            "too old (410)",
            "list",
            "e"
        ]
    );
    let asked = asked.lock().clone();
    assert!(
        asked[0].starts_with("/api/v1/namespaces/dev/configmaps?limit=500&labelSelector=a%3Db")
    );
    assert!(asked[1].contains("continue=next"));
    assert!(asked[2].contains("resourceVersion=10") && asked[2].contains("allowWatchBookmarks"));
    assert!(asked[3].contains("resourceVersion=20"), "{}", asked[3]);
    assert!(!asked[4].contains("watch"));
}

#[tokio::test]
async fn failed_or_invalid_list_is_reported_and_retried() {
    let denied = json!({ "code": 403, "message": "not yours" }).to_string();
    let (client, _) = server(vec![
        (403, denied),
        (200, "{}".to_owned()),
        (200, r#"{"items":[{"metadata""#.to_owned()),
        page(&[], &json!({ "resourceVersion": "1" })),
    ]);
    let mut watch = watch(&client);
    let mut seen = Vec::new();
    while seen.last().is_none_or(|last| last != "listed") {
        seen.push(match watch.next().await {
            Ok(event) => describe(&event),
            Err(error) => error.to_string(),
        });
    }
    assert_eq!(seen[1], "not yours (403)");
    assert!(seen[3].contains("without a resource version"), "{seen:?}");
    assert!(seen[5].contains("ends early"), "{seen:?}");
    assert_eq!(seen.len(), 8, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn watch_that_fails_begins_again_after_pauses() {
    let failure = |code: u16| (code, json!({ "code": code, "message": "no" }).to_string());
    let listed = || page(&[map("a", 1)], &json!({ "resourceVersion": "10" }));
    let (client, _) = server(vec![
        failure(403),
        failure(500),
        listed(),
        failure(410),
        listed(),
        failure(429),
        (
            200,
            format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", map("b", 11)),
        ),
    ]);
    let mut retried = Retried::new(watch(&client));
    let (mut seen, mut failures) = (Vec::new(), Vec::new());
    while seen.last().is_none_or(|last| last != "+b") {
        let began = tokio::time::Instant::now();
        let before = failures.len();
        let event = retried.next(|error| failures.push(error.to_string())).await;
        seen.push(describe(&event));
        assert_eq!(began.elapsed().is_zero(), before == failures.len());
    }
    assert_eq!(failures, ["no (403)", "no (500)", "no (410)", "no (429)"]);
    let list = ["list", "a", "listed"];
    let once = ["list", "list"].into_iter().chain(list);
    let all: Vec<&str> = once.chain(list).chain(["+b"]).collect();
    assert_eq!(seen, all);
}

/// An object that this process writes after the request may be missing from the list, and is not deleted.
#[tokio::test]
async fn list_begins_before_its_request() {
    let (client, asked) = server(vec![page(&[], &json!({ "resourceVersion": "1" }))]);
    let mut watch = watch(&client);
    let first = watch.next().await.unwrap();
    assert!(matches!(first, StoreEvent::Init));
    assert!(asked.lock().is_empty());
}

#[tokio::test]
async fn refused_watch_is_healthy_as_soon_as_it_is_open() {
    let busy = json!({ "code": 429, "message": "storage is (re)initializing" }).to_string();
    let (client, asked) = server(vec![
        page(&[], &json!({ "resourceVersion": "10" })),
        (429, busy),
        // It has no event and no bookmark; an error follows if this does not count as open.
        (200, String::new()),
        (403, json!({ "message": "closed again" }).to_string()),
    ]);
    let mut watch = watch(&client);
    let health = watch.health().clone();
    let error = loop {
        if let Err(error) = watch.next().await {
            break error;
        }
    };
    assert_eq!(error.to_string(), "storage is (re)initializing (429)");
    let complaint = health.complaint().unwrap().to_string();
    assert!(complaint.contains("(429)"), "{complaint}");
    let healthy = async {
        while health.complaint().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = healthy => {}
        event = watch.next() => panic!("{event:?}"),
    }
    assert_eq!(asked.lock().len(), 3);
}
