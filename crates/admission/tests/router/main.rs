//! Reviews without sockets: requests and responses, for every kind of extension.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod capacity;
#[path = "../common/mod.rs"]
mod common;
mod conversion;
mod handlers;
mod traits;

use std::time::Duration;

use axum::{body::Body, http::Request};
use common::{Label, answer, manager, patched, pod, review_of};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::DynamicObject;
use oz_admission::{
    Cx, FailurePolicy, Gate, Hook, Limits, Mutate, Notes, Operation, Rejection, ResourceRule,
    Review, Validate, connect::PodStreamOptions,
};
use serde_json::{Value, json};
use tower::ServiceExt;

struct Refuse;

impl Validate for Refuse {
    type Object = ConfigMap;

    async fn validate(&self, _: &Cx, _: &Review<ConfigMap>) -> Result<Notes, Rejection> {
        Err(
            Rejection::invalid("TooMuch", "data is too much; remove some").cause(
                "data",
                "FieldValueTooMany",
                "3 of 2",
            ),
        )
    }
}

/// A handler that returns the fields of a request in a warning.
struct Tell;

impl Mutate for Tell {
    type Object = Value;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<Value>,
        _: &mut Value,
    ) -> Result<Notes, Rejection> {
        let seen = json!({
            "uid": review.uid, "operation": review.operation, "user": review.user,
            "kind": review.kind.kind, "resource": review.resource.resource,
            "subresource": review.subresource, "namespace": review.namespace,
            "name": review.name, "generateName": review.generate_name,
            "options": review.options, "dryRun": review.dry_run, "cxDryRun": cx.dry_run,
            "now": cx.now.to_string(), "fingerprint": *cx.fingerprint,
        });
        Ok(Notes::none().warn(seen.to_string()))
    }
}

fn tell() -> Hook {
    Hook::mutating_on("tell", ResourceRule::new("", "v1", "pods"), Tell)
}

async fn send_review(review: &Value) -> Value {
    let manager = manager("acme").hook(tell()).build().unwrap();
    let response = answer(&manager, "/mutate/tell", review).await;
    serde_json::from_str(response["warnings"][0].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_mutation_comes_back_as_a_patch_with_its_notes() {
    let manager = manager("acme")
        .hook(Hook::mutating("label", Label))
        .build()
        .unwrap();
    let response = answer(&manager, "/mutate/label", &review_of(&pod())).await;
    assert_eq!(response["allowed"], true);
    assert_eq!(response["warnings"], json!(["labelled"]));
    assert_eq!(response["auditAnnotations"], json!({"label": "asked-by"}));
    let after = patched(&pod(), &response);
    assert_eq!(after["metadata"]["labels"], json!({"asked-by": "alice"}));
    assert_eq!(after["spec"], pod()["spec"]);
}

#[tokio::test]
async fn fields_the_linked_api_version_does_not_know_survive_a_mutation() {
    let manager = manager("acme")
        .hook(Hook::mutating("label", Label))
        .build()
        .unwrap();
    let mut object = pod();
    object["spec"]["fromTheFuture"] = json!({"deep": [1, {"er": null}]});
    object["spec"]["containers"][0]["alsoNew"] = json!(1.5);
    let response = answer(&manager, "/mutate/label", &review_of(&object)).await;
    let after = patched(&object, &response);
    assert_eq!(after["spec"], object["spec"]);
    assert_eq!(after["metadata"]["labels"]["asked-by"], "alice");
}

#[tokio::test]
async fn undecodable_object_is_denied_with_field_before_extension() {
    struct Unreachable;
    impl Mutate for Unreachable {
        type Object = Pod;
        async fn mutate(&self, _: &Cx, _: &Review<Pod>, _: &mut Pod) -> Result<Notes, Rejection> {
            panic!("an extension was given an object that does not decode")
        }
    }
    let manager = manager("acme")
        .hook(Hook::mutating("label", Unreachable))
        .build()
        .unwrap();
    let mut object = pod();
    object["spec"]["containers"][0]["image"] = json!({"not": "a string"});
    let response = answer(&manager, "/mutate/label", &review_of(&object)).await;
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 400);
    assert_eq!(response["status"]["reason"], "DecodeFailed");
    assert_eq!(
        response["status"]["details"]["causes"][0]["field"],
        "spec.containers[0].image"
    );
}

#[tokio::test]
async fn an_object_of_another_kind_is_denied() {
    let manager = manager("acme")
        .hook(Hook::mutating("label", Label))
        .build()
        .unwrap();
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let response = answer(&manager, "/mutate/label", &review_of(&object)).await;
    assert_eq!(response["status"]["code"], 400);
    assert_eq!(response["status"]["reason"], "UnexpectedKind");
}

#[tokio::test]
async fn a_rejection_carries_code_reason_message_and_fields() {
    let manager = manager("acme")
        .hook(Hook::validating("refuse", Refuse))
        .build()
        .unwrap();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let response = answer(&manager, "/validate/refuse", &review_of(&object)).await;
    assert_eq!(response["allowed"], false);
    assert_eq!(
        response["status"],
        json!({
            "status": "Failure", "code": 422, "reason": "TooMuch",
            "message": "data is too much; remove some",
            "details": {"causes": [
                {"field": "data", "reason": "FieldValueTooMany", "message": "3 of 2"},
            ]},
        })
    );
}

#[tokio::test]
async fn a_handler_sees_who_asks_for_what() {
    let told = send_review(&review_of(&pod())).await;
    assert_eq!(told["user"]["username"], "alice");
    assert_eq!(
        told["user"]["groups"],
        json!(["devs", "system:authenticated"])
    );
    assert_eq!(
        told["user"]["extra"]["authentication.kubernetes.io/credential-id"],
        json!(["X509SHA256=1"])
    );
    assert_eq!(told["operation"], "CREATE");
    assert_eq!(told["options"]["kind"], "CreateOptions");
    assert_eq!(told["now"], "2026-01-02T03:04:05Z");
    assert_eq!(told["fingerprint"], "acme");
}

#[tokio::test]
async fn a_create_with_a_generated_name_shows_the_prefix_and_the_namespace() {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-"},
        "spec": {"containers": []}});
    let mut review = review_of(&object);
    review["request"]["namespace"] = json!("shop");
    let told = send_review(&review).await;
    assert_eq!(told["name"], Value::Null);
    assert_eq!(told["generateName"], "web-");
    assert_eq!(told["namespace"], "shop");
}

