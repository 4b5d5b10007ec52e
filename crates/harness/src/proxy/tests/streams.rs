//! Bodies and streams of any size and duration.

use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::world::{HOST, World, get};

/// The number of parts of a large body, 64 KiB each.
const PARTS: usize = 512;

#[tokio::test]
async fn large_body_is_streamed_in_both_directions() {
    let world = World::start().await;
    let stream = world.tls(HOST).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let (parts, taken) = mpsc::channel::<Bytes>(1);
    let body = futures::stream::unfold(taken, |mut taken| async {
        let part = taken.recv().await?;
        Some((Ok::<_, hyper::Error>(Frame::data(part)), taken))
    });
    let request = Request::post("/echo").header("host", HOST);
    let request = request.body(StreamBody::new(Box::pin(body))).unwrap();
    let part = Bytes::from(vec![b'x'; 64 * 1024]);
    // The response begins before the request ends.
    let (response, _) = tokio::join!(sender.send_request(request), parts.send(part.clone()));
    let mut body = response.unwrap().into_body();
    let first = body.frame().await.unwrap().unwrap();
    let mut got = first.into_data().unwrap().len();
    let size = PARTS * part.len();
    tokio::spawn(async move {
        for _ in 1..PARTS {
            parts.send(part.clone()).await.unwrap();
        }
    });
    while let Some(frame) = body.frame().await {
        got += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(got, size);
}

#[tokio::test]
async fn event_stream_is_not_buffered() {
    let world = World::start().await;
    let (events, taken) = mpsc::channel(1);
    *world.upstream.seen.events.lock() = Some(taken);
    let mut client = world.client(HOST).await;
    let response = client.send(get("/events").body(Full::default()).unwrap());
    let mut body = response.await.into_body();
    for number in 0..5 {
        let event = Bytes::from(format!("data: {number}\n\n"));
        events.send(event.clone()).await.unwrap();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), event);
    }
    drop(events);
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn websocket_is_copied_in_both_directions() {
    let world = World::start().await;
    let mut client = world.client(HOST).await;
    let request = get("/ws")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .body(Full::default())
        .unwrap();
    let response = client.send(request).await;
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut socket = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    for message in [&b"\x81\x01a"[..], b"\x81\x01b"] {
        socket.write_all(message).await.unwrap();
        let mut echo = [0; 3];
        socket.read_exact(&mut echo).await.unwrap();
        assert_eq!(echo, message);
    }
    // It is cut like any other connection.
    world.broker.change(|grants| grants.hosts.clear()).await;
    assert!(!matches!(socket.read(&mut [0; 8]).await, Ok(1..)));
}

/// A client that reads nothing: the proxy does not read the host's body into memory.
#[tokio::test]
async fn slow_reader_slows_the_host() {
    let world = World::start().await;
    let (events, taken) = mpsc::channel(1);
    *world.upstream.seen.events.lock() = Some(taken);
    let mut client = world.client(HOST).await;
    let response = client.send(get("/events").body(Full::default()).unwrap());
    let body = response.await.into_body();
    let part = Bytes::from(vec![b'x'; 1024 * 1024]);
    let mut sent = 0;
    // The buffers of sockets take some; then nothing moves, until the client reads.
    loop {
        tokio::select! {
            biased;
            result = events.send(part.clone()) => result.unwrap(),
            () = idle() => break,
        }
        sent += 1;
        assert!(sent < 256, "the host is not slowed");
    }
    drop(events);
    let all = body.collect().await.unwrap().to_bytes();
    assert_eq!(all.len(), sent * part.len());
}

/// Returns when all tasks of this thread and the sockets between them have been idle for many turns.
async fn idle() {
    for _ in 0..20_000 {
        tokio::task::yield_now().await;
    }
}
