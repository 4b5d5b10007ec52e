//! A recipe of the guide, with a server to which its route sends.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use jiff::Timestamp;
use oz_api::Requester;
use oz_outbound::{Allowed, Proxies};
use oz_trail::notify::{Route, Routes, content};
use oz_trail::{Action, Decision, Entry, Link, Record, RequestRef};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;

use super::super::meters::Meters;
use super::super::queue::{Message, Queue};
use super::super::send::{Attempt, Sender};
use super::servers::{Answer, Got};

/// A text of a user that tries to mention users, to link, and to leave its place.
pub(super) const HOSTILE: &str = "@channel <!channel> <users/all> [click](https://evil.test) `@all` \
                       </b>\"}], 'x': \"";

/// A server, with the requests that it accepted.
#[derive(Clone)]
pub(super) struct Server {
    judge: fn(&Got) -> Answer,
    pub(super) accepted: Arc<Mutex<Vec<Got>>>,
}

async fn respond(
    State(server): State<Server>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let got = Got {
        path: uri.path().to_owned(),
        query: uri.query().unwrap_or_default().to_owned(),
        headers,
        body: body.to_vec(),
    };
    let (code, why) = match (server.judge)(&got) {
        Ok(code) => {
            server.accepted.lock().push(got);
            (code, String::new())
        }
        Err(refused) => refused,
    };
    (StatusCode::from_u16(code).unwrap(), why)
}

/// A recipe, with its server and its Secret.
pub(super) struct Recipe {
    pub(super) server: Server,
    pub(super) sender: Sender,
    pub(super) route: Route,
    pub(super) secrets: tempfile::TempDir,
}

impl Recipe {
    /// Starts the server of a recipe, to which its route sends. Files of the Secret are keys with their values; that of
    /// `url` is a path.
    pub(super) async fn start(
        name: &str,
        judge: fn(&Got) -> Answer,
        secret: &[(&str, &str)],
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server {
            judge,
            accepted: Arc::default(),
        };
        let router = Router::new().fallback(respond).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let mut route = route(name);
        if let Some(url) = &mut route.url {
            let path = url.splitn(4, '/').nth(3).unwrap();
            *url = format!("http://{address}/{path}");
        }
        let secrets = tempfile::tempdir().unwrap();
        for (key, value) in secret {
            let value = match *key {
                "url" => format!("http://{address}{value}\n"),
                _ => format!("{value}\n"),
            };
            write(&route, secrets.path(), key, &value);
        }
        Self {
            sender: sender(&route, secrets.path()),
            server,
            route,
            secrets,
        }
    }

    pub(super) async fn send(&self, action: Action, reason: &str) -> Attempt {
        let entry = entry(action, reason);
        let line = entry.record.line();
        assert!(self.route.wants(&entry.record), "{action}");
        let content = content(&self.route, &entry, &line).unwrap();
        let message = Message::new(&entry.record, content);
        self.sender.attempt(&message).await
    }

    /// Sends a record of each action of the recipe, with a harmless and with a hostile reason. Returns the accepted
    /// requests.
    pub(super) async fn run(&self, actions: &[Action]) -> Vec<Got> {
        for action in actions {
            for reason in ["the shop is down", "", HOSTILE] {
                let attempt = self.send(*action, reason).await;
                assert!(matches!(attempt, Attempt::Taken), "{action}: {attempt:?}");
            }
        }
        self.server.accepted.lock().clone()
    }
}

/// Returns the sender of a route.
pub(super) fn sender(route: &Route, secrets: &Path) -> Sender {
    let queue = Queue::new(Meters::default().route_meters(route));
    let allowed = Allowed::any_address_of("127.0.0.1", &Proxies::default());
    Sender::new(route.clone(), secrets, queue, allowed)
}

/// Writes a key of the Secret of a route.
pub(super) fn write(route: &Route, secrets: &Path, key: &str, value: &str) {
    let directory = route.directory(secrets);
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join(key), value).unwrap();
}

/// Returns the route of a recipe, as the guide has it.
pub(super) fn route(name: &str) -> Route {
    let guide = include_str!("../../../../../docs/guides/notifications.md");
    let (_, recipes) = guide.split_once("\n## Recipes\n").unwrap();
    for block in recipes.split("```yaml\n").skip(1) {
        let text = block.split("```").next().unwrap();
        let values: Value = serde_saphyr::from_str(text).unwrap();
        let routes: Routes = serde_json::from_value(values["notifications"].clone()).unwrap();
        routes.check().unwrap();
        for route in routes.routes {
            super::super::body::check(route.body.as_deref().unwrap()).unwrap();
            if route.name == name {
                return route;
            }
        }
    }
    panic!("the guide has no recipe {name}");
}

pub(super) fn entry(action: Action, reason: &str) -> Entry {
    let at: Timestamp = "2026-11-25T10:00:00Z".parse().unwrap();
    let decision = *action.decisions().first().unwrap_or(&Decision::Note);
    let message = format!("the request for shop says {reason}");
    let record = Record {
        user: Some(Requester {
            user: "alice".into(),
            ..Requester::default()
        }),
        request: RequestRef {
            kind: "ExecAccessRequest".into(),
            namespace: "shop".into(),
            name: "inc-42".into(),
            uid: "2f0b6f3c-4b7e-4d0a-9a51-6c3c1f0f7a11".into(),
        },
        ..Record::about(at, action, decision, "u-1", "Ready", &message)
    };
    Entry {
        link: Link::default(),
        record: record.detail("reason", reason).detail("ticket", "INC-42"),
    }
}

/// A name, the expected status code, and the change of an accepted request.
type Case = (&'static str, u16, fn(&mut Got));

/// Checks that the server refuses a request that differs from an accepted one.
pub(super) fn refuses(judge: fn(&Got) -> Answer, fine: &Got, cases: &[Case]) {
    judge(fine).unwrap();
    for (what, code, change) in cases {
        let mut changed = fine.clone();
        change(&mut changed);
        let refused = judge(&changed).map_err(|(code, _)| code);
        assert_eq!(refused, Err(*code), "{what}");
    }
}

/// Changes a field of a body.
pub(super) fn set(got: &mut Got, path: &str, value: Value) {
    let mut body = got.json().unwrap();
    *body.pointer_mut(path).unwrap() = value;
    got.body = body.to_string().into_bytes();
}

pub(super) fn long(length: usize) -> Value {
    "x".repeat(length).into()
}
