//! The shared parts of several test binaries and the bench: a hook, and reviews as the API server sends
//! them.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

pub mod served;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::client::Body;
use oz_admission::{Cx, Manager, ManagerBuilder, Mutate, Notes, Rejection, Review};
use serde_json::{Value, json};

/// Creates a client without a server: the tested code must make no calls.
pub fn no_client() -> kube::Client {
    let (service, _) = tower_test::mock::pair::<http::Request<Body>, http::Response<Body>>();
    kube::Client::new(service, "default")
}

/// Creates a builder of a manager without a cluster, at a fixed instant.
pub fn manager(fingerprint: &str) -> ManagerBuilder {
    let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
    Manager::builder(no_client(), fingerprint)
        .endpoint(oz_admission::Endpoint::Url(
            "https://127.0.0.1:8443".to_owned(),
        ))
        .clock(move || now)
}

/// A handler that labels a pod with the requesting user, and reports this in its notes.
pub struct Label;

impl Mutate for Label {
    type Object = Pod;

    async fn mutate(
        &self,
        _: &Cx,
        review: &Review<Pod>,
        pod: &mut Pod,
    ) -> Result<Notes, Rejection> {
        pod.labels_mut()
            .insert("asked-by".to_owned(), review.user.username.clone());
        Ok(Notes::none().warn("labelled").annotate("label", "asked-by"))
    }
}

pub fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
    })
}

/// Returns a review of `object` on CREATE.
pub fn review_of(object: &Value) -> Value {
    let (group, version) = object["apiVersion"]
        .as_str()
        .unwrap_or("v1")
        .split_once('/')
        .unwrap_or(("", "v1"));
    let kind = object["kind"].as_str().unwrap_or_default();
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": format!("{}s", kind.to_lowercase())},
            "name": object["metadata"]["name"].as_str().unwrap_or_default(),
            "namespace": object["metadata"]["namespace"].as_str().unwrap_or("shop"),
            "operation": "CREATE",
            "userInfo": {"username": "alice", "uid": "7", "groups": ["devs", "system:authenticated"],
                "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=1"]}},
            "object": object, "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

/// Sends a review and returns the `response` of the result.
pub async fn answer(manager: &Manager, path: &str, review: &Value) -> Value {
    let reply = manager
        .review(path, &serde_json::to_vec(review).unwrap())
        .await;
    assert_eq!(
        reply.status,
        200,
        "{}",
        String::from_utf8_lossy(&reply.body)
    );
    let answer: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["response"]["uid"], review["request"]["uid"]);
    answer["response"].clone()
}

/// Returns the object with the patch of a `response` applied to it.
pub fn patched(object: &Value, response: &Value) -> Value {
    let mut object = object.clone();
    if let Some(patch) = response.get("patch") {
        assert_eq!(response["patchType"], "JSONPatch");
        let bytes: k8s_openapi::ByteString = serde_json::from_value(patch.clone()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&bytes.0).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    object
}