#[tokio::test]
async fn dry_run_is_visible_in_review_and_context() {
    let mut review = review_of(&pod());
    review["request"]["dryRun"] = json!(true);
    let told = send_review(&review).await;
    assert_eq!(
        (&told["dryRun"], &told["cxDryRun"]),
        (&json!(true), &json!(true))
    );
}

#[tokio::test]
async fn a_connect_review_carries_the_options_and_may_change_the_command() {
    struct Wrap;
    impl Mutate for Wrap {
        type Object = PodStreamOptions;
        async fn mutate(
            &self,
            _: &Cx,
            review: &Review<PodStreamOptions>,
            options: &mut PodStreamOptions,
        ) -> Result<Notes, Rejection> {
            assert_eq!(review.resource.resource, "pods");
            assert_eq!(review.subresource.as_deref(), Some("exec"));
            assert_eq!(review.name.as_deref(), Some("web"));
            options
                .command
                .splice(0..0, ["timeout".to_owned(), "5".to_owned()]);
            Ok(Notes::none())
        }
    }
    let rule = ResourceRule::new("", "v1", "pods").subresource("exec");
    let hook = Hook::mutating_on("wrap", rule, Wrap).on([Operation::Connect]);
    let manager = manager("acme").hook(hook).build().unwrap();
    let options = json!({"apiVersion": "v1", "kind": "PodExecOptions", "stdout": true,
        "container": "app", "command": ["sh", "-c", "true"], "newOption": 1});
    let mut review = review_of(&options);
    review["request"]["operation"] = json!("CONNECT");
    review["request"]["resource"]["resource"] = json!("pods");
    review["request"]["subResource"] = json!("exec");
    review["request"]["name"] = json!("web");
    let response = answer(&manager, "/mutate/wrap", &review).await;
    let after = patched(&options, &response);
    assert_eq!(
        after["command"],
        json!(["timeout", "5", "sh", "-c", "true"])
    );
    assert_eq!(after["newOption"], 1);
}

