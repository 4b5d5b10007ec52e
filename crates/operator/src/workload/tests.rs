//! The tests use a fake API server with a cache that lags behind.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use oz_api::TargetApiVersion;
use oz_runtime::SystemClock;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

/// The pods of a StatefulSet: the current ones, and those in the cache of the API server.
#[derive(Default)]
struct Server {
    pods: Vec<Value>,
    cached: Vec<Value>,
    /// The paths of the reads, without the namespace.
    reads: Mutex<Vec<String>>,
}

fn pod(name: &str, uid: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "uid": uid,
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "set",
                "controller": true,
            }],
        },
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

impl Server {
    fn answer(&self, path: &str, query: &str) -> (u16, Value) {
        let path = path.replace("/namespaces/shop", "");
        let cached = query.contains("resourceVersion=0");
        let read = format!("{path}{}", if cached { ", cached" } else { "" });
        self.reads.lock().push(read);
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "db", "uid": "set"},
            "spec": {"selector": {"matchLabels": {"app": "db"}}},
        });
        if path.ends_with("/statefulsets/db") {
            return (200, set);
        }
        if path.ends_with("/pods") {
            let items = if cached { &self.cached } else { &self.pods };
            let list = json!({
                "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items,
            });
            return (200, list);
        }
        let found = self.pods.iter().find(|pod| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            path.ends_with(&format!("/pods/{name}"))
        });
        let missing = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
            "message": "not found", "code": 404,
        });
        found.map_or((404, missing), |pod| (200, pod.clone()))
    }

    fn cx(self: &Arc<Self>) -> Cx {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let (code, answer) = server.answer(request.uri().path(), query);
            let answer = Response::builder()
                .status(code)
                .body(Body::from(answer.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(answer.unwrap()) }
        });
        Cx::new(Client::new(service, "default"), SystemClock)
    }

    fn reads(&self) -> Vec<String> {
        std::mem::take(&mut self.reads.lock())
    }
}

fn target() -> CrossVersionObjectReference {
    CrossVersionObjectReference {
        api_version: TargetApiVersion::AppsV1,
        kind: TargetKind::StatefulSet,
        name: "db".to_owned(),
    }
}

const FIRST: [&str; 2] = ["/apis/apps/v1/statefulsets/db", "/api/v1/pods"];

#[tokio::test]
async fn a_workload_that_is_known_is_read_from_the_cache() {
    let pods = vec![pod("db-0", "one", "Running")];
    let server = Arc::new(Server {
        cached: pods.clone(),
        pods,
        ..Server::default()
    });
    let (cx, workloads) = (server.cx(), Workloads::default());
    let read = async || workloads.read(&cx, "shop", &target(), None).await.unwrap();
    let first = read().await;
    assert_eq!(server.reads(), FIRST);
    assert_eq!(read().await, first);
    assert_eq!(server.reads(), ["/api/v1/pods, cached"]);
}

#[tokio::test]
async fn pods_are_listed_anew_if_cache_has_no_usable_pod() {
    for (cached, wanted) in [
        (vec![], None),
        (vec![pod("db-0", "one", "Pending")], None),
        (vec![pod("db-0", "one", "Running")], Some("db-1")),
    ] {
        let server = Arc::new(Server {
            pods: vec![
                pod("db-0", "one", "Running"),
                pod("db-1", "other", "Running"),
            ],
            cached,
            ..Server::default()
        });
        let (cx, workloads) = (server.cx(), Workloads::default());
        let read = async || {
            workloads
                .read(&cx, "shop", &target(), wanted)
                .await
                .unwrap()
        };
        read().await;
        server.reads();
        assert_eq!(read().await.pods.len(), 2, "{wanted:?}");
        let cached = "/api/v1/pods, cached";
        assert_eq!(server.reads(), [cached, FIRST[0], FIRST[1]], "{wanted:?}");
    }
}

#[tokio::test]
async fn a_pod_of_the_cache_is_current_only_if_it_is_there_and_can_be_used() {
    let chosen: Pod = serde_json::from_value(pod("db-0", "one", "Running")).unwrap();
    for (now, current) in [
        (vec![pod("db-0", "one", "Running")], true),
        (vec![pod("db-0", "two", "Running")], false),
        (vec![pod("db-0", "one", "Failed")], false),
        (vec![], false),
    ] {
        let server = Arc::new(Server {
            pods: now,
            ..Server::default()
        });
        let (cx, workloads) = (server.cx(), Workloads::default());
        let is_current = workloads.is_current(&cx, "shop", &chosen).await;
        assert_eq!(is_current, current, "{:?}", server.pods);
    }
}
