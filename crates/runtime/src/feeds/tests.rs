//! A list that comes after another one.

use std::convert::Infallible;

use http::{Request, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::client::Body;
use tokio::time::Instant;
use tower::service_fn;

use super::*;
use crate::{Runtime, SystemClock};

/// Returns the time of the request for the list of ConfigMaps, after that of Secrets; the response to that
/// takes `takes`, if it arrives.
async fn second_after(takes: Option<Duration>) -> Duration {
    let (begun, told) = (Instant::now(), Arc::new(tokio::sync::Notify::new()));
    let asked = Arc::clone(&told);
    let service = service_fn(move |request: Request<Body>| {
        let asked = Arc::clone(&asked);
        async move {
            let uri = request.uri().to_string();
            match takes {
                _ if uri.contains("/configmaps?limit") => asked.notify_one(),
                Some(takes) if uri.contains("/secrets?limit") => tokio::time::sleep(takes).await,
                _ => return std::future::pending().await,
            }
            let list = r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#;
            Ok::<_, Infallible>(Response::new(Body::from(list.as_bytes().to_vec())))
        }
    });
    let client = Client::new(service, "default");
    let runtime = Runtime::new("oz", client, SystemClock);
    let feeds = runtime.feeds().clone();
    let mut watching = runtime.watching;
    let first: Store<Secret> = feeds.store();
    let _second: Store<ConfigMap> =
        feeds.store_after(Selection::default(), &Keep::default(), &first);
    tokio::select! {
        () = watching.run() => {}
        () = told.notified() => {}
    }
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_list_waits_for_one_that_comes_before_though_not_for_ever() {
    let takes = Duration::from_secs(2);
    assert_eq!(second_after(Some(takes)).await.as_secs(), 2);
    assert_eq!(second_after(None).await.as_secs(), LATEST.as_secs());
}