#[tokio::test]
async fn a_dynamic_object_is_reviewed_without_a_type() {
    struct Any;
    impl Mutate for Any {
        type Object = DynamicObject;
        async fn mutate(
            &self,
            _: &Cx,
            _: &Review<DynamicObject>,
            object: &mut DynamicObject,
        ) -> Result<Notes, Rejection> {
            object.data["spec"]["size"] = json!(3);
            Ok(Notes::none())
        }
    }
    let rule = ResourceRule::new("acme.example.com", "v1", "widgets");
    let manager = manager("acme")
        .hook(Hook::mutating_on("any", rule, Any))
        .build()
        .unwrap();
    let object = json!({"apiVersion": "acme.example.com/v1", "kind": "Widget",
        "metadata": {"name": "w"}, "spec": {"color": "red"}});
    let response = answer(&manager, "/mutate/any", &review_of(&object)).await;
    assert_eq!(
        patched(&object, &response)["spec"],
        json!({"color": "red", "size": 3})
    );
}

#[tokio::test]
async fn a_panic_is_answered_as_the_failure_policy_says() {
    struct Panic;
    impl Validate for Panic {
        type Object = Pod;
        async fn validate(&self, _: &Cx, _: &Review<Pod>) -> Result<Notes, Rejection> {
            panic!("a bug in an extension")
        }
    }
    for (policy, allowed) in [(FailurePolicy::Fail, false), (FailurePolicy::Ignore, true)] {
        let hook = Hook::validating("buggy", Panic).failure(policy);
        let manager = manager("acme").hook(hook).build().unwrap();
        let response = answer(&manager, "/validate/buggy", &review_of(&pod())).await;
        assert_eq!(response["allowed"], allowed, "{policy:?}");
        assert!(
            metrics(&manager)
                .await
                .contains("admission_panics_total{hook=\"buggy\"} 1")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_takes_too_long_is_answered_for_before_the_api_server_gives_up() {
    struct Slow;
    impl Validate for Slow {
        type Object = Pod;
        async fn validate(&self, _: &Cx, _: &Review<Pod>) -> Result<Notes, Rejection> {
            std::future::pending().await
        }
    }
    let hook = Hook::validating("slow", Slow).timeout(Duration::from_secs(2));
    let manager = manager("acme").hook(hook).build().unwrap();
    let started = tokio::time::Instant::now();
    let response = answer(&manager, "/validate/slow", &review_of(&pod())).await;
    assert_eq!(response["status"]["reason"], "ExtensionTimedOut");
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn invalid_review_is_rejected_without_verdict() {
    let manager = manager("acme")
        .hook(tell())
        .limits(Limits {
            body: 4096,
            ..Limits::default()
        })
        .build()
        .unwrap();
    let cases = [
        ("GET", "/mutate/tell", String::new(), 405),
        ("POST", "/mutate/nobody", review_of(&pod()).to_string(), 404),
        ("POST", "/mutate/tell", "{".to_owned(), 400),
        ("POST", "/mutate/tell", "[]".to_owned(), 400),
        (
            "POST",
            "/mutate/tell",
            json!({"apiVersion": "v1", "kind": "Pod"}).to_string(),
            400,
        ),
        ("POST", "/mutate/tell", " ".repeat(5000), 413),
    ];
    for (method, path, body, status) in cases {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(Body::from(body))
            .unwrap();
        let response = manager.router().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status, "{method} {path}");
    }
}

#[tokio::test]
async fn readiness_names_missing_gates() {
    let (cache, index) = (Gate::new("cache"), Gate::new("index"));
    let manager = manager("acme")
        .hook(Hook::mutating("label", Label))
        .gate(cache.clone())
        .gate(index.clone())
        .build()
        .unwrap();
    let ready = async || {
        let request = Request::get("/readyz").body(Body::empty()).unwrap();
        let response = manager.plain_router().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    cache.open();
    assert_eq!(
        ready().await,
        (
            503,
            "waiting for: index, serving, certificate, registration".to_owned()
        )
    );
    index.open();
    assert_eq!(
        ready().await.1,
        "waiting for: serving, certificate, registration"
    );
}

#[tokio::test]
async fn application_metrics_are_published() {
    use prometheus_client::metrics::counter::Counter;
    let counter: Counter = Counter::default();
    let manager = manager("acme")
        .metrics(|registry| registry.register("grants", "Grants", counter.clone()))
        .build()
        .unwrap();
    counter.inc();
    assert!(metrics(&manager).await.contains("grants_total 1"));
}

async fn metrics(manager: &oz_admission::Manager) -> String {
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    let response = manager.plain_router().oneshot(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}
