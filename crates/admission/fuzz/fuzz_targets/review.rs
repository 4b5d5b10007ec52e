//! Arbitrary bytes as the body of a webhook call: no panic, and a well-formed response.
//!
//! `make fuzz` runs the target for a minute.
#![no_main]

use std::{cell::LazyCell, sync::Arc};

use http::{Request, Response};
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{ResourceExt, client::Body};
use libfuzzer_sys::fuzz_target;
use oz_admission::{
    Cx, Endpoint, Hook, Manager, Mutate, Notes, Rejection, ResourceRule, Review, Validate,
    connect::PodStreamOptions,
};
use serde_json::Value;

/// A handler that changes lists, maps and scalars, from which patches are computed.
struct Change;

impl Mutate for Change {
    type Object = Pod;

    async fn mutate(&self, _: &Cx, _: &Review<Pod>, pod: &mut Pod) -> Result<Notes, Rejection> {
        pod.labels_mut().insert("fuzz".to_owned(), "yes".to_owned());
        if let Some(spec) = &mut pod.spec {
            spec.containers.reverse();
            spec.containers.truncate(3);
            spec.hostname = Some("fuzz".to_owned());
        }
        Ok(Notes::none())
    }
}

struct Look;

impl Mutate for Look {
    type Object = PodStreamOptions;

    async fn mutate(
        &self,
        _: &Cx,
        _: &Review<PodStreamOptions>,
        options: &mut PodStreamOptions,
    ) -> Result<Notes, Rejection> {
        options.command.insert(0, "timeout".to_owned());
        Ok(Notes::none())
    }
}

struct Any;

impl Validate for Any {
    type Object = Value;

    async fn validate(&self, _: &Cx, review: &Review<Value>) -> Result<Notes, Rejection> {
        Ok(Notes::none().warn(review.display_name()))
    }
}

fn manager() -> Manager {
    let nobody = tower::service_fn(|_: Request<Body>| async {
        Err::<Response<Body>, _>(std::io::Error::other("no cluster here"))
    });
    Manager::builder(kube::Client::new(nobody, "default"), "fuzz")
        .endpoint(Endpoint::Url("https://127.0.0.1:8443".to_owned()))
        .clock(|| Timestamp::UNIX_EPOCH)
        .hook(Hook::mutating("change", Change))
        .hook(Hook::mutating_on(
            "look",
            ResourceRule::new("", "v1", "pods"),
            Look,
        ))
        .hook(Hook::validating_on(
            "any",
            ResourceRule::new("", "v1", "pods"),
            Any,
        ))
        .build()
        .unwrap_or_else(|error| panic!("{error}"))
}

thread_local! {
    static PARTS: LazyCell<(tokio::runtime::Runtime, Manager)> = LazyCell::new(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        // The client of kube spawns its buffer on a runtime.
        let runtime = runtime.unwrap_or_else(|error| panic!("{error}"));
        let manager = runtime.block_on(async { manager() });
        (runtime, manager)
    });
}

fuzz_target!(|body: &[u8]| {
    PARTS.with(|parts| {
        let (runtime, manager) = &**parts;
        for path in ["/mutate/change", "/mutate/look", "/validate/any"] {
            let reply = runtime.block_on(manager.review(path, body));
            if reply.status == 200 {
                let answer: Value =
                    serde_json::from_slice(&reply.body).expect("an answer that is JSON");
                let response = &answer["response"];
                assert!(response["allowed"].is_boolean());
                assert_ne!(response["status"]["reason"], "ExtensionPanicked");
                assert_ne!(response["status"]["reason"], "InternalError");
            } else {
                assert_eq!(reply.status, 400);
            }
        }
    });
});
