//! The start and the end of the server: neither loses a call.

use std::{
    net::TcpListener,
    sync::Arc,
    time::{Duration, Instant},
};

use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use oz_admission::{
    CancellationToken, CertSource, Cx, Hook, Notes, RegistrationMode, Rejection, Replay, Review,
    Validate, Watch, WatchEvent, Watcher,
};
use tokio::{net::TcpStream, sync::Notify};

use crate::common::{
    manager,
    served::{LONG, Served, Yes, call1, connect, request, write_certificate, yes},
};

/// A handler that signals the start of a review, and waits for a signal to end it.
#[derive(Default)]
struct HeldReview {
    inside: Notify,
    out: Notify,
}

struct Wait(Arc<HeldReview>);

impl Validate for Wait {
    type Object = Pod;

    async fn validate(&self, _: &Cx, _: &Review<Pod>) -> Result<Notes, Rejection> {
        self.0.inside.notify_one();
        self.0.out.notified().await;
        Ok(Notes::none())
    }
}

#[tokio::test]
async fn draining_fails_readiness_first_and_finishes_open_calls() {
    let held = Arc::new(HeldReview::default());
    let builder = manager("acme")
        .hook(Hook::validating("wait", Wait(held.clone())))
        .hook(Hook::validating("yes", Yes))
        .drain(Duration::from_millis(300));
    let served = Served::start(builder).await;
    let under_way = tokio::spawn(call1(served.connect1().await, request("/validate/wait")));
    held.inside.notified().await;

    served.shutdown.cancel();
    served.until_ready(false).await;
    // Load balancers have not noticed yet, so calls still arrive and are answered.
    let late = call1(served.connect1().await, request("/validate/yes"))
        .await
        .unwrap();
    assert_eq!(late.status(), 200);
    // Further calls of a client use another connection.
    assert_eq!(late.headers()["connection"], "close");
    let began = Instant::now();
    while TcpStream::connect(served.address).await.is_ok() {
        assert!(began.elapsed() < LONG, "it still accepts");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(
        !served.ended.is_finished(),
        "it waits for the review under way"
    );
    held.out.notify_one();
    assert_eq!(under_way.await.unwrap().unwrap().status(), 200);
    tokio::time::timeout(LONG, served.ended)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let held = Arc::new(HeldReview::default());
    let builder = manager("acme")
        .hook(Hook::validating("wait", Wait(held.clone())).timeout(Duration::from_secs(30)))
        .drain(Duration::from_secs(600));
    let served = Served::start(builder).await;
    let under_way = tokio::spawn(call1(served.connect1().await, request("/validate/wait")));
    held.inside.notified().await;
    served.shutdown.cancel();
    served.until_ready(false).await;
    served.abort.cancel();
    tokio::time::timeout(LONG, served.ended)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(
        under_way.await.unwrap().is_err(),
        "what was under way is dropped"
    );
}

#[tokio::test]
async fn draining_http2_connection_finishes_its_streams() {
    let held = Arc::new(HeldReview::default());
    let builder = manager("acme")
        .hook(Hook::validating("wait", Wait(held.clone())))
        .drain(Duration::from_secs(600));
    let served = Served::start(builder).await;
    let stream = served.connect(b"h2", rustls::ALL_VERSIONS).await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    let mut request = request("/validate/wait");
    *request.uri_mut() = "https://127.0.0.1/validate/wait".parse().unwrap();
    let under_way = tokio::spawn(sender.send_request(request));
    held.inside.notified().await;

    served.shutdown.cancel();
    let began = Instant::now();
    while sender.ready().await.is_ok() {
        assert!(began.elapsed() < LONG, "no GOAWAY");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    held.out.notify_one();
    assert_eq!(under_way.await.unwrap().unwrap().status(), 200);
    let ended = tokio::time::timeout(LONG, connection).await;
    ended.expect("it stays open").unwrap().unwrap();
    served.abort.cancel();
}

/// Calls like an API server: call after call on a connection, until a response closes it.
async fn call_until_told_to_close(served: &Served) {
    let stream = served.connect1().await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    loop {
        let answer = sender.send_request(request("/validate/yes")).await;
        let answer = answer.expect("a call was lost");
        assert_eq!(answer.status(), 200);
        let last = answer.headers().contains_key("connection");
        answer
            .into_body()
            .collect()
            .await
            .expect("an answer was lost");
        if last {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_in_use_ends_with_an_answer_and_never_under_a_call() {
    let served = Served::start(yes()).await;
    let calls = futures::future::join_all((0..32).map(|_| call_until_told_to_close(&served)));
    let shutdown = async {
        // All clients have connected by then.
        while !served.metric("admission_connections 32").await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        served.shutdown.cancel();
    };
    tokio::time::timeout(LONG, futures::future::join(calls, shutdown))
        .await
        .unwrap();
    tokio::time::timeout(LONG, served.ended)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_handshake_before_there_is_a_certificate_waits_for_it() {
    let files = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let manager = yes()
        .listener(listener)
        .certificates(CertSource::Files {
            dir: files.path().to_owned(),
        })
        .registration(RegistrationMode::Never)
        .build()
        .unwrap();
    let shutdown = CancellationToken::new();
    let ended = tokio::spawn(manager.run(shutdown.clone().cancelled_owned()));
    let elsewhere = tempfile::tempdir().unwrap();
    let root = write_certificate(elsewhere.path());
    let handshake =
        tokio::spawn(
            async move { connect(address, b"http/1.1", rustls::ALL_VERSIONS, &root).await },
        );
    // The server had time to refuse the handshake.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!handshake.is_finished());
    for name in ["tls.key", "tls.crt"] {
        std::fs::copy(elsewhere.path().join(name), files.path().join(name)).unwrap();
    }
    let stream = handshake.await.unwrap().expect("it was refused");
    let answer = call1(stream, request("/validate/yes")).await.unwrap();
    assert_eq!(answer.status(), 200);
    shutdown.cancel();
    ended.await.unwrap().unwrap();
}

struct Ignore;

impl Watch for Ignore {
    type Object = ConfigMap;

    async fn on_event(&self, _: &Cx, _: WatchEvent<ConfigMap>) {}
}

#[tokio::test]
async fn a_process_that_only_watches_opens_no_port_and_waits_for_no_certificate() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let manager = manager("acme")
        .listen(taken.local_addr().unwrap())
        .watcher(Watcher::new("config", Replay::FromNow, Ignore))
        .build()
        .unwrap();
    let plain = manager.plain_router();
    let shutdown = CancellationToken::new();
    let run = tokio::spawn(manager.run(shutdown.clone().cancelled_owned()));
    let ready = axum::http::Request::get("/readyz").body(axum::body::Body::empty());
    let answer = tower::ServiceExt::oneshot(plain, ready.unwrap())
        .await
        .unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "waiting for: watch config");
    shutdown.cancel();
    run.await.unwrap().expect("it wanted the port");
}
