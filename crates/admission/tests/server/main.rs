//! The server on real sockets, without a cluster: protocols, limits, and shutdown.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
mod draining;

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use common::served::{LONG, Served, call1, read_to_end, request, write_certificate, yes};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use oz_admission::Limits;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

#[tokio::test]
async fn both_protocols_are_spoken_over_both_versions_of_tls() {
    let served = Served::start(yes()).await;
    for versions in [&[&rustls::version::TLS12], &[&rustls::version::TLS13]] {
        let stream = served.connect(b"http/1.1", versions).await;
        assert_eq!(
            call1(stream, request("/validate/yes"))
                .await
                .unwrap()
                .status(),
            200
        );

        let stream = served.connect(b"h2", versions).await;
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        let path = format!("https://{}/validate/yes", served.address);
        let response = sender.send_request(request(&path)).await.unwrap();
        assert_eq!(
            (response.status(), response.version()),
            (StatusCode::OK, hyper::Version::HTTP_2)
        );
    }
}

#[tokio::test]
async fn a_head_that_dribbles_in_is_shed_however_alive_it_looks() {
    let limits = Limits {
        receive: Duration::from_millis(400),
        ..Limits::default()
    };
    let served = Served::start(yes().limits(limits)).await;
    let stream = served.connect1().await;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let dribble = tokio::spawn(async move {
        let _ = writer
            .write_all(b"POST /validate/yes HTTP/1.1\r\nx-slow: ")
            .await;
        while writer.write_all(b"a").await.is_ok() {
            let _ = writer.flush().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(LONG, reader.read_to_end(&mut bytes))
        .await
        .expect("still open");
    dribble.abort();
    assert!(
        served
            .metric("admission_refused_total{name=\"slow_head\"} 1")
            .await
    );
}

#[tokio::test]
async fn an_idle_connection_is_kept_for_its_next_request() {
    let limits = Limits {
        receive: Duration::from_millis(100),
        ..Limits::default()
    };
    let served = Served::start(yes().limits(limits)).await;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(served.connect1().await))
            .await
            .unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        let response = sender.send_request(request("/validate/yes")).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.unwrap();
        // The connection idles for several times the limit on requests that have begun.
        tokio::time::sleep(Duration::from_millis(400)).await;
        sender.ready().await.unwrap();
    }
}

#[tokio::test]
async fn a_connection_that_never_shakes_hands_is_shed() {
    let limits = Limits {
        handshake: Duration::from_millis(200),
        ..Limits::default()
    };
    let served = Served::start(yes().limits(limits)).await;
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(LONG, silent.read_to_end(&mut bytes))
        .await
        .expect("still open");
    assert!(
        served
            .metric("admission_refused_total{name=\"slow_handshake\"} 1")
            .await
    );
}

#[tokio::test]
async fn silent_connections_are_closed() {
    let limits = Limits {
        idle: Duration::from_millis(400),
        receive: Duration::from_millis(300),
        ..Limits::default()
    };
    let served = Served::start(yes().limits(limits)).await;
    let mut http1 = served.connect1().await;
    read_to_end(&mut http1).await;

    // The client sends its preface, and then nothing, not even a response to a ping.
    let mut http2 = served.connect(b"h2", rustls::ALL_VERSIONS).await;
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    http2
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    http2.write_all(&settings).await.unwrap();
    http2.flush().await.unwrap();
    read_to_end(&mut http2).await;
}

#[tokio::test]
async fn a_body_that_stops_half_way_is_answered_and_shed() {
    let limits = Limits {
        receive: Duration::from_millis(300),
        ..Limits::default()
    };
    let served = Served::start(yes().limits(limits)).await;
    let mut stream = served.connect1().await;
    let head = "POST /validate/yes HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[tokio::test]
async fn too_large_a_head_is_refused() {
    let limits = Limits {
        head: 8 << 10,
        ..Limits::default()
    };
    let served = Served::start(yes().limits(limits)).await;
    let mut stream = served.connect1().await;
    let head = format!(
        "POST /validate/yes HTTP/1.1\r\nx-large: {}\r\n\r\n",
        "a".repeat(64 << 10)
    );
    let _ = stream.write_all(head.as_bytes()).await;
    let answer = read_to_end(&mut stream).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    assert_eq!(
        call1(served.connect1().await, request("/validate/yes"))
            .await
            .unwrap()
            .status(),
        200
    );
}

#[tokio::test]
async fn connections_over_the_limit_have_one_answer_each() {
    let limits = Limits {
        connections: 1,
        ..Limits::default()
    };
    let served = Served::start(yes().limits(limits)).await;
    let asks = "POST /validate/yes HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}";
    let mut first = served.connect1().await;
    let mut second = served.connect1().await;
    for stream in [&mut first, &mut second] {
        stream.write_all(asks.as_bytes()).await.unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 400");
    }
    read_to_end(&mut second).await;
    first.write_all(asks.as_bytes()).await.unwrap();
    drop(served.shutdown.clone().drop_guard());
    let answers = read_to_end(&mut first).await;
    assert!(answers.contains("HTTP/1.1 400"), "{answers}");
}

#[tokio::test]
async fn files_that_change_are_taken_up_and_broken_ones_are_not() {
    let mut served = Served::start(yes()).await;
    let kept = served.connect1().await;
    std::fs::write(served.files.path().join("tls.crt"), "half written").unwrap();
    call1(served.connect1().await, request("/validate/yes"))
        .await
        .unwrap();

    let new = write_certificate(served.files.path());
    let began = Instant::now();
    loop {
        let stream = served
            .connect_with(b"http/1.1", rustls::ALL_VERSIONS, &new)
            .await;
        if stream.is_ok() {
            break;
        }
        assert!(
            began.elapsed() < LONG,
            "the new certificate is never served"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // An open connection keeps the certificate of its handshake.
    assert_eq!(
        call1(kept, request("/validate/yes"))
            .await
            .unwrap()
            .status(),
        200
    );
    served.root = new;
    call1(served.connect1().await, request("/validate/yes"))
        .await
        .unwrap();
}
